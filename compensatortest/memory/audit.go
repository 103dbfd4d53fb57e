package memory

import (
	"context"
	"slices"

	"github.com/compensator-go/compensator/processlog"
)

// History implements processlog.Store. It lists the oldest record first.
func (s *Store) History(ctx context.Context, id processlog.ID) ([]processlog.AuditRecord, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	history := slices.Clone(s.audit[id])
	for i := range history {
		history[i].Ago = millisToDuration(s.nowLocked() - history[i].At.UnixMilli())
	}
	return history, nil
}

// Note implements processlog.Store.
func (s *Store) Note(ctx context.Context, action processlog.Action, by processlog.AuditInfo) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.audit[processlog.ID{}] = append(s.audit[processlog.ID{}], processlog.AuditRecord{
		At: millisToTime(s.nowLocked()), Action: action, Actor: by.Actor, Reason: by.Reason,
	})
	return nil
}
