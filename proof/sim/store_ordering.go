package sim

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

func positionArgs(positions []processlog.Position) string {
	return idsOf(positions, func(t processlog.Position) compensator.EntryID { return t.ID })
}

func (s *gatedStore) Join(ctx context.Context, tx compensator.Tx, positions []processlog.Position) error {
	return s.from.stepIn(ctx, tx, "join", args(positionArgs(positions)), func() error { return s.store.Join(ctx, tx, positions) })
}

func (s *gatedStore) KeyStates(ctx context.Context, businessType string, positions []processlog.Position, token processlog.Token, dead bool) (lines map[string]processlog.KeyState, err error) {
	if len(positions) == 0 {
		return s.store.KeyStates(ctx, businessType, positions, token, dead)
	}
	err = s.from.stepUnder(ctx, token, classRead, "lines", positionArgs(positions), func() (err error) {
		lines, err = s.store.KeyStates(ctx, businessType, positions, token, dead)
		return err
	})
	if err != nil {
		return nil, err
	}
	return lines, nil
}

func (s *gatedStore) Block(ctx context.Context, blocked []processlog.BlockedEntry, token processlog.Token) error {
	for _, p := range blocked {
		s.from.w.oracle.noteRelease(token, p.ID)
	}
	return s.from.stepUnder(ctx, token, classWrite, "park", idsOf(blocked, func(p processlog.BlockedEntry) compensator.EntryID { return p.ID }), func() error {
		return s.store.Block(ctx, blocked, token)
	})
}

func (s *gatedStore) Blocked(ctx context.Context, businessType string, ids []processlog.ID, dead bool) (blocked []processlog.ID, err error) {
	if len(ids) == 0 || !s.from.w.apart.ordering.kinds[businessType] {
		return s.store.Blocked(ctx, businessType, ids, dead)
	}
	err = s.from.step(ctx, classRead, "blocked", idsOf(ids, func(id processlog.ID) compensator.EntryID { return id }), func() (err error) {
		blocked, err = s.store.Blocked(ctx, businessType, ids, dead)
		s.from.w.oracle.noteBlocked(blocked)
		return err
	})
	if err != nil {
		return nil, err
	}
	return blocked, nil
}

func (s *gatedStore) Fronts(ctx context.Context, businessType, after string, limit int, dead bool) (ids []processlog.ID, last string, err error) {
	err = s.from.step(ctx, classRead, "fronts", string(make(args, 0, 32).text(businessType).text(after)), func() (err error) {
		ids, last, err = s.store.Fronts(ctx, businessType, after, limit, dead)
		return err
	})
	if err != nil {
		return nil, "", err
	}
	return ids, last, nil
}

func (s *gatedStore) Firsts(ctx context.Context, businessType string, positions []processlog.Position, dead bool) (lines map[string]processlog.KeyState, err error) {
	err = s.from.step(ctx, classRead, "firsts", positionArgs(positions), func() (err error) {
		lines, err = s.store.Firsts(ctx, businessType, positions, dead)
		return err
	})
	if err != nil {
		return nil, err
	}
	return lines, nil
}

func (s *gatedStore) Forget(ctx context.Context, ended []processlog.Position) error {
	return s.from.step(ctx, classWrite, "forget", positionArgs(ended), func() error { return s.store.Forget(ctx, ended) })
}

func (s *gatedStore) Advance(ctx context.Context, businessType string, left []processlog.Position, dead bool) (next []processlog.ID, err error) {
	ended := slices.SortedFunc(slices.Values(left), func(a, b processlog.Position) int {
		return cmp.Or(strings.Compare(a.Key, b.Key), a.ID.Compare(b.ID))
	})
	key := make(args, 0, 32).text(businessType)
	for _, t := range ended {
		key = key.text(t.Key).text(t.ID.String())
	}
	err = s.from.step(ctx, classWrite, "advance", string(key), func() (err error) {
		next, err = s.store.Advance(ctx, businessType, left, dead)
		return err
	})
	if err != nil {
		return nil, err
	}
	return next, nil
}
