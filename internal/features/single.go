package features

import (
	"context"

	"github.com/compensator-go/compensator/internal/features/single"
	"github.com/compensator-go/compensator/processlog"
)

func init() {
	features = append(features, func(s *Set) {
		s.Attempt = func(ctx context.Context, id processlog.ID) error { return single.Attempt(ctx, s.Engine, id) }
	})
}
