package features

import (
	"context"

	"github.com/compensator-go/compensator/internal/features/invalidrows"
)

func init() {
	features = append(features, func(s *Set) {
		s.loops = append(s.loops, func(ctx context.Context) { invalidrows.Watch(ctx, s.Engine) })
	})
}
