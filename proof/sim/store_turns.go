package sim

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

func turnArgs(turns []processlog.Turn) string {
	return idsOf(turns, func(t processlog.Turn) compensator.EntryID { return t.ID })
}

func (s *gatedStore) Join(ctx context.Context, tx compensator.Tx, turns []processlog.Turn) error {
	return s.from.stepIn(ctx, tx, "join", args(turnArgs(turns)), func() error { return s.store.Join(ctx, tx, turns) })
}

func (s *gatedStore) Lines(ctx context.Context, businessType string, turns []processlog.Turn, token processlog.Token, dead bool) (lines map[string]processlog.Line, err error) {
	if len(turns) == 0 {
		return s.store.Lines(ctx, businessType, turns, token, dead)
	}
	err = s.from.stepUnder(ctx, token, classRead, "lines", turnArgs(turns), func() (err error) {
		lines, err = s.store.Lines(ctx, businessType, turns, token, dead)
		return err
	})
	if err != nil {
		return nil, err
	}
	return lines, nil
}

func (s *gatedStore) Park(ctx context.Context, parked []processlog.Parked, token processlog.Token) error {
	for _, p := range parked {
		s.from.w.oracle.givenBack(token, p.ID)
	}
	return s.from.stepUnder(ctx, token, classWrite, "park", idsOf(parked, func(p processlog.Parked) compensator.EntryID { return p.ID }), func() error {
		return s.store.Park(ctx, parked, token)
	})
}

func (s *gatedStore) Blocked(ctx context.Context, businessType string, ids []processlog.ID, dead bool) (blocked []processlog.ID, err error) {
	if len(ids) == 0 || !s.from.w.apart.lines.kinds[businessType] {
		return s.store.Blocked(ctx, businessType, ids, dead)
	}
	err = s.from.step(ctx, classRead, "blocked", idsOf(ids, func(id processlog.ID) compensator.EntryID { return id }), func() (err error) {
		blocked, err = s.store.Blocked(ctx, businessType, ids, dead)
		s.from.w.oracle.toldBlocked(blocked)
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

func (s *gatedStore) Firsts(ctx context.Context, businessType string, turns []processlog.Turn, dead bool) (lines map[string]processlog.Line, err error) {
	err = s.from.step(ctx, classRead, "firsts", turnArgs(turns), func() (err error) {
		lines, err = s.store.Firsts(ctx, businessType, turns, dead)
		return err
	})
	if err != nil {
		return nil, err
	}
	return lines, nil
}

func (s *gatedStore) Forget(ctx context.Context, ended []processlog.Turn) error {
	return s.from.step(ctx, classWrite, "forget", turnArgs(ended), func() error { return s.store.Forget(ctx, ended) })
}

func (s *gatedStore) Advance(ctx context.Context, businessType string, left []processlog.Turn, dead bool) (next []processlog.ID, err error) {
	ended := slices.SortedFunc(slices.Values(left), func(a, b processlog.Turn) int {
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
