package gormtx_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/orms/gormtx"
)

// The entry proves that the request was done.
func (w *world) place(tx *gorm.DB, note string) error {
	receipt, err := w.write.Record(w.t.Context(), gormtx.Tx(tx), note, compensator.Options{IdempotencyKey: compensator.IdempotencyKey("close-" + note)})
	if err != nil || receipt.Duplicate() {
		return err
	}
	return tx.Create(&order{Note: note}).Error
}

func TestTransactionThatLostIsRunAgainAndHappensOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		for range 2 { // The request comes twice.
			tries := 0
			require.NoError(t, gormtx.WithRetry(t.Context(), w.Compensator, w.db, "close-a", func(tx *gorm.DB) error {
				if err := w.place(tx, "a"); err != nil {
					return err
				}
				if tries++; tries < 3 {
					return fmt.Errorf("a row had changed: %w", compensator.ErrTxAborted)
				}
				return nil
			}))
			assert.Equal(t, 3, tries)
		}
		assert.Equal(t, []string{"a"}, w.notes())
		assert.ErrorIs(t, gormtx.WithRetry(t.Context(), w.Compensator, w.db, "close-b", func(tx *gorm.DB) error {
			return errors.Join(w.place(tx, "b"), errBack)
		}), errBack)
		assert.Equal(t, []string{"a"}, w.notes(), "an error of the business is not retried")
	})
}

// The server rolls back the transaction that has written less.
func TestDeadlockThroughGORMIsRunAgain(t *testing.T) {
	t.Parallel()
	inEveryPool(t, func(t *testing.T, w *world, _ *faultproxy.MySQL) {
		for id := range 20 {
			require.NoError(t, w.db.Create(&order{ID: int64(id + 1), Note: fmt.Sprint(id + 1)}).Error)
		}
		tries := 0
		take := func(db *gorm.DB, which string) error {
			return db.Model(&order{}).Where("id "+which).Update("note", gorm.Expr("CONCAT(note, '.')")).Error
		}
		require.NoError(t, gormtx.WithRetry(t.Context(), w.Compensator, w.db, "close-a", func(tx *gorm.DB) error {
			tries++
			if err := take(tx, "= 1"); err != nil {
				return err
			}
			if tries == 1 {
				rival := w.db.Begin()
				require.NoError(t, take(rival, "> 1"))
				waited := make(chan error, 1)
				go func() { waited <- take(rival, "= 1") }()
				err := take(tx, "= 2")
				require.NoError(t, <-waited, "the wrong transaction was rolled back")
				require.NoError(t, rival.Rollback().Error)
				return err
			}
			return w.place(tx, "a")
		}))
		assert.Equal(t, 2, tries)
		assert.Subset(t, w.notes(), []string{"1.", "2", "a"}, "the update happened once")
	})
}

// If the request of a COMMIT is lost, the transaction was not committed. If only the reply is lost, it was committed.
func TestLostCommitThroughGORMHappensOnce(t *testing.T) {
	t.Parallel()
	for lost, test := range map[string]struct {
		fault faultproxy.Fault
		tries int
	}{"request": {faultproxy.DropRequest, 2}, "reply": {faultproxy.DropReply, 1}} {
		t.Run(lost+" lost", func(t *testing.T) {
			t.Parallel()
			inEveryPool(t, func(t *testing.T, w *world, proxy *faultproxy.MySQL) {
				var inserted atomic.Bool
				trap := proxy.Arm(faultproxy.Rule{Nth: 1, Fault: test.fault, Match: func(r faultproxy.Request) bool {
					if faultproxy.Contains("INTO `orders`")(r) {
						inserted.Store(true)
					}
					return inserted.Load() && faultproxy.Commit()(r)
				}})
				tries := 0
				require.NoError(t, gormtx.WithRetry(t.Context(), w.Compensator, w.db, "close-a", func(tx *gorm.DB) error {
					tries++
					return w.place(tx, "a")
				}))
				assert.Equal(t, 1, trap.Fired())
				assert.Equal(t, test.tries, tries)
				assert.Equal(t, []string{"a"}, w.notes())
			})
		})
	}
}

func inEveryPool(t *testing.T, test func(t *testing.T, w *world, proxy *faultproxy.MySQL)) {
	for way, wrap := range map[string]func(driver.Connector) driver.Connector{
		"plain": func(c driver.Connector) driver.Connector { return c }, "Connector": compensator.Connector,
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			w, proxy := proxied(t, wrap)
			test(t, w, proxy)
		})
	}
}

func proxied(t *testing.T, wrap func(driver.Connector) driver.Connector) (*world, *faultproxy.MySQL) {
	cfg, err := mysqldriver.ParseDSN(testservers.Database(t))
	require.NoError(t, err)
	proxy, err := faultproxy.NewMySQL(cfg.Addr)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, proxy.Close()) })
	cfg.Addr, cfg.Logger = proxy.Addr(), &mysqldriver.NopLogger{}
	connector, err := mysqldriver.NewConnector(cfg)
	require.NoError(t, err)
	pool := sql.OpenDB(wrap(connector))
	t.Cleanup(func() { assert.NoError(t, pool.Close()) })
	require.NoError(t, compensator.Migrate(t.Context(), pool))
	c, err := compensator.New(t.Context(), compensator.Config{DB: pool})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	db, err := gorm.Open(mysql.New(mysql.Config{Conn: pool}), &gorm.Config{Logger: logger.Discard})
	require.NoError(t, err)
	require.NoError(t, db.AutoMigrate(&order{}))
	write, err := compensator.Declare[string](t.Context(), c, "write", nil)
	require.NoError(t, err)
	return &world{Compensator: c, t: t, db: db, write: write}, proxy
}

func TestWithRetryNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		nothing := func(*gorm.DB) error { panic("runs") }
		refused := func(field string, c *compensator.Compensator, db *gorm.DB, proof compensator.IdempotencyKey, do func(*gorm.DB) error) {
			t.Helper()
			var wrong *compensator.FieldError
			require.ErrorAs(t, gormtx.WithRetry(t.Context(), c, db, proof, do), &wrong)
			assert.Equal(t, field, wrong.Field)
		}
		refused("c", nil, w.db, "close-a", nothing)
		refused("db", w.Compensator, nil, "close-a", nothing)
		refused("db", w.Compensator, new(gorm.DB), "close-a", nothing)
		refused("proof", w.Compensator, w.db, "", nothing)
		refused("do", w.Compensator, w.db, "close-a", nil)
		require.NoError(t, w.db.Transaction(func(tx *gorm.DB) error {
			refused("db", w.Compensator, tx, "close-a", nothing)
			return nil
		}))
		require.NoError(t, w.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
			refused("db", w.Compensator, gormtx.Use(ctx, w.db, tx), "close-a", nothing)
			return nil
		}))
	})
}

func TestTxIsTheHandleOfTheTransaction(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		require.NoError(t, w.db.Transaction(func(tx *gorm.DB) error { return w.place(tx, "a") }))
		assert.ErrorIs(t, w.db.Transaction(func(tx *gorm.DB) error { return errors.Join(w.place(tx, "b"), errBack) }), errBack)
		require.NoError(t, w.db.Transaction(func(tx *gorm.DB) error {
			_, err := w.write.CancelTx(t.Context(), gormtx.Tx(tx), compensator.IdempotencyKey("close-a"))
			return err
		}))
		assert.Equal(t, []string{"a"}, w.notes())
		assert.ErrorIs(t, w.place(w.db, "c"), compensator.ErrNoTransaction)
		var wrong *compensator.FieldError
		for _, none := range []*gorm.DB{nil, {}} {
			require.ErrorAs(t, w.place(none, "d"), &wrong)
			assert.Equal(t, "tx", wrong.Field)
		}
	})
}
