package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/compensator-go/compensator/admin"
)

func (p *program) newInstancesCommand() *cobra.Command {
	return p.newLogCommand("instances", "List the processes: their versions, when they were last seen, their types and how busy they are. The list is empty unless services set Operations.Instances",
		cobra.NoArgs, readAccess,
		func(ctx context.Context, s *session, _ []string) error {
			found, err := s.Instances(ctx, s.actor)
			if err != nil {
				return err
			}
			if len(found.Libraries) > 1 || len(found.Builds) > 1 {
				p.printf("live processes have different versions: library %s; service %s", strings.Join(found.Libraries, ", "), strings.Join(found.Builds, ", "))
			}
			return p.print(newInstanceListing(found.List))
		})
}

func newInstanceListing(instances []admin.Instance) listing {
	l := listing{kind: "instance", columns: []column{{"name", "PROCESS"}, {"state", "STATE"}, {"unseen_seconds", "SEEN BEFORE"}, {"running", "RUNS"}, {"queue", "QUEUE"}, {"build", "VERSION"}, {"library", "LIBRARY"},
		{"started_at", "STARTED"}, {"handlers", "HANDLERS"}, {"slots", "SLOTS"}, {"stuck", "STUCK"}, {"types", "TYPES"}, {"seen_at", ""}, {"ended_at", ""}, {"id", ""}}}
	for _, i := range instances {
		var running, slots, stuck int
		var types []string
		for _, t := range i.Types {
			running, slots, stuck = running+t.Running, slots+t.Slots, stuck+t.Stuck
			if t.Slots > 0 {
				types = append(types, fmt.Sprintf("%s %d/%d", t.Name, t.Running, t.Slots))
			}
		}
		l.rows = append(l.rows, []any{i.Name, string(i.State()), i.Unseen, i.Running, string(i.Queue), i.Build, i.Library, i.StartedAt, running, slots, stuck, strings.Join(types, ", "), i.SeenAt, i.EndedAt, i.ID.String()})
	}
	return l
}
