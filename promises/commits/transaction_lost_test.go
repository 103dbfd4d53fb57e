package commits

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/internal/testservers"
)

// unseenDeadlocks cause a deadlock whose error comes from a statement, a row or rows. No method of the ScopedTx itself
// returns the error.
var unseenDeadlocks = map[string]func(t *testing.T, tx *compensator.ScopedTx) error{
	"prepared exec": func(t *testing.T, tx *compensator.ScopedTx) error {
		stmt, err := tx.PrepareContext(t.Context(), "UPDATE accounts SET n=? WHERE id=2")
		require.NoError(t, err)
		defer stmt.Close()
		_, err = stmt.ExecContext(t.Context(), 1)
		return err
	},
	"prepared query": func(t *testing.T, tx *compensator.ScopedTx) error {
		stmt, err := tx.PrepareContext(t.Context(), "SELECT n FROM accounts WHERE id=? FOR UPDATE")
		require.NoError(t, err)
		defer stmt.Close()
		return stmt.QueryRowContext(t.Context(), 2).Scan(new(int))
	},
	"single row": func(t *testing.T, tx *compensator.ScopedTx) error {
		return tx.QueryRowContext(t.Context(), "SELECT n FROM accounts WHERE id=2 FOR UPDATE").Scan(new(int))
	},
	"rows": func(t *testing.T, tx *compensator.ScopedTx) error {
		rows, err := tx.QueryContext(t.Context(), "SELECT n FROM accounts WHERE id BETWEEN 1 AND 2 ORDER BY id FOR UPDATE")
		require.NoError(t, err)
		defer rows.Close()
		for rows.Next() {
		}
		return rows.Err()
	},
	"rows that nobody reads": func(t *testing.T, tx *compensator.ScopedTx) error {
		rows, err := tx.QueryContext(t.Context(), "SELECT n FROM accounts WHERE id BETWEEN 1 AND 2 ORDER BY id FOR UPDATE")
		require.NoError(t, err)
		return rows.Close()
	},
}

// After a deadlock the server has ended the transaction, and would commit each further statement at once. So the
// ScopedTx must send no further statement.
// Failure: F2
func TestNothingIsSentOnceTheServerHasRolledBack(t *testing.T) {
	t.Parallel()
	for name, meet := range unseenDeadlocks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
				cfg := w.QuickConfig()
				cfg.DB = db
				c := w.New(cfg)
				err := c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
					w.WriteEffect(tx, "rolled back")
					early, err := tx.PrepareContext(ctx, "INSERT INTO effects (what) VALUES ('by itself')")
					require.NoError(t, err)
					defer early.Close()
					w.DeadlockIn(tx, func() error { return meet(t, tx) })
					for what, next := range laterStatements(ctx, tx, early) {
						assert.ErrorIs(t, next(), compensator.ErrTxAborted, what)
					}
					return nil
				})
				require.ErrorIs(t, err, compensator.ErrTxAborted)
				assert.Zero(t, w.Count("effects"))
				require.NoError(t, c.InTx(t.Context(), func(_ context.Context, tx *compensator.ScopedTx) error {
					w.WriteEffect(tx, "the next one")
					return nil
				}), "the connection is as good as new")
				assert.Equal(t, 1, w.Count("effects"))
			})
		})
	}
}

func laterStatements(ctx context.Context, tx *compensator.ScopedTx, early *sql.Stmt) map[string]func() error {
	const insert = "INSERT INTO effects (what) VALUES ('by itself')"
	return map[string]func() error{
		"exec":            func() error { _, err := tx.ExecContext(ctx, insert); return err },
		"exec with args":  func() error { _, err := tx.ExecContext(ctx, "INSERT INTO effects (what) VALUES (?)", "x"); return err },
		"query":           func() error { _, err := tx.QueryContext(ctx, insert); return err },
		"row":             func() error { return tx.QueryRowContext(ctx, insert).Scan(new(int)) },
		"prepare":         func() error { _, err := tx.PrepareContext(ctx, insert); return err },
		"prepared before": func() error { _, err := early.ExecContext(ctx); return err },
	}
}

// Failure: F2
func TestTransactionalHandlerThatSwallowsAnUnseenDeadlockHasItsEffectOnce(t *testing.T) {
	t.Parallel()
	for name, meet := range unseenDeadlocks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
				cfg := w.QuickConfig()
				cfg.DB = db
				c := w.New(cfg)
				var ran harness.Calls
				orders := harness.HandleTransactional(t, c, compensator.HandlerConfig[harness.Order]{Retry: compensator.Fixed(0)}, func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry) error {
					if ran.Add(e.ID) > 1 {
						return nil
					}
					w.DeadlockIn(tx, func() error { return meet(t, tx) }) // Ignore the error of the deadlock.
					_, _ = tx.ExecContext(ctx, "INSERT INTO effects (what) VALUES ('by itself')")
					return nil
				})
				w.Run(c)
				id := w.Record(orders, 1, compensator.Options{})
				w.WaitState(id, compensator.Succeeded)
				assert.Equal(t, 2, ran.Of(id))
				assert.Equal(t, 1, w.Count("effects"))
			})
		})
	}
}

// Error 1205 does not say whether the server rolled back only the statement or the whole transaction.
func TestLockWaitCountsAsARollbackExactlyIfItWasOne(t *testing.T) {
	t.Parallel()
	for name, rollsBack := range map[string]bool{"OFF": false, "ON": true} {
		t.Run("innodb_rollback_on_timeout "+name, func(t *testing.T) {
			t.Parallel()
			dsn := testservers.NewSQL(t, "--innodb-rollback-on-timeout="+name, "--innodb-lock-wait-timeout=1").Database(t)
			w := harness.WorldAt(t, dsn)
			w.Exec("CREATE TABLE accounts (id INT PRIMARY KEY, n INT NOT NULL) ENGINE=InnoDB")
			w.Exec("INSERT INTO accounts VALUES (1, 0)")
			holder := w.Begin(w.DB)
			_, err := holder.Exec("UPDATE accounts SET n=1")
			require.NoError(t, err)
			for kind, pool := range harness.Pools {
				cfg := w.QuickConfig()
				cfg.DB = w.Open(pool(dsn))
				c := w.New(cfg)
				err := c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
					w.WriteEffect(tx, kind)
					w.RequireNumber(tx.QueryRowContext(ctx, "SELECT n FROM accounts FOR UPDATE").Scan(new(int)), 1205)
					_, err := tx.ExecContext(ctx, "INSERT INTO effects (what) VALUES (?)", kind)
					if rollsBack {
						assert.ErrorIs(t, err, compensator.ErrTxAborted, kind)
					} else {
						assert.NoError(t, err, kind)
					}
					return nil
				})
				if rollsBack {
					assert.ErrorIs(t, err, compensator.ErrTxAborted, kind)
					assert.Zero(t, w.Count("effects WHERE what=?", kind))
				} else {
					assert.NoError(t, err, kind)
					assert.Equal(t, 2, w.Count("effects WHERE what=?", kind))
				}
			}
		})
	}
}

// In a session with autocommit=0 the server begins the next transaction implicitly, so the library can set a savepoint
// even after a rollback.
// Failure: F2
func TestRollbackIsSeenInSessionsThatBeginByThemselves(t *testing.T) {
	t.Parallel()
	dsn := testservers.NewSQL(t, "--innodb-rollback-on-timeout=ON", "--innodb-lock-wait-timeout=1").Database(t)
	w := harness.WorldAt(t, dsn)
	w.Exec("CREATE TABLE accounts (id INT PRIMARY KEY, n INT NOT NULL) ENGINE=InnoDB")
	w.Exec("INSERT INTO accounts VALUES (1, 0)")
	w.Exec("CREATE PROCEDURE swallow() BEGIN DECLARE CONTINUE HANDLER FOR SQLEXCEPTION BEGIN END; UPDATE accounts SET n=2; END")
	w.Exec("CREATE PROCEDURE nothing() BEGIN END")
	_, err := w.Begin(w.DB).Exec("UPDATE accounts SET n=1")
	require.NoError(t, err)
	for kind, pool := range harness.Pools {
		for set, inside := range map[string]bool{"inside": true, "before": false} {
			for how, loses := range map[string]string{"error": "UPDATE accounts SET n=2", "procedure": "CALL swallow()"} {
				t.Run(kind+", set "+set+", "+how, func(t *testing.T) {
					db := w.Open(pool(dsn))
					cfg := w.QuickConfig()
					cfg.DB = db
					c := w.New(cfg)
					db.SetMaxOpenConns(1)
					if !inside {
						_, err := db.Exec("SET autocommit=0")
						require.NoError(t, err)
					}
					require.ErrorIs(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
						if inside {
							_, err := tx.ExecContext(ctx, "SET autocommit=0")
							require.NoError(t, err)
						}
						_, err := tx.ExecContext(ctx, "CALL nothing()")
						require.NoError(t, err)
						w.WriteEffect(tx, "rolled back")
						_, _ = tx.ExecContext(ctx, loses)
						_, err = tx.ExecContext(ctx, "INSERT INTO effects (what) VALUES ('by itself')")
						assert.ErrorIs(t, err, compensator.ErrNoTransaction)
						return nil
					}), compensator.ErrNoTransaction)
					assert.Zero(t, w.Count("effects"))
				})
			}
		}
	}
}
