package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// lockedRetry is the wait after which a claim should try a locked row again.
const lockedRetry = 50 * time.Millisecond

// Claim implements processlog.Store. It calls accept while it holds the store's lock, so accept must not call the
// store.
func (s *Store) Claim(ctx context.Context, want []processlog.Wanted, token processlog.Token, lease time.Duration, accept func(*processlog.Row) bool) (processlog.Claimed, error) {
	return s.claim(ctx, want, token, lease, nil, accept)
}

// claim implements Claim, and ClaimLimited if limit is not nil.
func (s *Store) claim(ctx context.Context, want []processlog.Wanted, token processlog.Token, lease time.Duration, limit *processlog.StartLimit, accept func(*processlog.Row) bool) (processlog.Claimed, error) {
	if err := ctx.Err(); err != nil {
		return processlog.Claimed{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := claiming{store: s, now: s.nowLocked(), token: token, lease: lease, accept: accept}
	if limit != nil {
		c.permits = s.permitsLocked(*limit, c.now)
	}
	held := make(map[processlog.ID]processlog.Token, len(want))
	for _, w := range want {
		held[w.ID] = w.Token
	}
	for _, id := range slices.SortedFunc(maps.Keys(held), processlog.ID.Compare) {
		c.oneLocked(id, held[id])
	}
	if c.found.Rooms = c.permits.rooms(); c.found.Rooms != nil {
		values := c.permits.limit.Values()
		c.found.InForce = &values
	}
	return c.found, nil
}

// claiming is the state of one call of Claim.
type claiming struct {
	store  *Store
	now    int64
	token  processlog.Token
	lease  time.Duration
	accept func(*processlog.Row) bool
	found  processlog.Claimed

	permits *permits // nil: the claim needs no permits
}

func (c *claiming) oneLocked(id processlog.ID, held processlog.Token) {
	row := c.store.rows[id]
	if row == nil || row.committed == nil {
		c.found.Gone = append(c.found.Gone, id)
		return
	}
	v := row.committed
	own := held != processlog.Token{} && held == v.token
	before := v.row(c.now)
	if v.due(c.now) && !v.entry.State.Terminal() && row.freeFor(nil) && (before.LeaseLeft <= 0 || own) {
		c.permits.look(&before)
		v = row.committed // look may have raised the version
		before = v.row(c.now)
	}
	switch {
	case !row.freeFor(nil):
		c.found.Waiting = append(c.found.Waiting, processlog.Scheduled{ID: id, In: lockedRetry})
	case v.entry.State.Terminal():
		c.found.Gone = append(c.found.Gone, id)
	case before.DueIn > 0 || before.LeaseLeft > 0 && !own:
		c.found.Waiting = append(c.found.Waiting, processlog.Scheduled{ID: id, In: max(before.DueIn, before.LeaseLeft)})
	case c.permits.without(&before):
		c.found.Limited = append(c.found.Limited, c.permits.limited(&before))
	case c.permits.refuses(&before), !c.accept(&before):
		c.found.Refused = append(c.found.Refused, v.row(c.now))
	case c.store.refused[id] != nil:
		c.found.Rejected = append(c.found.Rejected, processlog.Refusal{ID: id, Err: c.store.refused[id]})
	default:
		c.store.writeLocked(nil, row, v.claimed(c.token, c.lease, c.now, own), nil)
		c.permits.take(row.committed)
		c.found.Mine = append(c.found.Mine, c.mine(row.committed, before))
	}
}

// mine returns a claimed row as the SQL store returns it. UpdatedAt is the value before the claim, and LeaseLeft is the
// whole lease.
func (c *claiming) mine(claimed *version, before processlog.Row) processlog.Row {
	row := claimed.row(c.now)
	if row.LastError != "" { // For other rows the SQL store reads no Faults.
		row.Faults = claimed.faults
	}
	row.LeaseLeft, row.UpdatedAt = c.lease, before.UpdatedAt
	return row
}

// Release implements processlog.Store. It waits up to 2 seconds for rows that a transaction holds.
func (s *Store) Release(ctx context.Context, ids []processlog.ID, token processlog.Token) (left processlog.Unreleased, err error) {
	if err := ctx.Err(); err != nil {
		return left, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	busy, err := s.eachLocked(ctx, ids, func(i int, row *storedRow) {
		if row == nil || row.committed.token != token || row.committed.leaseUntil == 0 || row.committed.entry.DeliveryCount == 0 {
			return
		}
		if err := s.refused[ids[i]]; err != nil {
			left.Rejected = append(left.Rejected, processlog.Refusal{ID: ids[i], Err: err})
			return
		}
		s.writeLocked(nil, row, row.committed.released(s.nowLocked()), nil)
	})
	if err != nil {
		return left, fmt.Errorf("release %d entries: %w", len(ids), err)
	}
	for _, i := range busy {
		left.Busy = append(left.Busy, ids[i])
	}
	return left, nil
}

// Refuse makes the store fail with err when a call claims, renews, releases or settles one of the entries. A database
// trigger has the same effect. With a nil err, Refuse allows these calls again. Refuse may be called at any time.
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

// eachLocked calls the function do for every id. If an id has no row, the row is nil. It begins with the rows that no
// transaction holds. Then it waits for the other rows, for at most lockWait in total. busy lists the indexes of the
// rows that are still held.
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

// Renew implements processlog.Store. It does not renew the lease of a row that a transaction holds, and it does not
// report that lease as lost.
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

// renewed returns v with a longer lease. It keeps the version and the token, because the holder's outcome must still
// match them.
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
