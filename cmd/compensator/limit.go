package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/compensator-go/compensator/admin"
)

func (p *program) limits() *cobra.Command {
	return p.onLog("limits", "List the limits on starts: how many entries start in a period of time and run at once, over all services", cobra.NoArgs, toRead,
		func(ctx context.Context, s *session, _ []string) error {
			limits, err := s.Limits(ctx, s.actor)
			if err != nil {
				return err
			}
			l := listing{kind: "limit", columns: []column{{"name", "LIMIT"}, {"starts", "STARTS"}, {"per_seconds", "IN"}, {"burst", "BURST"}, {"concurrent", "AT ONCE"}, {"keyed", "EACH KEY"},
				{"business_types", "TYPES"}, {"used_up", "USED UP"}, {"free_at", "UNTIL"}, {"changed_by", "CHANGED BY"}, {"changed_reason", "WHY"}, {"changed_at", ""}, {"version", ""}}}
			for _, limit := range limits {
				starts, per := limit.Rate()
				var by, why string
				var at time.Time
				if limit.Changed() {
					by, why, at = limit.Actor, limit.Reason, limit.At
				}
				l.rows = append(l.rows, []any{limit.Name, starts, per, limit.Burst, limit.Concurrent, limit.Keyed, strings.Join(limit.Types, ", "), limit.UsedUp, limit.FreeAt, by, why, at, digits(fmt.Sprint(limit.Version))})
			}
			return p.print(l)
		})
}

// usedUp returns the limits that allow no start now, by business type. If they cannot be read, usedUp says so and returns none.
func (p *program) usedUp(ctx context.Context, s *session) map[string]admin.Limit {
	limits, err := s.Limits(ctx, s.actor)
	if err != nil {
		p.say("limits unknown: %v", err)
	}
	used := make(map[string]admin.Limit)
	for _, limit := range limits {
		for _, name := range limit.Types {
			if limit.UsedUp {
				used[name] = limit
			}
		}
	}
	return used
}

// untilText says until when a limit is used up.
func untilText(l admin.Limit) string {
	if l.FreeAt.IsZero() {
		return "until an entry has ended"
	}
	return "until " + forTable(l.FreeAt)
}

// limit changes the values of a limit. Values without a flag stay as they are.
func (p *program) limit() *cobra.Command {
	var rate string
	var burst, concurrent int
	var reset bool
	var cmd *cobra.Command
	cmd = p.onNamed("limit <name>", "Change a limit on starts in all services, or go back to the program's own values with --reset", func(ctx context.Context, s *session, name string, why admin.Why, yes bool) error {
		given := cmd.Flags().Changed
		if reset == (given("rate") || given("burst") || given("concurrent")) {
			return usage("give --rate, --burst or --concurrent, or else --reset")
		}
		limits, err := s.Limits(ctx, s.actor)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(limits, func(l admin.Limit) bool { return l.Name == name })
		if at < 0 {
			return missingError{fmt.Sprintf("no entry was claimed under a limit %q: see \"compensator limits\"", name)}
		}
		seen, values := limits[at], admin.LimitValues{}
		if !reset {
			values = seen.Person
			if given("rate") {
				if values.Interval, err = parseRate(rate); err != nil {
					return err
				}
			}
			if given("burst") {
				values.Burst = burst
			}
			if given("concurrent") {
				values.Concurrent = concurrent
			}
		}
		if seen.Changed() {
			p.say("changed by %s at %s: %s", seen.Actor, forTable(seen.At), seen.Reason)
		}
		if err := p.sure(ctx, yes, "limit", name); err != nil {
			return err
		}
		return s.ChangeLimit(ctx, s.actor, seen, values, why)
	})
	cmd.Flags().StringVar(&rate, "rate", "", "starts in a period of time, for example 20/s, 100/m or 5000/24h")
	cmd.Flags().IntVar(&burst, "burst", 0, "starts that may follow each other at once after a pause; 0: as the program")
	cmd.Flags().IntVar(&concurrent, "concurrent", 0, "entries that may run at once; 0: as the program")
	cmd.Flags().BoolVar(&reset, "reset", false, "go back to the program's own values")
	return cmd
}

// parseRate parses a rate such as 20/s, and returns the time between two starts.
func parseRate(text string) (time.Duration, error) {
	starts, per, _ := strings.Cut(text, "/")
	if per != "" && strings.Trim(per, "smh") == "" {
		per = "1" + per
	}
	n, err := strconv.ParseInt(starts, 10, 64)
	period, wrong := time.ParseDuration(per)
	if err != nil || wrong != nil || n < 1 || period <= 0 {
		return 0, usage("--rate %q: want for example 20/s, 100/m or 5000/24h", text)
	}
	return admin.Interval(n, period), nil
}
