package harness

import (
	"context"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// HookedStore is a Store whose claims and settles call hooks of the test. A hook can replace the call.
type HookedStore struct {
	processlog.Store
	OnClaim  func() error
	OnPermit func()
	OnSettle func(settle func() ([]processlog.Settled, error)) ([]processlog.Settled, error)
}

func (s *HookedStore) Claim(ctx context.Context, wanted []processlog.Wanted, token processlog.Token, lease time.Duration, accept func(*processlog.Row) bool) (processlog.Claimed, error) {
	if s.OnClaim != nil {
		if err := s.OnClaim(); err != nil {
			return processlog.Claimed{}, err
		}
	}
	return s.Store.Claim(ctx, wanted, token, lease, accept)
}

func (s *HookedStore) ClaimLimited(ctx context.Context, wanted []processlog.Wanted, token processlog.Token, lease time.Duration, limit processlog.StartLimit, accept func(*processlog.Row) bool) (processlog.Claimed, error) {
	claim, err := s.Store.ClaimLimited(ctx, wanted, token, lease, limit, accept)
	if s.OnPermit != nil {
		s.OnPermit()
	}
	return claim, err
}

func (s *HookedStore) Settle(ctx context.Context, token processlog.Token, outcomes []processlog.Outcome) ([]processlog.Settled, error) {
	settle := func() ([]processlog.Settled, error) { return s.Store.Settle(ctx, token, outcomes) }
	if s.OnSettle != nil {
		return s.OnSettle(settle)
	}
	return settle()
}

func (w *World) HookStore(cfg compensator.Config) (compensator.Config, *HookedStore) {
	w.T.Helper()
	store, err := compensator.OpenStore(w.T.Context(), cfg.DB, compensator.DefaultTable)
	require.NoError(w.T, err)
	hooked := &HookedStore{Store: store}
	w.T.Cleanup(func() { assert.NoError(w.T, store.Close()) })
	cfg.DB, cfg.Store = nil, hooked
	return cfg, hooked
}
