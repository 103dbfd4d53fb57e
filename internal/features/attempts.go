package features

import "github.com/compensator-go/compensator/internal/features/attempts"

func init() {
	features = append(features, func(s *Set) {
		if s.cfg.ScrubAttempt == nil {
			return
		}
		attempts.Attach(s.Engine, s.cfg.Instance, s.cfg.ScrubAttempt)
	})
}
