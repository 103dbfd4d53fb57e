package features

import (
	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/features/limits"
	"github.com/compensator-go/compensator/processlog"
)

func init() {
	features = append(features, func(s *Set) {
		l := limits.New(s.Engine)
		s.Limited = l.Waiting
		s.loops = append(s.loops, l.ReturnAdvances)
		s.LimitKey = func(limit Limit, row *processlog.Row) (string, bool, error) {
			settings := limits.Settings(limit)
			return settings.KeyOf(row)
		}
		s.limit = func(limit Limit) (func(t *engine.Type), error) { return l.With(limits.Settings(limit)) }
	})
}
