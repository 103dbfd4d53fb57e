package features

import "github.com/compensator-go/compensator/internal/features/statistics"

func init() {
	features = append(features, func(s *Set) {
		if s.cfg.Stats == nil {
			return
		}
		counter := statistics.Attach(s.Engine, s.cfg.Stats)
		s.begin = append(s.begin, counter.Begin)
		s.Busy = counter.Busy
	})
}
