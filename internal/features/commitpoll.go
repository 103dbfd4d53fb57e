package features

import "github.com/compensator-go/compensator/internal/features/commitpoll"

func init() {
	features = append(features, func(s *Set) { commitpoll.Attach(s.Engine) })
}
