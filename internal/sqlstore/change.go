package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/processlog"
)

const changeTimeout = 2 * time.Second

// Change implements Store.
func (s *Store) Change(ctx context.Context, tx processlog.Tx, proven bool, ch processlog.Change) (processlog.Row, error) {
	if tx != nil {
		if !proven || s.d.unseenEnd {
			if err := s.Probe(ctx, tx); err != nil {
				return processlog.Row{}, err
			}
		}
		row, err := s.change(ctx, tx, ch, s.d.lock)
		if errors.Is(err, processlog.ErrNotFound) {
			// The caller's transaction may be in another database than the log, and then finds no entry. In this case,
			// return the error that says so.
			err = cmp.Or(s.wrongSchema(ctx, tx), err)
			s.discardSession(ctx, tx, err)
		}
		if s.d.fault(err) == faultAborted {
			err = fmt.Errorf("%s: %w: %w", ch.Action, processlog.ErrTxAborted, err)
		}
		return row, err
	}
	var row processlog.Row
	err := s.untilFree(ctx, changeTimeout, s.inOwn, func(tx processlog.Transaction) error {
		var err error
		row, err = s.change(ctx, tx, ch, s.d.lockNow)
		return err
	})
	if errors.Is(err, processlog.ErrBusy) {
		err = fmt.Errorf("%s entry %v: %w", ch.Action, ch.Ref, err)
	}
	return row, err
}

// untilFree calls the function work again while other transactions lock the rows, and returns ErrBusy after timeout. It
// never waits inside the database, because the user's sessions may wait very long for a lock.
func (s *Store) untilFree(ctx context.Context, timeout time.Duration, within func(context.Context, func(processlog.Transaction) error) error, work func(processlog.Transaction) error) error {
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	for {
		err := within(ctx, work)
		if f := s.d.fault(err); f != faultBusy && f != faultAborted {
			return err
		}
		select {
		case <-time.After(processlog.LockedRetry / 2):
		case <-deadline.C:
			return processlog.ErrBusy
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *Store) change(ctx context.Context, tx processlog.Tx, ch processlog.Change, lock string) (processlog.Row, error) {
	oldRow, err := s.find(ctx, tx, ch.Ref, lock)
	if err != nil {
		return oldRow, err
	}
	newRow, err := ch.After(oldRow)
	if err != nil || newRow.Version == oldRow.Version {
		return oldRow, err
	}
	return oldRow, s.apply(ctx, tx, ch, []changedRow{{oldRow, newRow}})
}

type changedRow struct{ oldRow, newRow processlog.Row }

func (s *Store) apply(ctx context.Context, tx processlog.Tx, ch processlog.Change, rows []changedRow) error {
	return s.applyRecorded(ctx, tx, ch, rows, false)
}

func (s *Store) applyRecorded(ctx context.Context, tx processlog.Tx, ch processlog.Change, rows []changedRow, isInBatch bool) error {
	// Insert the audit record before the rows change. If the insert fails and the caller commits nevertheless, no row
	// has changed without a record.
	if ch.Audited() {
		if err := s.audit(ctx, tx, ch, rows, isInBatch); err != nil {
			return err
		}
	}
	err := s.rewrite(ctx, tx, ch, rows)
	if ch.Audited() {
		failpoint.Reach(failpoint.AuditWritten)
	}
	return err
}

func (s *Store) rewrite(ctx context.Context, tx processlog.Tx, ch processlog.Change, rows []changedRow) error {
	for _, row := range rows {
		if newRow := row.newRow; newRow.Erased && newRow.State.Terminal() && newRow.State != processlog.Dead {
			if err := s.leaveKey(ctx, tx, newRow); err != nil {
				return err
			}
		}
	}
	if ch.Action == processlog.ActionErase {
		return s.erase(ctx, tx, rows[0]) // ActionErase changes one entry at a time.
	}
	return s.move(ctx, tx, ch.Action, rows)
}

// moveRows compares the version although the rows are locked, because on some servers a row lock has no effect. The
// value {lease} is 0, or lease_until for a row whose running attempt keeps its lease. See promise G4.
const moveRows = "UPDATE {log}{by id} SET state={state}, epoch={epoch}, process_count={process_count}, compensate_count={compensate_count}, delivery_count={delivery_count}," +
	" ended_by={ended_by}, next_at={now}+{wait}, lease_until={lease}, version=version+1, token={token}, updated_at={stamp}{abandoned}" +
	" WHERE id IN ({ids}) AND version={version}"

func (s *Store) move(ctx context.Context, tx processlog.Tx, action processlog.Action, rows []changedRow) error {
	ids := make([]processlog.ID, len(rows))
	for i := range rows {
		ids[i] = rows[i].oldRow.ID
	}
	number := func(of func(r *processlog.Row) int64) string {
		return byRow("id", ids, func(i int) int64 { return of(&rows[i].newRow) }, signed)
	}
	changedRows, err := execCount(ctx, tx, s.sql(moveRows,
		"state", number(func(r *processlog.Row) int64 { return int64(r.State) }),
		"epoch", number(func(r *processlog.Row) int64 { return int64(r.Epoch) }),
		"process_count", number(func(r *processlog.Row) int64 { return int64(r.ProcessCount) }),
		"compensate_count", number(func(r *processlog.Row) int64 { return int64(r.CompensateCount) }),
		"delivery_count", number(func(r *processlog.Row) int64 { return int64(r.DeliveryCount) }),
		"ended_by", byRow("id", ids, func(i int) string { return s.d.endedBy(rows[i].newRow.EndedBy) }, asIs),
		"wait", number(func(r *processlog.Row) int64 { return processlog.DueAfter(r.DueIn) }),
		"lease", byRow("id", ids, func(i int) string {
			return map[bool]string{true: "0", false: "lease_until"}[rows[i].newRow.LeaseLeft == 0]
		}, asIs),
		"token", s.d.binary(rows[0].newRow.Token[:]),
		"abandoned", s.abandonedErrors(ids, rows),
		"ids", idList(ids),
		"version", byRow("id", ids, func(i int) uint64 { return rows[i].oldRow.Version }, decimal)))
	if err == nil && changedRows != int64(len(rows)) {
		err = fmt.Errorf("changed %d of %d rows", changedRows, len(rows))
	}
	if err != nil {
		return fmt.Errorf("compensator: %s entry %s: %w", action, ids[0], err)
	}
	return s.moveFaults(ctx, tx, rows)
}

func (s *Store) abandonedErrors(ids []processlog.ID, rows []changedRow) string {
	sets := func(r changedRow) bool { return r.newRow.LastError != r.oldRow.LastError }
	if !slices.ContainsFunc(rows, sets) {
		return ""
	}
	return ", last_error=" + byRow("id", ids, func(i int) string {
		if sets(rows[i]) {
			return s.textLiteral(rows[i].newRow.LastError)
		}
		return "last_error"
	}, asIs)
}

func (s *Store) moveFaults(ctx context.Context, tx processlog.Tx, rows []changedRow) error {
	var ids []processlog.ID
	faults := make(map[processlog.ID]*processlog.Faults)
	for i := range rows {
		if newRow := &rows[i].newRow; newRow.Faults != (processlog.Faults{}) {
			ids = append(ids, newRow.ID)
			faults[newRow.ID] = &newRow.Faults
		}
	}
	if len(ids) == 0 {
		return nil
	}
	return s.writeFaults(ctx, tx, ids, rows[0].newRow.Token, func(id processlog.ID) *processlog.Faults { return faults[id] })
}
