package main

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/examples/internal/shop"
	"github.com/compensator-go/compensator/intake"
)

// sale sells each buyer one piece. A script in Redis accepts a purchase, and the intake makes the order. The embedded
// Shop fills the counter in Redis again if Redis has lost it. The file sale.go has the steps.
type sale struct {
	*shop.Shop
	orders *intake.Intake
}

const (
	group     = "orders"      // consumer group of the stream
	asideType = "order_aside" // type of messages whose order could not be made at once
)

var look = shop.Look{
	English: shop.Intro{Title: "Flash sale by stream", Text: "One piece a buyer. Redis answers and writes the order into its stream; the database makes it so. " +
		"An order that Redis loses before the database has it is none: its buyer may buy again."},
	Chinese: shop.Intro{Title: "秒杀（Redis Stream）", Text: "每人限购一件。Redis 应答并把订单写入 Stream，再由数据库落库。落库之前被 Redis 丢失的订单无效，买家可以再次购买。"},
	Types:   []string{asideType, shop.CloseType, shop.ReturnType},
}

func newSale(ctx context.Context, cfg shop.Settings, db *sql.DB, c *shop.Counter) (s *sale, err error) {
	s = new(sale)
	if s.Shop, err = shop.Open(ctx, cfg, tables, db, c); err != nil {
		return nil, err
	}
	s.Look = look
	s.Look.OnTheWay = s.onTheWay
	s.orders, err = intake.Stream{
		Redis: c.Redis, Stream: streamKey(c, cfg.Goods), Group: group, Idle: cfg.Lease + time.Second, Trim: true,
	}.Open(ctx, s.Log, intake.Config{
		Type: asideType, Entry: s.entry, Work: s.create, Timeout: cfg.Lease,
		Aside: compensator.HandlerConfig[intake.Message]{
			MaxAttempts: s.Most, Retry: compensator.Fixed(s.Resend),
			CompensateTx: s.undo, CompensateCrashed: true,
		},
	})
	if err != nil {
		return nil, errors.Join(err, s.Log.Close())
	}
	return s, nil
}

// injectFailures returns an error if an order of the batch shall fail. Luck chooses by the ticket and a number. For an
// attempt of the log, the number is that of the attempt. For a message from the stream, the number is always 0, so each
// try of the Intake has the same result.
func (s *sale) injectFailures(batch []*intake.Message) error {
	for _, m := range batch {
		try := uint64(0)
		if m.Entry != nil {
			try = uint64(m.Entry.Attempt())
		}
		if err := s.Luck().Of(m.Value.(shop.Ticket), try); err != nil {
			return intake.Fault(m, err)
		}
	}
	return nil
}

func (s *sale) onTheWay(ctx context.Context) int {
	stats, err := s.orders.Stats(ctx)
	if err != nil {
		return 0
	}
	return int(max(0, stats.Lag) + stats.Pending)
}

// Run stops the intake before the log, so that the log sees everything that the intake records.
func (s *sale) Run(ctx context.Context) error {
	logging, stopLog := context.WithCancel(context.WithoutCancel(ctx))
	defer stopLog()
	logged := make(chan error, 1)
	go func() { logged <- s.Log.Run(logging) }()
	var watching sync.WaitGroup
	watching.Go(func() { s.Watch(ctx) })
	err := s.orders.Run(ctx)
	watching.Wait()
	stopLog()
	return errors.Join(err, <-logged)
}

// End closes what newSale has opened.
func (s *sale) End() { _ = s.Log.Close() }
