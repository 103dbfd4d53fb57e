package features

import (
	"context"

	"github.com/compensator-go/compensator/internal/features/instances"
	"github.com/compensator-go/compensator/processlog"
)

func init() {
	features = append(features, func(s *Set) {
		if s.cfg.Instances == nil {
			return
		}
		r := instances.Attach(s.Engine, s.cfg.Instances, s.cfg.Instance, func() processlog.InstanceQueue {
			switch {
			case s.queueReached == nil:
				return processlog.InstanceQueueNone
			case s.queueReached():
				return processlog.InstanceQueueReached
			}
			return processlog.InstanceQueueDown
		}, func() map[string]instances.Schedule {
			schedules := make(map[string]instances.Schedule)
			for _, of := range s.Schedules() {
				schedules[of.Name] = of.Next
			}
			return schedules
		}, s.ClaimHold)
		s.begin = append(s.begin, r.Begin)
		s.loops = append(s.loops, func(context.Context) { r.Report() })
	})
}
