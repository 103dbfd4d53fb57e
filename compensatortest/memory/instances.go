package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// WriteInstance implements processlog.Operations.
func (s *Store) WriteInstance(ctx context.Context, i processlog.Instance, age time.Duration, ended bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := millisToTime(s.nowLocked())
	old, found := s.ops.instances[i.ID]
	i.StartedAt, i.SeenAt, i.EndedAt, i.Unseen = now.Add(-age), now, old.EndedAt, 0
	if found {
		i.StartedAt = old.StartedAt
	}
	if ended && i.EndedAt.IsZero() {
		i.EndedAt = now
	}
	i.Name, i.Library, i.Build = processlog.FitActor(i.Name), processlog.FitActor(i.Library), processlog.FitActor(i.Build)
	i.Types = slices.Clone(i.Types)
	s.ops.instances[i.ID] = i
	return nil
}

// Instances implements processlog.Operations.
func (s *Store) Instances(ctx context.Context) ([]processlog.Instance, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	instances := slices.SortedFunc(maps.Values(s.ops.instances), func(a, b processlog.Instance) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), slices.Compare(a.ID[:], b.ID[:]))
	})
	for i := range instances {
		instances[i].Unseen = max(0, millisToTime(s.nowLocked()).Sub(instances[i].SeenAt))
		instances[i].Types = slices.Clone(instances[i].Types)
	}
	return instances, ctx.Err()
}

// ForgetInstances implements processlog.Operations.
func (s *Store) ForgetInstances(ctx context.Context, age time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := millisToTime(s.nowLocked()).Add(-age)
	maps.DeleteFunc(s.ops.instances, func(_ processlog.InstanceID, i processlog.Instance) bool { return i.SeenAt.Before(before) })
	return nil
}
