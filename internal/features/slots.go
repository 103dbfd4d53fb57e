package features

import (
	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/features/slots"
)

func init() {
	features = append(features, func(s *Set) {
		s.types = append(s.types, func(t *engine.Type, _ TypeSettings) { slots.Attach(t) })
	})
}
