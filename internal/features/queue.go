package features

import (
	"context"

	"github.com/compensator-go/compensator/internal/features/queue"
)

func init() {
	features = append(features, func(s *Set) {
		cfg := queue.Config(s.cfg.Queue)
		local := cfg.Queue == nil
		if local {
			if localQueue == nil {
				return
			}
			cfg.Queue = localQueue()
		}
		q := queue.New(s.Engine, cfg, local)
		s.PingQueue = q.Ping
		s.beforeRun = append(s.beforeRun, q.BeforeRun)
		listen := func(ctx context.Context) {
			q.Queue.Listen(ctx, func(message string) {
				if !s.handleMessage(message) {
					q.Notified(message)
				}
			})
		}
		s.loops = append(s.loops, q.Look, q.Restore, listen)
		if !local {
			s.notify, s.listen, s.queueReached = q.Notify, listen, q.Reached
		}
	})
}
