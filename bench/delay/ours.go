package delay

import (
	"context"
	"database/sql"
	"strconv"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/testservers"
)

// ours is compensator as its README shows it: the Connector, a plain handler and all defaults. If redis is false, the
// queue is the library's timing wheel.
type ours struct{ redis bool }

const oursLeft = "SELECT CAST(business_id AS SIGNED) FROM common_process_log WHERE state+0 IN (0,-1,-2,-3)"

func (o ours) prepare(tb testing.TB) (place, error) {
	p := newSQL(tb)
	if o.redis {
		p.Redis = testservers.NewRedis(tb).Addr()
	}
	db, err := sql.Open("mysql", p.SQL)
	if err != nil {
		return place{}, err
	}
	defer db.Close()
	return p, compensator.Migrate(tb.Context(), db)
}

func (o ours) serve(ctx context.Context, p place, fire fire) (record, error) {
	cfg, err := mysql.ParseDSN(p.SQL)
	if err != nil {
		return nil, err
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(compensator.Connector(connector))
	db.SetMaxIdleConns(producers)
	config := compensator.Config{DB: db}
	if o.redis {
		config.Redis = redis.NewClient(&redis.Options{Addr: p.Redis})
	}
	c, err := compensator.New(ctx, config)
	if err != nil {
		return nil, err
	}
	closeOrder, err := compensator.Handle(ctx, c, "close_order", func(_ context.Context, e *compensator.Entry, n int) error {
		fire(n, e.ID.Row())
		return nil
	}, nil)
	if err != nil {
		return nil, err
	}
	go func() { must(c.Run(ctx)) }()
	return func(ctx context.Context, n int, delay time.Duration) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := closeOrder.Record(ctx, tx, n, compensator.Options{BusinessID: strconv.Itoa(n), Delay: delay}); err != nil {
			return err
		}
		return tx.Commit()
	}, nil
}

func (ours) unfinished(ctx context.Context, p place) ([]int, error) {
	return numbersOf(ctx, p, oursLeft)
}
