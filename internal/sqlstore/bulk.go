package sqlstore

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/processlog"
)

// storedBulk is the content of the column before_state in the record of a batch. The batches of one action are found by
// comparing this column. The JSON names of this type and of storedBatch never change.
type storedBulk struct {
	Bulk string `json:"bulk"` // BulkID.Secret in the first batch, and BulkID.String in the others
}

// storedBatch is what the column after_state of a batch holds.
type storedBatch struct {
	Entries []processlog.BulkEntry `json:"entries"`
	Skipped []processlog.BulkSkip  `json:"skipped,omitempty"`
	Plan    json.RawMessage        `json:"plan,omitempty"`
}

func bulkMark(text string) []byte {
	mark, _ := json.Marshal(storedBulk{text}) // A text always encodes as JSON.
	return mark
}

// isBatch reports whether a before_state is that of a batch.
func isBatch(oldState []byte) bool { return bytes.HasPrefix(oldState, []byte(`{"bulk":`)) }

// ChangeBulk implements Operations. It writes one row more than ChangeAll. The row is only inserted and never updated,
// because a program may lack the right to update the audit table.
func (s *Store) ChangeBulk(ctx context.Context, seenVersions []processlog.Version, ch processlog.Change, batch processlog.BulkBatch) (processlog.BulkID, []processlog.Changed, error) {
	id := batch.ID
	answers, err := s.changeSeen(ctx, seenVersions, ch, s.applyAndClose, func(tx processlog.Tx, answers []processlog.Changed) error {
		record, err := s.insertBatch(ctx, tx, batch.With(seenVersions, answers, ch))
		if batch.ID.Record == 0 {
			id.Record = record
		}
		return err
	})
	return id, answers, err
}

// lastBatch finds the row that insertBatch has inserted. Drivers and servers differ in what they say about inserted ids.
const lastBatch = "SELECT id FROM {audit} WHERE entry_id=0 AND before_state={mark} ORDER BY id DESC LIMIT 1"

func (s *Store) insertBatch(ctx context.Context, tx processlog.Tx, batch processlog.BulkBatch) (uint64, error) {
	data, err := json.Marshal(storedBatch{batch.Entries, batch.Skipped, batch.Plan})
	if err != nil {
		return 0, fmt.Errorf("compensator: record %s of several entries: %w", batch.Action, err)
	}
	mark := bulkMark(batch.ID.Secret)
	if batch.ID.Record > 0 {
		mark = bulkMark(batch.ID.String())
	}
	err = s.insertAudit(ctx, tx, batch.Action, processlog.AuditInfo{Actor: batch.Actor, Reason: batch.Reason}, auditRow{oldState: mark, newState: data})
	failpoint.Reach(failpoint.BatchRecorded)
	if err != nil || batch.ID.Record > 0 {
		return batch.ID.Record, err
	}
	rows, err := queryIDs(ctx, tx, s.sql(lastBatch, "mark", s.d.binary(mark)))
	if err != nil || len(rows) == 0 {
		return 0, fmt.Errorf("compensator: find the record of %s of several entries: %d rows: %w", batch.Action, len(rows), err)
	}
	return rows[0].Row(), nil
}

// batchRows finds the rows of the batches of an action. It compares a limited number of rows, and reads the index on entry_id.
const (
	batchRows = "SELECT id FROM (SELECT id, before_state FROM {audit} WHERE entry_id=0 AND id>={first} ORDER BY id LIMIT {limit}) AS records WHERE before_state IN ({first mark},{mark})"
	batches   = "SELECT {ms created_at}, {text action, actor, reason}, after_state FROM {audit} WHERE id IN ({ids}) ORDER BY id"
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
	ids, err := queryIDs(ctx, s.pool(), s.withTimeLimit(ctx, s.sql(batchRows, "first", strconv.FormatUint(id.Record, 10), "limit", strconv.Itoa(processlog.MaxBulkRecords),
		"first mark", s.d.binary(bulkMark(id.Secret)), "mark", s.d.binary(bulkMark(id.String())))))
	if err != nil || len(ids) == 0 || slices.MinFunc(ids, processlog.ID.Compare).Row() != id.Record { // The secret of another action does not help.
		return nil, err
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
		if err := rows.Scan(&at, &batch.Action, &batch.Actor, &batch.Reason, &data); err != nil {
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
