package servers

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest/suite"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/processlog"
)

// lie is one way in which a MySQL-compatible server or driver deviates from MySQL.
type lie struct {
	text   *strings.Replacer                                        // replaces parts of the text of a statement, except of SET TRANSACTION and similar statements
	begin  func(driver.TxOptions) driver.TxOptions                  // changes the options of BEGIN
	result func(insert bool, id, rows int64) (gotID, gotRows int64) // changes the result of a statement
	fail   func(query string) error                                 // may refuse a statement, by returning an error
	late   func(query string) time.Duration                         // delay of the answer
	breaks func(query string) bool                                  // reports whether a statement fails as on a broken pooled connection
}

type liar struct {
	driver.Conn
	lie lie
}

func (c liar) retell(query string) string {
	if c.lie.text == nil {
		return query
	}
	return c.lie.text.Replace(query)
}

func (c liar) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if c.lie.begin != nil {
		opts = c.lie.begin(opts)
	}
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
}

func (c liar) Prepare(query string) (driver.Stmt, error) { return c.Conn.Prepare(c.retell(query)) }

func (c liar) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if c.lie.fail != nil {
		if err := c.lie.fail(query); err != nil {
			return nil, err
		}
	}
	res, err := c.Conn.(driver.ExecerContext).ExecContext(ctx, c.retell(query), args)
	if err != nil || c.lie.result == nil {
		return res, err
	}
	id, _ := res.LastInsertId()
	rows, _ := res.RowsAffected()
	id, rows = c.lie.result(strings.HasPrefix(query, "INSERT"), id, rows)
	return answer{id, rows}, nil
}

func (c liar) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if c.lie.breaks != nil && c.lie.breaks(query) {
		_ = c.Conn.Close()
	}
	if c.lie.late != nil {
		time.Sleep(c.lie.late(query))
	}
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, c.retell(query), args)
}

func (c liar) CheckNamedValue(value *driver.NamedValue) error {
	return c.Conn.(driver.NamedValueChecker).CheckNamedValue(value)
}

type answer struct{ id, rows int64 }

func (a answer) LastInsertId() (int64, error) { return a.id, nil }

func (a answer) RowsAffected() (int64, error) { return a.rows, nil }

type liarConnector struct {
	driver.Connector
	lie lie
}

func (c liarConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	return liar{conn, c.lie}, err
}

func openLying(dsn string, l lie, watched bool) func() (*sql.DB, error) {
	return func() (*sql.DB, error) {
		config, err := mysql.ParseDSN(dsn)
		if err != nil {
			return nil, err
		}
		config.InterpolateParams = true
		inner, err := mysql.NewConnector(config)
		if err != nil {
			return nil, err
		}
		connector := driver.Connector(liarConnector{inner, l})
		if watched {
			connector = compensator.Connector(connector)
		}
		return sql.OpenDB(connector), nil
	}
}

// The arguments are pairs: a statement, and the statement that is sent in its place. DO 0 succeeds and does nothing.
func replies(oldnew ...string) lie { return lie{text: strings.NewReplacer(oldnew...)} }

var keepsItsIsolation = lie{
	text:  strings.NewReplacer("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE", "DO 0"),
	begin: func(driver.TxOptions) driver.TxOptions { return driver.TxOptions{} },
}

// Failure: F32
func TestNewRefusesAServerWhose(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		lie  lie
		want string
	}{
		"transactions do not show": {
			replies("SET TRANSACTION READ WRITE", "DO 0", "RELEASE SAVEPOINT compensator_doubt", "DO 0"), "whether a transaction is open",
		},
		"savepoints outlive their statement, and SET TRANSACTION fails anywhere": {
			replies("SET TRANSACTION READ WRITE", "SIGNAL SQLSTATE '25001' SET MYSQL_ERRNO=1568", "RELEASE SAVEPOINT compensator_doubt", "DO 0"), "whether a transaction is open",
		},
		"NOWAIT waits":            {replies(" NOWAIT", ""), "FOR UPDATE NOWAIT"},
		"locks lock nothing":      {replies(" FOR UPDATE NOWAIT", "", " FOR UPDATE SKIP LOCKED", "", " FOR UPDATE", "", " LOCK IN SHARE MODE NOWAIT", "", " FOR SHARE NOWAIT", ""), "FOR UPDATE NOWAIT"},
		"isolation never changes": {keepsItsIsolation, "isolation level"},
		"READ COMMITTED is READ UNCOMMITTED": {lie{begin: func(opts driver.TxOptions) driver.TxOptions {
			opts.Isolation = driver.IsolationLevel(sql.LevelReadUncommitted)
			return opts
		}}, "uncommitted rows"},
		"ids are not those of the rows": {lie{result: func(insert bool, id, rows int64) (int64, int64) {
			if insert {
				id++
			}
			return id, rows
		}}, "stored the row as"},
		"updates count what they do not change": {lie{result: func(insert bool, id, _ int64) (int64, int64) { return id, 1 }}, "how many rows"},
	} {
		for pool, watched := range map[string]bool{"connector": true, "plain": false} {
			t.Run(name+"/"+pool, func(t *testing.T) {
				t.Parallel()
				w := harness.NewWorld(t)
				cfg := w.QuickConfig()
				cfg.DB = w.Open(openLying(w.DSN, test.lie, watched))
				_, err := compensator.New(t.Context(), cfg)
				require.ErrorContains(t, err, test.want)
				require.ErrorContains(t, err, testservers.SharedSQL(t).Version)
				require.Equal(t, 0, w.Count("common_process_log"), "nothing was written")
			})
		}
	}
}

// To find servers that ignore NOWAIT, New measures how long a statement with NOWAIT takes.
// Failure: F32
func TestNewTakesASlowServerForNoneThatWaits(t *testing.T) {
	t.Parallel()
	for pool, watched := range map[string]bool{"connector": true, "plain": false} {
		t.Run(pool, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t)
			cfg := w.QuickConfig()
			cfg.DB = w.Open(openLying(w.DSN, lie{late: func(query string) time.Duration {
				if strings.HasSuffix(query, " NOWAIT") {
					return 1100 * time.Millisecond
				}
				return 0
			}}, watched))
			w.New(cfg)
		})
	}
}

// Failure: F32
func TestNewNamesEveryInstrumentThatFailsAtOnce(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	cfg := w.QuickConfig()
	both := keepsItsIsolation
	both.text = strings.NewReplacer("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE", "DO 0",
		"SET TRANSACTION READ WRITE", "DO 0", "RELEASE SAVEPOINT compensator_doubt", "DO 0")
	cfg.DB = w.Open(openLying(w.DSN, both, true))
	_, err := compensator.New(t.Context(), cfg)
	require.ErrorContains(t, err, "whether a transaction is open")
	require.ErrorContains(t, err, "isolation level")
}

// Each instance must probe the server with its own rows.
// Failure: F32
func TestInstancesThatStartAtOnceDoNotJudgeEachOthersLocks(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	var log strings.Builder // needs no mutex, because slog writes one record at a time
	logger := slog.New(slog.NewTextHandler(&log, nil))
	var starting sync.WaitGroup
	for i := range 100 {
		cfg := w.QuickConfig()
		cfg.Logger = logger
		cfg.DB = w.Open([]func(string) func() (*sql.DB, error){harness.WatchedPool, harness.PlainPool}[i%2](w.DSN))
		starting.Go(func() {
			c, err := compensator.New(t.Context(), cfg)
			if assert.NoError(t, err) {
				assert.NoError(t, c.Close())
			}
		})
	}
	starting.Wait()
	assert.Empty(t, log.String())
	assert.Equal(t, 0, w.Count("common_process_log"))
}

// harmless are deviations for which New uses another form of a statement. want is the log line that New writes about
// the deviation.
var harmless = map[string]struct {
	replies []string
	want    string
}{
	"SET TRANSACTION is taken anywhere":        {replies: []string{"SET TRANSACTION READ WRITE", "DO 0"}},
	"in_transaction is always on":              {[]string{"@@in_transaction=1", "1=1"}, "@@in_transaction"},
	"in_transaction is always off":             {[]string{"@@in_transaction=1", "1=0"}, "@@in_transaction"},
	"SKIP LOCKED waits":                        {[]string{" FOR UPDATE SKIP LOCKED", " FOR UPDATE"}, "SKIP LOCKED"},
	"SKIP LOCKED returns rows that are locked": {[]string{" FOR UPDATE SKIP LOCKED", ""}, "SKIP LOCKED"},
	"shared locks lock nothing":                {[]string{" LOCK IN SHARE MODE NOWAIT", "", " LOCK IN SHARE MODE", "", " FOR SHARE NOWAIT", ""}, "shared locks"},
	"RETURNING returns nothing":                {[]string{" RETURNING id, CAST(idempotent_id AS BINARY)", ""}, "RETURNING"},
}

// Failure: F32
func TestEntriesRunOnAServerWhose(t *testing.T) {
	t.Parallel()
	for name, test := range harmless {
		for pool, watched := range map[string]bool{"connector": true, "plain": false} {
			t.Run(name+"/"+pool, func(t *testing.T) {
				t.Parallel()
				w := harness.NewWorld(t)
				cfg := w.QuickConfig()
				var log strings.Builder
				cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
				cfg.DB = w.Open(openLying(w.DSN, replies(test.replies...), watched))
				c := w.New(cfg)
				if mariadbOnly := strings.Contains(test.replies[0], "in_transaction") || strings.Contains(test.replies[0], "RETURNING"); !mariadbOnly || testservers.SharedSQL(t).Flavor == "mariadb" {
					assert.Contains(t, log.String(), test.want)
				}
				orders, err := compensator.HandleTx(t.Context(), c, "close_order", func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, _ harness.Order) error {
					w.WriteEffect(tx, "handler")
					return nil
				}, nil)
				require.NoError(t, err)
				w.Run(c)
				_, err = orders.Record(t.Context(), cfg.DB, harness.Order{}, compensator.Options{})
				require.ErrorIs(t, err, compensator.ErrNoTransaction)
				var receipt *compensator.Receipt
				w.InTx(cfg.DB, func(tx *sql.Tx) {
					receipt, err = c.Record(t.Context(), tx, harness.NewUntyped(2)...)
					require.NoError(t, err)
				})
				receipt.Committed()
				w.WaitAllEnded()
				assert.Equal(t, 2, w.Count("effects"))
				assert.Equal(t, 2, w.Count("common_process_log WHERE state=1"))
			})
		}
	}
}

// On Vitess, a RELEASE without its SAVEPOINT would make the next statement fail.
// Failure: F40
func TestWatchedTransactionIsNeverProbed(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	var probes atomic.Int32
	l := replies(harmless["SET TRANSACTION is taken anywhere"].replies...)
	l.fail = func(query string) error {
		if strings.Contains(query, "SAVEPOINT") {
			probes.Add(1)
		}
		return nil
	}
	cfg := w.QuickConfig()
	cfg.DB = w.Open(openLying(w.DSN, l, true))
	c := w.New(cfg)
	require.Positive(t, probes.Load(), "New has tried them")
	probes.Store(0)
	require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
		_, err := c.Record(ctx, tx, harness.NewUntyped(1)...)
		return err
	}))
	w.InTx(cfg.DB, func(tx *sql.Tx) {
		_, err := c.Record(t.Context(), tx, harness.NewUntyped(1)...)
		require.NoError(t, err)
	})
	assert.Zero(t, probes.Load())
}

// The server has so many deviations that New uses every alternative form of a statement.
// Failure: F32
func TestStoreKeepsEveryPromiseOnAServerOfManyLies(t *testing.T) {
	t.Parallel()
	var all []string
	for name, test := range harmless {
		// Leave out two deviations, because New needs seconds to notice them.
		if name != "in_transaction is always off" && name != "SKIP LOCKED waits" {
			all = append(all, test.replies...)
		}
	}
	suite.TestStore(t, func(t *testing.T) suite.Harness {
		t.Parallel()
		dsn := testservers.Database(t)
		open := openLying(dsn, replies(all...), false)
		h := harness.StoreOn(t, dsn, open)
		caller, err := open()
		require.NoError(t, err)
		t.Cleanup(func() { _ = caller.Close() })
		h.Autocommit, h.Begin = caller, func(ctx context.Context) (processlog.Transaction, error) { return caller.BeginTx(ctx, nil) }
		return h
	})
}

// New tries an INSERT with a guard. The guard makes the INSERT fail in a session that uses another database. If New
// took a transient error for a fault of the guard, the library would use the INSERT without the guard. Then an entry
// could be stored in another database's log.
// Failure: F32
func TestNewTakesATransientErrorForNoFinding(t *testing.T) {
	t.Parallel()
	for _, number := range []uint16{1205, 1213} {
		w := harness.NewWorld(t)
		var inserts atomic.Int64
		once := lie{fail: func(query string) error {
			// New expects that the guard refuses the first INSERT, and that the second succeeds. So fail the second.
			if strings.HasPrefix(query, "INSERT") && inserts.Add(1) == 2 {
				return &mysql.MySQLError{Number: number, Message: "once"}
			}
			return nil
		}}
		cfg := w.QuickConfig()
		cfg.DB = w.Open(openLying(w.DSN, once, false))
		_, err := compensator.New(t.Context(), cfg)
		require.ErrorContains(t, err, "once")
		w.New(cfg)
	}
}

// Other connections in the pool may have broken together with the COMMIT.
// Failure: F36
func TestResolveOnGaleraOutlivesAConnectionThatBrokeInThePool(t *testing.T) {
	t.Parallel()
	for pool, watched := range map[string]bool{"connector": true, "plain": false} {
		t.Run(pool, func(t *testing.T) {
			t.Parallel()
			const wait = "SET STATEMENT wsrep_sync_wait=15 FOR SELECT 1"
			var broken atomic.Bool
			node := replies("SHOW VARIABLES WHERE Variable_name IN ('log_bin'", "SELECT 'wsrep_on', 'ON' FROM DUAL WHERE 'log_bin' IN ('log_bin'", wait, "SELECT 1")
			node.breaks = func(query string) bool { return query == wait && broken.CompareAndSwap(true, false) }
			w := harness.NewWorld(t)
			cfg := w.QuickConfig()
			cfg.DB = w.Open(openLying(w.DSN, node, watched))
			c := w.New(cfg)
			var receipt *compensator.Receipt
			w.InTx(w.DB, func(tx *sql.Tx) {
				var err error
				receipt, err = c.Record(t.Context(), tx, harness.NewUntyped(1)...)
				require.NoError(t, err)
			})
			broken.Store(true)
			_, err := c.Resolve(t.Context(), receipt.ID())
			require.NoError(t, err)
			require.False(t, broken.Load(), "the node was waited for")
		})
	}
}
