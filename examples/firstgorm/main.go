package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/orms/gormtx"
	_ "github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
)

type Order struct{ ID string }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	db, err := compensator.Open("mysql", os.Getenv("SHOP_DSN")) // one pool for GORM and for the log
	check(err)
	check(compensator.Migrate(ctx, db))
	g, err := gorm.Open(mysql.New(mysql.Config{Conn: db}), &gorm.Config{})
	check(err)
	check(g.AutoMigrate(&Order{}))

	rdb := redis.NewClient(&redis.Options{Addr: os.Getenv("SHOP_REDIS")})
	c, err := compensator.New(ctx, compensator.Config{DB: db, Redis: rdb})
	check(err)
	ship, err := compensator.Handle(ctx, c, "ship", func(ctx context.Context, e *compensator.Entry, o Order) error {
		defer stop()                                            // stop after one order
		fmt.Println("shipping order", o.ID, "key", e.CallKey()) // send this key to the warehouse: it is the same for each attempt
		return nil
	}, nil)
	check(err)

	key := compensator.IdempotencyKey("ship-42")
	check(gormtx.WithRetry(ctx, c, g, key, func(tx *gorm.DB) error { // runs again after a deadlock
		if _, err := ship.Record(ctx, gormtx.Tx(tx), Order{ID: "42"}, compensator.Options{IdempotencyKey: key}); err != nil {
			return err
		}
		return tx.Create(&Order{ID: "42"}).Error
	}))
	check(c.Run(ctx))
	check(c.Close())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
