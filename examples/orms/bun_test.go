package orms

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/mysqldialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/schema"

	"github.com/compensator-go/compensator"
)

type bunOrder struct {
	bun.BaseModel `bun:"table:orders"`

	ID   int64 `bun:",pk,autoincrement"`
	Note string
}

func openBun(t *testing.T, db *sql.DB) orm {
	dialect := schema.Dialect(mysqldialect.New())
	if isSQLite(db) {
		dialect = sqlitedialect.New()
	}
	b := bun.NewDB(db, dialect)
	return orm{
		inTx: func(ctx context.Context, note string, work func(compensator.Tx) error) error {
			return b.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
				if _, err := tx.NewInsert().Model(&bunOrder{Note: note}).Exec(ctx); err != nil {
					return err
				}
				return work(tx)
			})
		},
		nest: func(ctx context.Context, outer, inner func(compensator.Tx) error) error {
			return b.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
				nested := tx.RunInTx(ctx, nil, func(_ context.Context, tx bun.Tx) error { return errors.Join(inner(tx), errRollback) })
				require.Equal(t, errors.Join(errRollback), nested)
				return outer(tx)
			})
		},
		write: func(ctx context.Context, tx *compensator.ScopedTx, note string) error {
			_, err := b.NewInsert().Conn(tx).Model(&bunOrder{Note: note}).Exec(ctx)
			return err
		},
		outside: b,
	}
}
