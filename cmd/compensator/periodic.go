package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/compensator-go/compensator/admin"
)

func (p *program) newPeriodicCommand() *cobra.Command {
	return p.newLogCommand("periodic", "List the periodic types with their last slot (scheduled time) and its entry, the next slots, and missed slots. The next slots are empty unless services set Operations.Instances",
		cobra.NoArgs, operateAccess,
		func(ctx context.Context, s *session, _ []string) error {
			found, err := s.Periodic(ctx, s.actor)
			if err != nil {
				return err
			}
			return p.print(newPeriodicListing(found.Types))
		})
}

func newPeriodicListing(types []admin.PeriodicType) listing {
	l := listing{kind: "periodic type", columns: []column{{"business_type", "TYPE"}, {"last", "LAST SLOT"}, {"entry_id", "ENTRY"}, {"state", "STATE"}, {"ended_at", "ENDED"},
		{"next", "NEXT SLOT"}, {"next_2", ""}, {"next_3", ""}, {"missed", "MISSED"}, {"missed_at", "FIRST MISSED"}, {"schedule", "SCHEDULE"}, {"process", "PROCESS"}}}
	for _, t := range types {
		var next [3]time.Time
		copy(next[:], t.Next)
		id, state := "", ""
		if !t.Entry.IsZero() {
			id, state = t.Entry.String(), t.State.String()
		}
		schedule := string(t.Schedule)
		if schedule == "" {
			schedule = "unknown"
		}
		l.rows = append(l.rows, []any{t.Type, t.Last, id, state, t.Ended, next[0], next[1], next[2], t.Missed, t.MissedAt, schedule, t.Process})
	}
	return l
}
