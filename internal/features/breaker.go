package features

import (
	"cmp"
	"slices"
	"sync"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/features/breaker"
	"github.com/compensator-go/compensator/observe"
)

func init() {
	features = append(features, func(s *Set) {
		var mu sync.Mutex // guards all
		var all []*breaker.Breaker
		s.types = append(s.types, func(t *engine.Type, settings TypeSettings) {
			if settings.Breaker == (Breaker{}) {
				return
			}
			b := breaker.Attach(s.Engine, t, breaker.Settings(settings.Breaker))
			mu.Lock()
			defer mu.Unlock()
			all = append(all, b)
		})
		s.OpenBreakers = func() (open []observe.OpenBreaker) {
			mu.Lock()
			defer mu.Unlock()
			for _, b := range all {
				if state := b.Current(); state != nil {
					open = append(open, *state)
				}
			}
			slices.SortFunc(open, func(a, b observe.OpenBreaker) int { return cmp.Compare(a.BusinessType, b.BusinessType) })
			return open
		}
	})
}
