package sqlstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/processlog"
)

// storedBulk is before_state in the record of a batch. The JSON names of this type and of storedBatch never change.
type storedBulk struct {
	Bulk string `json:"bulk"` // BulkID.Secret in the first batch, and BulkID.String in the others
}

// storedBatch is after_state in the record of a batch.
type storedBatch struct {
	Entries []processlog.BulkEntry `json:"entries"`
	Skipped []processlog.BulkSkip  `json:"skipped,omitempty"`
	Plan    json.RawMessage        `json:"plan,omitempty"`
}

func bulkMark(text string) []byte {
	mark, _ := json.Marshal(storedBulk{text})
	return mark
}

func isBatch(oldState []byte) bool { return bytes.HasPrefix(oldState, []byte(`{"bulk":`)) }

// ChangeBulk implements Operations. ChangeBulk never updates a row of the audit table but inserts further rows, because
// a program may lack the right to update that table.
func (s *Store) ChangeBulk(ctx context.Context, seenVersions []processlog.Version, ch processlog.Change, batch processlog.BulkBatch) (record uint64, answers []processlog.Changed, err error) {
	var begin func(tx processlog.Tx) error
	switch {
	case batch.Follows > 0:
		begin = func(tx processlog.Tx) error { return s.requireLast(ctx, tx, batch) }
	case batch.Once && batch.ID.Record == 0:
		begin = func(tx processlog.Tx) error { return s.requireFirst(ctx, tx, batch) }
	}
	answers, err = s.changeSeen(ctx, seenVersions, ch, s.applyBatch, begin, func(tx processlog.Tx, answers []processlog.Changed) (err error) {
		record, err = s.insertBatch(ctx, tx, batch.With(seenVersions, answers, ch))
		return err
	})
	return record, answers, err
}

// bulkSetting is the name of the setting whose row requireLast locks.
const bulkSetting = "actions on all that match"

// lockBulk locks the row of bulkSetting, so that batches are recorded one after the other. It does not lock rows of the
// audit table, because a program may lack the right to do so.
const lockBulk = "INSERT INTO {setting} (name, value, version, actor, reason, `at`) VALUES ({name},{empty},1,{empty},{empty},{now}){again}, version={setting}.version+1"

// requireLast returns ErrChanged if another batch has followed batch.Follows. Call it before the transaction locks
// entries. Then a second caller with the same batch.Follows waits in requireLast, and gets ErrChanged. Otherwise the
// second caller would find the entries locked, and report them as busy.
func (s *Store) requireLast(ctx context.Context, tx processlog.Tx, batch processlog.BulkBatch) error {
	if err := s.lockBulks(ctx, tx); err != nil {
		return err
	}
	last, err := s.lastBatch(ctx, tx, batch.ID)
	if err == nil && last != batch.Follows {
		err = fmt.Errorf("continue the action %d: %w", batch.ID.Record, processlog.ErrChanged)
	}
	return err
}

func (s *Store) lockBulks(ctx context.Context, tx processlog.Tx) error {
	_, err := tx.ExecContext(ctx, s.sql(lockBulk, "name", s.d.text(bulkSetting), "again", s.d.again("name", "`at`")))
	return err
}

const firstOfBulk = "SELECT id FROM (SELECT id, before_state FROM {audit} WHERE entry_id=0 ORDER BY id DESC LIMIT {limit}) AS records WHERE before_state={mark}"

// requireFirst returns ErrChanged if an earlier action has the same BulkID.Secret as the parameter batch. It locks the
// row of bulkSetting, so that no other action with this secret begins at the same time.
func (s *Store) requireFirst(ctx context.Context, tx processlog.Tx, batch processlog.BulkBatch) error {
	if err := s.lockBulks(ctx, tx); err != nil {
		return err
	}
	rows, err := queryIDs(ctx, tx, s.firstOfBulk(batch.ID.Secret))
	if err == nil && len(rows) > 0 {
		err = fmt.Errorf("the action %d has begun with the same key: %w", rows[0].Row(), processlog.ErrChanged)
	}
	return err
}

func (s *Store) firstOfBulk(secret string) string {
	return s.sql(firstOfBulk, "limit", strconv.Itoa(processlog.MaxBulkKeys), "mark", s.d.binary(bulkMark(secret)))
}

// lastOfBulk reads the id by a query, because servers return different values as the inserted id.
const lastOfBulk = "SELECT id FROM {audit} WHERE entry_id=0 AND id>={first} AND before_state={mark} ORDER BY id DESC LIMIT 1"

func (s *Store) lastBatch(ctx context.Context, tx processlog.Tx, id processlog.BulkID) (uint64, error) {
	rows, err := queryIDs(ctx, tx, s.sql(lastOfBulk, "first", strconv.FormatUint(id.Record, 10), "mark", s.d.binary(markOf(id))))
	if err != nil || len(rows) == 0 {
		return id.Record, err
	}
	return rows[0].Row(), nil
}

func markOf(id processlog.BulkID) []byte {
	if id.Record == 0 {
		return bulkMark(id.Secret)
	}
	return bulkMark(id.String())
}

func (s *Store) insertBatch(ctx context.Context, tx processlog.Tx, batch processlog.BulkBatch) (uint64, error) {
	data, err := json.Marshal(storedBatch{batch.Entries, batch.Skipped, batch.Plan})
	if err != nil {
		return 0, fmt.Errorf("compensator: record %s of several entries: %w", batch.Action, err)
	}
	err = s.insertAudit(ctx, tx, batch.Action, processlog.AuditInfo{Actor: batch.Actor, Reason: batch.Reason}, auditRow{oldState: markOf(batch.ID), newState: data})
	failpoint.Reach(failpoint.BatchRecorded)
	if err != nil {
		return 0, err
	}
	record, err := s.lastBatch(ctx, tx, batch.ID)
	if err == nil && record == 0 {
		err = errors.New("no such row")
	}
	if err != nil {
		return 0, fmt.Errorf("compensator: find the record of %s of several entries: %w", batch.Action, err)
	}
	return record, nil
}

const (
	batchRows = "SELECT id FROM (SELECT id, before_state FROM {audit} WHERE entry_id=0 AND id>={first} ORDER BY id LIMIT {limit}) AS records WHERE before_state IN ({first mark},{mark})"
	batches   = "SELECT id, {ms created_at}, {text action, actor, reason}, after_state FROM {audit} WHERE id IN ({ids}) ORDER BY id"
)

// Bulk implements Operations.
func (s *Store) Bulk(ctx context.Context, id processlog.BulkID) ([]processlog.BulkBatch, error) {
	found, err := s.bulk(ctx, id)
	switch {
	case err != nil:
		return nil, fmt.Errorf("compensator: read the action %d on several entries: %w", id.Record, err)
	case len(found) == 0:
		return nil, processlog.ErrNotFound
	}
	return found, nil
}

func (s *Store) bulk(ctx context.Context, id processlog.BulkID) ([]processlog.BulkBatch, error) {
	if id.Record == 0 {
		ids, err := queryIDs(ctx, s.pool(), s.withTimeLimit(ctx, s.firstOfBulk(id.Secret)))
		if err != nil || len(ids) == 0 {
			return nil, err
		}
		id.Record = ids[0].Row()
	}
	ids, err := queryIDs(ctx, s.pool(), s.withTimeLimit(ctx, s.sql(batchRows, "first", strconv.FormatUint(id.Record, 10), "limit", strconv.Itoa(processlog.MaxBulkRecords),
		"first mark", s.d.binary(bulkMark(id.Secret)), "mark", s.d.binary(bulkMark(id.String())))))
	// The first of these records must be id.Record. If the first one is another record, the caller has the secret of
	// another action, and must get nothing.
	if err != nil || len(ids) == 0 || slices.MinFunc(ids, processlog.ID.Compare).Row() != id.Record {
		return nil, err
	}
	slices.SortFunc(ids, processlog.ID.Compare)
	if surplus := len(ids) - 1 - processlog.MaxBulkBatches; surplus > 0 {
		ids = slices.Delete(ids, 1, 1+surplus)
	}
	rows, err := s.read(ctx, s.sql(batches, "ids", idList(ids)))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var found []processlog.BulkBatch
	for rows.Next() {
		var data []byte
		var at int64
		batch := processlog.BulkBatch{ID: id}
		if err := rows.Scan(&batch.Record, &at, &batch.Action, &batch.Actor, &batch.Reason, &data); err != nil {
			return nil, err
		}
		var stored storedBatch
		if err := json.Unmarshal(data, &stored); err != nil {
			return nil, err
		}
		batch.At, batch.Entries, batch.Skipped, batch.Plan = unixMilli(at), stored.Entries, stored.Skipped, stored.Plan
		found = append(found, batch)
	}
	return found, rows.Err()
}
