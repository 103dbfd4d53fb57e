package features

import (
	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/features/quarantine"
)

func init() {
	features = append(features, func(s *Set) {
		q := quarantine.New(s.Engine)
		s.suspectHold = q.Hold
		s.types = append(s.types, func(t *engine.Type, _ TypeSettings) { q.Attach(t) })
	})
}
