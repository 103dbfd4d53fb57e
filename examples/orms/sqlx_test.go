package orms

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/jmoiron/sqlx"

	"github.com/compensator-go/compensator"
)

type sqlxOrder struct {
	ID   int64
	Note string
}

func openSQLX(_ *testing.T, db *sql.DB) orm {
	x := sqlx.NewDb(db, map[bool]string{false: "mysql", true: "sqlite3"}[isSQLite(db)])
	return orm{
		inTx: func(ctx context.Context, note string, work func(compensator.Tx) error) error {
			return inSQLXTx(ctx, x, func(tx *sqlx.Tx) error {
				if _, err := tx.NamedExecContext(ctx, "INSERT INTO orders (note) VALUES (:note)", sqlxOrder{Note: note}); err != nil {
					return err
				}
				return work(tx)
			})
		},
		nest: func(ctx context.Context, outer, inner func(compensator.Tx) error) error {
			return inSQLXTx(ctx, x, func(tx *sqlx.Tx) error {
				return errors.Join(savepoint(ctx, tx, inner), outer(tx))
			})
		},
		write: func(ctx context.Context, tx *compensator.ScopedTx, note string) error {
			query, args, err := x.BindNamed("INSERT INTO orders (note) VALUES (:note)", sqlxOrder{Note: note})
			if err != nil {
				return err
			}
			_, err = tx.ExecContext(ctx, query, args...)
			return err
		},
		outside: x,
	}
}

func inSQLXTx(ctx context.Context, x *sqlx.DB, work func(tx *sqlx.Tx) error) error {
	tx, err := x.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	if err := work(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}
