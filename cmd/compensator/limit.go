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

func (p *program) newLimitsCommand() *cobra.Command {
	return p.newLogCommand("limits", "List the limits: how many entries may start in a period of time, and how many may run at once, in all services together", cobra.NoArgs, readAccess,
		func(ctx context.Context, s *session, _ []string) error {
			limits, err := s.Limits(ctx, s.actor)
			if err != nil {
				return err
			}
			l := listing{kind: "limit", columns: []column{{"name", "LIMIT"}, {"starts", "STARTS"}, {"per_seconds", "IN"}, {"burst", "BURST"}, {"concurrent", "AT ONCE"}, {"keyed", "EACH KEY"},
				{"business_types", "TYPES"}, {"used_up", "USED UP"}, {"free_at", "UNTIL"}, {"changed_by", "CHANGED BY"}, {"changed_reason", "WHY"}, {"changed_at", ""}, {"version", ""}}}
			for _, limit := range limits {
				starts, unit := limit.Rate()
				var by, why string
				var at time.Time
				if limit.Changed() {
					by, why, at = limit.Actor, limit.Reason, limit.At
				}
				l.rows = append(l.rows, []any{limit.Name, starts, unit, limit.Burst, limit.Concurrent, limit.Keyed, strings.Join(limit.Types, ", "), limit.UsedUp, limit.FreeAt, by, why, at, digits(fmt.Sprint(limit.Version))})
			}
			return p.print(l)
		})
}

// usedUpLimits returns the limits that allow no start now, by business type. If the database returns an error,
// usedUpLimits prints the error and returns an empty map.
func (p *program) usedUpLimits(ctx context.Context, s *session) map[string]admin.Limit {
	limits, err := s.Limits(ctx, s.actor)
	if err != nil {
		p.printf("limits unknown: %v", err)
	}
	usedUp := make(map[string]admin.Limit)
	for _, limit := range limits {
		for _, name := range limit.Types {
			if limit.UsedUp {
				usedUp[name] = limit
			}
		}
	}
	return usedUp
}

func untilText(l admin.Limit) string {
	if l.FreeAt.IsZero() {
		return "until an entry has ended"
	}
	return "until " + formatTable(l.FreeAt)
}

// newLimitCommand returns a command that changes only the values for which the person has given a flag.
func (p *program) newLimitCommand() *cobra.Command {
	var rate string
	var burst, concurrent int
	var isReset bool
	var cmd *cobra.Command
	cmd = p.newNamedCommand("limit <name>", "Change a limit on starts in all services, or go back to the program's own values with --reset", func(ctx context.Context, s *session, name string, why admin.Why, isConfirmed bool) error {
		isChanged := cmd.Flags().Changed
		if isReset == (isChanged("rate") || isChanged("burst") || isChanged("concurrent")) {
			return newUsageError("give --rate, --burst or --concurrent, or else --reset")
		}
		limits, err := s.Limits(ctx, s.actor)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(limits, func(l admin.Limit) bool { return l.Name == name })
		if at < 0 {
			return missingError{fmt.Sprintf("no entry was claimed under a limit %q: see \"compensator limits\"", name)}
		}
		current, values := limits[at], admin.LimitValues{}
		if !isReset {
			values = current.Person
			if isChanged("rate") {
				if values.Interval, err = parseRate(rate); err != nil {
					return err
				}
			}
			if isChanged("burst") {
				values.Burst = burst
			}
			if isChanged("concurrent") {
				values.Concurrent = concurrent
			}
		}
		if current.Changed() {
			p.printf("changed by %s at %s: %s", current.Actor, formatTable(current.At), current.Reason)
		}
		if err := p.confirmUnless(ctx, isConfirmed, "limit", name); err != nil {
			return err
		}
		return s.ChangeLimit(ctx, s.actor, current, values, why)
	})
	cmd.Flags().StringVar(&rate, "rate", "", "starts in a period of time, for example 20/s, 100/m or 5000/24h")
	cmd.Flags().IntVar(&burst, "burst", 0, "number of entries that may start at the same moment after a time with no starts; 0 means the program's own value")
	cmd.Flags().IntVar(&concurrent, "concurrent", 0, "number of entries that may run at once; 0 means the program's own value")
	cmd.Flags().BoolVar(&isReset, "reset", false, "go back to the program's own values")
	return cmd
}

// parseRate parses a rate such as 20/s, and returns the time between two starts.
func parseRate(text string) (time.Duration, error) {
	starts, unit, _ := strings.Cut(text, "/")
	if unit != "" && strings.Trim(unit, "smh") == "" {
		unit = "1" + unit
	}
	n, err := strconv.ParseInt(starts, 10, 64)
	period, durationErr := time.ParseDuration(unit)
	if err != nil || durationErr != nil || n < 1 || period <= 0 {
		return 0, newUsageError("--rate %q: want for example 20/s, 100/m or 5000/24h", text)
	}
	return admin.Interval(n, period), nil
}
