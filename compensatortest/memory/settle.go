package memory

import (
	"context"
	"fmt"

	"github.com/compensator-go/compensator/processlog"
)

// Settle implements processlog.Store. It settles the free rows first. Then it waits up to 2 seconds for rows that a
// transaction holds, and reports the rows that are still held as busy.
func (s *Store) Settle(ctx context.Context, token processlog.Token, outcomes []processlog.Outcome) ([]processlog.Settled, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ids := make([]processlog.ID, len(outcomes))
	for i, outcome := range outcomes {
		ids[i] = outcome.ID
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	results := make([]processlog.Settled, len(outcomes))
	busyIndexes, err := s.eachLocked(ctx, ids, func(i int, row *storedRow) {
		results[i] = s.settleLocked(row, token, outcomes[i])
	})
	if err != nil {
		return nil, fmt.Errorf("settle %d entries: %w", len(outcomes), err)
	}
	for _, i := range busyIndexes {
		results[i] = processlog.Settled{Busy: true}
	}
	return results, nil
}

// settleLocked settles one row. A caller may repeat a Settle if the answer was lost. The row then no longer accepts the
// outcome, but the row has the caller's token. In this case the first Settle has stored the outcome, and settleLocked
// reports the outcome as applied again.
func (s *Store) settleLocked(row *storedRow, token processlog.Token, outcome processlog.Outcome) processlog.Settled {
	if row == nil {
		return processlog.Settled{Missing: true}
	}
	before := row.committed
	if !before.isOfClaim(outcome) {
		return processlog.Settled{Missing: true}
	}
	if !before.acceptsOutcome(outcome, false) {
		if before.token == token {
			return processlog.Settled{Applied: true, State: before.entry.State}
		}
		return processlog.Settled{State: before.entry.State, EndedBy: before.entry.EndedBy}
	}
	if err := s.refusals[outcome.ID]; err != nil {
		return processlog.Settled{Refused: err}
	}
	s.writeLocked(nil, row, before.withOutcome(outcome, false, token, s.nowLocked()), nil)
	if outcome.Case != nil && outcome.To == processlog.Dead {
		s.openCaseLocked(row.committed, *outcome.Case)
	}
	return processlog.Settled{Applied: true, State: outcome.To}
}

// acceptsOutcome reports whether an outcome may be written to the row:
//   - A success outside the handler's transaction needs the epoch of the claim, and an entry that has not ended.
//   - Any other outcome needs the version of the claim, and an entry that has not ended.
func (v *version) acceptsOutcome(outcome processlog.Outcome, inTx bool) bool {
	switch {
	case !v.isOfClaim(outcome):
		return false
	case !inTx && outcome.To == processlog.Compensated:
		return v.entry.Epoch == outcome.Epoch && v.entry.State == processlog.Compensating
	case !inTx && outcome.To == processlog.Succeeded:
		return v.entry.Epoch == outcome.Epoch && (v.entry.State == processlog.Pending || v.entry.State == processlog.Retrying)
	}
	return v.entry.Version == outcome.Version && !v.entry.State.Terminal()
}

func (v *version) isOfClaim(outcome processlog.Outcome) bool {
	return v.entry.IdempotencyKey == outcome.IdempotencyKey
}

// SettleTx implements processlog.Store. It waits up to 50 seconds for a transaction that holds the row.
func (s *Store) SettleTx(ctx context.Context, tx processlog.Tx, token processlog.Token, outcome processlog.Outcome) error {
	ownTx, err := s.unwrap(ctx, tx)
	if err != nil {
		return err
	}
	outcome.Faults, outcome.Attempt = nil, nil
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ownTx.refusalLocked(); err != nil {
		return fmt.Errorf("settle entry %s: %w", outcome.ID, err)
	}
	ctx, cancel := withLockWait(ctx, ownTx)
	defer cancel()
	row, err := s.freeLocked(ctx, ownTx, s.finderOf(outcome.ID))
	switch {
	case err != nil:
		return fmt.Errorf("settle entry %s: %w", outcome.ID, err)
	case row == nil || !row.seenBy(ownTx).acceptsOutcome(outcome, true):
		// Do not hold the row for the transaction. InnoDB at READ COMMITTED also unlocks a row that a statement has not
		// changed.
		return processlog.ErrLeaseLost
	}
	s.writeLocked(ownTx, row, row.seenBy(ownTx).withOutcome(outcome, true, token, s.nowLocked()), nil)
	return nil
}

// holdLocked returns nil when there is no row.
func (s *Store) holdLocked(ctx context.Context, tx *Tx, ref processlog.Ref) (*storedRow, error) {
	if err := tx.refusalLocked(); err != nil {
		return nil, err
	}
	row, err := s.freeLocked(ctx, tx, s.finderOf(ref))
	if err == nil && row != nil && tx != nil {
		tx.holdLocked(row)
	}
	return row, err
}

// Change implements processlog.Store. With a transaction it waits up to 50 seconds for another transaction that holds
// the row. It then holds the row for tx, even when it refuses the change. Without a transaction it waits up to 2
// seconds. Change ignores its third parameter, because the store always knows whether tx is open.
func (s *Store) Change(ctx context.Context, tx processlog.Tx, _ bool, change processlog.Change) (processlog.Row, error) {
	ownTx, err := s.unwrapOptional(ctx, tx)
	if err != nil {
		return processlog.Row{}, err
	}
	ctx, cancel := withLockWait(ctx, ownTx)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	row, err := s.holdLocked(ctx, ownTx, change.Ref)
	if err == nil && row == nil {
		err = processlog.ErrNotFound
	}
	if err != nil {
		return processlog.Row{}, fmt.Errorf("%s entry %v: %w", change.Action, change.Ref, err)
	}
	return s.changeLocked(ownTx, row, change)
}

func (s *Store) changeLocked(tx *Tx, row *storedRow, change processlog.Change) (processlog.Row, error) {
	now := s.nowLocked()
	before := row.seenBy(tx).row(now)
	after, err := change.After(before)
	if err != nil || after.Version == before.Version {
		return before, err
	}
	var audit *processlog.AuditRecord
	if change.Audited() {
		record := change.Record(before, after)
		record.At = millisToTime(now)
		audit = &record
	}
	s.writeLocked(tx, row, row.seenBy(tx).withChange(after, now), audit)
	if change.Action == processlog.ActionErase {
		s.eraseOperationsLocked(before.ID)
	}
	return before, nil
}

// RequeueAll implements processlog.Store.
func (s *Store) RequeueAll(ctx context.Context, seen []processlog.Version, change processlog.Change) ([]processlog.Changed, error) {
	return s.changeSeen(ctx, seen, change, nil, func(processlog.Row) {}, nil)
}

// changeSeen calls onChanged with the earlier row of each changed entry. begin and finish may be nil.
func (s *Store) changeSeen(ctx context.Context, seen []processlog.Version, change processlog.Change, begin func() error, onChanged func(before processlog.Row), finish func(answers []processlog.Changed)) ([]processlog.Changed, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if begin != nil {
		if err := begin(); err != nil {
			return nil, err
		}
	}
	results := make([]processlog.Changed, len(seen))
	for i, v := range seen {
		row := s.rows[v.ID]
		switch {
		case row == nil || row.committed == nil:
			results[i].Err = processlog.ErrNotFound
		case !row.freeFor(nil):
			results[i].Err = processlog.ErrBusy
		default:
			results[i].Before = row.committed.row(s.nowLocked())
			if _, results[i].Err = change.AfterSeen(results[i].Before, v); results[i].Err == nil {
				if _, results[i].Err = s.changeLocked(nil, row, change); results[i].Err == nil {
					onChanged(results[i].Before)
				}
			}
		}
		results[i].Before.Content = nil
	}
	if finish != nil {
		finish(results)
	}
	return results, nil
}
