package features

import (
	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/features/rollback"
)

func init() {
	features = append(features, func(s *Set) {
		d := rollback.New(s.Engine, s.cfg.StopOnLoss, func(entries []engine.RecordedEntry) { s.reportMissing(entries) })
		s.Lost, s.AcceptLoss = d.Lost, d.Accept
		if !s.cfg.IgnoreLoss {
			d.Watch()
		}
	})
}
