package sqlstore

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// audit inserts one record for each changed row. If isInBatch is true, the audit log hides these records, and shows one
// record of the whole batch instead.
func (s *Store) audit(ctx context.Context, tx processlog.Tx, ch processlog.Change, rows []changedRow, isInBatch bool) error {
	records := make([]auditRow, len(rows))
	for i := range rows {
		r := ch.Record(rows[i].oldRow, rows[i].newRow)
		records[i] = auditRow{r.EntryID, storedState(r.Before, isInBatch), storedState(r.After, false)}
	}
	if err := s.insertAudit(ctx, tx, ch.Action, processlog.AuditInfo{Actor: ch.Actor, Reason: ch.Reason}, records...); err != nil {
		return fmt.Errorf("compensator: audit entry %s: %w", rows[0].oldRow.ID, err)
	}
	return nil
}

type auditRow struct {
	id                 processlog.ID
	oldState, newState []byte
}

const (
	insertRecords = "INSERT INTO {audit} (entry_id, action, actor, reason, before_state, after_state, created_at) VALUES {records}"
	insertRecord  = "({entry_id},{action},{actor},{reason},{before},{after},{stamp})"
)

func (s *Store) insertAudit(ctx context.Context, tx processlog.Tx, action processlog.Action, by processlog.AuditInfo, records ...auditRow) error {
	rows := make([]string, len(records))
	for i, r := range records {
		rows[i] = s.sql(insertRecord, "entry_id", r.id.String(), "action", s.d.text(string(action)), "actor", s.d.text(by.Actor), "reason", s.d.text(by.Reason),
			"before", s.d.binary(r.oldState), "after", s.d.binary(r.newState))
	}
	_, err := tx.ExecContext(ctx, s.sql(insertRecords, "records", strings.Join(rows, ",")))
	return err
}

// Note implements Store.
func (s *Store) Note(ctx context.Context, action processlog.Action, by processlog.AuditInfo) error {
	if err := s.insertAudit(ctx, s.writePool(), action, by, auditRow{oldState: []byte("{}"), newState: []byte("{}")}); err != nil {
		return fmt.Errorf("compensator: note %q in the log: %w", action, err)
	}
	return nil
}

// storedAudit is the stored form of an AuditState. Its JSON names never change.
type storedAudit struct {
	InBatch      bool   `json:"in_batch,omitempty"` // must be the first field: see inBatchPrefix
	State        int8   `json:"state"`
	Version      uint64 `json:"version"`
	Epoch        uint32 `json:"epoch"`
	ProcessCount int    `json:"process_count"`
	LastError    string `json:"last_error,omitempty"`
}

const inBatchPrefix = `{"in_batch":`

func storedState(r processlog.AuditState, isInBatch bool) []byte {
	text, _ := json.Marshal(storedAudit{InBatch: isInBatch, State: int8(r.State), Version: r.Version, Epoch: r.Epoch, ProcessCount: r.ProcessCount, LastError: r.LastError})
	return text
}

func readState(text []byte) (processlog.AuditState, error) {
	var v storedAudit
	err := json.Unmarshal(text, &v)
	return processlog.AuditState{State: processlog.State(v.State), Version: v.Version, Epoch: v.Epoch, ProcessCount: v.ProcessCount, LastError: v.LastError}, err
}

// History implements Store. It leaves out the records of batches: see Bulk.
func (s *Store) History(ctx context.Context, id processlog.ID) ([]processlog.AuditRecord, error) {
	stored, err := s.history(ctx, s.pool(), id)
	if err != nil {
		return nil, fmt.Errorf("compensator: read the history of entry %s: %w", id, err)
	}
	var history []processlog.AuditRecord
	for _, r := range stored {
		history = append(history, r.AuditRecord)
	}
	return history, nil
}

type storedRecord struct {
	processlog.AuditRecord
	row       uint64
	isInBatch bool // see audit
}

const readHistory = "SELECT id, {ms created_at}, {now}-{ms created_at}, {text action, actor, reason}, before_state, after_state FROM {audit} WHERE entry_id={entry_id} ORDER BY id{every row}"

func (s *Store) history(ctx context.Context, tx processlog.Tx, id processlog.ID) (history []storedRecord, err error) {
	rows, err := tx.QueryContext(ctx, s.sql(readHistory, "entry_id", id.String()))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		r := storedRecord{AuditRecord: processlog.AuditRecord{EntryID: id}}
		var at, ago int64
		var oldState, newState []byte
		err := rows.Scan(&r.row, &at, &ago, &r.Action, &r.Actor, &r.Reason, &oldState, &newState)
		if err == nil && id.IsZero() && isBatch(oldState) {
			continue
		}
		if err == nil {
			r.isInBatch = bytes.HasPrefix(oldState, []byte(inBatchPrefix))
			r.Before, err = readState(oldState)
		}
		if err == nil {
			r.After, err = readState(newState)
		}
		if err != nil {
			return nil, err
		}
		r.At, r.Ago = unixMilli(at), time.Duration(ago)*time.Millisecond
		history = append(history, r)
	}
	return history, rows.Err()
}
