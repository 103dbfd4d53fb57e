package features

import (
	"context"

	"github.com/compensator-go/compensator/internal/features/periodic"
)

func init() {
	features = append(features, func(s *Set) {
		// Maintenance may take long.
		types, maintenance := periodic.New(s.Engine), periodic.New(s.Engine)
		s.Recur = func(ctx context.Context, p Period) error {
			if p.Problem != "" {
				return maintenance.Add(ctx, periodic.Period(p))
			}
			return types.Add(ctx, periodic.Period(p))
		}
		s.Schedules = func() (schedules []Schedule) {
			types.EachPeriod(func(p periodic.Period) { schedules = append(schedules, Schedule{p.Name, p.NextSlot}) })
			return schedules
		}
		s.loops = append(s.loops, types.Run, maintenance.Run)
	})
}
