package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/compensator-go/compensator/processlog"
)

// maxStatementBytes is about the maximum size of one INSERT.
const maxStatementBytes = 1 << 20

// rowBytes is the estimated size of a row without its values.
const rowBytes = 256

// insertRows begins an INSERT. One insertRow for each entry follows, and insertedIDs if the statement returns ids. The
// {key} of the first row is a guardedKey.
const (
	insertRows = "INSERT INTO {log} (idempotent_id, business_type, batch_id, business_id, business_ext_id, user_id, user_name, content, headers, " +
		"max_process_count, delay_second, token, next_at, lease_until, delivery_count, created_at, updated_at, state, ended_by) VALUES "
	insertRow   = "({key},{text},{text},{text},{text},{text},{text},{content},{headers},?,?,{bytes},{now} + ?,{lease},{delivery_count},{stamp},{stamp},{state},{ended_by})"
	insertedIDs = " RETURNING id, {text idempotent_id}"
)

// Insert implements Store. Rows are inserted in the order of their idempotency keys, so that two transactions that share
// keys do not deadlock.
func (s *Store) Insert(ctx context.Context, tx processlog.Tx, drafts []processlog.Draft, proven bool) ([]processlog.Inserted, error) {
	// If the transaction was rolled back unnoticed, the INSERT would commit by itself. So ask first whether the
	// transaction is open. If the field inTx is not empty, the INSERT itself contains this check. See promise G2.
	if (!proven || s.d.unseenEnd) && s.d.inTx == "" {
		if err := s.Probe(ctx, tx); err != nil {
			return nil, orRowsOpen(err)
		}
	}
	order := make([]int, len(drafts))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(drafts[a].IdempotencyKey, drafts[b].IdempotencyKey) })
	in := insertion{s: s, tx: tx, drafts: drafts, proven: proven, result: make([]processlog.Inserted, len(drafts))}
	for chunk := range s.insertChunks(order, drafts) {
		if err := in.chunk(ctx, chunk); err != nil {
			// The guard's error does not say which condition failed.
			if s.d.fault(err) == faultGuard {
				err = errors.Join(s.whyRefused(ctx, tx), err)
			}
			err = s.insertError(s.keptReadOnly(err))
			s.discardSession(ctx, tx, err)
			return nil, err
		}
	}
	return in.result, nil
}

// insertChunks divides the slice order, which has indexes of drafts. One INSERT has room for the drafts of one chunk,
// because an INSERT must fit into a packet of the server. The field maxContent is half the size of a packet, because a
// client may double the size of the values in a statement.
func (s *Store) insertChunks(order []int, drafts []processlog.Draft) func(yield func([]int) bool) {
	most := maxStatementBytes
	if s.maxContent > 0 {
		most = min(most, s.maxContent)
	}
	return func(yield func([]int) bool) {
		for len(order) > 0 {
			n, size := 0, 0
			for ; n < min(len(order), processlog.MaxRows); n++ {
				if size += draftBytes(&drafts[order[n]]); n > 0 && size > most {
					break
				}
			}
			if !yield(order[:n]) {
				return
			}
			order = order[n:]
		}
	}
}

func draftTexts(d *processlog.Draft) [7]string {
	return [...]string{string(d.IdempotencyKey), d.BusinessType, d.BatchID, d.BusinessID, d.BusinessExtID, d.UserID, d.UserName}
}

func draftBytes(d *processlog.Draft) int {
	n := rowBytes + len(d.Content) + len(d.Headers)
	for _, text := range draftTexts(d) {
		n += len(text)
	}
	return n
}

func (s *Store) insertError(err error) error {
	var refused *processlog.SessionError
	switch f := s.d.fault(err); {
	case errors.As(err, &refused):
		return refused
	case f == faultGuard:
		return processlog.ErrNoTransaction
	case f == faultAborted:
		return fmt.Errorf("record: %w: %w", processlog.ErrTxAborted, err)
	case f == faultNull:
		// The library never sends NULL, so the mode EMPTY_STRING_IS_NULL has replaced an empty text.
		return errors.Join(sessionError("sql_mode", "has EMPTY_STRING_IS_NULL in this transaction's session, and the log's columns accept no NULL; remove that mode"), err)
	}
	return fmt.Errorf("compensator: record: %w", orRowsOpen(finished(err)))
}

// orRowsOpen explains a driver's "bad connection". The connection broke, or rows of an earlier query are open. Without a
// watcher the library cannot tell which.
func orRowsOpen(err error) error {
	if !errors.Is(err, driver.ErrBadConn) {
		return err
	}
	return fmt.Errorf("%w: the connection has broken, or rows of an earlier query are open on this transaction: read them to the end, or Close them, before this call", err)
}

type insertion struct {
	s      *Store
	tx     processlog.Tx
	drafts []processlog.Draft
	proven bool
	result []processlog.Inserted
}

// chunk inserts the drafts at the given places. A duplicate fails the whole statement. So chunk reads the entries that
// exist, and inserts the other drafts in a further round. This round fails too if another transaction has deleted and
// recorded a key in the meantime. That is rare, so four rounds are enough.
func (in *insertion) chunk(ctx context.Context, places []int) error {
	var err error
	for range 4 {
		if len(places) == 0 {
			return nil
		}
		err = in.s.mayFail(ctx, in.tx, func() error { return in.insert(ctx, places) })
		if in.s.d.fault(err) != faultDuplicate {
			return err
		}
		existing, readErr := in.existing(ctx, places)
		if readErr != nil {
			return readErr
		}
		places = in.answerDuplicates(places, existing)
	}
	return err
}

func (in *insertion) insert(ctx context.Context, places []int) error {
	query, args := in.statement(places)
	if len(places) == 1 && in.s.d.insertID {
		res, err := in.tx.ExecContext(ctx, query, args...)
		if err != nil {
			return err
		}
		id, err := res.LastInsertId()
		in.result[places[0]] = processlog.Inserted{ID: processlog.RowID(uint64(id))}
		return err
	}
	if !in.s.d.returning {
		_, err := in.tx.ExecContext(ctx, query, args...)
		// The ids stay unknown here. Do not compute them from the first id, because servers use steps and interleave
		// inserts.
		return err
	}
	ids := make(map[processlog.IdempotencyKey]processlog.ID, len(places))
	rows, err := in.tx.QueryContext(ctx, in.s.placeholders(query+in.s.sql(insertedIDs)), args...)
	if err != nil {
		return err
	}
	if err := scanIDs(rows, ids); err != nil {
		return err
	}
	for _, i := range places {
		in.result[i] = processlog.Inserted{ID: ids[in.drafts[i].IdempotencyKey]}
	}
	return nil
}

func (in *insertion) statement(places []int) (string, []any) {
	texts, form := in.s.insertTexts(), in.s.d.formOf(in.drafts, places)
	rows, args := make([]string, len(places)), make([]any, 0, 13*len(places))
	for n, i := range places {
		d := &in.drafts[i]
		rows[n] = texts.row(in.s, rowKind{form: form, lease: processlog.Millis(d.Lease), done: d.Done, first: n == 0, proven: in.proven})
		args = form.append(args, d)
	}
	return strings.Join(rows, ","), args
}

type rowKind struct {
	form   draftForm
	lease  int64 // ms; 0 without a lease
	done   bool
	first  bool // whether the row is the first row of the INSERT
	proven bool // whether the transaction is known to be open
}

// insertTexts keeps the SQL text of each rowKind, so that an INSERT need not build the text again.
type insertTexts struct {
	guards [2]string // conditions for guardedKey; only the first one checks that the transaction is open

	mu   sync.RWMutex
	rows map[rowKind]string // guarded by mu
}

func newInsertTexts(s *Store) *insertTexts {
	return &insertTexts{guards: [2]string{s.guard(false), s.guard(true)}, rows: make(map[rowKind]string)}
}

func (s *Store) insertTexts() *insertTexts {
	if texts := s.inserts.Load(); texts != nil {
		return texts
	}
	return newInsertTexts(s)
}

// row returns the SQL text of one row of an INSERT. If kind.first is set, the text begins with the constant insertRows.
func (t *insertTexts) row(s *Store, kind rowKind) string {
	t.mu.RLock()
	text, found := t.rows[kind]
	t.mu.RUnlock()
	if found {
		return text
	}
	if kind.first {
		guard := t.guards[0]
		if kind.proven {
			guard = t.guards[1]
		}
		text = s.sql(insertRows) + s.rowSQL(kind, guardedKey(guard, kind.form.text))
	} else {
		text = s.rowSQL(kind, kind.form.text)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rows[kind] = text
	return text
}

// rowSQL returns the SQL text of one row. If the row has a lease, the INSERT itself writes the lease and counts a
// delivery.
func (s *Store) rowSQL(kind rowKind, key string) string {
	lease, delivered, state, ended := "0", "0", "0", s.d.empty
	if kind.lease > 0 {
		lease, delivered = s.d.now+" + "+signed(kind.lease), "1"
	}
	if kind.done {
		state, ended = signed(int64(processlog.Succeeded)), s.d.endedBy(processlog.EndedByComplete)
	}
	form := kind.form
	return s.sql(insertRow, "key", key, "text", form.text, "content", form.content, "headers", form.headers(), "bytes", form.bytes,
		"lease", lease, "delivery_count", delivered, "state", state, "ended_by", ended)
}

// draftForm has the placeholders of an INSERT. Some values are sent as hexadecimal digits, because a server converts a
// plain placeholder from the session's charset.
type draftForm struct {
	text, content, bytes string // expressions with one placeholder each
}

func (d *dialect) formOf(drafts []processlog.Draft, places []int) draftForm {
	form := draftForm{"?", "?", "?"}
	if d.hexText == "" {
		return form
	}
	form.bytes = hexBytes
	for _, i := range places {
		if !plainTexts(&drafts[i]) {
			form.text = d.hexText
		}
		if !isASCII(drafts[i].Content) {
			form.content = hexBytes
		}
	}
	return form
}

func plainTexts(d *processlog.Draft) bool {
	for _, text := range draftTexts(d) {
		if !isASCII(text) {
			return false
		}
	}
	return isASCII(d.Headers)
}

func (f draftForm) append(args []any, d *processlog.Draft) []any {
	for _, text := range draftTexts(d) {
		if f.text != "?" {
			text = hex.EncodeToString([]byte(text))
		}
		args = append(args, text)
	}
	args = append(args, sent(d.Content, f.content), sent(d.Headers, f.headers()), int64(d.MaxAttempts), (processlog.Millis(d.Delay)+999)/1000)
	return append(args, sent(d.Token[:], f.bytes), processlog.DueAfter(d.Delay))
}

func (f draftForm) headers() string {
	if f.text == "?" {
		return "?"
	}
	return hexBytes
}

const hexBytes = "UNHEX(?)"

func sent(b []byte, placeholder string) any {
	if placeholder == hexBytes {
		return hex.EncodeToString(b)
	}
	if len(b) == 0 {
		return noBytes
	}
	return b
}

// The driver would send NULL for a nil slice.
var noBytes any = []byte{}

// guardedKey returns an expression for the key of the first row. If the condition guard is false, the expression makes
// the whole INSERT fail. The condition is false in these cases:
//   - The session is outside a transaction.
//   - The session is in another database than the log.
//   - The session would store another value than the one that was sent.
//
// The server evaluates the condition as part of the INSERT, so nothing changes between check and write. The INSERT
// fails because a number in the expression is out of range. A NULL would fail only under a strict sql_mode.
//
// CONCAT keeps the key a text. Without CONCAT, MySQL would store the key 007 of a prepared statement as 7.
func guardedKey(guard, placeholder string) string {
	if guard == "" {
		return placeholder
	}
	return "IF(" + guard + ",CONCAT(" + placeholder + "),18446744073709551615+1)"
}

func (s *Store) guard(proven bool) string {
	conditions := make([]string, 0, 3)
	if s.d.inTx != "" && !proven {
		conditions = append(conditions, s.d.inTx)
	}
	if s.schema != "" {
		conditions = append(conditions, s.fragments["in schema"])
	}
	if s.d.fit != "" {
		conditions = append(conditions, s.d.fit)
	}
	return strings.Join(conditions, " AND ")
}

var _ processlog.Tx = (*sql.Tx)(nil)
