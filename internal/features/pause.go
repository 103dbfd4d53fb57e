package features

import (
	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/features/pause"
)

func init() {
	features = append(features, func(s *Set) {
		if s.cfg.Paused == nil {
			return
		}
		p := pause.New(s.Engine, s.cfg.Paused)
		s.Paused = p.Paused
		s.types = append(s.types, func(t *engine.Type, _ TypeSettings) { p.Attach(t) })
		s.beforeRun = append(s.beforeRun, p.Look)
		s.loops = append(s.loops, p.Keep)
	})
}
