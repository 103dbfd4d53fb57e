package memory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// lockedRetry is when a claim should look again at a row that it found locked.
const lockedRetry = 50 * time.Millisecond

// Claim implements processlog.Store. accept runs while the store is locked: it must not call the store.
func (s *Store) Claim(ctx context.Context, want []processlog.Wanted, token processlog.Token, lease time.Duration, accept func(*processlog.Row) bool) (processlog.Claimed, error) {
	if err := ctx.Err(); err != nil {
		return processlog.Claimed{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := claiming{store: s, now: s.nowLocked(), token: token, lease: lease, accept: accept}
	held := make(map[processlog.ID]processlog.Token, len(want))
	for _, w := range want {
		held[w.ID] = w.Token
	}
	for _, id := range slices.SortedFunc(maps.Keys(held), processlog.ID.Compare) {
		c.oneLocked(id, held[id])
	}
	return c.found, nil
}

// claiming is one Claim call under way.
type claiming struct {
	store  *Store
	now    int64
	token  processlog.Token
	lease  time.Duration
	accept func(*processlog.Row) bool
	found  processlog.Claimed
}

func (c *claiming) oneLocked(id processlog.ID, held processlog.Token) {
	row := c.store.rows[id]
	if row == nil || row.committed == nil {
		c.found.Gone = append(c.found.Gone, id)
		return
	}
	v := row.committed
	own := held != processlog.Token{} && held == v.token
	switch before := v.row(c.now); {
	case !row.freeFor(nil):
		c.found.Waiting = append(c.found.Waiting, processlog.Scheduled{ID: id, In: lockedRetry})
	case v.entry.State.Terminal():
		c.found.Gone = append(c.found.Gone, id)
	case before.DueIn > 0 || before.LeaseLeft > 0 && !own:
		c.found.Waiting = append(c.found.Waiting, processlog.Scheduled{ID: id, In: max(before.DueIn, before.LeaseLeft)})
	case !c.accept(&before):
		c.found.Refused = append(c.found.Refused, v.row(c.now))
	case c.store.refused[id] != nil:
		c.found.Rejected = append(c.found.Rejected, processlog.Refusal{ID: id, Err: c.store.refused[id]})
	default:
		c.store.writeLocked(nil, row, v.claimed(c.token, c.lease, c.now, own), nil)
		c.found.Mine = append(c.found.Mine, c.mine(row.committed, before))
	}
}

// mine is the row as the store on SQL answers it: what it read, brought up to what it wrote.
func (c *claiming) mine(claimed *version, before processlog.Row) processlog.Row {
	row := claimed.row(c.now)
	row.LeaseLeft, row.UpdatedAt = c.lease, before.UpdatedAt
	return row
}

// Release implements processlog.Store. It returns ErrBusy when a transaction kept one of the rows for two
// seconds; the others are released.
func (s *Store) Release(ctx context.Context, ids []processlog.ID, token processlog.Token) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var refused []processlog.Refusal
	busy, err := s.eachLocked(ctx, ids, func(i int, row *storedRow) {
		if row == nil || row.committed.token != token || row.committed.leaseUntil == 0 || row.committed.entry.DeliveryCount == 0 {
			return
		}
		if err := s.refused[ids[i]]; err != nil {
			refused = append(refused, processlog.Refusal{ID: ids[i], Err: err})
			return
		}
		s.writeLocked(nil, row, row.committed.released(s.nowLocked()), nil)
	})
	if err == nil {
		err = unreleased(busy, refused)
	}
	if err != nil {
		return fmt.Errorf("release %d entries: %w", len(ids), err)
	}
	return nil
}

// unreleased says why some entries were not released; nil: all were.
func unreleased(busy []int, refused []processlog.Refusal) error {
	var left []error
	if len(busy) > 0 {
		left = append(left, processlog.ErrBusy)
	}
	if len(refused) > 0 {
		left = append(left, &processlog.RefusedError{Refusals: refused})
	}
	return errors.Join(left...)
}

// Refuse has the store refuse to lease entries, to renew and to take back their leases, and to store their outcomes, as a trigger
// of a database does. A nil error allows them again. It may be called at any time.
func (s *Store) Refuse(err error, ids ...processlog.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused == nil {
		s.refused = make(map[processlog.ID]error)
	}
	for _, id := range ids {
		if s.refused[id] = err; err == nil {
			delete(s.refused, id)
		}
	}
}

// eachLocked calls do for every id; row is nil when there is none. It does the free rows first and then waits
// for the others, lockWait in all: the places of those still held are busy.
func (s *Store) eachLocked(ctx context.Context, ids []processlog.ID, do func(i int, row *storedRow)) (busy []int, err error) {
	ctx, cancel := withLockWait(ctx, nil)
	defer cancel()
	var held []int
	for i, id := range ids {
		if row := s.rows[id]; row != nil && !row.freeFor(nil) {
			held = append(held, i)
			continue
		}
		do(i, s.rows[id])
	}
	for _, i := range held {
		row, err := s.freeLocked(ctx, nil, s.byRef(ids[i]))
		switch {
		case err == processlog.ErrBusy:
			busy = append(busy, i)
		case err != nil:
			return nil, err
		default:
			do(i, row)
		}
	}
	return busy, nil
}

// Renew implements processlog.Store. The lease of a row that a transaction holds stays as it is, and is not
// lost for that.
func (s *Store) Renew(ctx context.Context, held []processlog.Held, lease time.Duration) (left processlog.Unrenewed, err error) {
	if err := ctx.Err(); err != nil {
		return left, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	until := s.nowLocked() + processlog.Millis(lease)
	for _, h := range held {
		row := s.rows[h.ID]
		switch {
		case row == nil || row.committed == nil || row.committed.entry.Version != h.Version || row.committed.entry.State.Terminal():
			left.Lost = append(left.Lost, h.ID)
		case !row.freeFor(nil):
			left.Busy = append(left.Busy, h.ID)
		case s.refused[h.ID] != nil:
			left.Rejected = append(left.Rejected, processlog.Refusal{ID: h.ID, Err: s.refused[h.ID]})
		default:
			row.committed = row.committed.renewed(until)
		}
	}
	return left, nil
}

// renewed is the one write that is no transition: the holder's fence must hold on.
func (v *version) renewed(until int64) *version {
	next := *v
	next.leaseUntil = until
	return &next
}

// Due implements processlog.Store.
func (s *Store) Due(ctx context.Context, businessType string, limit int) ([]processlog.ID, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.nowLocked()
	due := s.matchingLocked(func(v *version) bool {
		return v.entry.BusinessType == businessType && !v.entry.State.Terminal() && v.due(now) && !v.leased(now)
	})
	slices.SortFunc(due, func(a, b *version) int { return place(a.scheduled(now), b.scheduled(now)) })
	var ids []processlog.ID
	for _, v := range due[:min(len(due), max(limit, 0))] {
		ids = append(ids, v.entry.ID)
	}
	return ids, nil
}
