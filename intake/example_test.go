package intake_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/intake"
)

type Order struct {
	Buyer string `json:"buyer"`
	SKU   string `json:"sku"`
}

// A script has checked the stock and put orders into a stream. Rows and entries are written in one transaction.
func ExampleStream() {
	ctx := context.Background()
	var db *sql.DB // opened on compensator.Connector
	rdb := redis.NewClient(&redis.Options{Addr: "redis:6379"})
	c, err := compensator.New(ctx, compensator.Config{DB: db, Redis: rdb})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	closeOrder, err := compensator.HandleTx(ctx, c, "close_order", func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, o Order) error {
		_, err := tx.ExecContext(ctx, "UPDATE orders SET state='closed' WHERE buyer=? AND state='unpaid'", o.Buyer)
		return err
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	orders, err := intake.Stream{Redis: rdb, Stream: "seckill:orders", Group: "shop", Trim: true}.Open(ctx, c, intake.Config{
		Type: "order_aside",
		Entry: func(m *intake.Message) (compensator.NewEntry, error) {
			o := Order{Buyer: m.Fields["buyer"], SKU: m.Fields["sku"]}
			if o.Buyer == "" || o.SKU == "" {
				return compensator.NewEntry{}, fmt.Errorf("buyer %q, sku %q", o.Buyer, o.SKU)
			}
			m.Value = o
			return closeOrder.Entry(o, compensator.Options{Delay: 30 * time.Minute}), nil
		},
		Work: func(ctx context.Context, tx *compensator.ScopedTx, batch []*intake.Message) error {
			for _, m := range batch {
				o := m.Value.(Order)
				if _, err := tx.ExecContext(ctx, "INSERT INTO orders (buyer, sku, state) VALUES (?,?,'unpaid')", o.Buyer, o.SKU); err != nil {
					return intake.Fault(m, err)
				}
			}
			return nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	go c.Run(ctx)
	if err := orders.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// partition stands for a reader of one partition, as clients of Kafka have. It returns the next messages and commits an
// offset.
type partition struct {
	records   []string
	committed int
	end       func() // ends the example
}

func (p *partition) Name() string { return "orders/0:shop" }

func (p *partition) Next(ctx context.Context, max int) ([]intake.Message, error) {
	if p.committed == len(p.records) {
		p.end()
	}
	var batch []intake.Message
	for offset := p.committed; offset < min(p.committed+max, len(p.records)); offset++ {
		batch = append(batch, intake.Message{ID: strconv.Itoa(offset), Body: []byte(p.records[offset])})
	}
	return batch, nil
}

// Ack commits the offset up to the first message that was not acknowledged. All later messages are read again.
func (p *partition) Ack(_ context.Context, messages []intake.Message) error {
	for _, m := range messages {
		if m.ID == strconv.Itoa(p.committed) {
			p.committed++
		}
	}
	return nil
}

// Any source with at-least-once delivery works. A repeated message has one entry. A message that is not an order waits
// for a person.
func ExampleSource() {
	ctx, end := context.WithCancel(context.Background())
	c, err := compensator.New(ctx, compensator.Config{Store: compensatortest.NewMemoryStore()})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	source := &partition{records: []string{`{"buyer":"ann"}`, `no order`, `{"buyer":"bob"}`}, end: end}
	orders, err := intake.Open(ctx, c, source, intake.Config{
		Type: "order_aside",
		Entry: func(m *intake.Message) (compensator.NewEntry, error) {
			return compensator.NewEntry{BusinessType: "take_order", Content: m.Body}, json.Unmarshal(m.Body, new(Order))
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := orders.Run(ctx); err != nil {
		log.Fatal(err)
	}
	source.committed = 0 // Deliver again, as after a rebalance.
	ctx, source.end = context.WithCancel(context.Background())
	if err := orders.Run(ctx); err != nil {
		log.Fatal(err)
	}
	stats, _ := orders.Stats(context.Background())
	fmt.Println("recorded", stats.Recorded, "set aside", stats.SetAside, "known", stats.Duplicates)
	// Output: recorded 2 set aside 1 known 3
}

// A consumer of a broker without a relay records the messages that fail. The consumer acknowledges a message when the
// message has an entry, or is stored where a person finds it.
func ExampleRecorder() {
	ctx := context.Background()
	var c *compensator.Compensator
	var broker interface { // your client
		Next(ctx context.Context) (id string, o Order, err error)
		Ack(id string)
		DeadLetter(id string, reason error)
	}
	bill := func(ctx context.Context, o Order) error { return nil } // your work
	bills, err := compensator.Handle(ctx, c, "bill", func(ctx context.Context, e *compensator.Entry, o Order) error { return bill(ctx, o) }, nil)
	if err != nil {
		log.Fatal(err)
	}
	recorder, err := intake.NewRecorder(c, bills, intake.RecorderConfig[Order]{})
	if err != nil {
		log.Fatal(err)
	}
	for {
		id, o, err := broker.Next(ctx)
		if err != nil {
			log.Fatal(err)
		}
		if err := bill(ctx, o); err != nil {
			attempts := recorder.Attempts(o)
			for err = attempts.Record(ctx, compensator.Options{IdempotencyKey: compensator.IdempotencyKey("bill:" + id)}); err != nil; {
				if errors.Is(err, intake.ErrRefused) {
					broker.DeadLetter(id, err)
					break
				}
				time.Sleep(time.Second) // The log may be unavailable. The message stays unacknowledged.
				err = attempts.Record(ctx, compensator.Options{IdempotencyKey: compensator.IdempotencyKey("bill:" + id)})
			}
		}
		broker.Ack(id)
	}
}
