package servers

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/compensatortest/suite"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/processlog"
)

// The other database has a log of the same name.
// Failure: F38
func TestStoreKeepsEveryPromiseInSessionsLeftInAnotherDatabase(t *testing.T) {
	t.Parallel()
	suite.TestStore(t, func(t *testing.T) suite.Harness {
		t.Parallel()
		w, other := &harness.World{T: t, DSN: testservers.Database(t)}, newOtherLog(t)
		db, spoil := openSpoiling(w, false, "USE `"+other.name+"`", nil)
		h := harness.StoreOn(t, w.DSN, func() (*sql.DB, error) { return db, nil })
		h.Store = fitBegin{h.Store, h.Store.(processlog.Operations), h.Begin}
		spoil()
		t.Cleanup(other.requireUnchanged)
		return h
	})
}

// fitBegin begins transactions in sessions of the log's own database. Elsewhere, Record and SettleTx would refuse to
// work.
type fitBegin struct {
	processlog.Store
	processlog.Operations
	begin func(ctx context.Context) (processlog.Transaction, error)
}

func (s fitBegin) Begin(ctx context.Context) (processlog.Transaction, error) { return s.begin(ctx) }

// The other database has a log of the same name, with due entries of the same type.
// Failure: F38
func TestProcessOnSessionsLeftInAnotherDatabaseRunsItsOwnLog(t *testing.T) {
	t.Parallel()
	w, other := harness.NewWorld(t), newOtherLog(t)
	db, spoil := openSpoiling(w, false, "USE `"+other.name+"`", nil)
	cfg := w.QuickConfig()
	cfg.DB, cfg.Operations = db, &compensator.Operations{Attempts: true, Statistics: true, Instances: true}
	c := w.New(cfg)
	var strangers atomic.Int64
	verdict := func(e *compensator.Entry, _ int) error {
		switch {
		case e.BatchID != "own":
			strangers.Add(1)
		case e.BusinessID == "fails":
			return compensator.Permanent(harness.ErrSoldOut)
		}
		return nil
	}
	pay, _ := harness.HandleCounted(t, c, "pay", compensator.HandlerConfig[harness.Order]{TypeConfig: compensator.TypeConfig{
		Serial: func(e *compensator.Entry) string { return e.UserID },
		Limit:  compensator.Limit{Concurrent: 5},
	}}, verdict)
	spoil()
	for i := range 5 {
		w.Record(pay, i, compensator.Options{BatchID: "own", UserID: "mei"})
	}
	dead := w.Record(pay, 5, compensator.Options{BatchID: "own", BusinessID: "fails"})
	stop := w.Run(c)
	w.Eventually(func() bool {
		return strangers.Load() > 0 || w.Count("common_process_log WHERE state IN (0,-1,-3)") == 0
	}, "its own entries end")
	require.Zero(t, strangers.Load(), "entries of the other log")
	require.Equal(t, compensator.Dead, w.State(dead))

	log, by := admin.Of(c), admin.AuditInfo{Actor: "mei", Reason: "sold elsewhere"}
	counts, err := log.Count(t.Context(), admin.CountFilter{})
	require.NoError(t, err)
	require.ElementsMatch(t, []admin.Count{{BusinessType: "pay", State: compensator.Succeeded, N: 5}, {BusinessType: "pay", State: compensator.Dead, N: 1}}, counts)
	require.NoError(t, log.SettleManually(t.Context(), dead, by))
	require.NoError(t, stop())
	require.Empty(t, c.Health(t.Context()).Problems)
	w.Exec("UPDATE common_process_log SET next_at=next_at-3600000")
	purged, err := log.Purge(t.Context(), time.Minute, compensator.Succeeded, compensator.SettledManually)
	require.NoError(t, err)
	require.Equal(t, 6, purged)

	tx := w.Begin(db)
	_, err = c.Record(t.Context(), tx, harness.NewUntyped(1)...)
	require.True(t, processlog.IsSessionError(err), "%v", err)
	require.ErrorContains(t, err, other.name)
	require.NoError(t, tx.Rollback())
	require.NoError(t, c.Close())

	require.Zero(t, strangers.Load())
	require.Positive(t, w.Count("common_process_log_stat"))
	require.Positive(t, w.Count("common_process_log_instance"))
	require.Zero(t, w.Count("common_process_log"))
	other.requireUnchanged()
}

// New knows the log's own database from the Connector.
// Failure: F38
func TestNewRefusesASessionLeftInAnotherDatabase(t *testing.T) {
	t.Parallel()
	w, other := harness.NewWorld(t), newOtherLog(t)
	w.DB.SetMaxOpenConns(1)
	w.Spoil(w.DB, "USE `"+other.name+"`")
	_, err := compensator.New(t.Context(), w.QuickConfig())
	var refused *compensator.FieldError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "DB", refused.Field)
	require.ErrorContains(t, err, other.name)
	w.Spoil(w.DB, "USE `"+databaseOf(w)+"`")
	w.New(w.QuickConfig())
	other.requireUnchanged()
}

// The log in the other database is a copy, so it has a row with the same id, key and version.
// Failure: F38
func TestHandlerWhoseSessionIsInAnotherDatabaseCommitsNothing(t *testing.T) {
	t.Parallel()
	for kind, pool := range harness.Pools {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w, other := harness.NewWorld(t), newOtherLog(t)
			cfg := w.QuickConfig()
			cfg.DB = w.Open(pool(w.DSN))
			c := w.New(cfg)
			var calls atomic.Int64
			orders, err := compensator.HandleTx(t.Context(), c, "pay", func(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry, _ harness.Order) error {
				if calls.Add(1) == 1 {
					other.copyOf(w)
					if _, err := tx.ExecContext(ctx, "USE `"+other.name+"`"); err != nil {
						return err
					}
				}
				_, err := tx.ExecContext(ctx, "INSERT INTO effects (what) VALUES ('paid')")
				return err
			}, &compensator.HandlerConfig[harness.Order]{MaxAttempts: 1})
			require.NoError(t, err)
			id := w.Record(orders, 1, compensator.Options{})
			w.Run(c)
			w.WaitState(id, compensator.Succeeded)
			require.Zero(t, w.Entry(c, id).ProcessCount, "the session costs no attempt")
			require.EqualValues(t, 2, calls.Load())
			require.Equal(t, 1, w.Count("effects"))
			require.Zero(t, other.Count("effects"))
			other.requireUnchanged()
		})
	}
}

type otherLog struct {
	*harness.World
	name string
	dump string
}

// The ids and keys are those of the first entries that the suite records.
func newOtherLog(t *testing.T) *otherLog {
	o := &otherLog{World: harness.NewWorld(t)}
	o.name = databaseOf(o.World)
	for i := range 21 {
		state := []int{0, -1, -3, 1, 2, 3, -2}[i%7]
		o.Exec("INSERT INTO common_process_log (idempotent_id, business_type, state, process_count, max_process_count, ended_by, content, headers, token, next_at, created_at, updated_at) "+
			"VALUES (?, 'pay', ?, ?, 3, ?, '{}', '', '', 1, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3))", fmt.Sprintf("key-%04d", i+1), state, min(i%7, 1), map[bool]string{true: "handler"}[i%7 > 2])
	}
	o.dump = o.contents()
	return o
}

func databaseOf(w *harness.World) string {
	config, err := mysql.ParseDSN(w.DSN)
	assert.NoError(w.T, err)
	return config.DBName
}

func (o *otherLog) contents() string {
	var b strings.Builder
	for _, table := range o.tables() {
		fmt.Fprintln(&b, table)
		for _, row := range o.rows("SELECT * FROM " + table) {
			fmt.Fprintln(&b, row)
		}
	}
	return b.String()
}

func (o *otherLog) tables() (names []string) {
	names = append(names, o.rows("SHOW TABLES LIKE 'common\\_process\\_log%'")...)
	assert.Greater(o.T, len(names), 10)
	return names
}

func (o *otherLog) rows(query string) (list []string) {
	rows, err := o.DB.Query(query)
	if !assert.NoError(o.T, err) {
		return nil
	}
	defer rows.Close()
	columns, err := rows.Columns()
	assert.NoError(o.T, err)
	values, into := make([]sql.RawBytes, len(columns)), make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	for rows.Next() {
		assert.NoError(o.T, rows.Scan(into...))
		texts := make([]string, len(values))
		for i, value := range values {
			texts[i] = string(value)
		}
		list = append(list, strings.Join(texts, "|"))
	}
	assert.NoError(o.T, rows.Err())
	slices.Sort(list)
	return list
}

func (o *otherLog) copyOf(w *harness.World) {
	for _, statement := range []string{"DELETE FROM common_process_log", "INSERT INTO common_process_log SELECT * FROM `" + databaseOf(w) + "`.common_process_log"} {
		_, err := o.DB.Exec(statement)
		assert.NoError(o.T, err)
	}
	o.dump = o.contents()
}

func (o *otherLog) requireUnchanged() { assert.Equal(o.T, o.dump, o.contents()) }
