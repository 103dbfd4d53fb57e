package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
)

func (p *program) limits() *cobra.Command {
	return p.onLog("limits", "List the limits on starts: how many entries start in a period of time and run at once, over all services", cobra.NoArgs, toRead,
		func(ctx context.Context, s *session, _ []string) error {
			limits, err := s.Limits(ctx, s.actor)
			if err != nil {
				return err
			}
			l := listing{kind: "limit", columns: []column{{"name", "LIMIT"}, {"starts", "STARTS"}, {"per_seconds", "IN"}, {"burst", "BURST"}, {"concurrent", "AT ONCE"}, {"keyed", "EACH KEY"},
				{"business_types", "TYPES"}}}
			for _, limit := range limits {
				starts, per := limit.Rate()
				l.rows = append(l.rows, []any{limit.Name, starts, per, limit.Burst, limit.Concurrent, limit.Keyed, strings.Join(limit.Types, ", ")})
			}
			return p.print(l)
		})
}
