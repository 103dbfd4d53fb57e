package orms

import (
	"context"
	"database/sql"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/jmoiron/sqlx/reflectx"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/mysqldialect"

	"github.com/compensator-go/compensator"
)

var ways = map[string]func(ctx context.Context, db *sql.DB, tx *compensator.ScopedTx, id int) error{
	"sqlx.SelectContext": func(ctx context.Context, _ *sql.DB, tx *compensator.ScopedTx, id int) error {
		var list []sqlxOrder
		return sqlx.SelectContext(ctx, queryer{tx}, &list, locking, id)
	},
	"sqlx.QueryxContext": func(ctx context.Context, _ *sql.DB, tx *compensator.ScopedTx, id int) error {
		rows, err := queryer{tx}.QueryxContext(ctx, locking, id)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
		}
		return rows.Err()
	},
	"sqlx.NamedQueryContext": func(ctx context.Context, _ *sql.DB, tx *compensator.ScopedTx, id int) error {
		rows, err := sqlx.NamedQueryContext(ctx, queryer{tx}, "SELECT id, note FROM orders WHERE id=:id FOR UPDATE", sqlxOrder{ID: int64(id)})
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
		}
		return rows.Err()
	},
	"sqlx.PreparexContext": func(ctx context.Context, _ *sql.DB, tx *compensator.ScopedTx, id int) error {
		stmt, err := sqlx.PreparexContext(ctx, queryer{tx}, locking)
		if err != nil {
			return err
		}
		defer stmt.Close()
		var o sqlxOrder
		return stmt.GetContext(ctx, &o, id)
	},
	"sqlx.MustExecContext": func(ctx context.Context, _ *sql.DB, tx *compensator.ScopedTx, id int) (err error) {
		defer func() { err, _ = recover().(error) }()
		sqlx.MustExecContext(ctx, tx, "UPDATE orders SET note='ours' WHERE id=?", id)
		return nil
	},
	"bun NewSelect.Scan": func(ctx context.Context, db *sql.DB, tx *compensator.ScopedTx, id int) error {
		o := bunOrder{ID: int64(id)}
		return bun.NewDB(db, mysqldialect.New()).NewSelect().Conn(tx).Model(&o).WherePK().For("UPDATE").Scan(ctx)
	},
	"bun NewRaw.Scan": func(ctx context.Context, db *sql.DB, tx *compensator.ScopedTx, id int) error {
		var o bunOrder
		return bun.NewDB(db, mysqldialect.New()).NewRaw(locking, id).Conn(tx).Scan(ctx, &o)
	},
	"bun NewUpdate.Exec": func(ctx context.Context, db *sql.DB, tx *compensator.ScopedTx, id int) error {
		_, err := bun.NewDB(db, mysqldialect.New()).NewUpdate().Conn(tx).Model(&bunOrder{ID: int64(id), Note: "ours"}).WherePK().Exec(ctx)
		return err
	},
}

const locking = "SELECT id, note FROM orders WHERE id=? FOR UPDATE"

type queryer struct{ *compensator.ScopedTx }

var mapper = reflectx.NewMapperFunc("db", sqlx.NameMapper)

func (q queryer) QueryxContext(ctx context.Context, query string, args ...any) (*sqlx.Rows, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return &sqlx.Rows{Rows: rows, Mapper: mapper}, nil
}

// QueryRowxContext is never called, because a queryer cannot create a Row of sqlx.
func (queryer) QueryRowxContext(context.Context, string, ...any) *sqlx.Row { return nil }

func (queryer) DriverName() string { return "mysql" }

func (queryer) Rebind(query string) string { return query }

func (queryer) BindNamed(query string, arg any) (string, []any, error) {
	return sqlx.BindNamed(sqlx.QUESTION, query, arg)
}

var sqlxWays = map[string]func(ctx context.Context, tx *sqlx.Tx, id int) error{
	"GetContext": func(ctx context.Context, tx *sqlx.Tx, id int) error {
		var o sqlxOrder
		return tx.GetContext(ctx, &o, locking, id)
	},
	"SelectContext": func(ctx context.Context, tx *sqlx.Tx, id int) error {
		var list []sqlxOrder
		return tx.SelectContext(ctx, &list, locking, id)
	},
	"QueryRowxContext": func(ctx context.Context, tx *sqlx.Tx, id int) error {
		var o sqlxOrder
		return tx.QueryRowxContext(ctx, locking, id).StructScan(&o)
	},
	"NamedQuery": func(_ context.Context, tx *sqlx.Tx, id int) error {
		rows, err := tx.NamedQuery("SELECT id, note FROM orders WHERE id=:id FOR UPDATE", sqlxOrder{ID: int64(id)})
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
		}
		return rows.Err()
	},
	"PreparexContext": func(ctx context.Context, tx *sqlx.Tx, id int) error {
		stmt, err := tx.PreparexContext(ctx, locking)
		if err != nil {
			return err
		}
		defer stmt.Close()
		var o sqlxOrder
		return stmt.GetContext(ctx, &o, id)
	},
	"MustExecContext": func(ctx context.Context, tx *sqlx.Tx, id int) (err error) {
		defer func() { err, _ = recover().(error) }()
		tx.MustExecContext(ctx, "UPDATE orders SET note='ours' WHERE id=?", id)
		return nil
	},
}

// Failure: F2
func TestSQLXWritesNothingOnceItsTransactionOnAConnectorIsLost(t *testing.T) {
	for name, way := range sqlxWays {
		t.Run(name, func(t *testing.T) {
			db := openWatched(t)
			orders(t, db)
			c, err := compensator.New(t.Context(), compensator.Config{DB: db, Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			defer c.Close()
			tx, err := sqlx.NewDb(db, "mysql").BeginTxx(t.Context(), nil)
			require.NoError(t, err)
			_, err = c.Record(t.Context(), tx, compensator.NewEntry{BusinessType: "pay", Content: []byte("{}")})
			require.NoError(t, err)
			swallow(t, db, func(id int) error { return way(t.Context(), tx, id) })
			_, err = tx.ExecContext(t.Context(), "INSERT INTO orders (note) VALUES ('by itself')")
			assert.ErrorIs(t, err, compensator.ErrTxAborted)
			assert.ErrorIs(t, tx.Commit(), compensator.ErrTxAborted)
			w := &world{t: t, db: db}
			assert.Zero(t, w.count("orders WHERE note='by itself'"))
			assert.Zero(t, w.count("common_process_log"))
		})
	}
}

func orders(t *testing.T, db *sql.DB) {
	require.NoError(t, compensator.Migrate(t.Context(), db))
	_, err := db.Exec("CREATE TABLE orders (id BIGINT AUTO_INCREMENT PRIMARY KEY, note VARCHAR(191) NOT NULL)")
	require.NoError(t, err)
	_, err = db.Exec("INSERT INTO orders (note) VALUES (''),(''),(''),(''),(''),(''),(''),(''),(''),('')")
	require.NoError(t, err)
}

func swallow(t *testing.T, db *sql.DB, way func(id int) error) {
	rival, err := db.Begin()
	require.NoError(t, err)
	_, err = rival.Exec("UPDATE orders SET note='rival' WHERE id>1") // This transaction writes more, so the server rolls back the other one.
	require.NoError(t, err)
	require.NoError(t, way(1))
	waited := make(chan error, 1)
	go func() {
		_, err := rival.Exec("UPDATE orders SET note='rival' WHERE id=1")
		waited <- err
	}()
	assert.ErrorContains(t, way(2), "1213")
	assert.NoError(t, <-waited, "the wrong transaction was rolled back")
	require.NoError(t, rival.Rollback())
}

// A deadlock has rolled back the transaction. If a later statement reached the server, the server would commit that
// statement alone. So the ScopedTx must refuse it.
// Failure: F2
func TestNoMapperWritesOnceItsTransactionIsLost(t *testing.T) {
	for name, way := range ways {
		for pool, open := range map[string]func(*testing.T) *sql.DB{"plain": openPlain, "Connector": openWatched} {
			t.Run(name+"/"+pool, func(t *testing.T) {
				db := open(t)
				orders(t, db)
				c, err := compensator.New(t.Context(), compensator.Config{DB: db, Grace: 100 * time.Millisecond, PollInterval: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
				require.NoError(t, err)
				write := func(tx *compensator.ScopedTx, note string) error {
					_, err := tx.ExecContext(t.Context(), "INSERT INTO orders (note) VALUES (?)", note)
					return err
				}
				var attempts atomic.Int32
				pay, err := compensator.HandleTx(t.Context(), c, "pay", func(_ context.Context, tx *compensator.ScopedTx, _ *compensator.Entry, _ string) error {
					if attempts.Add(1) == 1 {
						swallow(t, db, func(id int) error { return way(t.Context(), db, tx, id) })
					}
					_ = write(tx, "paid") // The handler ignores this error too.
					return nil
				}, &compensator.HandlerConfig[string]{Retry: compensator.Fixed(0)})
				require.NoError(t, err)
				w := &world{Compensator: c, t: t, db: db}
				w.run()

				require.ErrorIs(t, c.InTx(t.Context(), func(_ context.Context, tx *compensator.ScopedTx) error {
					swallow(t, db, func(id int) error { return way(t.Context(), db, tx, id) })
					assert.ErrorIs(t, write(tx, "by itself"), compensator.ErrTxAborted)
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
