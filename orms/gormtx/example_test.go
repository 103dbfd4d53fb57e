package gormtx_test

import (
	"context"
	"fmt"
	"log"

	"gorm.io/driver/sqlite"
	"gorm.io/gorm"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/orms/gormtx"
)

type Order struct {
	ID    int64
	State string
}

// The order and the entry that closes it are committed together. A request that comes twice places one order.
func ExampleWithRetry() {
	ctx := context.Background()
	sqlDB := compensator.Must(compensator.Open("sqlite", "file:/gormtx-example?vfs=memdb&_txlock=immediate&_pragma=busy_timeout(5000)")) // a real service opens MySQL
	defer sqlDB.Close()
	db := compensator.Must(gorm.Open(sqlite.New(sqlite.Config{Conn: sqlDB}), &gorm.Config{}))
	if err := compensator.Migrate(ctx, sqlDB); err != nil {
		log.Fatal(err)
	}
	if err := db.AutoMigrate(&Order{}); err != nil {
		log.Fatal(err)
	}
	c := compensator.Must(compensator.New(ctx, compensator.Config{DB: sqlDB}))
	defer c.Close()
	closeOrder := compensator.Must(compensator.Declare[int64](ctx, c, "close_order", nil))

	for range 2 {
		err := gormtx.WithRetry(ctx, c, db, "close-42", func(tx *gorm.DB) error {
			receipt, err := closeOrder.Record(ctx, gormtx.Tx(tx), 42, compensator.Options{IdempotencyKey: "close-42"})
			if err != nil || receipt.Duplicate() {
				return err
			}
			return tx.Create(&Order{ID: 42, State: "unpaid"}).Error
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	var orders int64
	db.Model(&Order{}).Count(&orders)
	fmt.Println(orders, "order,", compensator.Must(c.Get(ctx, compensator.IdempotencyKey("close-42"))).State)
	// Output:
	// 1 order, pending
}
