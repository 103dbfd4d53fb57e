package main

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/compensator-go/compensator/admin"
)

func (p *program) newStatsCommand() *cobra.Command {
	var span, period time.Duration
	var businessType string
	cmd := p.newLogCommand("stats", "Show for each type how many entries ended, how long attempts took and how late they began. The numbers are missing unless services set Operations.Statistics",
		cobra.NoArgs, operateAccess,
		func(ctx context.Context, s *session, _ []string) error {
			if span < time.Minute || span > 100*24*time.Hour {
				return newUsageError("--over %v: give 1m to 2400h", span)
			}
			if period < 0 || period%time.Minute != 0 {
				return newUsageError("--period %v: give a whole number of minutes", period)
			}
			now, err := s.store.StatsClock(ctx)
			if err != nil {
				return err
			}
			filter := admin.StatFilter{From: now.Add(-span), To: now.Add(time.Minute), Period: period, BusinessType: businessType}
			if period == 0 {
				filter.Period = span.Truncate(time.Minute)
			}
			stats, err := admin.Of(s.c).Statistics(ctx, filter)
			if err != nil {
				return err
			}
			stats = slices.DeleteFunc(stats, func(stat admin.Stat) bool {
				return !s.May(ctx, s.actor, admin.SeeOverview, admin.Subject{Type: stat.BusinessType})
			})
			if period == 0 {
				stats = sumsByType(stats, filter.From)
			}
			p.nameDeploys(ctx, s, filter)
			l := statsListing(stats)
			if period == 0 {
				s.addBacklog(ctx, &l, stats)
			}
			return p.print(l)
		})
	cmd.Flags().DurationVar(&span, "over", 3*time.Hour, "show the counts of this last period")
	cmd.Flags().DurationVar(&period, "period", 0, "one row for each period of this length, such as 10m, instead of one for the whole time")
	cmd.Flags().StringVar(&businessType, "type", "", "show only this type")
	return cmd
}

// nameDeploys prints which builds began to run in the period of the filter. If the builds cannot be read, nameDeploys
// ignores the error, because the counts are useful without the builds.
func (p *program) nameDeploys(ctx context.Context, s *session, filter admin.StatFilter) {
	found, err := s.Instances(ctx, s.actor)
	if err != nil {
		return
	}
	for _, d := range found.Deploys {
		if !d.At.Before(filter.From) && d.At.Before(filter.To) {
			p.printf("%s build %s began to run", d.At.UTC().Format(time.RFC3339), d.Build)
		}
	}
}

func sumsByType(stats []admin.Stat, from time.Time) (sums []admin.Stat) {
	for _, stat := range stats {
		i := slices.IndexFunc(sums, func(sum admin.Stat) bool { return sum.BusinessType == stat.BusinessType })
		if i < 0 {
			stat.At = from
			sums = append(sums, stat)
			continue
		}
		sums[i].Add(stat.StatCounts)
	}
	return sums
}

func statsListing(stats []admin.Stat) listing {
	l := listing{kind: "stat", columns: []column{{"from", "FROM"}, {"type", "TYPE"}, {"recorded", "RECORDED"}, {"started", "STARTED"}, {"succeeded", "SUCCEEDED"},
		{"compensated", "COMPENSATED"}, {"failed", "FAILED"}, {"dead", "DEAD"},
		{"took_p50_ms", "TOOK P50 MS"}, {"took_p95_ms", "P95 MS"}, {"late_p50_ms", "LATE P50 MS"}, {"late_p99_ms", "P99 MS"}}}
	quantile := func(h admin.Histogram, q float64) any {
		d, ok := h.Quantile(q)
		if !ok {
			return nil
		}
		return int(d.Milliseconds())
	}
	for i := range stats {
		c := &stats[i].StatCounts
		l.rows = append(l.rows, []any{stats[i].At, stats[i].BusinessType, int(c.Recorded), int(c.Started), int(c.Succeeded), int(c.Compensated), int(c.Failed), int(c.Dead),
			quantile(c.Took, 0.5), quantile(c.Took, 0.95), quantile(c.Late, 0.5), quantile(c.Late, 0.99)})
	}
	return l
}

func (s *session) addBacklog(ctx context.Context, l *listing, stats []admin.Stat) {
	overview := admin.Overview{Types: make([]admin.TypeOverview, len(stats))}
	for i, stat := range stats {
		overview.Types[i].Type = stat.BusinessType
	}
	overview.AddBacklog(s.readBacklog(ctx))
	l.columns = append(l.columns, column{"waiting", "WAITING"}, column{"due", "DUE"}, column{"overdue", "OVERDUE"}, column{"backlog_age_seconds", ""})
	for i, t := range overview.Types {
		if b := t.Backlog; b != nil {
			l.rows[i] = append(l.rows[i], b.Pending+b.Retrying+b.Compensating, b.Due, b.Overdue, overview.BacklogAge)
		} else {
			l.rows[i] = append(l.rows[i], nil, nil, nil, nil)
		}
	}
}
