package harness

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
)

type LifeTypes struct {
	Pay   *compensator.Type[Order]
	Ship  *compensator.Type[Order]
	Close *compensator.Type[Order]
	Mail  *compensator.Type[Order]
}

func newLifeTypes(c *compensator.Compensator, concurrent int, at func(point string), extra func(e *compensator.Entry) error) (*LifeTypes, error) {
	var types LifeTypes
	var errs [4]error
	effect := func(ctx context.Context, tx *compensator.ScopedTx, what string, e *compensator.Entry, point string) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO effects (what) VALUES (?)", what+e.ID.String())
		at(point)
		return err
	}
	types.Pay, errs[0] = compensator.HandleTx(context.Background(), c, "pay_order", func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, _ Order) error {
		return errors.Join(effect(ctx, tx, "paid ", e, InHandler), extra(e))
	}, nil)
	limited := &compensator.HandlerConfig[Order]{TypeConfig: compensator.TypeConfig{Limit: compensator.Limit{Concurrent: concurrent}}}
	types.Ship, errs[1] = compensator.Handle(context.Background(), c, "ship_order", func(_ context.Context, e *compensator.Entry, _ Order) error { return extra(e) }, limited)
	types.Close, errs[2] = compensator.Handle(context.Background(), c, "close_order", func(context.Context, *compensator.Entry, Order) error { return ErrSoldOut }, &compensator.HandlerConfig[Order]{
		MaxAttempts: 1,
		CompensateTx: func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, _ Order) error {
			return effect(ctx, tx, "undone ", e, InCompensation)
		},
	})
	types.Mail, errs[3] = compensator.HandleBatch(context.Background(), c, "send_mail", func(_ context.Context, items []compensator.Item[Order]) []error {
		verdicts := make([]error, len(items))
		for i, item := range items {
			verdicts[i] = extra(item.Entry)
		}
		return verdicts
	}, nil)
	return &types, errors.Join(errs[:]...)
}

func (w *World) LifeInstance(db *sql.DB) (*compensator.Compensator, *LifeTypes) {
	w.T.Helper()
	cfg := w.QuickConfig()
	cfg.DB, cfg.Lease = db, time.Second
	c := w.New(cfg)
	types, err := newLifeTypes(c, 0, func(string) {}, func(*compensator.Entry) error { return nil })
	require.NoError(w.T, err)
	return c, types
}
