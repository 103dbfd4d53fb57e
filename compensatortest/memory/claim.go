package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

const lockedRetry = 50 * time.Millisecond

// Claim implements processlog.Store. It calls accept while it holds the store's lock, so accept must not call the
// store.
func (s *Store) Claim(ctx context.Context, wanted []processlog.Wanted, token processlog.Token, lease time.Duration, accept func(*processlog.Row) bool) (processlog.Claimed, error) {
	return s.claim(ctx, wanted, token, lease, nil, accept)
}

func (s *Store) claim(ctx context.Context, wanted []processlog.Wanted, token processlog.Token, lease time.Duration, limit *processlog.StartLimit, accept func(*processlog.Row) bool) (processlog.Claimed, error) {
	if err := ctx.Err(); err != nil {
		return processlog.Claimed{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := claimCall{store: s, now: s.nowLocked(), token: token, lease: lease, accept: accept}
	if limit != nil {
		c.permits = s.permitsLocked(*limit, c.now)
	}
	tokens := make(map[processlog.ID]processlog.Token, len(wanted))
	for _, w := range wanted {
		tokens[w.ID] = w.Token
	}
	for _, id := range slices.SortedFunc(maps.Keys(tokens), processlog.ID.Compare) {
		c.claimLocked(id, tokens[id])
	}
	c.permits.takeAdvance()
	if c.result.Rooms = c.permits.roomsByKey(); c.result.Rooms != nil {
		values := c.permits.limit.Values()
		c.result.InForce = &values
	}
	return c.result, nil
}

type claimCall struct {
	store  *Store
	now    int64
	token  processlog.Token
	lease  time.Duration
	accept func(*processlog.Row) bool
	result processlog.Claimed

	permits *permits // nil if the claim needs no permits
}

func (c *claimCall) claimLocked(id processlog.ID, heldToken processlog.Token) {
	row := c.store.rows[id]
	if row == nil || row.committed == nil {
		c.result.Gone = append(c.result.Gone, id)
		return
	}
	v := row.committed
	isOwn := heldToken != processlog.Token{} && heldToken == v.token
	rowBefore := v.row(c.now)
	if v.isDue(c.now) && !v.entry.State.Terminal() && row.freeFor(nil) && (rowBefore.LeaseLeft <= 0 || isOwn) {
		c.permits.readKey(&rowBefore)
		v = row.committed // readKey may have raised the version
		rowBefore = v.row(c.now)
	}
	switch {
	case !row.freeFor(nil):
		c.result.Waiting = append(c.result.Waiting, processlog.Scheduled{ID: id, In: lockedRetry})
	case v.entry.State.Terminal():
		c.result.Gone = append(c.result.Gone, id)
	case rowBefore.DueIn > 0 || rowBefore.LeaseLeft > 0 && !isOwn:
		c.result.Waiting = append(c.result.Waiting, processlog.Scheduled{ID: id, In: max(rowBefore.DueIn, rowBefore.LeaseLeft)})
	case c.permits.lacksPermit(&rowBefore):
		c.result.Limited = append(c.result.Limited, c.permits.newLimited(&rowBefore))
	case c.permits.isRefused(&rowBefore), !c.accept(&rowBefore):
		c.result.Skipped = append(c.result.Skipped, v.row(c.now))
	case c.store.refusals[id] != nil:
		c.result.Refused = append(c.result.Refused, processlog.Refusal{ID: id, Err: c.store.refusals[id]})
	default:
		c.store.writeLocked(nil, row, v.withClaim(c.token, c.lease, c.now, isOwn), nil)
		c.permits.takePermit(row.committed)
		c.result.Mine = append(c.result.Mine, c.newClaimedRow(row.committed, rowBefore))
	}
}

// newClaimedRow returns the row as the SQL store does: UpdatedAt is from before the claim, and LeaseLeft is the whole
// lease.
func (c *claimCall) newClaimedRow(claimed *version, before processlog.Row) processlog.Row {
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
	busyIndexes, err := s.eachLocked(ctx, ids, func(i int, row *storedRow) {
		if row == nil || row.committed.token != token || row.committed.leaseUntil == 0 || row.committed.entry.DeliveryCount == 0 {
			return
		}
		if err := s.refusals[ids[i]]; err != nil {
			left.Refused = append(left.Refused, processlog.Refusal{ID: ids[i], Err: err})
			return
		}
		s.writeLocked(nil, row, row.committed.withRelease(s.nowLocked()), nil)
	})
	if err != nil {
		return left, fmt.Errorf("release %d entries: %w", len(ids), err)
	}
	for _, i := range busyIndexes {
		left.Busy = append(left.Busy, ids[i])
	}
	return left, nil
}

// Refuse makes the store fail with err when a call claims, renews, releases or settles one of the entries. A database
// trigger has the same effect. With a nil err, Refuse allows these calls again.
func (s *Store) Refuse(err error, ids ...processlog.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refusals == nil {
		s.refusals = make(map[processlog.ID]error)
	}
	for _, id := range ids {
		if s.refusals[id] = err; err == nil {
			delete(s.refusals, id)
		}
	}
}

// eachLocked calls the function do for each id, with a nil row if the id has no row. It begins with the rows that no
// transaction holds, and then waits for the others. The result busyIndexes lists the rows that a transaction still
// holds after the time lockWait.
func (s *Store) eachLocked(ctx context.Context, ids []processlog.ID, do func(i int, row *storedRow)) (busyIndexes []int, err error) {
	ctx, cancel := withLockWait(ctx, nil)
	defer cancel()
	var heldIndexes []int
	for i, id := range ids {
		if row := s.rows[id]; row != nil && !row.freeFor(nil) {
			heldIndexes = append(heldIndexes, i)
			continue
		}
		do(i, s.rows[id])
	}
	for _, i := range heldIndexes {
		row, err := s.freeLocked(ctx, nil, s.finderOf(ids[i]))
		switch {
		case err == processlog.ErrBusy:
			busyIndexes = append(busyIndexes, i)
		case err != nil:
			return nil, err
		default:
			do(i, row)
		}
	}
	return busyIndexes, nil
}

// Renew implements processlog.Store. It does not renew the lease of a row that a transaction holds, and it does not
// report that lease as lost.
func (s *Store) Renew(ctx context.Context, heldEntries []processlog.Held, lease time.Duration) (left processlog.Unrenewed, err error) {
	if err := ctx.Err(); err != nil {
		return left, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	until := s.nowLocked() + processlog.Millis(lease)
	for _, h := range heldEntries {
		row := s.rows[h.ID]
		switch {
		case row == nil || row.committed == nil || row.committed.entry.Version != h.Version || row.committed.entry.State.Terminal():
			left.Lost = append(left.Lost, h.ID)
		case !row.freeFor(nil):
			left.Busy = append(left.Busy, h.ID)
		case s.refusals[h.ID] != nil:
			left.Refused = append(left.Refused, processlog.Refusal{ID: h.ID, Err: s.refusals[h.ID]})
		default:
			row.committed = row.committed.withRenewal(until)
		}
	}
	return left, nil
}

// withRenewal keeps the version and the token, because the holder's outcome must still match them.
func (v *version) withRenewal(until int64) *version {
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
		return v.entry.BusinessType == businessType && !v.entry.State.Terminal() && v.isDue(now) && !v.isLeased(now)
	})
	slices.SortFunc(due, func(a, b *version) int { return compareDue(a.scheduledEntry(now), b.scheduledEntry(now)) })
	var ids []processlog.ID
	for _, v := range due[:min(len(due), max(limit, 0))] {
		ids = append(ids, v.entry.ID)
	}
	return ids, nil
}
