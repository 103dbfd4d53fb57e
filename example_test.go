package compensator_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
)

// CloseOrder asks for an unpaid order to be closed.
type CloseOrder struct {
	OrderID  int64  `json:"order_id"`
	Quantity int    `json:"quantity"`
	SKU      string `json:"sku"`
}

// Mail asks for a message to be sent.
type Mail struct {
	To      string `json:"to"`
	Subject string `json:"subject"`
}

func deliver(ctx context.Context, key string, m Mail) error      { return nil }
func deliverAll(ctx context.Context, mails []Mail) (bad []error) { return nil }

// A process that works entries off registers its types, calls Run, and stops in order: Run ends with its
// context, and Close comes after it.
func ExampleNew() {
	var db *sql.DB // the service's
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	rdb := redis.NewClient(&redis.Options{Addr: "redis:6379"})

	c, err := compensator.New(ctx, compensator.Config{DB: db, Redis: rdb})
	if err != nil {
		log.Fatal(err) // everything that is wrong with the configuration, the server and the table
	}
	defer c.Close()

	_, err = compensator.Handle(c, "mail", func(ctx context.Context, e *compensator.Entry, m Mail) error {
		return deliver(ctx, e.CallKey(), m)
	}, compensator.TypeConfig{})
	if err != nil {
		log.Fatal(err)
	}

	err = c.Run(ctx)
	var stuck *compensator.StuckError
	if errors.As(err, &stuck) {
		slog.Error("handlers did not return", "stuck", len(stuck.Stuck)) // their entries run again after their leases
	}
}

// Plain transactions on a database opened this way enqueue their entries by themselves.
func ExampleConnector() {
	cfg, err := mysql.ParseDSN("app:secret@tcp(db:3306)/shop?readTimeout=30s&writeTimeout=30s")
	if err != nil {
		log.Fatal(err)
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		log.Fatal(err)
	}
	db := sql.OpenDB(compensator.Connector(connector))
	defer db.Close()
}

// The handler runs at least once: a crash between its work and its outcome brings the entry back. Whatever it
// calls is given the entry's key, which is the same for every attempt.
func ExampleHandle() {
	var c *compensator.Compensator // made by New
	var db *sql.DB                 // the service's
	sendMail, err := compensator.Handle(c, "mail", func(ctx context.Context, e *compensator.Entry, m Mail) error {
		err := deliver(ctx, e.CallKey(), m)
		switch {
		case errors.Is(err, errNoSuchAddress):
			return compensator.Permanent(err) // no use trying again
		case errors.Is(err, errTooMany):
			return compensator.RetryAfter(time.Minute, err)
		}
		return err // nil: done; otherwise again, by the schedule
	}, compensator.TypeConfig{
		MaxProcessCount: 5,
		Timeout:         10 * time.Second,
		Retry:           compensator.Exponential(time.Second, 5*time.Minute),
		Compensate: compensator.Typed(func(ctx context.Context, e *compensator.Entry, m Mail) error {
			slog.Warn("mail given up", "to", m.To, "because", e.LastError)
			return nil
		}),
	})
	if err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Rollback()
	// … the business statements …
	receipt, err := sendMail.Record(ctx, tx, Mail{To: "ann@example.com"}, compensator.Options{IdempotencyKey: "welcome-ann"})
	if err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		log.Fatal(err)
	}
	receipt.Committed() // only for speed, and not needed on a Connector
}

var (
	errNoSuchAddress = errors.New("no such address")
	errNotUnpaid     = errors.New("paid before, or closed")
	errTooMany       = errors.New("too many messages")
)

// What the handler writes through tx commits together with the entry's success: the stock is given back
// exactly once, whatever crashes.
func ExampleHandleTx() {
	var c *compensator.Compensator // made by New
	closeOrder, err := compensator.HandleTx(c, "close_order",
		func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, o CloseOrder) error {
			res, err := tx.ExecContext(ctx, "UPDATE orders SET state='closed' WHERE id=? AND state='unpaid'", o.OrderID)
			if err != nil {
				return err
			}
			if n, err := res.RowsAffected(); err != nil || n == 0 {
				return err // paid in time: nothing to do
			}
			_, err = tx.ExecContext(ctx, "UPDATE stock SET n=n+? WHERE sku=?", o.Quantity, o.SKU)
			return err
		}, compensator.TypeConfig{})
	if err != nil {
		log.Fatal(err)
	}
	_ = closeOrder // to record with
}

// A batch handler answers for each entry, or with nil for all of them.
func ExampleHandleBatch() {
	var c *compensator.Compensator // made by New
	_, err := compensator.HandleBatch(c, "mail", func(ctx context.Context, items []compensator.Item[Mail]) []error {
		mails := make([]Mail, len(items))
		for i, item := range items {
			mails[i] = item.Value
		}
		return deliverAll(ctx, mails)
	}, compensator.TypeConfig{BatchSize: 50})
	if err != nil {
		log.Fatal(err)
	}
}

// InTx begins, commits and rolls back; what is recorded in it enqueues itself.
func ExampleCompensator_InTx() {
	var c *compensator.Compensator               // made by New
	var closeOrder *compensator.Type[CloseOrder] // made by Handle
	ctx := context.Background()
	err := c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id, state) VALUES (?, 'unpaid')", 42); err != nil {
			return err
		}
		_, err := closeOrder.Record(ctx, tx, CloseOrder{OrderID: 42}, compensator.Options{
			IdempotencyKey: "close-42", BusinessID: "42", Delay: 30 * time.Minute,
		})
		return err
	})
	switch {
	case errors.Is(err, compensator.ErrCommitUnknown):
		// it may have happened: see the example of Resolve
	case errors.Is(err, compensator.ErrTxAborted):
		// the server rolled back, after a deadlock for example: run it all again
	}
}

// An order with all that follows it: entries of several types go into one statement. The receipt answers for each, in their order; its
// ID and Duplicate are the first one's.
func ExampleCompensator_Record() {
	var c *compensator.Compensator               // made by New
	var closeOrder *compensator.Type[CloseOrder] // made by Handle
	var sendMail *compensator.Type[Mail]
	ctx := context.Background()
	err := c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		receipt, err := c.Record(ctx, tx,
			closeOrder.Entry(CloseOrder{OrderID: 42}, compensator.Options{IdempotencyKey: "close-42", Delay: 30 * time.Minute}),
			sendMail.Entry(Mail{To: "ann@example.com"}, compensator.Options{IdempotencyKey: "confirm-42"}))
		if err != nil {
			return err
		}
		for _, recorded := range receipt.Entries {
			if recorded.Duplicate && !recorded.ContentMatches {
				return fmt.Errorf("%s was recorded with another content before", recorded.IdempotencyKey)
			}
		}
		return nil
	})
	if err != nil {
		log.Print(err)
	}
}

// The order was paid: the transaction that says so also says that it need not be closed any more, and that it is to be shipped.
// That last entry is the proof by which a lost COMMIT is known.
func ExampleType_CancelTx() {
	var c *compensator.Compensator               // made by New
	var closeOrder *compensator.Type[CloseOrder] // made by Handle
	var ship *compensator.Type[int]
	ctx := context.Background()
	err := c.RetryTx(ctx, "ship-42", func(ctx context.Context) error {
		return c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
			paid, err := tx.ExecContext(ctx, "UPDATE orders SET state='paid' WHERE id=? AND state='unpaid'", 42)
			if err != nil {
				return err
			}
			if n, err := paid.RowsAffected(); err != nil || n == 0 {
				return cmp.Or(err, errNotUnpaid) // paid before, or closed: what a payment starts is started once
			}
			if _, err := closeOrder.CancelTx(ctx, tx, compensator.IdempotencyKey("close-42")); err != nil {
				return err // nil: it runs no more, whether it waited, ran, was dead, or somebody had cancelled it
			}
			_, err = ship.Record(ctx, tx, 42, compensator.Options{IdempotencyKey: "ship-42", FailOnDuplicate: true})
			return err
		})
	})
	var late *compensator.StateError
	switch {
	case err == nil: // paid, once
	case errors.Is(err, errNotUnpaid): // the order's row says which: this payment come again, or one that is too late
	case errors.As(err, &late): // too late: succeeded is closed, any other late.State a person's
	case errors.Is(err, compensator.ErrNotFound): // no closing of this id: recorded under another, or purged
	case errors.Is(err, compensator.ErrCommitUnknown): // nobody could tell: the same request may come again
	default:
		log.Print(err) // nothing has happened
	}
}

// A transaction is run again when it lost against others, by a deadlock say, and when its COMMIT was lost and did not happen.
// Any ORM's will do.
func ExampleCompensator_RetryTx() {
	var c *compensator.Compensator               // made by New
	var closeOrder *compensator.Type[CloseOrder] // made by Handle
	ctx := context.Background()
	err := c.RetryTx(ctx, "close-42", func(ctx context.Context) error {
		return c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
			receipt, err := closeOrder.Record(ctx, tx, CloseOrder{OrderID: 42}, compensator.Options{IdempotencyKey: "close-42"})
			if err != nil || receipt.Duplicate() {
				return err // or the order has been placed before: the same request, come again
			}
			_, err = tx.ExecContext(ctx, "INSERT INTO orders (id, state) VALUES (?, 'unpaid')", 42)
			return err
		})
	})
	if err != nil {
		log.Print(err)
	}
}

// A consumer stores what it was sent, and says so: the entry need not send it again. A message that comes twice is
// stored once.
func ExampleType_CompleteTx() {
	var c *compensator.Compensator              // made by New
	var sendOrder *compensator.Type[CloseOrder] // made by Handle
	ctx := context.Background()
	err := c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		if _, err := sendOrder.CompleteTx(ctx, tx, compensator.IdempotencyKey("send-42")); err != nil {
			return err // before anything else: ErrAlreadySucceeded rolls all of it back
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO received (id) VALUES (?)", 42)
		return err
	})
	if errors.Is(err, compensator.ErrAlreadySucceeded) {
		err = nil // the message may be acknowledged
	}
	if err != nil {
		log.Print(err)
	}
}

// The connection broke around COMMIT. With an idempotency key of the business's own, the entry tells whether the
// transaction happened.
func ExampleCompensator_Resolve() {
	var c *compensator.Compensator               // made by New
	var closeOrder *compensator.Type[CloseOrder] // made by Handle
	ctx := context.Background()
	placeOrder := func() error {
		return c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
			// … the business statements …
			_, err := closeOrder.Record(ctx, tx, CloseOrder{OrderID: 42}, compensator.Options{IdempotencyKey: "close-42"})
			return err
		})
	}
	err := placeOrder()
	if errors.Is(err, compensator.ErrCommitUnknown) {
		_, err = c.Resolve(ctx, compensator.IdempotencyKey("close-42"))
		if errors.Is(err, compensator.ErrNotFound) {
			err = placeOrder() // it did not happen, and never will
		}
	}
	if err != nil {
		log.Print(err)
	}
}

// A person has repaired what was broken, and starts the dead entries of a type afresh.
func ExampleCompensator_Requeue() {
	var c *compensator.Compensator // made by New
	ctx := context.Background()
	filter := compensator.Filter{States: []compensator.State{compensator.Dead}, BusinessType: "mail"}
	for {
		page, err := c.List(ctx, filter)
		if err != nil {
			log.Fatal(err)
		}
		for _, e := range page.Entries {
			err := c.Requeue(ctx, e.ID, compensator.RequeueOptions{
				AuditInfo: compensator.AuditInfo{Actor: "ann", Reason: "mail server replaced"},
			})
			if err != nil {
				log.Print(err) // somebody else was faster, for example: a *StateError
			}
		}
		if page.Next == "" {
			return
		}
		filter.Cursor = page.Next
	}
}

// Level n is the wait after the n-th failure; the last one repeats.
func ExampleParseDelayLevels() {
	retry, err := compensator.ParseDelayLevels("1s 5s 10s 30s 1m 1h")
	if err != nil {
		log.Fatal(err)
	}
	for _, failures := range []int{1, 2, 5, 6, 100} {
		fmt.Println(failures, retry(failures))
	}

	_, err = compensator.ParseDelayLevels("1s 5x")
	fmt.Println(err)
	// Output:
	// 1 1s
	// 2 5s
	// 5 1m0s
	// 6 1h0m0s
	// 100 1h0m0s
	// compensator: delay levels: "5x": want a number and s, m, h or d, at most 100 years
}

// Middleware wraps handlers as in net/http. Use comes before the types it is for.
func ExampleMiddleware() {
	var c *compensator.Compensator // made by New
	timed := func(next compensator.HandlerFunc) compensator.HandlerFunc {
		return func(ctx context.Context, e *compensator.Entry) error {
			began := time.Now()
			err := next(ctx, e)
			slog.Info("attempt", "entry", e.ID, "type", e.BusinessType, "attempt", e.Attempt(), "took", time.Since(began), "err", err)
			return err
		}
	}
	c.Use(timed)
}

type requestID struct{}

// requestIDs carries a request's id from where an entry is recorded to where it is handled.
type requestIDs struct{}

func (requestIDs) Inject(ctx context.Context) map[string]string {
	id, ok := ctx.Value(requestID{}).(string)
	if !ok {
		return nil
	}
	return map[string]string{"request-id": id}
}

func (requestIDs) Extract(ctx context.Context, headers map[string]string) context.Context {
	return context.WithValue(ctx, requestID{}, headers["request-id"])
}

// What Inject returns is stored with the entry. Extract makes the handler's context of it, days later and in
// another process if need be.
func ExamplePropagator() {
	var db *sql.DB // the service's
	c, err := compensator.New(context.Background(), compensator.Config{DB: db, Propagator: requestIDs{}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
}

// An idempotency key stands for one event of one type. Under the id of another type's entry nothing would run, and nobody would
// know: put the type into the id.
func ExampleOtherTypeError() {
	ctx := context.Background()
	c, err := compensator.New(ctx, compensator.Config{Store: compensatortest.NewMemoryStore()})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	closing, _ := compensator.Declare[CloseOrder](c, "close", compensator.TypeConfig{})
	mail, _ := compensator.Declare[Mail](c, "mail", compensator.TypeConfig{})
	err = c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		if _, err := closing.Record(ctx, tx, CloseOrder{OrderID: 42}, compensator.Options{IdempotencyKey: "order-42"}); err != nil {
			return err
		}
		_, err := mail.Record(ctx, tx, Mail{To: "buyer"}, compensator.Options{IdempotencyKey: "order-42"}) // better: "mail-42"
		return err
	})
	var other *compensator.OtherTypeError
	if errors.As(err, &other) {
		fmt.Println(other.IdempotencyKey, "stands for", other.Recorded, "and not for", other.Asked)
	}
	// Output: order-42 stands for close and not for mail
}

// A periodic type's value is its slot, however late its handler runs.
func ExamplePeriodic() {
	var c *compensator.Compensator // made by New
	ctx := context.Background()
	settleHour, err := compensator.HandleTx(c, "settle_hour", func(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry, slot time.Time) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO settlements (hour, total) SELECT ?, SUM(amount) FROM payments WHERE paid_at >= ? AND paid_at < ?",
			slot, slot.Add(-time.Hour), slot)
		return err
	}, compensator.TypeConfig{})
	if err != nil {
		log.Fatal(err)
	}
	// After an outage the last day's hours are made up for.
	if err := compensator.Periodic(ctx, settleHour, compensator.Every(time.Hour), compensator.PeriodicConfig{CatchUp: 24}); err != nil {
		log.Fatal(err)
	}
	log.Print(c.Run(ctx))
}

// What has ended well goes after a month; of one type, whose ids may come again for longer, after a year.
func ExampleConfig_keep() {
	var db *sql.DB // the service's
	const day = 24 * time.Hour
	c, err := compensator.New(context.Background(), compensator.Config{DB: db, Keep: 30 * day})
	if err != nil {
		log.Fatal(err)
	}
	_, err = compensator.Handle(c, "refund", func(ctx context.Context, e *compensator.Entry, m Mail) error {
		return deliver(ctx, e.CallKey(), m)
	}, compensator.TypeConfig{Keep: 365 * day})
	if err != nil {
		log.Fatal(err)
	}
}
