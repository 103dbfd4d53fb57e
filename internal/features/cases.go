package features

import "github.com/compensator-go/compensator/internal/features/cases"

func init() {
	features = append(features, func(s *Set) {
		if s.cfg.CaseOf != nil {
			cases.Attach(s.Engine, s.cfg.CaseOf)
		}
	})
}
