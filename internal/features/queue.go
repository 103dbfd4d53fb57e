package features

import (
	"context"

	"github.com/compensator-go/compensator/internal/features/queue"
)

func init() {
	features = append(features, func(s *Set) {
		if s.cfg.Queue.Queue == nil {
			return // the database alone says what is due
		}
		q := queue.New(s.Engine, queue.Config(s.cfg.Queue))
		s.Engine.SetSource(q)
		s.Engine.AskQueue = q.Ask
		s.beforeRun = append(s.beforeRun, q.BeforeRun)
		s.loops = append(s.loops, q.Look, q.Restore, func(ctx context.Context) { q.Queue.Listen(ctx, s.Engine.Notify) })
	})
}
