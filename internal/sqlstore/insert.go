package sqlstore

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/compensator-go/compensator/internal/mysqlerr"
	"github.com/compensator-go/compensator/processlog"
)

// maxStatementBytes is about how much one INSERT holds at most, where the server takes as much.
const maxStatementBytes = 1 << 20

// rowBytes is room for what a row adds beside its values.
const rowBytes = 256

const insertColumns = "(idempotent_id, business_type, batch_id, business_id, business_ext_id, user_id, user_name, content, headers, " +
	"max_process_count, delay_second, token, next_at, lease_until, delivery_count, created_at, updated_at, state, ended_by)"

// Insert implements Store. Rows go in by ascending idempotency key: two transactions that share keys then wait
// for each other instead of deadlocking.
func (s *Store) Insert(ctx context.Context, tx processlog.Tx, drafts []processlog.Draft, proven bool) ([]processlog.Inserted, error) {
	// After a rollback that nobody noticed the INSERT would commit by itself: an entry for a business that never was
	// (G2). MariaDB is asked in the INSERT.
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
			// The guard says no for either reason; which of them is asked only now that it has.
			if s.d.fault(err) == faultGuard {
				err = errors.Join(s.whyRefused(ctx, tx), err)
			}
			return nil, s.insertError(s.keptReadOnly(err))
		}
	}
	return in.result, nil
}

// insertChunks cuts order so that each piece fits one statement, and a packet of the server, whose half New has found to be
// enough for the longest content: a client that writes values into the statement may double them all.
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

func draftBytes(d *processlog.Draft) int {
	return rowBytes + len(d.IdempotencyKey) + len(d.BusinessType) + len(d.BatchID) + len(d.BusinessID) + len(d.BusinessExtID) + len(d.UserID) +
		len(d.UserName) + len(d.Content) + len(d.Headers)
}

func (s *Store) insertError(err error) error {
	var elsewhere *processlog.FieldError
	switch f := s.d.fault(err); {
	case errors.As(err, &elsewhere):
		return elsewhere
	case f == faultGuard:
		return processlog.ErrNoTransaction
	case f == faultAborted:
		return fmt.Errorf("record: %w: %w", processlog.ErrTxAborted, err)
	case mysqlerr.Number(err) == mysqlerr.BadNull:
		// No value of ours is NULL. One mode of MariaDB's makes it of an empty text.
		return errors.Join(&processlog.FieldError{Field: "sql_mode", Reason: "has EMPTY_STRING_IS_NULL in this transaction's session, and the log's empty columns take no NULL; leave it out"}, err)
	}
	return fmt.Errorf("compensator: record: %w", orRowsOpen(finished(err)))
}

// orRowsOpen names the second reason for a driver's "bad connection". Where nobody watches the connection, nothing tells the
// two apart.
func orRowsOpen(err error) error {
	if !errors.Is(err, driver.ErrBadConn) {
		return err
	}
	return fmt.Errorf("%w: the connection has broken, or rows of an earlier query are open on this transaction: read them to the end, or Close them, before this call", err)
}

// insertion is one Insert call under way.
type insertion struct {
	s      *Store
	tx     processlog.Tx
	drafts []processlog.Draft
	proven bool // otherwise the statement itself asks for the transaction
	result []processlog.Inserted
}

// chunk inserts the drafts at the given places. A duplicate fails the whole statement, which then wrote
// nothing: the existing rows are read, and the rest goes in again. A key that another transaction removes
// meanwhile can only be seen again as often as it is recorded again, so few rounds are enough.
func (in *insertion) chunk(ctx context.Context, places []int) error {
	var err error
	for range 4 {
		if len(places) == 0 {
			return nil
		}
		if err = in.insert(ctx, places); in.s.d.fault(err) != faultDuplicate {
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
	if len(places) == 1 {
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
		return err // ids of a bulk insert are never computed: servers step and interleave them
	}
	ids := make(map[processlog.IdempotencyKey]processlog.ID, len(places))
	rows, err := in.tx.QueryContext(ctx, query+" RETURNING id, "+in.s.d.texts("idempotent_id"), args...)
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
	var b strings.Builder
	b.WriteString("INSERT INTO " + in.s.table.quoted("") + " " + insertColumns + " VALUES ")
	args := make([]any, 0, 13*len(places))
	form := in.s.d.formOf(in.drafts, places)
	tuple, lease, done := in.s.d.tuple(form, 0, false), time.Duration(0), false
	key := in.s.guardedKey(form.text, in.proven)
	b.Grow(len(key) + (len(places)+1)*(len(tuple)+len(form.text)+len("(,")))
	for n, i := range places {
		d := &in.drafts[i]
		if d.Lease != lease || d.Done != done { // most rows are alike
			tuple, lease, done = in.s.d.tuple(form, processlog.Millis(d.Lease), d.Done), d.Lease, d.Done
		}
		if n > 0 {
			b.WriteString(",(")
			b.WriteString(form.text)
		} else {
			b.WriteByte('(')
			b.WriteString(key)
		}
		b.WriteString(tuple)
		args = form.append(args, d)
	}
	return b.String(), args
}

// draftForm says which values of an INSERT travel as hexadecimal digits. A server takes a placeholder's value for text of the
// session's charset, and converts it. All rows of a statement have one form, so that its text stays one of a few.
type draftForm struct {
	text, content, bytes string // placeholders
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

// plainTexts reports whether all short texts of a draft are ASCII.
func plainTexts(d *processlog.Draft) bool {
	return isASCII(string(d.IdempotencyKey)) && isASCII(d.BusinessType) && isASCII(d.BatchID) && isASCII(d.BusinessID) && isASCII(d.BusinessExtID) &&
		isASCII(d.UserID) && isASCII(d.UserName) && isASCII(d.Headers)
}

// append adds the values of a draft.
func (f draftForm) append(args []any, d *processlog.Draft) []any {
	if f.text == "?" {
		args = append(args, string(d.IdempotencyKey), d.BusinessType, d.BatchID, d.BusinessID, d.BusinessExtID, d.UserID, d.UserName)
	} else {
		for _, text := range [...]string{string(d.IdempotencyKey), d.BusinessType, d.BatchID, d.BusinessID, d.BusinessExtID, d.UserID, d.UserName} {
			args = append(args, hex.EncodeToString([]byte(text)))
		}
	}
	args = append(args, sent(d.Content, f.content), sent(d.Headers, f.headers()), int64(d.MaxProcessCount), (processlog.Millis(d.Delay)+999)/1000)
	return append(args, sent(d.Token[:], f.bytes), processlog.DueAfter(d.Delay))
}

// headers is the placeholder of the headers, which go with the texts.
func (f draftForm) headers() string {
	if f.text == "?" {
		return "?"
	}
	return hexBytes
}

// hexBytes is a placeholder of bytes that travel as hexadecimal digits.
const hexBytes = "UNHEX(?)"

// sent is the argument for bytes.
func sent(b []byte, placeholder string) any {
	if placeholder == hexBytes {
		return hex.EncodeToString(b)
	}
	return nonNil(b)
}

// tuple is the rest of a row's VALUES behind its key. A inserted with a lease row is leased by its own INSERT, at no
// further cost, and its delivery counted: a process that dies right after the commit leaves an ordinary lost lease.
func (d *dialect) tuple(form draftForm, leaseMS int64, done bool) string {
	lease, delivered, ended := "0", "0", ",0,"+d.empty+")"
	if leaseMS > 0 {
		lease, delivered = fmt.Sprintf("%s + %d", d.now, leaseMS), "1"
	}
	if done {
		ended = fmt.Sprintf(",%d,'%s')", processlog.Succeeded, processlog.EndedByComplete)
	}
	t := "," + form.text
	return t + t + t + t + t + t + "," + form.content + "," + form.headers() + ",?,?," + form.bytes + "," + d.now + " + ?," + lease + "," + delivered + "," + d.stamp + "," + d.stamp + ended
}

// guardedKey is the placeholder of a first row's key, and the statement's own proof, so that no moment passes between it and
// the write. The server fails the statement where the row would be written outside a transaction, into the log of another
// database, or by a session that writes something else than it is sent. An open transaction that is proven is not asked
// again. The variables of the session nobody sees but the server: a USE or a SET changes them.
//
// What fails the statement is a number out of range. NULL for a NOT NULL column fails it under a strict sql_mode only: of
// several rows the server otherwise stores an empty key.
func (s *Store) guardedKey(placeholder string, proven bool) string {
	guard := s.guards.Load()
	if guard == nil {
		guard = &[2]string{s.guard(false), s.guard(true)}
	}
	condition := guard[0]
	if proven {
		condition = guard[1]
	}
	if condition == "" {
		return placeholder
	}
	return "IF(" + condition + "," + placeholder + ",18446744073709551615+1)"
}

// guard is the condition under which an INSERT may write.
func (s *Store) guard(proven bool) string {
	conditions := make([]string, 0, 3)
	if s.d.inTx != "" && !proven {
		conditions = append(conditions, s.d.inTx)
	}
	if s.home != "" {
		conditions = append(conditions, s.isHome)
	}
	if s.d.fit != "" {
		conditions = append(conditions, s.d.fit)
	}
	return strings.Join(conditions, " AND ")
}

func nonNil(b []byte) []byte {
	if b == nil {
		return []byte{} // NULL otherwise
	}
	return b
}

// existing reads the rows that hold one of the drafts' keys, as committed now: an older snapshot of the
// caller's transaction may not show them. A plain read finds them first, because locking keys that do not
// exist would lock the gaps other producers insert into. The index is named, because a small table would be
// read as a whole, and rows of no concern to us waited for.
func (in *insertion) existing(ctx context.Context, places []int) (map[processlog.IdempotencyKey]processlog.Row, error) {
	keys := make([]processlog.IdempotencyKey, len(places))
	for n, i := range places {
		keys[n] = in.drafts[i].IdempotencyKey
	}
	if in.s.d.snapshots {
		return in.existingUnlocked(ctx, keys)
	}
	visible, err := in.s.IDs(ctx, in.tx, keys)
	if err != nil {
		return nil, err
	}
	// None visible: an older snapshot hides them all, and only a locking read finds them.
	if len(visible) > 0 {
		keys = slices.DeleteFunc(keys, func(key processlog.IdempotencyKey) bool { return visible[key].IsZero() })
	}
	byKey := make(map[processlog.IdempotencyKey]processlog.Row, len(keys))
	return byKey, in.readKeys(ctx, in.tx, keys, in.s.d.share, byKey)
}

// existingUnlocked is existing where a lock on a row that has changed since the caller's snapshot would abort his
// transaction (innodb_snapshot_isolation). What the snapshot shows is answered from it. What it does not show is read
// on a connection of ours; without one only the lock can tell, and ErrTxAborted says that the transaction is to be run
// again.
func (in *insertion) existingUnlocked(ctx context.Context, keys []processlog.IdempotencyKey) (map[processlog.IdempotencyKey]processlog.Row, error) {
	byKey := make(map[processlog.IdempotencyKey]processlog.Row, len(keys))
	if err := in.readKeys(ctx, in.tx, keys, "", byKey); err != nil || len(byKey) == len(keys) {
		return byKey, err
	}
	if in.s.own == nil && len(byKey) > 0 {
		return byKey, nil // the others go in again, and are told from keys that are free
	}
	hidden := slices.DeleteFunc(keys, func(key processlog.IdempotencyKey) bool { _, found := byKey[key]; return found })
	if in.s.own == nil {
		return byKey, in.readKeys(ctx, in.tx, hidden, in.s.d.share, byKey)
	}
	return byKey, in.readKeys(ctx, in.s.pool(), hidden, "", byKey)
}

// readKeys adds the rows that hold one of the keys.
func (in *insertion) readKeys(ctx context.Context, tx processlog.Tx, keys []processlog.IdempotencyKey, lock string, byKey map[processlog.IdempotencyKey]processlog.Row) error {
	literals, args := in.s.d.params(keys)
	query := in.s.selectFrom(in.s.table.quoted("")+in.s.d.by("uk_idempotent_id"), "idempotent_id IN ("+literals+")") + atMost(len(keys)) + lock
	rows, err := in.s.queryRows(ctx, tx, len(keys), query, args...)
	for _, row := range rows {
		byKey[row.IdempotencyKey] = row
	}
	return err
}

// answerDuplicates fills in the drafts that exist and returns the places of the others.
func (in *insertion) answerDuplicates(places []int, existing map[processlog.IdempotencyKey]processlog.Row) []int {
	var rest []int
	for _, i := range places {
		row, found := existing[in.drafts[i].IdempotencyKey]
		if !found {
			rest = append(rest, i)
			continue
		}
		in.result[i] = processlog.Inserted{
			ID: row.ID, Duplicate: true, BusinessType: row.BusinessType, State: row.State, ContentMatches: row.Erased || bytes.Equal(row.Content, in.drafts[i].Content),
		}
	}
	return rest
}

var _ processlog.Tx = (*sql.Tx)(nil)
