package servers

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
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
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/processlog"
)

// Failure: F34
func TestPreparedStatementsOfTheServerAreNotUsedUp(t *testing.T) {
	harness.InEveryPoolInTurn(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		cfg := w.QuickConfig()
		cfg.DB = db
		db.SetMaxOpenConns(5)
		c := w.New(cfg)
		harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
		w.Run(c)
		prepared := func() int { return w.Status("Prepared_stmt_count") }
		before := prepared()
		for i := range 60 {
			w.InTx(db, func(tx *sql.Tx) {
				_, err := c.Record(t.Context(), tx, harness.NewUntyped(1+i*37%60)...) // The number of rows varies, so that the statements differ.
				require.NoError(t, err)
			})
		}
		w.WaitAllEnded()
		assert.LessOrEqual(t, prepared(), before+10)
	})
}

// asService creates a user without special privileges, so that read_only applies to it.
func asService(w *harness.World) string {
	w.Exec("CREATE USER service IDENTIFIED BY 'secret'")
	w.Exec("GRANT SELECT, INSERT, UPDATE, DELETE ON *.* TO service")
	config, err := mysql.ParseDSN(w.DSN)
	require.NoError(w.T, err)
	config.User, config.Passwd = "service", "secret"
	return config.FormatDSN()
}

// complaint sends when the library logs that outcomes cannot be stored.
type complaint chan struct{}

func (c complaint) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("could not be stored")) {
		select {
		case c <- struct{}{}:
		default:
		}
	}
	return len(line), nil
}

// Failure: F27, F35
func TestOutcomesWaitOutADatabaseThatTakesNoWrites(t *testing.T) {
	t.Parallel()
	w := harness.WorldAt(t, testservers.NewSQL(t).Database(t))
	dsn := asService(w)
	for kind, pool := range harness.Pools {
		t.Run(kind, func(t *testing.T) {
			cfg := w.QuickConfig()
			cfg.DB, cfg.Lease = w.Open(pool(dsn)), time.Minute
			complained := make(complaint, 1)
			cfg.Logger = slog.New(slog.NewTextHandler(complained, nil))
			c := w.New(cfg)
			inside, finish := make(chan struct{}), make(chan struct{})
			orders, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, func(*compensator.Entry, int) error {
				inside <- struct{}{}
				<-finish
				return nil
			})
			stop := w.Run(c)
			defer func() { require.NoError(t, stop()) }()
			var receipt *compensator.Receipt
			w.InTx(cfg.DB, func(tx *sql.Tx) {
				var err error
				receipt, err = orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{})
				require.NoError(t, err)
			})
			w.Wait(inside, "the handler runs")
			w.Exec("SET GLOBAL read_only=1")
			close(finish)
			refused := w.Begin(cfg.DB)
			_, err := orders.Record(t.Context(), refused, harness.Order{}, compensator.Options{})
			w.RequireNumber(err, 1290)
			require.NoError(t, refused.Rollback())
			w.Wait(complained, "the outcome is refused")
			w.Exec("SET GLOBAL read_only=0")
			w.WaitState(receipt.ID(), compensator.Succeeded)
			assert.Equal(t, 1, ran.Of(receipt.ID()))
		})
	}
}

// The server closes sessions of the library between two statements, and a handler's session inside its transaction.
// Failure: F35
func TestIdleConnectionsTheServerClosesCostNothing(t *testing.T) {
	t.Parallel()
	for kind, pool := range harness.Pools {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t)
			cfg := w.QuickConfig()
			cfg.DB = w.Open(pool(harness.WithParams(t, w.DSN, map[string]string{"wait_timeout": "1"})))
			cfg.PollInterval, cfg.ReconcileInterval, cfg.Lease = 3*time.Second, 3*time.Second, time.Minute // Between two polls, sessions are idle for longer than a second.
			c := w.New(cfg)
			var ran harness.Calls
			orders, err := compensator.HandleTx(t.Context(), c, "close_order", func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, _ harness.Order) error {
				w.WriteEffect(tx, "handler")
				if ran.Add(e.ID) > 1 {
					return nil
				}
				var id int64
				if err := tx.QueryRowContext(ctx, "SELECT CONNECTION_ID()").Scan(&id); err != nil {
					return err
				}
				w.Eventually(func() bool { return !w.IsConnected(id) }, "the server ends the silent session")
				return nil
			}, &compensator.HandlerConfig[harness.Order]{Retry: compensator.Fixed(0)})
			require.NoError(t, err)
			w.Run(c)
			var receipt *compensator.Receipt
			for range 2 { // The second pass uses connections that the server has closed.
				w.InTx(cfg.DB, func(tx *sql.Tx) {
					receipt, err = orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{})
					require.NoError(t, err)
				})
				receipt.Committed()
				w.WaitState(receipt.ID(), compensator.Succeeded)
				assert.Equal(t, 2, ran.Of(receipt.ID()))
			}
			assert.Equal(t, 2, w.Count("effects"))
		})
	}
}

// lockless is a connection that accepts FOR UPDATE and SKIP LOCKED but locks nothing, like some MySQL-compatible
// servers.
type lockless struct{ driver.Conn }

func unlocked(query string) string {
	return strings.TrimSuffix(strings.TrimSuffix(query, " FOR UPDATE SKIP LOCKED"), " FOR UPDATE")
}

func (c lockless) Prepare(query string) (driver.Stmt, error) { return c.Conn.Prepare(unlocked(query)) }

func (c lockless) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
}

func (c lockless) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, unlocked(query), args)
}

func (c lockless) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, unlocked(query), args)
}

func (c lockless) CheckNamedValue(value *driver.NamedValue) error {
	return c.Conn.(driver.NamedValueChecker).CheckNamedValue(value)
}

type locklessConnector struct{ driver.Connector }

func (c locklessConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	return lockless{conn}, err
}

// Failure: F32
func TestClaimsHaveOneOwnerWhereRowLocksLockNothing(t *testing.T) {
	t.Parallel()
	for _, watched := range []bool{true, false} {
		t.Run(fmt.Sprintf("watched %v", watched), func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t)
			config, err := mysql.ParseDSN(w.DSN)
			require.NoError(t, err)
			inner, err := mysql.NewConnector(config)
			require.NoError(t, err)
			connector := driver.Connector(locklessConnector{inner})
			if watched {
				connector = compensator.Connector(connector)
			}
			db := w.Open(func() (*sql.DB, error) { return sql.OpenDB(connector), nil })
			const n, rivals = 300, 4
			w.InsertDue("close_order", 1, n)
			var ran harness.Calls
			var contested atomic.Int32
			var met sync.WaitGroup
			met.Add(rivals)
			for range rivals {
				store, err := compensator.OpenStore(t.Context(), db, compensator.DefaultTable)
				require.NoError(t, err)
				t.Cleanup(func() { assert.NoError(t, store.Close()) })
				cfg := w.QuickConfig()
				cfg.DB, cfg.Store, cfg.Lease = nil, &racingStore{Store: store, met: &met, contested: &contested}, time.Minute
				c := w.New(cfg)
				_, err = compensator.Handle(t.Context(), c, "close_order", func(_ context.Context, e *compensator.Entry, _ harness.Order) error {
					ran.Add(e.ID)
					return nil
				}, &compensator.HandlerConfig[harness.Order]{Concurrency: n})
				require.NoError(t, err)
				w.Run(c)
			}
			w.WaitAllEnded()
			assert.Positive(t, contested.Load(), "two wanted the same entry at the same time")
			assert.Equal(t, n, ran.Total(), "one owner each")
		})
	}
}

// racingStore is a store in which the first claims of two processes ask for the same rows at the same time. It counts
// the rows that a claim asked for and another claim got.
type racingStore struct {
	processlog.Store
	first     sync.Once
	met       *sync.WaitGroup
	contested *atomic.Int32
}

// Check returns nil, because otherwise New would refuse a server that locks nothing.
func (s *racingStore) Check(context.Context) error { return nil }

func (s *racingStore) Claim(ctx context.Context, want []processlog.Wanted, token processlog.Token, lease time.Duration, accept func(*processlog.Row) bool) (processlog.Claimed, error) {
	accepted := 0
	found, err := s.Store.Claim(ctx, want, token, lease, func(row *processlog.Row) bool {
		s.first.Do(func() {
			s.met.Done()
			s.met.Wait()
		})
		ok := accept(row)
		if ok {
			accepted++
		}
		return ok
	})
	s.contested.Add(int32(accepted - len(found.Mine)))
	return found, err
}
