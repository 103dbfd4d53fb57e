package features

import (
	"context"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/features/ordering"
)

func init() {
	features = append(features, func(s *Set) {
		o := ordering.New(s.Engine)
		s.types = append(s.types, func(t *engine.Type, _ TypeSettings) { o.Attach(t) })
		s.Serialize = func(ctx context.Context, businessType string, serial Serial) error {
			return o.Serialize(ctx, businessType, ordering.Serial(serial))
		}
		s.AdvanceKeys, s.Blocked = o.AdvanceKeys, o.Blocked
	})
}
