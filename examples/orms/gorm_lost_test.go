package orms

import (
	"context"
	"database/sql"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/orms/gormtx"
)

var scopes = map[string]func(ctx context.Context, g *gorm.DB, tx *compensator.ScopedTx) *gorm.DB{
	"gormtx": gormtx.Use,
	"statements cached": func(ctx context.Context, g *gorm.DB, tx *compensator.ScopedTx) *gorm.DB {
		s := g.WithContext(ctx)
		s.Statement.ConnPool = gorm.NewPreparedStmtDB(tx, 100, time.Minute)
		return s
	},
}

func swallowDeadlock(t *testing.T, db *sql.DB, g *gorm.DB) {
	rival, err := db.Begin()
	require.NoError(t, err)
	_, err = rival.Exec("UPDATE orders SET note='rival' WHERE id>1") // This transaction writes more, so the server rolls back the other one.
	require.NoError(t, err)
	require.NoError(t, g.Exec("UPDATE orders SET note=? WHERE id=?", "ours", 1).Error)
	waited := make(chan error, 1)
	go func() {
		_, err := rival.Exec("UPDATE orders SET note='rival' WHERE id=1")
		waited <- err
	}()
	assert.ErrorContains(t, g.Exec("UPDATE orders SET note=? WHERE id=?", "ours", 2).Error, "1213")
	assert.NoError(t, <-waited, "the wrong transaction was rolled back")
	require.NoError(t, rival.Rollback())
}

// A deadlock has rolled back the transaction. If a later statement reached the server, the server would commit that
// statement alone. So the ScopedTx must refuse it.
// Failure: F2
func TestGORMWritesNothingOnceItsTransactionIsLost(t *testing.T) {
	for name, scope := range scopes {
		for pool, open := range map[string]func(*testing.T) *sql.DB{"plain": openPlain, "Connector": openWatched} {
			t.Run(name+"/"+pool, func(t *testing.T) {
				db := open(t)
				g, err := gorm.Open(mysql.New(mysql.Config{Conn: db}), &gorm.Config{Logger: logger.Discard, SkipDefaultTransaction: true})
				require.NoError(t, err)
				scoped := func(tx *compensator.ScopedTx) *gorm.DB {
					return scope(t.Context(), g, tx)
				}
				require.NoError(t, compensator.Migrate(t.Context(), db))
				_, err = db.Exec("CREATE TABLE orders (id BIGINT AUTO_INCREMENT PRIMARY KEY, note VARCHAR(191) NOT NULL)")
				require.NoError(t, err)
				for range 10 {
					require.NoError(t, g.Create(&gormOrder{Note: "before"}).Error)
				}
				c, err := compensator.New(t.Context(), compensator.Config{DB: db, Grace: 100 * time.Millisecond, PollInterval: 100 * time.Millisecond})
				require.NoError(t, err)
				var attempts atomic.Int32
				pay, err := compensator.HandleTx(t.Context(), c, "pay", func(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry, _ string) error {
					if attempts.Add(1) == 1 {
						swallowDeadlock(t, db, scoped(tx))
					}
					_ = scoped(tx).Create(&gormOrder{Note: "paid"}).Error // The handler ignores this error too.
					return nil
				}, &compensator.HandlerConfig[string]{Retry: compensator.Fixed(0)})
				require.NoError(t, err)
				w := &world{Compensator: c, t: t, db: db}
				w.run()

				require.ErrorIs(t, c.InTx(t.Context(), func(_ context.Context, tx *compensator.ScopedTx) error {
					swallowDeadlock(t, db, scoped(tx))
					assert.ErrorIs(t, scoped(tx).Create(&gormOrder{Note: "by itself"}).Error, compensator.ErrTxAborted)
					return nil
				}), compensator.ErrTxAborted)
				assert.Zero(t, w.count("orders WHERE note='by itself'"))

				require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
					_, err := pay.Record(ctx, tx, "", compensator.Options{})
					return err
				}))
				w.eventually(func() bool { return w.count("common_process_log WHERE state=1") == 1 })
				assert.EqualValues(t, 2, attempts.Load())
				assert.Equal(t, 1, w.count("orders WHERE note='paid'"))
			})
		}
	}
}
