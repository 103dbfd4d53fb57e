package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/orms/gormtx" // a module of its own
	_ "github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
)

type Parcel struct{ ID string }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	db, err := compensator.Open("mysql", os.Getenv("SHOP_DSN")) // one pool for GORM and for the log
	check(err)
	check(compensator.Migrate(ctx, db))
	g, err := gorm.Open(mysql.New(mysql.Config{Conn: db}), &gorm.Config{})
	check(err)
	check(g.AutoMigrate(&Parcel{}))

	rdb := redis.NewClient(&redis.Options{Addr: os.Getenv("SHOP_REDIS")})
	c, err := compensator.New(ctx, compensator.Config{DB: db, Redis: rdb})
	check(err)
	send, err := compensator.Handle(ctx, c, "send_parcel", func(ctx context.Context, e *compensator.Entry, p Parcel) error {
		defer stop()                                                 // stop after one parcel
		fmt.Println("sending parcel", p.ID, "with key", e.CallKey()) // call the warehouse here, with this key
		return nil
	}, &compensator.HandlerConfig[Parcel]{Compensate: func(ctx context.Context, e *compensator.Entry, p Parcel) error {
		fmt.Println("parcel", p.ID, "is not sent:", e.LastError) // runs when all attempts have failed: undo here
		return nil
	}})
	check(err)

	p := Parcel{ID: fmt.Sprint(time.Now().UnixMilli())}
	key := compensator.IdempotencyKey("send-" + p.ID)
	check(gormtx.WithRetry(ctx, c, g, key, func(tx *gorm.DB) error { // after a lost COMMIT it looks for the entry with this key
		receipt, err := send.Record(ctx, gormtx.Tx(tx), p, compensator.Options{IdempotencyKey: key})
		if err != nil || receipt.Duplicate() {
			return err // err is nil if this parcel was recorded before
		}
		return tx.Create(&p).Error
	}))
	check(c.Run(ctx))
	check(c.Close())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
