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

// Claim implements Store in one transaction:
//
//   - It locks those wanted rows that are free, by primary key.
//   - It decides which of them may be claimed.
//   - It writes the leases, on the condition that each row still has the version that was read.
//
// On a server whose SKIP LOCKED locks nothing (TiDB), that condition still gives each row one owner.
func (s *Store) Claim(ctx context.Context, want []processlog.Wanted, token processlog.Token, lease time.Duration, accept func(*processlog.Row) bool) (processlog.Claimed, error) {
	return s.claim(ctx, want, token, lease, nil, accept)
}

// claim implements Claim, and ClaimLimited if permits is not nil.
func (s *Store) claim(ctx context.Context, want []processlog.Wanted, token processlog.Token, lease time.Duration, permits *permits, accept func(*processlog.Row) bool) (processlog.Claimed, error) {
	if len(want) == 0 {
		return processlog.Claimed{}, nil
	}
	c := claim{s: s, token: token, lease: lease, permits: permits, knownTokens: make(map[processlog.ID]processlog.Token, len(want))}
	for _, w := range want {
		c.knownTokens[w.ID] = w.Token
		c.ids = append(c.ids, w.ID)
	}
	// All code locks rows in id order, so that no two transactions deadlock (G14, producers are not harmed).
	slices.SortFunc(c.ids, processlog.ID.Compare)
	c.ids = slices.Compact(c.ids) // A row that is wanted several times is claimed once.
	// One transaction reads, decides and writes, so no other transaction changes a row between the decision and the
	// write.
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

// claim is the state of one Claim call.
type claim struct {
	s           *Store
	ids         []processlog.ID
	knownTokens map[processlog.ID]processlog.Token
	token       processlog.Token
	lease       time.Duration
	permits     *permits // nil: the claim needs no permits
	result      processlog.Claimed
	waitErr     *waitError       // set if a trigger waited for a lock
	retryRows   []processlog.Row // rows to claim again: the database refused some of them, or a trigger waited
}

func (c *claim) run(ctx context.Context, tx processlog.Tx, accept func(*processlog.Row) bool) error {
	var rows []processlog.Row
	for chunk := range slices.Chunk(c.ids, processlog.MaxRows) {
		freeRows, err := readFree(ctx, c.s, chunk, func(ids []processlog.ID, lock string) ([]processlog.Row, error) {
			// Read by primary key. Through the due index the lock would cover the range into which producers insert (G14,
			// producers are not harmed).
			return c.s.queryRows(ctx, tx, len(ids), c.s.sql(claimRead, "ids", idList(ids), "lock", lock))
		})
		if err != nil {
			return err
		}
		if rows = append(rows, freeRows...); len(rows) == len(freeRows) {
			rows = freeRows // Avoid copying the first chunk.
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
	if err := c.s.addFaults(ctx, tx, claimedRows); err != nil { // Read the Faults after the rows are locked, because the transaction that changes a row also writes its Faults.
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

// choose separates the locked rows that may be claimed from the others. It moves the rows that it returns to the front
// of rows.
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

// claimable reports whether an entry may be claimed. No entry runs before it is due (promise G9) or while another
// process has its lease (G16, repetitions are counted), even if the queue offers it.
func (c *claim) claimable(row *processlog.Row) bool {
	return !row.State.Terminal() && row.DueIn <= 0 && (row.LeaseLeft <= 0 || c.heldByCaller(row))
}

const claimUnread = "SELECT id FROM {log} WHERE id IN ({ids})"

// classifyUnread finds out which of the unread wanted rows are locked, and which do not exist.
func (c *claim) classifyUnread(ctx context.Context, tx processlog.Tx, rows []processlog.Row) error {
	if len(rows) == len(c.ids) {
		return nil
	}
	readIDs := make([]processlog.ID, len(rows))
	for i := range rows {
		readIDs[i] = rows[i].ID
	}
	// A locked row is read again soon. If a row does not exist or is not committed, the queue should not have offered
	// it, and the queue forgets it (G10, the queue is a hint). When the row is committed, its commit or the reconciler
	// enqueues it again. The other rows are claimed in both cases.
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

// claimGroup holds the values that all rows of one claim statement share. Most batches have one or two groups.
type claimGroup struct {
	version            uint64
	keepsDeliveryCount bool // result of claim.keepsDeliveryCount
}

func (c *claim) grouped(rows []processlog.Row) map[claimGroup][]processlog.ID {
	groups := make(map[claimGroup][]processlog.ID)
	for i := range rows {
		g := claimGroup{rows[i].Version, c.keepsDeliveryCount(&rows[i])}
		groups[g] = append(groups[g], rows[i].ID)
	}
	return groups
}

// claimRows leases the rows of one claimGroup. The transaction has locked these rows, so they still have the version
// that was read. claimUnusual does the same for a group that keeps its delivery count, or whose version starts again at
// 1.
const (
	claimRows = "UPDATE {log}{by id} SET version=version+1, delivery_count=delivery_count+1, token={token}, lease_until={now}+{lease}, updated_at={stamp}" +
		" WHERE id IN ({ids}) AND version={version}{and steady}"
	claimUnusual = "UPDATE {log}{by id} SET version={next version}, delivery_count=delivery_count+{deliveries}, token={token}, lease_until={now}+{lease}, updated_at={stamp}" +
		" WHERE id IN ({ids}) AND version={version}{and steady}"
)

// update returns the statement that leases the rows of one group.
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

// take writes the leases of rows in the open transaction.
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

// takeApart claims rows once more, after their transaction was rolled back because the database refused some rows or a
// trigger waited. The version that was read still guards each claim: a row that has changed since is not claimed.
func (c *claim) takeApart(ctx context.Context) error {
	refused := make(map[processlog.ID]bool)
	for g, ids := range c.grouped(c.retryRows) {
		if c.waitErr != nil && !timeFor(ctx, rowWait) {
			break // Rows that are not claimed by now are read again soon.
		}
		write := c.s.updateFree
		if c.waitErr != nil && len(ids) == len(c.retryRows) { // All rows together have waited for a lock already, so do not try all of them together again.
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

// heldByCaller reports whether the caller already has this row under the token in Wanted.
func (c *claim) heldByCaller(row *processlog.Row) bool {
	token := c.knownTokens[row.ID]
	return token != processlog.Token{} && token == row.Token
}

// keepsDeliveryCount reports whether the UPDATE must leave the delivery count unchanged. If the caller already holds
// the entry, its delivery has been counted. A second count would look like a lost lease, and lost leases count as
// crashes. A count of MaxCount or more also stays, because other software wrote it, and it may be too large to raise.
func (c *claim) keepsDeliveryCount(row *processlog.Row) bool {
	return row.DeliveryCount > 0 && c.heldByCaller(row) || row.DeliveryCount >= processlog.MaxCount
}

// lastVersion is a version that no row of this library ever reaches. A row to which other software wrote such a version
// starts again at 1. Otherwise the statement could not raise its version, and would fail for all other rows too.
const lastVersion = 1 << 62

// markClaimed changes the row in memory to the values that the claim statement has stored.
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

// keepTaken reads which rows carry the claim's token, and adds the other rows to the waiting ones. Call it after
// takeApart, and on a server whose SKIP LOCKED locks nothing. In both cases the claim does not know which rows it has
// leased.
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

// releaseRows changes only rows with the caller's token. If another process has claimed an entry since, that process
// keeps its lease. The first Release sets lease_until to 0. So a repeated Release finds no row and changes no count
// (G16, repetitions are counted).
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

// Renew implements Store. It is the only write that does not change the version, because the version guards the outcome
// of the attempt. A row that another transaction has locked keeps its lease as it is, and does not delay the renewal of
// the others.
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
		// The database refuses only rows that the condition of the UPDATE matches, so their leases are not lost.
		unrenewed.Refused = append(unrenewed.Refused, refusedErr.Refusals...)
		changedRows += int64(len(refusedErr.Refusals))
		err = nil
	}
	if err != nil || changedRows == int64(len(ids)) {
		return err
	}
	// If fewer rows changed, some may only be locked. A lease is lost only if renewedRows no longer finds its row.
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
