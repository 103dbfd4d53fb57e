package howto

import (
	"context"
	"database/sql"
	"time"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/orms/gormtx"
	"github.com/jmoiron/sqlx"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/mysqldialect"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
)

// Order is a row of a shop.
type Order struct {
	ID    string `gorm:"primaryKey"`
	State string
}

// OpenGORM opens one pool for GORM and for the log.
func OpenGORM(dsn string) (*sql.DB, *gorm.DB, error) {
	db, err := compensator.Open("mysql", dsn) // in place of mysql.Open(dsn)
	if err != nil {
		return nil, nil, err
	}
	g, err := gorm.Open(mysql.New(mysql.Config{Conn: db}), &gorm.Config{})
	return db, g, err
}

// PlaceGORM stores an order with GORM. In the same transaction it records the entry that closes the order.
func PlaceGORM(ctx context.Context, c *compensator.Compensator, db *gorm.DB, closeOrder *compensator.Type[Order], order Order) error {
	closing := compensator.IdempotencyKey("close-" + order.ID)
	return gormtx.WithRetry(ctx, c, db, closing, func(tx *gorm.DB) error {
		receipt, err := closeOrder.Record(ctx, gormtx.Tx(tx), order, compensator.Options{IdempotencyKey: closing, Delay: 30 * time.Minute})
		if err != nil || receipt.Duplicate() {
			return err // err is nil if the same request came before
		}
		return tx.Create(&order).Error
	})
}

// CloseGORM closes an order with GORM. The update commits together with the success of the entry.
func CloseGORM(c *compensator.Compensator, db *gorm.DB) (*compensator.Type[Order], error) {
	return compensator.HandleTx(context.Background(), c, "close_order", func(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry, o Order) error {
		return gormtx.Use(ctx, db, tx).Model(&o).Where("state = ?", "unpaid").Update("state", "closed").Error
	}, nil)
}

// OthersOnOnePool opens bun, ent and sqlx on the pool of the log.
func OthersOnOnePool(db *sql.DB) (*bun.DB, *entsql.Driver, *sqlx.DB) {
	return bun.NewDB(db, mysqldialect.New()),
		entsql.OpenDB(dialect.MySQL, db), // then ent.NewClient(ent.Driver(…)) of your generated package
		sqlx.NewDb(db, "mysql")
}

// PlaceBun stores an order with bun. In the same transaction it records the entry that closes the order.
func PlaceBun(ctx context.Context, c *compensator.Compensator, db *bun.DB, closeOrder *compensator.Type[Order], order Order) error {
	closing := compensator.IdempotencyKey("close-" + order.ID)
	return c.WithRetry(ctx, closing, func(ctx context.Context) error {
		return db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
			receipt, err := closeOrder.Record(ctx, tx, order, compensator.Options{IdempotencyKey: closing, Delay: 30 * time.Minute})
			if err != nil || receipt.Duplicate() {
				return err
			}
			_, err = tx.NewInsert().Model(&order).Exec(ctx)
			return err
		})
	})
}
