package compensator_test

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/processlog"
)

func TestEntryAdvancesWhateverItsErrorSays(t *testing.T) {
	texts := []string{
		strings.Repeat("x", 1<<20), "\xff\xfe\x00 not a text", strings.Repeat("退款\xf0\x9f", 5000), `'"\'; DROP TABLE effects; --`, "", strings.Repeat("😀", 1001), "%s %d",
	}
	inEveryPool(t, func(t *testing.T, w *world, db *sql.DB) {
		cfg := w.quick()
		cfg.DB = db
		c := w.new(cfg)
		orders, _ := numbered(t, c, "close_order", compensator.TypeConfig{MaxProcessCount: 2, Retry: compensator.Fixed(0)}, nil)
		failing, err := compensator.Handle(c, "failing", func(_ context.Context, _ *compensator.Entry, o order) error {
			return errors.New(texts[o.Number])
		}, compensator.TypeConfig{MaxProcessCount: 2, Retry: compensator.Fixed(0)})
		require.NoError(t, err)
		w.run(c)
		var receipts []*compensator.Receipt
		w.inTx(db, func(tx *sql.Tx) {
			for i := range texts {
				receipt, err := failing.Record(t.Context(), tx, order{Number: i}, compensator.Options{})
				require.NoError(t, err)
				receipts = append(receipts, receipt)
			}
			_, err := orders.Record(t.Context(), tx, order{}, compensator.Options{})
			require.NoError(t, err)
		})
		w.waitAllEnded()
		assert.Equal(t, len(texts), w.count("common_process_log WHERE state=-2 AND process_count=2 AND ended_by='exhausted'"))
		for i, receipt := range receipts {
			entry, err := c.Get(t.Context(), receipt.ID())
			require.NoError(t, err)
			assert.True(t, utf8.ValidString(entry.LastError))
			assert.LessOrEqual(t, utf8.RuneCountInString(entry.LastError), 1000)
			start := strings.ToValidUTF8(texts[i][:min(len(texts[i]), 30)], "\uFFFD")
			assert.True(t, strings.HasPrefix(entry.LastError, strings.TrimRight(start, "\uFFFD")), "%q", entry.LastError)
		}
		w.count("effects")
	})
}

func TestContentOfAnyBytesReachesTheHandler(t *testing.T) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	contents := [][]byte{nil, {}, {0}, every, []byte("退款 😀 '\"\\"), bytes.Repeat([]byte{'\''}, 200<<10)}
	for name, params := range map[string]map[string]string{
		"prepared":             {},
		"interpolated":         {"interpolateParams": "true"},
		"no backslash escapes": {"interpolateParams": "true", "sql_mode": "'NO_BACKSLASH_ESCAPES,STRICT_ALL_TABLES'"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			cfg := w.quick()
			cfg.DB = w.open(compensatorOn(with(t, w.DSN, params)))
			c := w.new(cfg)
			_, err := compensator.Handle(c, "raw", func(_ context.Context, e *compensator.Entry, content []byte) error {
				assert.True(t, bytes.Equal(contents[e.MaxProcessCount-1], content), "content %d", e.MaxProcessCount-1)
				return nil
			}, compensator.TypeConfig{Codec: raw{}})
			require.NoError(t, err)
			w.run(c)
			w.inTx(cfg.DB, func(tx *sql.Tx) {
				for i, content := range contents {
					_, err := c.Record(t.Context(), tx, compensator.NewEntry{BusinessType: "raw", Content: content, Options: compensator.Options{MaxProcessCount: i + 1}})
					require.NoError(t, err)
				}
			})
			tx := w.begin(cfg.DB)
			_, err = c.Record(t.Context(), tx, compensator.NewEntry{BusinessType: "raw", Content: make([]byte, 300<<10)})
			require.ErrorAs(t, err, new(*compensator.FieldError))
			require.NoError(t, tx.Rollback())
			w.waitAllEnded()
			assert.Equal(t, len(contents), w.count("common_process_log WHERE state=1"))
		})
	}
}

func TestBatchOfThousandsIsRecordedWhole(t *testing.T) {
	inEveryMode(t, func(t *testing.T, w *world, cfg compensator.Config) {
		const n = 2000
		c := w.new(cfg)
		_, ran := numbered(t, c, "close_order", compensator.TypeConfig{Concurrency: 500}, nil)
		w.run(c)
		var receipt *compensator.Receipt
		w.inTx(cfg.DB, func(tx *sql.Tx) {
			var err error
			receipt, err = c.Record(t.Context(), tx, untyped(n)...)
			require.NoError(t, err)
			require.NoError(t, receipt.ResolveIDs(t.Context(), tx))
		})
		receipt.Committed()
		w.waitAllEnded()
		assert.Equal(t, n, w.count("common_process_log WHERE state=1"))
		for _, e := range receipt.Entries {
			require.Equal(t, 1, ran.of(e.ID))
		}
	})
}

func TestPreparedStatementsOfTheServerAreNotUsedUp(t *testing.T) {
	inEveryPool(t, func(t *testing.T, w *world, db *sql.DB) {
		cfg := w.quick()
		cfg.DB = db
		db.SetMaxOpenConns(5)
		c := w.new(cfg)
		numbered(t, c, "close_order", compensator.TypeConfig{}, nil)
		w.run(c)
		prepared := func() int { return w.status("Prepared_stmt_count") }
		before := prepared()
		for i := range 200 {
			w.inTx(db, func(tx *sql.Tx) {
				_, err := c.Record(t.Context(), tx, untyped(1+i*37%60)...) // as many shapes as there are numbers of rows
				require.NoError(t, err)
			})
		}
		w.waitAllEnded()
		assert.LessOrEqual(t, prepared(), before+10)
	})
}

// asService gives the world's database a user without special rights, whom read_only stops.
func (w *world) asService() string {
	w.exec("CREATE USER service IDENTIFIED BY 'secret'")
	w.exec("GRANT SELECT, INSERT, UPDATE, DELETE ON *.* TO service")
	config, err := mysql.ParseDSN(w.DSN)
	require.NoError(w.t, err)
	config.User, config.Passwd = "service", "secret"
	return config.FormatDSN()
}

// complaint is a log that tells when outcomes cannot be stored.
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

func TestOutcomesWaitOutADatabaseThatTakesNoWrites(t *testing.T) {
	w := worldAt(t, testservers.NewSQL(t).Database(t))
	dsn := w.asService()
	for kind, pool := range pools {
		t.Run(kind, func(t *testing.T) {
			cfg := w.quick()
			cfg.DB, cfg.Lease = w.open(pool(dsn)), time.Minute
			complained := make(complaint, 1)
			cfg.Logger = slog.New(slog.NewTextHandler(complained, nil))
			c := w.new(cfg)
			inside, finish := make(chan struct{}), make(chan struct{})
			orders, ran := numbered(t, c, "close_order", compensator.TypeConfig{}, func(*compensator.Entry, int) error {
				inside <- struct{}{}
				<-finish
				return nil
			})
			stop := w.run(c)
			defer func() { require.NoError(t, stop()) }()
			var receipt *compensator.Receipt
			w.inTx(cfg.DB, func(tx *sql.Tx) {
				var err error
				receipt, err = orders.Record(t.Context(), tx, order{}, compensator.Options{})
				require.NoError(t, err)
			})
			w.wait(inside, "the handler runs")
			w.exec("SET GLOBAL read_only=1")
			close(finish)
			refused := w.begin(cfg.DB)
			_, err := orders.Record(t.Context(), refused, order{}, compensator.Options{})
			w.requireNumber(err, 1290)
			require.NoError(t, refused.Rollback())
			w.wait(complained, "the outcome is refused")
			w.exec("SET GLOBAL read_only=0")
			w.waitState(receipt.ID(), compensator.Succeeded)
			assert.Equal(t, 1, ran.of(receipt.ID()))
		})
	}
}

// TestIdleConnectionsTheServerClosesCostNothing: the server ends sessions that are silent for a second, those
// of the library between two statements, and that of a handler in the middle of its transaction.
func TestIdleConnectionsTheServerClosesCostNothing(t *testing.T) {
	for kind, pool := range pools {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t)
			cfg := w.quick()
			cfg.DB = w.open(pool(with(t, w.DSN, map[string]string{"wait_timeout": "1"})))
			cfg.PollInterval, cfg.ReconcileInterval, cfg.Lease = 3*time.Second, 3*time.Second, time.Minute // silent in between
			c := w.new(cfg)
			var ran calls
			orders, err := compensator.HandleTx(c, "close_order", func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, _ order) error {
				w.effect(tx, "handler")
				if ran.add(e.ID) > 1 {
					return nil
				}
				var id int64
				if err := tx.QueryRowContext(ctx, "SELECT CONNECTION_ID()").Scan(&id); err != nil {
					return err
				}
				w.eventually(func() bool { return w.count("information_schema.processlist WHERE id=?", id) == 0 }, "the server ends the silent session")
				return nil
			}, compensator.TypeConfig{Retry: compensator.Fixed(0)})
			require.NoError(t, err)
			w.run(c)
			var receipt *compensator.Receipt
			for range 2 { // the second through connections that are gone
				w.inTx(cfg.DB, func(tx *sql.Tx) {
					receipt, err = orders.Record(t.Context(), tx, order{}, compensator.Options{})
					require.NoError(t, err)
				})
				receipt.Committed()
				w.waitState(receipt.ID(), compensator.Succeeded)
				assert.Equal(t, 2, ran.of(receipt.ID()))
			}
			assert.Equal(t, 2, w.count("effects"))
		})
	}
}

// lockless is a connection to a server that reads FOR UPDATE and SKIP LOCKED and locks nothing, as some that
// speak MySQL's protocol do.
type lockless struct{ driver.Conn }

func unlocked(query string) string {
	return strings.ReplaceAll(strings.ReplaceAll(query, " FOR UPDATE SKIP LOCKED", ""), " FOR UPDATE", "")
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

func TestClaimsHaveOneOwnerWhereRowLocksLockNothing(t *testing.T) {
	for _, watched := range []bool{true, false} {
		t.Run(fmt.Sprintf("watched %v", watched), func(t *testing.T) {
			w := newWorld(t)
			config, err := mysql.ParseDSN(w.DSN)
			require.NoError(t, err)
			inner, err := mysql.NewConnector(config)
			require.NoError(t, err)
			connector := driver.Connector(locklessConnector{inner})
			if watched {
				connector = compensator.Connector(connector)
			}
			db := w.open(func() (*sql.DB, error) { return sql.OpenDB(connector), nil })
			const n, rivals = 300, 4
			w.insertDue("close_order", 1, n)
			var ran calls
			var contested atomic.Int32
			var met sync.WaitGroup
			met.Add(rivals)
			for range rivals {
				store, err := compensator.OpenStore(t.Context(), db, compensator.DefaultTable)
				require.NoError(t, err)
				t.Cleanup(func() { assert.NoError(t, store.Close()) })
				cfg := w.quick()
				cfg.DB, cfg.Store, cfg.Lease = nil, &racingStore{Store: store, met: &met, contested: &contested}, time.Minute
				c := w.new(cfg)
				_, err = compensator.Handle(c, "close_order", func(_ context.Context, e *compensator.Entry, _ order) error {
					ran.add(e.ID)
					return nil
				}, compensator.TypeConfig{Concurrency: n})
				require.NoError(t, err)
				w.run(c)
			}
			w.waitAllEnded()
			assert.Positive(t, contested.Load(), "two wanted the same entry at the same time")
			assert.Equal(t, n, ran.total(), "one owner each")
		})
	}
}

// racingStore makes rivals meet in their first claim, each with the same rows in hand, and counts those that a
// claim wanted and somebody else got.
type racingStore struct {
	processlog.Store
	first     sync.Once
	met       *sync.WaitGroup
	contested *atomic.Int32
}

// Check passes: New would refuse such a server.
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
