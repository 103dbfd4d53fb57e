package memory

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

type typeMark struct {
	at     int64 // committed time of the mark, in unix ms
	holder *Tx   // open transaction that has moved the mark
}

type markMove struct {
	typeMark *typeMark
	to       int64
}

// Marks implements processlog.Store.
func (s *Store) Marks(ctx context.Context, businessTypes []string) (time.Time, map[string]time.Time, error) {
	if err := ctx.Err(); err != nil {
		return time.Time{}, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.nowLocked()
	marks := make(map[string]time.Time, len(businessTypes))
	for _, businessType := range businessTypes {
		if m := s.marks[businessType]; m != nil {
			marks[businessType] = millisToTime(m.at)
		}
	}
	return millisToTime(now), marks, nil
}

// PeriodicMarks implements processlog.Operations.
func (s *Store) PeriodicMarks(ctx context.Context) (time.Time, map[string]time.Time, error) {
	s.mu.Lock()
	names := slices.DeleteFunc(slices.Collect(maps.Keys(s.marks)), func(name string) bool { return strings.HasPrefix(name, " ") })
	s.mu.Unlock()
	return s.Marks(ctx, names)
}

// BeginMark implements processlog.Store.
func (s *Store) BeginMark(ctx context.Context, businessType string) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.marks[businessType] != nil {
		return false, nil
	}
	s.marks[businessType] = &typeMark{at: s.nowLocked()}
	return true, nil
}

// MoveMark implements processlog.Store.
func (s *Store) MoveMark(ctx context.Context, tx processlog.Tx, businessType string, from, to time.Time) (bool, error) {
	if tx == nil {
		return s.moveMarkAlone(ctx, businessType, from, to)
	}
	ownTx, err := s.unwrap(ctx, tx)
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ownTx.refusalLocked(); err != nil {
		return false, err
	}
	m := s.marks[businessType]
	if m == nil || m.holder != nil && m.holder != ownTx || m.seenBy(ownTx) != from.UnixMilli() {
		return false, nil
	}
	m.holder = ownTx
	ownTx.moves = append(ownTx.moves, markMove{m, to.UnixMilli()})
	return true, nil
}

func (s *Store) moveMarkAlone(ctx context.Context, businessType string, from, to time.Time) (bool, error) {
	tx, err := s.Begin(ctx)
	if err != nil {
		return false, err
	}
	moved, err := s.MoveMark(ctx, tx, businessType, from, to)
	if err != nil || !moved {
		_ = tx.Rollback()
		return false, err
	}
	return true, tx.Commit()
}

func (m *typeMark) seenBy(tx *Tx) int64 {
	for _, move := range slices.Backward(tx.moves) {
		if move.typeMark == m {
			return move.to
		}
	}
	return m.at
}

// marksLocked returns unix ms.
func (s *Store) marksLocked() map[string]int64 {
	marks := make(map[string]int64, len(s.marks))
	for businessType, m := range s.marks {
		marks[businessType] = m.at
	}
	return marks
}
