package features

import "github.com/compensator-go/compensator/internal/features/readback"

func init() {
	features = append(features, func(s *Set) { readback.Attach(s.Engine) })
}
