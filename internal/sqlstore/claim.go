package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/processlog"
)

const claimRead = "SELECT {columns} FROM {log}{by id} WHERE id IN ({ids}) ORDER BY id{lock}"

// Claim implements Store. One transaction locks the free rows by primary key, decides which of them to lease, and
// writes the leases. On TiDB, SKIP LOCKED locks nothing. So each write also requires that the row still has the version
// that was read.
func (s *Store) Claim(ctx context.Context, want []processlog.Wanted, token processlog.Token, lease time.Duration, accept func(*processlog.Row) bool) (processlog.Claimed, error) {
	return s.claim(ctx, want, token, lease, nil, accept)
}

func (s *Store) claim(ctx context.Context, want []processlog.Wanted, token processlog.Token, lease time.Duration, permits *permits, accept func(*processlog.Row) bool) (processlog.Claimed, error) {
	if len(want) == 0 {
		return processlog.Claimed{}, nil
	}
	c := claim{s: s, token: token, lease: lease, permits: permits, knownTokens: make(map[processlog.ID]processlog.Token, len(want))}
	for _, w := range want {
		c.knownTokens[w.ID] = w.Token
		c.ids = append(c.ids, w.ID)
	}
	// Lock rows in id order, so that no two transactions deadlock. See promise G14.
	slices.SortFunc(c.ids, processlog.ID.Compare)
	c.ids = slices.Compact(c.ids)
	err := s.inOwn(ctx, func(tx processlog.Transaction) error { return c.run(ctx, tx, accept) })
	if len(c.retryRows) > 0 {
		err = c.permitApart(ctx)
	}
	if len(c.retryRows) > 0 && err == nil {
		chosen := slices.Clone(c.retryRows)
		err = c.takeApart(ctx)
		c.returnApart(ctx, chosen)
	}
	if err != nil {
		return processlog.Claimed{}, fmt.Errorf("compensator: claim %d entries: %w", len(want), err)
	}
	return c.result, nil
}

type claim struct {
	s           *Store
	ids         []processlog.ID
	knownTokens map[processlog.ID]processlog.Token
	token       processlog.Token
	lease       time.Duration
	permits     *permits // nil: the claim needs no permits
	result      processlog.Claimed
	waitErr     *waitError       // set if a trigger waited in vain for a lock
	retryRows   []processlog.Row // rows that could not be leased together; takeApart leases them in smaller parts
}

func (c *claim) run(ctx context.Context, tx processlog.Tx, accept func(*processlog.Row) bool) error {
	var rows []processlog.Row
	for chunk := range slices.Chunk(c.ids, processlog.MaxRows) {
		freeRows, err := readFree(ctx, c.s, chunk, func(ids []processlog.ID, lock string) ([]processlog.Row, error) {
			// Read by primary key. Through the due index, the lock would cover the range into which producers insert.
			// See promise G14.
			return c.s.queryRows(ctx, tx, len(ids), c.s.sql(claimRead, "ids", idList(ids), "lock", lock))
		})
		if err != nil {
			return err
		}
		if rows = append(rows, freeRows...); len(rows) == len(freeRows) {
			rows = freeRows // Do not copy the first chunk.
		}
	}
	if err := c.classifyUnread(ctx, tx, rows); err != nil {
		return err
	}
	if err := c.lockPermits(ctx, tx, rows); err != nil {
		return err
	}
	claimedRows := c.choose(rows, accept)
	if len(claimedRows) == 0 {
		return c.writePermits(ctx, tx, nil)
	}
	if err := c.s.addFaults(ctx, tx, claimedRows); err != nil { // The transaction that changes a row also writes its Faults, so read them after the lock.
		return err
	}
	err := c.take(ctx, tx, claimedRows)
	if c.waitErr = waitIn(err); c.waitErr != nil || c.s.refusesRow(err) {
		c.retryRows = claimedRows
	}
	if err != nil {
		return err
	}
	return c.writePermits(ctx, tx, c.result.Mine)
}

// choose moves the rows that may be claimed to the front of rows.
func (c *claim) choose(rows []processlog.Row, accept func(*processlog.Row) bool) (claimedRows []processlog.Row) {
	claimedRows = rows[:0]
	for i := range rows {
		row := &rows[i]
		switch {
		case row.State.Terminal():
			c.result.Gone = append(c.result.Gone, row.ID)
		case !c.claimable(row):
			c.result.Waiting = append(c.result.Waiting, processlog.Scheduled{ID: row.ID, In: max(row.DueIn, row.LeaseLeft)})
		case c.permits.lacksPermit(row):
			c.result.Limited = append(c.result.Limited, c.permits.limited(row))
		case c.permits.refuses(row), !accept(row):
			c.result.Skipped = append(c.result.Skipped, *row)
		default:
			c.permits.take(row)
			claimedRows = append(claimedRows, *row)
		}
	}
	return claimedRows
}

// claimable reports whether the claim may lease the row. Even if the queue offers an entry, the entry must not run
// before it is due, or while another process has its lease. See promises G9 and G16.
func (c *claim) claimable(row *processlog.Row) bool {
	return !row.State.Terminal() && row.DueIn <= 0 && (row.LeaseLeft <= 0 || c.heldByCaller(row))
}

const claimUnread = "SELECT id FROM {log} WHERE id IN ({ids})"

func (c *claim) classifyUnread(ctx context.Context, tx processlog.Tx, rows []processlog.Row) error {
	if len(rows) == len(c.ids) {
		return nil
	}
	readIDs := make([]processlog.ID, len(rows))
	for i := range rows {
		readIDs[i] = rows[i].ID
	}
	// The transaction of a missing row may still be open. The claim reports the entry as gone, and the queue forgets
	// the entry. After the commit, this process or the reconciler enqueues the entry again. See promise G10.
	unread := withoutIDs(c.ids, readIDs)
	locked, err := queryIDs(ctx, tx, c.s.sql(claimUnread, "ids", idList(unread)))
	if err != nil {
		return err
	}
	for _, id := range locked {
		c.result.Waiting = append(c.result.Waiting, processlog.Scheduled{ID: id, In: processlog.LockedRetry})
	}
	c.result.Gone = append(c.result.Gone, withoutIDs(unread, locked)...)
	return nil
}

type claimGroup struct {
	version            uint64
	keepsDeliveryCount bool
}

func (c *claim) grouped(rows []processlog.Row) map[claimGroup][]processlog.ID {
	groups := make(map[claimGroup][]processlog.ID)
	for i := range rows {
		g := claimGroup{rows[i].Version, c.keepsDeliveryCount(&rows[i])}
		groups[g] = append(groups[g], rows[i].ID)
	}
	return groups
}

// claimRows leases the rows of one claimGroup. claimUnusual also handles rows that keep their delivery count, or whose
// version starts again at 1.
const (
	claimRows = "UPDATE {log}{by id} SET version=version+1, delivery_count=delivery_count+1, token={token}, lease_until={now}+{lease}, updated_at={stamp}" +
		" WHERE id IN ({ids}) AND version={version}{and steady}"
	claimUnusual = "UPDATE {log}{by id} SET version={next version}, delivery_count=delivery_count+{deliveries}, token={token}, lease_until={now}+{lease}, updated_at={stamp}" +
		" WHERE id IN ({ids}) AND version={version}{and steady}"
)

func (c *claim) update(g claimGroup, ids []processlog.ID) string {
	args := []string{"token", c.s.d.binary(c.token[:]), "lease", signed(processlog.Millis(c.lease)), "ids", idList(ids), "version", decimal(g.version)}
	if !g.keepsDeliveryCount && g.version < lastVersion {
		return c.s.sql(claimRows, args...)
	}
	nextVersion, deliveries := "version+1", "1"
	if g.version >= lastVersion {
		nextVersion = "1"
	}
	if g.keepsDeliveryCount {
		deliveries = "0"
	}
	return c.s.sql(claimUnusual, append(args, "next version", nextVersion, "deliveries", deliveries)...)
}

func (c *claim) take(ctx context.Context, tx processlog.Tx, rows []processlog.Row) error {
	failpoint.Reach(failpoint.ClaimLocked)
	var taken int64
	for g, ids := range c.grouped(rows) {
		n, err := c.s.writeHeld(ctx, tx, c.update(g, ids))
		if err != nil {
			return err
		}
		taken += n
	}
	failpoint.Reach(failpoint.ClaimWritten)
	if taken != int64(len(rows)) {
		c.s.discardWrongClock(ctx, tx)
		return c.keepTaken(ctx, tx, rows)
	}
	for i := range rows {
		c.markClaimed(&rows[i])
	}
	c.result.Mine = rows
	return nil
}

// takeApart leases the rows of retryRows in smaller parts. One transaction for all these rows was rolled back. The
// reason was that a trigger waited in vain for a lock, or that the database refused to write a row.
func (c *claim) takeApart(ctx context.Context) error {
	refused := make(map[processlog.ID]bool)
	for g, ids := range c.grouped(c.retryRows) {
		if c.waitErr != nil && !timeFor(ctx, rowWait) {
			break
		}
		write := c.s.updateFree
		if c.waitErr != nil && len(ids) == len(c.retryRows) {
			// The UPDATE of all these rows has already waited in vain. So do not send this UPDATE again, and begin with
			// a part of the rows.
			write = c.s.updateFreeFrom(c.waitErr)
		}
		_, _, err := c.s.updateApart(ctx, ids, func(ids []processlog.ID) string { return c.update(g, ids) }, write)
		var refusedErr *processlog.RefusedError
		if err != nil && !errors.As(err, &refusedErr) {
			return err
		}
		if refusedErr != nil {
			for _, r := range refusedErr.Refusals {
				refused[r.ID] = true
			}
			c.result.Refused = append(c.result.Refused, refusedErr.Refusals...)
		}
	}
	accepted := slices.DeleteFunc(c.retryRows, func(row processlog.Row) bool { return refused[row.ID] })
	return c.s.readLatest(ctx, func(readTx processlog.Tx) error { return c.keepTaken(ctx, readTx, accepted) })
}

func (c *claim) heldByCaller(row *processlog.Row) bool {
	token := c.knownTokens[row.ID]
	return token != processlog.Token{} && token == row.Token
}

// keepsDeliveryCount reports whether the claim leaves the delivery count of the row as it is. There are two such cases:
//   - The caller already has the lease, so this delivery is counted already. If it was counted twice, it would look
//     like a crash.
//   - The count has reached MaxCount. A higher number may not fit into the column.
func (c *claim) keepsDeliveryCount(row *processlog.Row) bool {
	return row.DeliveryCount > 0 && c.heldByCaller(row) || row.DeliveryCount >= processlog.MaxCount
}

// lastVersion is so high that only other software writes this or a higher version. If a row has such a version, a claim
// sets the version to 1. If the claim raised the version, the number could become too large for the column. The
// statement would then fail for all rows.
const lastVersion = 1 << 62

func (c *claim) markClaimed(row *processlog.Row) {
	if !c.keepsDeliveryCount(row) {
		row.DeliveryCount++
	}
	if row.Version >= lastVersion {
		row.Version = 0
	}
	row.Version++
	row.Token, row.LeaseLeft = c.token, c.lease
}

const claimKept = "SELECT id FROM {log} WHERE id IN ({ids}) AND token={token}"

// keepTaken reads which rows the claim has leased. These rows have the claim's token, and go into result.Mine. The
// other rows go into result.Waiting.
func (c *claim) keepTaken(ctx context.Context, tx processlog.Tx, rows []processlog.Row) error {
	ids := make([]processlog.ID, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
	}
	if len(ids) == 0 {
		return nil
	}
	claimedIDs, err := queryIDs(ctx, tx, c.s.sql(claimKept, "ids", idList(ids), "token", c.s.d.binary(c.token[:])))
	if err != nil {
		return err
	}
	lostIDs := withoutIDs(ids, claimedIDs)
	for _, row := range rows {
		if slices.Contains(lostIDs, row.ID) {
			c.result.Waiting = append(c.result.Waiting, processlog.Scheduled{ID: row.ID, In: processlog.LockedRetry})
			continue
		}
		c.markClaimed(&row)
		c.result.Mine = append(c.result.Mine, row)
	}
	return nil
}

// releaseRows lowers delivery_count, because no handler has run. A repeated Release finds lease_until=0, and does not
// lower the count again. See promise G16.
const releaseRows = "UPDATE {log}{by id} SET version=version+1, delivery_count=delivery_count-1, lease_until=0, updated_at={stamp}" +
	" WHERE id IN ({ids}) AND token={token} AND delivery_count>0 AND lease_until>0"

// Release implements Store.
func (s *Store) Release(ctx context.Context, ids []processlog.ID, token processlog.Token) (unreleased processlog.Unreleased, err error) {
	ctx = s.urgently(ctx)
	for chunk := range slices.Chunk(slices.Clone(ids), processlog.MaxRows) {
		_, busy, err := s.updateRows(ctx, chunk, func(ids []processlog.ID) string {
			return s.sql(releaseRows, "ids", idList(ids), "token", s.d.binary(token[:]))
		})
		var refusedErr *processlog.RefusedError
		switch {
		case errors.As(err, &refusedErr):
			unreleased.Refused = append(unreleased.Refused, refusedErr.Refusals...)
		case err != nil:
			return unreleased, fmt.Errorf("compensator: release %d entries: %w", len(ids), err)
		}
		unreleased.Busy = append(unreleased.Busy, busy...)
	}
	return unreleased, nil
}

// In these statements state+0 keeps the due index out of the plan, as in settleRows.
const (
	renewRows   = "UPDATE {log}{by id} SET lease_until={now}+{lease} WHERE id IN ({ids}) AND version={version} AND state+0 IN (0,-1,-3){and steady}"
	renewedRows = "SELECT id FROM {log} WHERE id IN ({ids}) AND version={version} AND state+0 IN (0,-1,-3)"
)

// Renew implements Store. It does not change the version, which guards the outcome of the attempt. A locked row keeps its
// lease as it is.
func (s *Store) Renew(ctx context.Context, held []processlog.Held, lease time.Duration) (unrenewed processlog.Unrenewed, err error) {
	ctx = s.urgently(ctx)
	byVersion := make(map[uint64][]processlog.ID)
	for _, h := range held {
		byVersion[h.Version] = append(byVersion[h.Version], h.ID)
	}
	for version, all := range byVersion {
		for ids := range slices.Chunk(all, processlog.MaxRows) {
			if err := s.renew(ctx, ids, version, lease, &unrenewed); err != nil {
				return unrenewed, fmt.Errorf("compensator: renew %d leases: %w", len(held), err)
			}
		}
	}
	return unrenewed, nil
}

func (s *Store) renew(ctx context.Context, ids []processlog.ID, version uint64, lease time.Duration, unrenewed *processlog.Unrenewed) error {
	changedRows, busy, err := s.updateFreeRows(ctx, ids, func(ids []processlog.ID) string {
		return s.sql(renewRows, "lease", signed(processlog.Millis(lease)), "ids", idList(ids), "version", decimal(version))
	})
	var refusedErr *processlog.RefusedError
	if errors.As(err, &refusedErr) {
		// The database refuses to write a row only after it has found that the row matches the condition of renewRows.
		// So a refused row still has the version of its claim, and its lease is not lost.
		unrenewed.Refused = append(unrenewed.Refused, refusedErr.Refusals...)
		changedRows += int64(len(refusedErr.Refusals))
		err = nil
	}
	if err != nil || changedRows == int64(len(ids)) {
		return err
	}
	// A lease is lost only if renewedRows does not find its row. Otherwise the row was only locked.
	var stillLeased []processlog.ID
	err = s.readLatest(ctx, func(readTx processlog.Tx) (err error) {
		stillLeased, err = queryIDs(ctx, readTx, s.sql(renewedRows, "ids", idList(ids), "version", decimal(version)))
		return err
	})
	if err != nil {
		return err
	}
	lostIDs := withoutIDs(ids, stillLeased)
	unrenewed.Lost = append(unrenewed.Lost, lostIDs...)
	unrenewed.Busy = append(unrenewed.Busy, withoutIDs(busy, lostIDs)...)
	return nil
}
