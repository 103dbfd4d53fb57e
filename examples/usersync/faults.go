package main

import (
	"context"
	"time"

	"github.com/compensator-go/compensator/examples/internal/faults"
)

func (s *scene) strike(ctx context.Context, span time.Duration) error {
	processes := make([]faults.Process, len(s.instances))
	for i, one := range s.instances {
		processes[i] = one
	}
	return faults.Strike(ctx, faults.Plan(s.kills, processes, s.faults), span, func(ctx context.Context, subject string) error {
		_, err := s.db.ExecContext(ctx, `INSERT INTO usersync_faults (what, struck_at) VALUES (?, UTC_TIMESTAMP(3))`, subject)
		return err
	})
}

func pause(ctx context.Context, d time.Duration) bool { return faults.Pause(ctx, d) }
