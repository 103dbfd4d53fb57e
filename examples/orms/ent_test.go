package orms

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/examples/orms/ent"
)

func openEnt(_ *testing.T, db *sql.DB) orm {
	speaks := map[bool]string{false: dialect.MySQL, true: dialect.SQLite}[isSQLite(db)]
	client := ent.NewClient(ent.Driver(entsql.OpenDB(speaks, db)))
	return orm{
		inTx: func(ctx context.Context, note string, work func(compensator.Tx) error) error {
			return inEntTx(ctx, client, func(tx *ent.Tx) error {
				if _, err := tx.Order.Create().SetNote(note).Save(ctx); err != nil {
					return err
				}
				return work(tx)
			})
		},
		nest: func(ctx context.Context, outer, inner func(compensator.Tx) error) error {
			return inEntTx(ctx, client, func(tx *ent.Tx) error {
				return errors.Join(savepoint(ctx, tx, inner), outer(tx))
			})
		},
		write: func(ctx context.Context, tx *compensator.ScopedTx, note string) error {
			scoped := ent.NewClient(ent.Driver(entsql.NewDriver(speaks, entsql.Conn{ExecQuerier: tx})))
			return scoped.Order.Create().SetNote(note).Exec(ctx)
		},
		outside: client,
	}
}

func inEntTx(ctx context.Context, client *ent.Client, work func(tx *ent.Tx) error) error {
	tx, err := client.Tx(ctx)
	if err != nil {
		return err
	}
	if err := work(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}
