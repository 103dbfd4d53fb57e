package commits

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest/memory"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/internal/testservers"
)

// recorder records one entry that would run at once and one that would wait in the queue.
type recorder func(tx compensator.Tx)

// lostConnection is the case in which the queue may hold an entry that does not exist. In all other cases the process
// must not enqueue such an entry.
const lostConnection = "connection killed"

var notCommitted = map[string]func(t *testing.T, w *harness.World, c *compensator.Compensator, db *sql.DB, record recorder){
	"rollback": func(t *testing.T, w *harness.World, _ *compensator.Compensator, db *sql.DB, record recorder) {
		tx := w.Begin(db)
		record(tx)
		require.NoError(t, tx.Rollback())
	},
	"context cancelled, then commit": func(t *testing.T, w *harness.World, _ *compensator.Compensator, db *sql.DB, record recorder) {
		ctx, cancel := context.WithCancel(t.Context())
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		record(tx)
		cancel()
		require.Error(t, tx.Commit())
	},
	"context cancelled, rolled back, then commit": func(t *testing.T, w *harness.World, _ *compensator.Compensator, db *sql.DB, record recorder) {
		ctx, cancel := context.WithCancel(t.Context())
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		record(tx)
		cancel()
		w.Eventually(func() bool { return db.Stats().InUse == 0 }, "the pool takes the connection back")
		require.Error(t, tx.Commit())
	},
	lostConnection: func(t *testing.T, w *harness.World, _ *compensator.Compensator, db *sql.DB, record recorder) {
		tx := w.Begin(db)
		record(tx)
		var id int64
		require.NoError(t, tx.QueryRow("SELECT CONNECTION_ID()").Scan(&id))
		w.Exec(fmt.Sprintf("KILL %d", id)) // without arguments, because a server may refuse to prepare KILL
		w.Eventually(func() bool { return !w.IsConnected(id) }, "the connection is gone")
		require.Error(t, tx.Commit())
	},
	"closure fails": func(t *testing.T, _ *harness.World, c *compensator.Compensator, _ *sql.DB, record recorder) {
		failure := errors.New("business says no")
		require.ErrorIs(t, c.InTx(t.Context(), func(_ context.Context, tx *compensator.ScopedTx) error {
			record(tx)
			return failure
		}), failure)
	},
	"closure panics": func(t *testing.T, _ *harness.World, c *compensator.Compensator, _ *sql.DB, record recorder) {
		require.Panics(t, func() {
			_ = c.InTx(t.Context(), func(_ context.Context, tx *compensator.ScopedTx) error {
				record(tx)
				panic("bug")
			})
		})
	},
}

// Failure: F1
func TestEntryOfATransactionThatCameToNothingLeavesNoTrace(t *testing.T) {
	t.Parallel()
	for name, abandon := range notCommitted {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
				if cfg.DB == w.DB {
					cfg.DB = w.Open(harness.WatchedPool(w.DSN))
				}
				cfg.DB.SetMaxOpenConns(1) // With one connection, anything that a transaction leaves behind would affect the next transaction.
				c := w.New(cfg)
				orders, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{Concurrency: 2}, nil)
				stop := w.Run(c)
				if w.Redis != nil {
					w.WaitComplete("close_order") // While the queue of a type is rebuilt, entries are enqueued twice.
				}
				for range 3 { // These are more entries than the type has slots.
					abandon(t, w, c, cfg.DB, func(tx compensator.Tx) {
						for _, delay := range []time.Duration{0, time.Minute} { // Both due times are within the queue's horizon.
							_, err := orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{Delay: delay})
							require.NoError(t, err)
						}
					})
				}
				var kept *compensator.Receipt
				w.InTx(cfg.DB, func(tx *sql.Tx) {
					var err error
					kept, err = orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{})
					require.NoError(t, err)
				})
				w.WaitState(kept.ID(), compensator.Succeeded)
				require.NoError(t, stop(), "whatever was on its way has arrived now")
				assert.Equal(t, 1, ran.Total())
				assert.Equal(t, 1, w.Count("common_process_log"))
				if w.Redis != nil && name != lostConnection {
					assert.Zero(t, w.Queued())
				}
			})
		})
	}
}

// Failure: F1
func TestEntryRolledBackToASavepointNeverRuns(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(cfg)
		orders, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{Concurrency: 4}, nil)
		stop := w.Run(c)
		var kept []*compensator.Receipt
		for range 6 { // These are more entries than the type has slots.
			var all []*compensator.Receipt
			w.InTx(cfg.DB, func(tx *sql.Tx) {
				for _, statement := range []string{"SAVEPOINT s", "ROLLBACK TO SAVEPOINT s", "RELEASE SAVEPOINT s"} {
					receipt, err := orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{})
					require.NoError(t, err)
					all = append(all, receipt)
					_, err = tx.Exec(statement)
					require.NoError(t, err)
				}
			})
			for _, receipt := range all {
				receipt.Committed()
			}
			kept = append(kept, all[0], all[2])
		}
		w.WaitAllEnded()
		require.NoError(t, stop())
		for _, receipt := range kept {
			assert.Equal(t, 1, ran.Of(receipt.ID()))
		}
		assert.Equal(t, len(kept), ran.Total())
		assert.Equal(t, len(kept), w.Count("common_process_log WHERE state=1"))
	})
}

// conflicts are errors with which the server has rolled back the whole transaction, although the handle still looks
// open.
var conflicts = map[string]func(w *harness.World, tx harness.Statements){
	"deadlock": func(w *harness.World, tx harness.Statements) { w.Deadlock(tx) },
	"row changed since the snapshot": func(w *harness.World, tx harness.Statements) {
		ctx := w.T.Context()
		if testservers.SharedSQL(w.T).Flavor != "mariadb" {
			w.Deadlock(tx) // Only MariaDB reports error 1020, so use a deadlock on other servers.
			return
		}
		w.Exec("CREATE TABLE IF NOT EXISTS stock (id INT PRIMARY KEY, n INT NOT NULL) ENGINE=InnoDB")
		w.Exec("REPLACE INTO stock VALUES (1, 1)")
		_, err := tx.ExecContext(ctx, "SET SESSION innodb_snapshot_isolation=1")
		require.NoError(w.T, err)
		_, err = tx.ExecContext(ctx, "SELECT n FROM stock")
		require.NoError(w.T, err)
		w.Exec("UPDATE stock SET n=2")
		_, err = tx.ExecContext(ctx, "UPDATE stock SET n=3")
		w.RequireNumber(err, 1020)
	},
}

// Failure: F2
func TestEntryAfterASwallowedConflictIsRefused(t *testing.T) {
	t.Parallel()
	for name, conflict := range conflicts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
				cfg := w.QuickConfig()
				cfg.DB = db
				c := w.New(cfg)
				for _, n := range []int{1, 3} {
					tx := w.Begin(db)
					w.WriteEffect(tx, "business")
					conflict(w, tx)
					_, err := c.Record(t.Context(), tx, harness.NewUntyped(n)...)
					require.ErrorIs(t, err, compensator.ErrNoTransaction)
					require.NoError(t, tx.Rollback())
				}
				assert.Zero(t, w.Count("effects"))
				assert.Zero(t, w.Count("common_process_log"), "the entry committed itself")
			})
		})
	}
}

// Failure: F2
func TestEntryBeforeASwallowedConflictNeverRuns(t *testing.T) {
	t.Parallel()
	for name, conflict := range conflicts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
				c := w.New(cfg)
				orders, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
				stop := w.Run(c)
				tx := w.Begin(cfg.DB)
				receipt, err := orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{})
				require.NoError(t, err)
				conflict(w, tx)
				err = tx.Commit()
				if cfg.DB == w.DB {
					require.ErrorIs(t, err, compensator.ErrTxAborted)
				} else {
					require.NoError(t, err, "the driver's own handle cannot know")
					receipt.Committed()
				}
				w.InTx(cfg.DB, func(tx *sql.Tx) {
					receipt, err = orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{})
					require.NoError(t, err)
				})
				w.WaitState(receipt.ID(), compensator.Succeeded)
				require.NoError(t, stop())
				assert.Equal(t, 1, ran.Total())
			})
		})
	}
}

// Failure: F2
func TestClosureThatSwallowsADeadlockIsNotCommitted(t *testing.T) {
	t.Parallel()
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		cfg := w.QuickConfig()
		cfg.DB = db
		c := w.New(cfg)
		for _, before := range []bool{true, false} {
			err := c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
				if before {
					_, err := c.Record(ctx, tx, harness.NewUntyped(1)...)
					require.NoError(t, err)
				}
				w.Deadlock(tx)
				_, err := c.Record(ctx, tx, harness.NewUntyped(1)...)
				require.ErrorIs(t, err, compensator.ErrTxAborted)
				return nil
			})
			require.ErrorIs(t, err, compensator.ErrTxAborted)
		}
		assert.Zero(t, w.Count("common_process_log"))
	})
}

func TestTransactionThatLostAgainstOthersIsRunAgain(t *testing.T) {
	t.Parallel()
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		cfg := w.QuickConfig()
		cfg.DB = db
		c := w.New(cfg)
		for prefix, swallowed := range map[string]bool{"told": false, "swallowed": true} {
			tries, entry := 0, harness.NewReverseKeyed(prefix, 1)[0]
			err := c.WithRetry(t.Context(), entry.IdempotencyKey, func(ctx context.Context) error {
				tries++
				return c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
					var told error
					if tries == 1 {
						w.DeadlockIn(tx, func() error {
							_, told = tx.ExecContext(ctx, "UPDATE accounts SET n=1 WHERE id=2")
							return told
						})
					}
					if told != nil && !swallowed {
						return fmt.Errorf("take from the account: %w", told)
					}
					_, err := c.Record(ctx, tx, entry)
					return err
				})
			})
			require.NoError(t, err, prefix)
			assert.Equal(t, 2, tries, prefix)
		}
		assert.Equal(t, 2, w.Count("common_process_log"))
	})
}

func TestTransactionIsRunAgainOnlyWhereThatMayHelp(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	for reason, tries := range map[error]int{nil: 1, errors.New("sold out"): 1, compensator.ErrNotFound: 1, compensator.ErrBusy: 5, compensator.ErrTxAborted: 5} {
		ran := 0
		err := c.WithRetry(t.Context(), "close-42", func(context.Context) error { ran++; return reason })
		require.ErrorIs(t, err, reason)
		assert.Equal(t, tries, ran, "%v", reason)
	}
	ended, end := context.WithCancelCause(t.Context())
	ran, gone := 0, errors.New("the caller has gone")
	err := c.WithRetry(ended, "close-42", func(context.Context) error { ran++; end(gone); return compensator.ErrBusy })
	require.ErrorIs(t, err, compensator.ErrBusy)
	require.ErrorIs(t, err, gone)
	assert.Equal(t, 1, ran)
	err = c.WithRetry(t.Context(), "", func(context.Context) error { panic("runs") })
	var field *compensator.FieldError
	require.ErrorAs(t, err, &field)
	assert.Equal(t, "proof", field.Field)
}

// WithRetry normally looks for the entry to find out whether a commit happened.
func TestRunThatWroteNothingNeedsNoProof(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	for _, lost := range []int{0, 2} {
		runs := 0
		require.NoError(t, c.WithRetry(t.Context(), "ship-42", func(ctx context.Context) error {
			err := c.InTx(ctx, func(context.Context, *compensator.ScopedTx) error { return nil })
			if runs++; runs <= lost {
				return errors.Join(err, compensator.ErrCommitUnknown)
			}
			return err
		}))
		assert.Equal(t, 1+lost, runs)
	}
	assert.Zero(t, w.Count("common_process_log"))
}

func TestConsumersProofIsTheIDOfItsOnce(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	inbox, err := compensator.Declare[string](t.Context(), c, "inbox", nil)
	require.NoError(t, err)
	for id, happened := range map[string]bool{"orders:m1": true, "orders:m2": false} {
		for range 2 {
			runs := 0
			require.NoError(t, c.WithRetry(t.Context(), compensator.IdempotencyKey(id), func(ctx context.Context) error {
				if runs++; runs == 1 && !happened {
					return compensator.ErrCommitUnknown
				}
				err := c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
					first, err := inbox.Once(ctx, tx, compensator.IdempotencyKey(id), "")
					if first {
						w.WriteEffect(tx, id)
					}
					return err
				})
				if happened {
					return errors.Join(err, compensator.ErrCommitUnknown)
				}
				return err
			}))
			if happened {
				assert.Equal(t, 1, runs)
			}
		}
	}
	assert.Equal(t, 2, w.Count("effects"))
}

// unwritten are ways to make Record fail without writing an entry.
var unwritten = map[string]func(t *testing.T, w *harness.World, record func() error){
	"another transaction holds the key for too long": func(t *testing.T, w *harness.World, record func() error) {
		rival := w.Begin(w.DB)
		_, err := rival.Exec("INSERT INTO common_process_log (idempotent_id, business_type, content, next_at, created_at, updated_at) VALUES ('k','close_order','',0,NOW(),NOW())")
		require.NoError(t, err)
		w.RequireNumber(record(), 1205)
		require.NoError(t, rival.Rollback())
	},
	"a column is too short": func(t *testing.T, w *harness.World, record func() error) {
		w.Exec("ALTER TABLE common_process_log MODIFY business_id VARCHAR(2) NOT NULL DEFAULT ''")
		w.RequireNumber(record(), 1406)
	},
	"the table is gone": func(t *testing.T, w *harness.World, record func() error) {
		w.Exec("RENAME TABLE common_process_log TO elsewhere")
		w.RequireNumber(record(), 1146)
		w.Exec("RENAME TABLE elsewhere TO common_process_log")
	},
}

// Failure: F3
func TestBusinessIsNotCommittedWithoutItsEntry(t *testing.T) {
	t.Parallel()
	entry := compensator.NewEntry{BusinessType: "close_order", Options: compensator.Options{IdempotencyKey: "k", BusinessID: "long"}}
	for name, fail := range unwritten {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t)
			impatient := harness.WithParams(t, w.DSN, map[string]string{"innodb_lock_wait_timeout": "1"})
			commits := map[string]func(*compensator.Compensator, *sql.DB, func(compensator.Tx)) error{
				"connector": func(_ *compensator.Compensator, db *sql.DB, work func(compensator.Tx)) error {
					tx := w.Begin(db)
					work(tx)
					return tx.Commit()
				},
				"closure": func(c *compensator.Compensator, _ *sql.DB, work func(compensator.Tx)) error {
					return c.InTx(t.Context(), func(_ context.Context, tx *compensator.ScopedTx) error { work(tx); return nil })
				},
			}
			for way, commit := range commits {
				for kind, pool := range harness.Pools {
					if way == "connector" && kind == "plain" {
						continue // A plain handle cannot refuse the commit, so only Record's error reports the failure.
					}
					cfg := w.QuickConfig()
					cfg.DB = w.Open(pool(impatient))
					w.Exec("ALTER TABLE common_process_log MODIFY business_id VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT ''")
					c := w.New(cfg)
					err := commit(c, cfg.DB, func(tx compensator.Tx) {
						fail(t, w, func() error {
							_, err := c.Record(t.Context(), tx, entry)
							return err
						})
						w.WriteEffect(tx, "business") // The program goes on and commits, although Record has failed.
					})
					require.ErrorIs(t, err, compensator.ErrNotRecorded, "%s of a %s pool", way, kind)
				}
			}
			assert.Zero(t, w.Count("effects"))
			assert.Zero(t, w.Count("common_process_log"))
		})
	}
}

var implicit = []string{"CREATE TABLE more (id INT)", "TRUNCATE TABLE effects", "LOCK TABLES effects WRITE", "START TRANSACTION"}

// Failure: F5
func TestEntryMadeDurableByAnotherStatementRuns(t *testing.T) {
	t.Parallel()
	for _, statement := range implicit {
		t.Run(statement, func(t *testing.T) {
			t.Parallel()
			harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
				c := w.New(cfg)
				orders, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
				w.Run(c)
				tx := w.Begin(cfg.DB)
				durable, err := orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{})
				require.NoError(t, err)
				_, err = tx.Exec(statement)
				require.NoError(t, err)
				late, err := orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{})
				if statement == "START TRANSACTION" {
					require.NoError(t, err, "a new one is open")
				} else {
					require.Error(t, err)
				}
				if statement == "LOCK TABLES effects WRITE" {
					_, err = tx.Exec("UNLOCK TABLES")
					require.NoError(t, err)
				}
				require.NoError(t, tx.Rollback())
				w.WaitState(durable.ID(), compensator.Succeeded)
				assert.Equal(t, 1, ran.Of(durable.ID()))
				assert.Equal(t, 1, w.Count("common_process_log"), "later entry: %v", late)
			})
		})
	}
}

// Failure: F5
func TestEntryOfATransactionEndedByTextRuns(t *testing.T) {
	t.Parallel()
	for name, texts := range map[string][2][]string{
		"begin": {{"BEGIN"}, {"COMMIT"}},
		"xa":    {{"XA START %"}, {"XA END %", "XA PREPARE %", "XA COMMIT %"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
				ready := func() {}
				if cfg.DB == w.DB {
					cfg, ready = w.HooksOnlyConfig(cfg) // The Connector must notice the implicit commit without help.
				}
				c := w.New(cfg)
				orders, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
				w.Run(c)
				ready()
				conn, err := cfg.DB.Conn(t.Context())
				require.NoError(t, err)
				defer conn.Close()
				own := "'" + rand.Text() + "'" // XA ids are global on the server, so each test needs its own.
				run := func(texts []string) {
					for _, text := range texts {
						harness.ExecAll(t, conn, []string{strings.ReplaceAll(text, "%", own)})
					}
				}
				run(texts[0])
				receipt, err := orders.Record(t.Context(), conn, harness.Order{}, compensator.Options{})
				require.NoError(t, err)
				run(texts[1])
				w.WaitState(receipt.ID(), compensator.Succeeded)
				assert.Equal(t, 1, ran.Of(receipt.ID()))
			})
		})
	}
}

// Failure: F1
func TestSecondCommitCancelsNothing(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		cfg, ready := w.HooksOnlyConfig(cfg)
		c := w.New(cfg)
		orders, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
		w.Run(c)
		ready()
		tx := w.Begin(cfg.DB)
		receipt, err := orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{})
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		require.ErrorIs(t, tx.Commit(), sql.ErrTxDone)
		require.ErrorIs(t, tx.Rollback(), sql.ErrTxDone)
		receipt.Committed()
		receipt.Committed()
		w.WaitState(receipt.ID(), compensator.Succeeded)
		assert.Equal(t, 1, ran.Of(receipt.ID()))
	})
}

func TestTransactionOfAStoreWithoutSQLSaysWhatItLacks(t *testing.T) {
	t.Parallel()
	c, err := compensator.New(t.Context(), compensator.Config{Store: memory.NewStore(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
		var n int
		require.ErrorContains(t, tx.QueryRowContext(ctx, "SELECT 1").Scan(&n), "have no QueryRowContext")
		_, err := tx.PrepareContext(ctx, "SELECT 1")
		require.ErrorContains(t, err, "have no PrepareContext")
		require.PanicsWithError(t, "compensator: Config.Store's transactions have no StmtContext", func() { tx.StmtContext(ctx, nil) })
		return nil
	}))
}
