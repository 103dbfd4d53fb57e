package features

import (
	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/features/limits"
)

func init() {
	features = append(features, func(s *Set) {
		l := limits.New(s.Engine)
		s.Limited = l.Waiting
		s.limit = func(limit Limit) (func(t *engine.Type), error) { return l.With(limits.Settings(limit)) }
	})
}
