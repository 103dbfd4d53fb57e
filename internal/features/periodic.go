package features

import (
	"context"

	"github.com/compensator-go/compensator/internal/features/periodic"
)

func init() {
	features = append(features, func(s *Set) {
		// Maintenance may take long, and a calendar works on one period after the other. So maintenance has a calendar
		// of its own, and does not delay the periodic types.
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
