package features

import (
	"context"

	"github.com/compensator-go/compensator/internal/features/health"
	"github.com/compensator-go/compensator/observe"
)

func init() {
	features = append(features, func(s *Set) {
		health.Attach(s.Engine)
		s.Health = func(ctx context.Context) observe.Health { return health.Of(ctx, s.Engine, s.PingQueue) }
	})
}
