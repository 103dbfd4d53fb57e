package sqlstore

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/compensator-go/compensator/internal/jitter"
	"github.com/compensator-go/compensator/processlog"
)

// updateRows runs one guarded UPDATE over ids, in ascending order. It never waits long for a lock. It leaves locked rows
// unchanged and returns them in busy. A *RefusedError names the rows that the database refuses to write. After any other
// error it is unknown which rows changed.
func (s *Store) updateRows(ctx context.Context, ids []processlog.ID, update func(ids []processlog.ID) string) (changedRows int64, busy []processlog.ID, err error) {
	write := s.updateAtOnce
	return s.updateApart(ctx, ids, update, func(ctx context.Context, ids []processlog.ID, update func(ids []processlog.ID) string) (int64, []processlog.ID, error) {
		// If the database refuses a row, updateApart splits the ids and calls this function for each half. A half with
		// a locked row would wait again. So only the first call may wait, and all later calls use updateFree.
		once := write
		write = s.updateFree
		return once(ctx, ids, update)
	})
}

type rowUpdate func(ctx context.Context, ids []processlog.ID, update func(ids []processlog.ID) string) (changedRows int64, busy []processlog.ID, err error)

func (s *Store) updateApart(ctx context.Context, ids []processlog.ID, update func(ids []processlog.ID) string, write rowUpdate) (changedRows int64, busy []processlog.ID, err error) {
	slices.SortFunc(ids, processlog.ID.Compare)
	refusals, remainingIDs, err := writeApart(ctx, s, ids, func(ids []processlog.ID) error {
		n, lockedIDs, err := write(ctx, ids, update)
		changedRows += n
		busy = append(busy, lockedIDs...)
		return err
	})
	busy = append(busy, remainingIDs...) // The untried rows are unchanged. The caller offers them again later.
	if err == nil && len(refusals) > 0 {
		err = asRefused(refusals)
	}
	return changedRows, busy, err
}

func asRefused(items []refusal[processlog.ID]) error {
	refusals := make([]processlog.Refusal, len(items))
	for i, r := range items {
		refusals[i] = processlog.Refusal{ID: r.item, Err: r.err}
	}
	return &processlog.RefusedError{Refusals: refusals}
}

// updateAtOnce sends the UPDATE without asking first which rows are free. It does so only in sessions of the library's
// own pool on a server with SKIP LOCKED, because their waits for locks are short. If the UPDATE waits in vain,
// updateAtOnce asks which rows are free, and updates only these rows.
//
// In the user's sessions and on other servers, updateAtOnce does the same as updateFree, which always asks first.
func (s *Store) updateAtOnce(ctx context.Context, ids []processlog.ID, update func(ids []processlog.ID) string) (changedRows int64, busy []processlog.ID, err error) {
	if s.ownPool == nil || s.d.halves {
		return s.updateFree(ctx, ids, update)
	}
	startedAt := time.Now()
	changedRows, err = execCount(ctx, s.pool(), update(ids))
	if ctx.Err() == nil && s.waitedInVain(err, time.Since(startedAt)) {
		return s.updateFreeAfter(ctx, ids, update, waitIn(s.asWait(ctx, err, startedAt)))
	}
	return changedRows, nil, s.dropReadOnly(err)
}

// waitedInVain reports whether a statement may have failed because it waited for a locked row. This includes a
// statement whose connection broke after more than lockedSilence. The server may still be running this statement.
// Nevertheless it is safe to repeat the statement, because a guarded UPDATE changes no row twice.
func (s *Store) waitedInVain(err error, took time.Duration) bool {
	switch s.d.fault(err) {
	case faultBusy, faultEnded:
		return true
	case faultUnreachable:
		return took > lockedSilence
	}
	return false
}

// lockedSilence tells two causes of a broken connection apart. After a longer time, the statement was probably waiting
// for a lock: a client with a short readTimeout gives up before the server does. After a shorter time, the connection
// itself broke.
const lockedSilence = 100 * time.Millisecond

// updateFreeRows has the results of updateRows, but never waits for a lock.
func (s *Store) updateFreeRows(ctx context.Context, ids []processlog.ID, update func(ids []processlog.ID) string) (changedRows int64, busy []processlog.ID, err error) {
	return s.updateApart(ctx, ids, update, s.updateFree)
}

func (s *Store) updateFree(ctx context.Context, ids []processlog.ID, update func(ids []processlog.ID) string) (changedRows int64, busy []processlog.ID, err error) {
	return s.updateFreeAfter(ctx, ids, update, nil)
}

// updateFreeAfter updates the rows that are free. The parameter waitErr is nil, or is the error of an earlier UPDATE
// that waited in vain for a lock. The earlier UPDATE was for the same rows.
//
// If none of these rows is locked now, the earlier UPDATE has waited for some other row, which a trigger wanted to
// write. A further UPDATE would wait for it again. So updateFreeAfter changes nothing and returns waitErr.
func (s *Store) updateFreeAfter(ctx context.Context, ids []processlog.ID, update func(ids []processlog.ID) string, waitErr *waitError) (changedRows int64, busy []processlog.ID, err error) {
	err = s.inOwn(ctx, func(tx processlog.Transaction) error {
		freeIDs, err := s.lockFree(ctx, tx, ids)
		if busy = withoutIDs(ids, freeIDs); err != nil || len(freeIDs) == 0 {
			return err
		}
		if waitErr != nil && len(busy) == 0 {
			return waitErr
		}
		changedRows, err = s.writeHeld(ctx, tx, update(freeIDs))
		return err
	})
	if err != nil {
		return 0, nil, err
	}
	return changedRows, busy, nil
}

// updateFreeFrom returns a function that does the same as updateFree, except in its first call. The first call sends no
// statement and returns waitErr, because an earlier statement has already waited in vain for the same rows.
func (s *Store) updateFreeFrom(waitErr *waitError) rowUpdate {
	return func(ctx context.Context, ids []processlog.ID, update func(ids []processlog.ID) string) (int64, []processlog.ID, error) {
		if first := waitErr; first != nil {
			waitErr = nil
			return 0, nil, first
		}
		return s.updateFree(ctx, ids, update)
	}
}

const (
	lockRows    = "SELECT id FROM {log}{by id} WHERE id IN ({ids}) ORDER BY id{lock}"
	presentRows = "SELECT id FROM {log}{by id} WHERE id IN ({ids}) ORDER BY id"
)

// lockFree locks the rows that no other transaction has locked. It returns their ids, and the ids that have no row.
func (s *Store) lockFree(ctx context.Context, tx processlog.Tx, ids []processlog.ID) ([]processlog.ID, error) {
	if s.d.skipLocked == "" {
		// On SQLite, the transaction has locked the whole database. So no row is locked by another transaction.
		return ids, nil
	}
	locked, err := readFree(ctx, s, ids, func(ids []processlog.ID, lock string) ([]processlog.ID, error) {
		return queryIDs(ctx, tx, s.sql(lockRows, "ids", idList(ids), "lock", lock))
	})
	if err != nil || len(locked) == len(ids) {
		return locked, err
	}
	present, err := queryIDs(ctx, tx, s.sql(presentRows, "ids", idList(ids)))
	if err != nil {
		return nil, err
	}
	missing := withoutIDs(ids, present)
	freeIDs := append(locked, missing...)
	slices.SortFunc(freeIDs, processlog.ID.Compare)
	return freeIDs, nil
}

// readFree locks the rows that are free. The function read must append the text lock to its query. On a server without
// SKIP LOCKED, readFree tries NOWAIT, and halves the ids after each failure.
func readFree[T any](ctx context.Context, s *Store, ids []processlog.ID, read func(ids []processlog.ID, lock string) ([]T, error)) ([]T, error) {
	if !s.d.halves {
		return read(ids, s.d.skipLocked)
	}
	rows, err := read(ids, s.d.lockNow)
	if s.d.fault(err) != faultBusy {
		return rows, err
	}
	if len(ids) == 1 {
		return nil, nil
	}
	// Another process may try NOWAIT on the same rows at the same time, and both fail. A random wait makes it unlikely
	// that both try again at the same time.
	select {
	case <-time.After(jitter.N(4 * time.Millisecond)):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	rows, err = readFree(ctx, s, ids[:len(ids)/2], read)
	if err != nil {
		return nil, err
	}
	rest, err := readFree(ctx, s, ids[len(ids)/2:], read)
	return append(rows, rest...), err
}

func withoutIDs(ids, drop []processlog.ID) []processlog.ID {
	dropped := make(map[processlog.ID]bool, len(drop))
	for _, id := range drop {
		dropped[id] = true
	}
	var rest []processlog.ID
	for _, id := range ids {
		if !dropped[id] {
			rest = append(rest, id)
		}
	}
	return rest
}

func execCount(ctx context.Context, tx processlog.Tx, query string) (int64, error) {
	res, err := tx.ExecContext(ctx, query)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func queryIDs(ctx context.Context, tx processlog.Tx, query string) ([]processlog.ID, error) {
	rows, err := tx.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var ids []processlog.ID
	for rows.Next() {
		var id uint64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, processlog.RowID(id))
	}
	return ids, rows.Err()
}

func idList(ids []processlog.ID) string {
	b := make([]byte, 0, len(ids)*12)
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, id.Row(), 10)
	}
	return string(b)
}
