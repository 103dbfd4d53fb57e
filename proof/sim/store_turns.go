package sim

import (
	"context"
	"slices"

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

func (s *gatedStore) Advance(ctx context.Context, businessType string, keys []string, dead bool) (woken []processlog.ID, err error) {
	key := make(args, 0, 32).text(businessType)
	for _, k := range slices.Sorted(slices.Values(keys)) {
		key = key.text(k)
	}
	err = s.from.step(ctx, classWrite, "advance", string(key), func() (err error) {
		woken, err = s.store.Advance(ctx, businessType, keys, dead)
		return err
	})
	if err != nil {
		return nil, err
	}
	return woken, nil
}
