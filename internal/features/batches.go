package features

import (
	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/features/batches"
)

func init() {
	features = append(features, func(s *Set) {
		all := batches.New(s.Engine)
		s.batch = func(t *engine.Type, b Batch) { all.Attach(t, batches.Settings(b)) }
	})
}
