package harness

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

func (w *World) Record(orders *compensator.Type[Order], number int, opts compensator.Options) compensator.EntryID {
	w.T.Helper()
	return w.RecordThrough(w.DB, orders, number, opts)
}

func (w *World) RecordThrough(db *sql.DB, orders *compensator.Type[Order], number int, opts compensator.Options) compensator.EntryID {
	w.T.Helper()
	var receipt *compensator.Receipt
	w.InTx(db, func(tx *sql.Tx) {
		var err error
		receipt, err = orders.Record(w.T.Context(), tx, Order{Number: number}, opts)
		require.NoError(w.T, err)
	})
	receipt.Committed()
	return receipt.ID()
}

// RecordMany records n entries in one transaction. The numbers of the entries start at 0 and are also their business
// ids.
func (w *World) RecordMany(c *compensator.Compensator, orders *compensator.Type[Order], n int, opts compensator.Options) {
	w.T.Helper()
	entries := make([]compensator.NewEntry, n)
	for i := range entries {
		opts.BusinessID = strconv.Itoa(i)
		entries[i] = orders.Entry(Order{Number: i}, opts)
	}
	var receipt *compensator.Receipt
	w.InTx(w.DB, func(tx *sql.Tx) {
		var err error
		receipt, err = c.Record(w.T.Context(), tx, entries...)
		require.NoError(w.T, err)
	})
	receipt.Committed()
}

func (w *World) Entry(c *compensator.Compensator, id compensator.EntryID) *compensator.Entry {
	w.T.Helper()
	e, err := c.Get(w.T.Context(), id)
	require.NoError(w.T, err)
	return e
}

// InsertDue inserts n due entries directly into the table, so that no process of the test knows them. Their ids are
// first, first+1, and so on.
func (w *World) InsertDue(businessType string, first, n int) (ids []compensator.EntryID) {
	w.T.Helper()
	for id := first; id < first+n; id++ {
		w.Exec("INSERT INTO common_process_log (id, idempotent_id, business_type, content, next_at, created_at, updated_at) VALUES (?,?,?,'{}',1,NOW(),NOW())",
			id, fmt.Sprint(businessType, id), businessType)
		ids = append(ids, processlog.RowID(uint64(id)))
	}
	return ids
}

// RecordDelayed records one delayed entry. The type of the entry need not be registered in this process.
func (w *World) RecordDelayed(c *compensator.Compensator, delay time.Duration) compensator.EntryID {
	w.T.Helper()
	var receipt *compensator.Receipt
	require.NoError(w.T, c.InTx(w.T.Context(), func(ctx context.Context, tx *compensator.ScopedTx) (err error) {
		receipt, err = c.Record(ctx, tx, compensator.NewEntry{BusinessType: "close_order", Content: []byte("{}"), Options: compensator.Options{Delay: delay}})
		return err
	}))
	return receipt.ID()
}

func NewUntyped(n int) []compensator.NewEntry {
	entries := make([]compensator.NewEntry, n)
	for i := range entries {
		entries[i] = compensator.NewEntry{BusinessType: "close_order", Content: []byte(`{}`)}
	}
	return entries
}

// NewReverseKeyed makes n entries. The order of their idempotency keys is the reverse of the order of the entries.
func NewReverseKeyed(prefix string, n int) []compensator.NewEntry {
	entries := NewUntyped(n)
	for i := range entries {
		entries[i].IdempotencyKey = compensator.IdempotencyKey(fmt.Sprintf("%s-%03d", prefix, n-i))
	}
	return entries
}

func (w *World) Backlog(businessType string, n int) {
	w.T.Helper()
	for start := 0; start < n; start += 500 {
		var rows []string
		for i := start; i < min(n, start+500); i++ {
			rows = append(rows, fmt.Sprintf("('%s-late-%d','%s','{}',1,NOW(),NOW())", businessType, i, businessType))
		}
		w.Exec("INSERT INTO common_process_log (idempotent_id, business_type, content, next_at, created_at, updated_at) VALUES " + strings.Join(rows, ","))
	}
}
