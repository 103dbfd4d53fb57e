package features

import (
	"context"

	"github.com/compensator-go/compensator/internal/features/queue"
)

func init() {
	features = append(features, func(s *Set) {
		cfg := queue.Config{
			Queue: s.cfg.Queue.Queue, Down: s.cfg.Queue.Down, Fingerprint: s.cfg.Queue.Fingerprint,
			Horizon: s.cfg.Queue.Horizon, Limit: s.cfg.Queue.Limit,
		}
		if cfg.Queue == nil {
			if localQueue == nil {
				return
			}
			cfg.Queue, cfg.Local = localQueue(), true
		}
		q := queue.New(s.Engine, cfg)
		s.Engine.SetSource(q)
		s.Engine.AskQueue = q.Ask
		s.beforeRun = append(s.beforeRun, q.BeforeRun)
		s.loops = append(s.loops, q.Look, q.Restore, func(ctx context.Context) { q.Queue.Listen(ctx, s.Engine.Notify) })
	})
}
