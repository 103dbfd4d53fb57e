// Command engine links the whole library. A test looks into the program and never runs it.
package main

import (
	"context"
	"database/sql"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/adopt"
	"github.com/compensator-go/compensator/intake"
	"github.com/compensator-go/compensator/processlog"
)

func main() {
	ctx := context.Background()
	db := sql.OpenDB(compensator.Connector(nil))
	_ = compensator.Migrate(ctx, db)
	c, err := compensator.New(ctx, compensator.Config{DB: db})
	if err != nil {
		panic(err)
	}
	_ = c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		_, err := c.Record(ctx, tx, compensator.NewEntry{})
		return err
	})
	_, _ = c.Complete(ctx, processlog.RowID(1))
	_, _ = admin.Of(c).Purge(ctx, 0)
	in, err := intake.Stream{}.Open(ctx, c, intake.Config{})
	if err == nil {
		_ = in.Run(ctx)
	}
	im, err := adopt.Open(c, adopt.Config{})
	if err == nil {
		_ = im.Run(ctx)
	}
	d, err := admin.New(c, admin.Options{})
	if err == nil {
		_, _ = d.Change(ctx, admin.Actor{}, admin.Change{})
		_, _, _ = d.StartBulk(ctx, admin.Actor{}, admin.Change{}, admin.BulkOptions{})
		_ = d.ChangeLimit(ctx, admin.Actor{}, admin.Limit{}, admin.LimitValues{}, admin.Why{})
		_, _ = d.TakeCases(ctx, admin.Actor{}, nil, admin.Why{})
	}
	_, _ = compensator.Handle(ctx, c, "order", func(context.Context, *compensator.Entry, string) error { return nil }, nil)
	ticks, _ := compensator.Declare[time.Time](ctx, c, "ticks", nil)
	_ = compensator.Periodic(ctx, ticks, compensator.Every(time.Hour), nil)
	_ = c.Run(ctx)
}
