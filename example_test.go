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
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/compensatortest"
)

type CloseOrder struct {
	OrderID  int64  `json:"order_id"`
	Quantity int    `json:"quantity"`
	SKU      string `json:"sku"`
}

type Mail struct {
	To      string `json:"to"`
	Subject string `json:"subject"`
}

func deliver(_ context.Context, _ string, m Mail) error {
	if m.To == "nobody" {
		return errNoSuchAddress
	}
	return nil
}

func deliverAll(ctx context.Context, mails []Mail) []error {
	results := make([]error, len(mails))
	for i, m := range mails {
		if err := deliver(ctx, "", m); err != nil {
			results[i] = compensator.Permanent(err)
		}
	}
	return results
}

// A process registers its types, calls Run and stops in this order: cancel the context of Run, wait until Run has
// returned, call Close.
func ExampleNew() {
	var db *sql.DB // the service's database
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	rdb := redis.NewClient(&redis.Options{Addr: "redis:6379"})

	c, err := compensator.New(ctx, compensator.Config{DB: db, Redis: rdb})
	if err != nil {
		log.Fatal(err) // lists every problem of the configuration, the server and the table
	}
	defer c.Close()

	_, err = compensator.Handle(ctx, c, "mail", func(ctx context.Context, e *compensator.Entry, m Mail) error {
		return deliver(ctx, e.CallKey(), m)
	}, nil)
	if err != nil {
		log.Fatal(err)
	}

	err = c.Run(ctx)
	var stuck *compensator.StuckError
	if errors.As(err, &stuck) {
		slog.Error("handlers did not return", "stuck", len(stuck.Stuck)) // Their entries run again when their leases have ended.
	}
}

// Each commit on this database enqueues the entries that were recorded in the transaction, also in plain transactions
// of database/sql.
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

// After a crash the entry runs again. Pass the entry's CallKey to every system that the handler calls.
func ExampleHandle() {
	c, runUntil := recipe()
	ctx := context.Background()
	sendMail, err := compensator.Handle(ctx, c, "mail", func(ctx context.Context, e *compensator.Entry, m Mail) error {
		err := deliver(ctx, e.CallKey(), m)
		switch {
		case errors.Is(err, errNoSuchAddress):
			return compensator.Permanent(err) // a retry cannot help
		case errors.Is(err, errTooMany):
			return compensator.RetryAfter(time.Minute, err)
		}
		return err // nil means success; other errors are retried with the Retry schedule
	}, &compensator.HandlerConfig[Mail]{
		MaxAttempts: 5,
		Timeout:     10 * time.Second,
		Retry:       compensator.Exponential(time.Second, 5*time.Minute),
		Compensate: func(ctx context.Context, e *compensator.Entry, m Mail) error {
			fmt.Printf("mail to %s given up: %s\n", m.To, e.LastError)
			return nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}

	record(c, sendMail, Mail{To: "ann@example.com"}, compensator.Options{IdempotencyKey: "welcome-ann"})
	record(c, sendMail, Mail{To: "nobody"}, compensator.Options{IdempotencyKey: "welcome-nobody"})
	runUntil(2)

	for _, key := range []compensator.IdempotencyKey{"welcome-ann", "welcome-nobody"} {
		fmt.Println(key, compensator.Must(c.Get(ctx, key)).State)
	}
	// Output:
	// mail to nobody given up: no such address
	// welcome-ann succeeded
	// welcome-nobody compensated
}

// Any process may run the handler.
func ExampleHandleResult() {
	c, _ := recipe()
	ctx := context.Background()
	quote := compensator.Must(compensator.HandleResult(ctx, c, "quote", func(_ context.Context, _ *compensator.Entry, weight int) (price int, err error) {
		if weight > 30 {
			return 0, compensator.Permanent(errors.New("too heavy"))
		}
		return 5 * weight, nil
	}, nil))
	record(c, quote.Type, 3, compensator.Options{IdempotencyKey: "parcel-42"})
	record(c, quote.Type, 31, compensator.Options{IdempotencyKey: "parcel-43"})
	working, stop := context.WithCancel(ctx)
	stopped := make(chan error)
	go func() { stopped <- c.Run(working) }()

	_, price, err := quote.Wait(ctx, compensator.IdempotencyKey("parcel-42"))
	fmt.Println(price, err)

	e, _, err := quote.Wait(ctx, compensator.IdempotencyKey("parcel-43"))
	var failed *compensator.StateError
	fmt.Println(errors.As(err, &failed), e.State, e.LastError)

	stop()
	if err := errors.Join(<-stopped, c.Close()); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 15 <nil>
	// true dead too heavy
}

// A transaction of database/sql holds the business change and the entry. Both are committed, or neither.
func ExampleReceipt_Committed() {
	var db *sql.DB                       // the service's database
	var sendMail *compensator.Type[Mail] // made by Handle
	ctx := context.Background()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Rollback()
	// … your own statements …
	receipt, err := sendMail.Record(ctx, tx, Mail{To: "ann@example.com"}, compensator.Options{IdempotencyKey: "welcome-ann"})
	if err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		log.Fatal(err)
	}
	receipt.Committed() // starts the entry sooner; not needed with Connector
}

func ExampleType_Record() {
	c, runUntil := recipe()
	ctx := context.Background()
	sendMail := compensator.Must(compensator.Handle(ctx, c, "mail", func(_ context.Context, _ *compensator.Entry, m Mail) error {
		fmt.Println("mail to", m.To)
		return nil
	}, nil))

	for range 2 {
		err := c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
			receipt, err := sendMail.Record(ctx, tx, Mail{To: "ann@example.com"}, compensator.Options{
				IdempotencyKey: "welcome-ann", BusinessID: "ann", Delay: 100 * time.Millisecond,
			})
			if err == nil {
				fmt.Println("recorded before:", receipt.Duplicate())
			}
			return err
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	runUntil(1)
	// Output:
	// recorded before: false
	// recorded before: true
	// mail to ann@example.com
}

// Permanent ends the attempts at once. The type has no compensation, so the entry waits for a person.
func ExamplePermanent() {
	c, runUntil := recipe()
	ctx := context.Background()
	sendMail := compensator.Must(compensator.Handle(ctx, c, "mail", func(context.Context, *compensator.Entry, Mail) error {
		return compensator.Permanent(errNoSuchAddress)
	}, nil))
	record(c, sendMail, Mail{To: "nobody"}, compensator.Options{IdempotencyKey: "welcome-nobody"})
	runUntil(1)

	e := compensator.Must(c.Get(ctx, compensator.IdempotencyKey("welcome-nobody")))
	fmt.Printf("%s after %d attempt: %s (%s)\n", e.State, e.ProcessCount, e.LastError, e.EndedBy)
	// Output:
	// dead after 1 attempt: no such address (permanent)
}

func ExampleDeclare() {
	c, runUntil := recipe()
	defer runUntil(0)
	ctx := context.Background()
	closeOrder := compensator.Must(compensator.Declare[CloseOrder](ctx, c, "close_order", nil))
	record(c, closeOrder, CloseOrder{OrderID: 42}, compensator.Options{IdempotencyKey: "close-42", Delay: 30 * time.Minute})

	e := compensator.Must(c.Get(ctx, compensator.IdempotencyKey("close-42")))
	var order CloseOrder
	if err := e.Decode(&order); err != nil {
		log.Fatal(err)
	}
	fmt.Println(order.OrderID, e.State)

	result := compensator.Must(c.Cancel(ctx, e.ID))
	fmt.Println("was running:", result.WasRunning)
	fmt.Println(compensator.Must(c.Get(ctx, e.ID)).State)
	// Output:
	// 42 pending
	// was running: false
	// cancelled
}

var (
	errNoSuchAddress = errors.New("no such address")
	errNotUnpaid     = errors.New("paid before, or closed")
	errTooMany       = errors.New("too many messages")
)

// The handler's writes through tx commit together with the success of the entry.
func ExampleHandleTx() {
	ctx := context.Background()
	var c *compensator.Compensator // made by New
	closeOrder, err := compensator.HandleTx(ctx, c, "close_order",
		func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, o CloseOrder) error {
			res, err := tx.ExecContext(ctx, "UPDATE orders SET state='closed' WHERE id=? AND state='unpaid'", o.OrderID)
			if err != nil {
				return err
			}
			// If n is 0, the order was paid in time. Then err is nil, and the entry succeeds without more work.
			if n, err := res.RowsAffected(); err != nil || n == 0 {
				return err
			}
			_, err = tx.ExecContext(ctx, "UPDATE stock SET n=n+? WHERE sku=?", o.Quantity, o.SKU)
			return err
		}, nil)
	if err != nil {
		log.Fatal(err)
	}
	_ = closeOrder // use it to record entries
}

// The entry that a transactional handler records is committed with the handler's success, or not at all.
func ExampleHandleTx_nextStep() {
	c, runUntil := recipe()
	ctx := context.Background()
	ship := compensator.Must(compensator.Handle(ctx, c, "ship", func(_ context.Context, _ *compensator.Entry, order int64) error {
		fmt.Println("order", order, "is shipped")
		return nil
	}, nil))
	pay := compensator.Must(compensator.HandleTx(ctx, c, "pay", func(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry, order int64) error {
		// … your own statements through tx …
		_, err := ship.Record(ctx, tx, order, compensator.Options{IdempotencyKey: compensator.IdempotencyKey(fmt.Sprint("ship-", order))})
		return err
	}, nil))
	record(c, pay, 42, compensator.Options{IdempotencyKey: "pay-42"})
	runUntil(2)
	// Output:
	// order 42 is shipped
}

// Each entry of the batch has its own outcome.
func ExampleHandleBatch() {
	c, runUntil := recipe()
	ctx := context.Background()
	sendMail, err := compensator.HandleBatch(ctx, c, "mail", func(ctx context.Context, items []compensator.Item[Mail]) []error {
		mails := make([]Mail, len(items))
		for i, item := range items {
			mails[i] = item.Value
		}
		return deliverAll(ctx, mails)
	}, &compensator.BatchConfig[Mail]{BatchSize: 50})
	if err != nil {
		log.Fatal(err)
	}

	for _, to := range []string{"ann", "nobody", "ben"} {
		record(c, sendMail, Mail{To: to}, compensator.Options{IdempotencyKey: compensator.IdempotencyKey(to), BatchID: "newsletter"})
	}
	runUntil(3)
	progress := compensator.Must(c.Batch("newsletter").Progress(ctx))
	fmt.Println(progress.Succeeded, "sent,", progress.Dead, "dead")
	// Output:
	// 2 sent, 1 dead
}

// The commit enqueues the entries.
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
	case errors.Is(err, compensator.ErrCommitUnknown): // It is unknown whether the transaction was committed. See the example of Resolve.
	case errors.Is(err, compensator.ErrTxAborted): // The server has rolled back the transaction, for example after a deadlock. Run the whole transaction again.
	}
}

// Record records several entries in one call. The receipt lists the entries in the order of the call. The methods ID
// and Duplicate of the receipt describe the first entry.
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

// If the COMMIT is lost, the entry "ship-42" proves whether the transaction happened.
func ExampleType_CancelTx() {
	var c *compensator.Compensator               // made by New
	var closeOrder *compensator.Type[CloseOrder] // made by Handle
	var ship *compensator.Type[int]
	ctx := context.Background()
	err := c.WithRetry(ctx, "ship-42", func(ctx context.Context) error {
		return c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
			paid, err := tx.ExecContext(ctx, "UPDATE orders SET state='paid' WHERE id=? AND state='unpaid'", 42)
			if err != nil {
				return err
			}
			if n, err := paid.RowsAffected(); err != nil || n == 0 {
				return cmp.Or(err, errNotUnpaid) // paid or closed before: do not ship twice
			}
			if _, err := closeOrder.CancelTx(ctx, tx, compensator.IdempotencyKey("close-42")); err != nil {
				return err // nil: the entry will not run again. It may have been waiting, running, dead or cancelled before
			}
			_, err = ship.Record(ctx, tx, 42, compensator.Options{IdempotencyKey: "ship-42", FailOnDuplicate: true})
			return err
		})
	})
	var late *compensator.StateError
	switch {
	case err == nil: // paid exactly once
	case errors.Is(err, errNotUnpaid): // The order's row shows the reason: the order was paid before, or the payment came after it was closed.
	case errors.As(err, &late): // Too late to cancel. If late.State is succeeded, the order is closed. In any other state, a person must decide.
	case errors.Is(err, compensator.ErrNotFound): // No entry has this key. Perhaps Record used another key, or the entry was purged.
	case errors.Is(err, compensator.ErrCommitUnknown): // The result is unknown. The request may be sent again.
	default:
		log.Print(err) // Nothing was changed.
	}
}

// WithRetry runs a transaction again after a conflict. If the answer to COMMIT was lost, WithRetry first finds out
// whether the transaction has committed. It runs the transaction again only if the transaction has not committed.
func ExampleCompensator_WithRetry() {
	var c *compensator.Compensator               // made by New
	var closeOrder *compensator.Type[CloseOrder] // made by Handle
	ctx := context.Background()
	err := c.WithRetry(ctx, "close-42", func(ctx context.Context) error {
		return c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
			receipt, err := closeOrder.Record(ctx, tx, CloseOrder{OrderID: 42}, compensator.Options{IdempotencyKey: "close-42"})
			if err != nil || receipt.Duplicate() {
				return err // err is nil for a duplicate, because an earlier run of this request has placed the order.
			}
			_, err = tx.ExecContext(ctx, "INSERT INTO orders (id, state) VALUES (?, 'unpaid')", 42)
			return err
		})
	})
	if err != nil {
		log.Print(err)
	}
}

// A message that is delivered twice is stored once.
func ExampleType_CompleteTx() {
	var c *compensator.Compensator              // made by New
	var sendOrder *compensator.Type[CloseOrder] // made by Handle
	ctx := context.Background()
	err := c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		if _, err := sendOrder.CompleteTx(ctx, tx, compensator.IdempotencyKey("send-42")); err != nil {
			return err // Complete the entry before the INSERT. After a second delivery, err is ErrAlreadySucceeded, and InTx rolls back.
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

// Resolve finds out from the entry whether the transaction was committed.
func ExampleCompensator_Resolve() {
	var c *compensator.Compensator               // made by New
	var closeOrder *compensator.Type[CloseOrder] // made by Handle
	ctx := context.Background()
	placeOrder := func() error {
		return c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
			// … your own statements …
			_, err := closeOrder.Record(ctx, tx, CloseOrder{OrderID: 42}, compensator.Options{IdempotencyKey: "close-42"})
			return err
		})
	}
	err := placeOrder()
	if errors.Is(err, compensator.ErrCommitUnknown) {
		_, err = c.Resolve(ctx, compensator.IdempotencyKey("close-42"))
		if errors.Is(err, compensator.ErrNotFound) {
			err = placeOrder() // The first transaction did not commit and never will, so place the order again.
		}
	}
	if err != nil {
		log.Print(err)
	}
}

func Example_requeue() {
	var c *compensator.Compensator // made by New
	ctx := context.Background()
	filter := admin.Filter{States: []compensator.State{compensator.Dead}, BusinessType: "mail"}
	for {
		page, err := admin.Of(c).List(ctx, filter)
		if err != nil {
			log.Fatal(err)
		}
		for _, e := range page.Entries {
			err := admin.Of(c).Requeue(ctx, e.ID, admin.RequeueOptions{
				AuditInfo: admin.AuditInfo{Actor: "ann", Reason: "mail server replaced"},
			})
			if err != nil {
				log.Print(err) // for example a *StateError, because another person was faster
			}
		}
		if page.Next == "" {
			return
		}
		filter.Cursor = page.Next
	}
}

// The last level repeats.
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

// HandlerConfig.Middleware wraps the handler of one type, and Config.Middleware the handlers of all types.
func ExampleMiddleware() {
	c, runUntil := recipe()
	ctx := context.Background()
	timed := func(next compensator.HandlerFunc) compensator.HandlerFunc {
		return func(ctx context.Context, e *compensator.Entry) error {
			began := time.Now()
			err := next(ctx, e)
			slog.Debug("attempt", "entry", e.ID, "took", time.Since(began))
			fmt.Println(e.BusinessType, "attempt", e.Attempt(), "error", err)
			return err
		}
	}
	sendMail := compensator.Must(compensator.Handle(ctx, c, "mail", func(ctx context.Context, e *compensator.Entry, m Mail) error {
		return deliver(ctx, e.CallKey(), m)
	}, &compensator.HandlerConfig[Mail]{Middleware: []compensator.Middleware{timed}})) // Config.Middleware wraps all types
	record(c, sendMail, Mail{To: "ann@example.com"}, compensator.Options{})
	runUntil(1)
	// Output:
	// mail attempt 1 error <nil>
}

type requestID struct{}

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

// Extract puts the stored headers into the handler's context, possibly days later in another process.
func ExamplePropagator() {
	ctx := context.Background()
	var db *sql.DB // the service's database
	c, err := compensator.New(ctx, compensator.Config{DB: db, Propagator: requestIDs{}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
}

// If an entry of another type has the key already, Record fails with OtherTypeError. Put the type into the key.
func ExampleOtherTypeError() {
	ctx := context.Background()
	c, err := compensator.New(ctx, compensator.Config{Store: compensatortest.NewMemoryStore()})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	closing, _ := compensator.Declare[CloseOrder](ctx, c, "close", nil)
	mail, _ := compensator.Declare[Mail](ctx, c, "mail", nil)
	err = c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		if _, err := closing.Record(ctx, tx, CloseOrder{OrderID: 42}, compensator.Options{IdempotencyKey: "order-42"}); err != nil {
			return err
		}
		_, err := mail.Record(ctx, tx, Mail{To: "buyer"}, compensator.Options{IdempotencyKey: "order-42"}) // "mail-42" would be better
		return err
	})
	var other *compensator.OtherTypeError
	if errors.As(err, &other) {
		fmt.Println(other.IdempotencyKey, "stands for", other.Recorded, "and not for", other.Asked)
	}
	// Output: order-42 stands for close and not for mail
}

// The handler of a periodic entry gets the time of the entry's slot, even if the handler runs much later.
func ExamplePeriodic() {
	var c *compensator.Compensator // made by New
	ctx := context.Background()
	settleHour, err := compensator.HandleTx(ctx, c, "settle_hour", func(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry, slot time.Time) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO settlements (hour, total) SELECT ?, SUM(amount) FROM payments WHERE paid_at >= ? AND paid_at < ?",
			slot, slot.Add(-time.Hour), slot)
		return err
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	// After an outage, record the missed slots of the last 24 hours.
	if err := compensator.Periodic(ctx, settleHour, compensator.Every(time.Hour), &compensator.PeriodicConfig{CatchUp: 24}); err != nil {
		log.Fatal(err)
	}
	log.Print(c.Run(ctx))
}

// A purged entry no longer protects its idempotency key. A client may repeat a refund for up to a year, so its key must
// last that long.
func ExampleConfig_keep() {
	ctx := context.Background()
	var db *sql.DB // the service's database
	const day = 24 * time.Hour
	c, err := compensator.New(ctx, compensator.Config{DB: db, Keep: 30 * day})
	if err != nil {
		log.Fatal(err)
	}
	_, err = compensator.Handle(ctx, c, "refund", func(ctx context.Context, e *compensator.Entry, m Mail) error {
		return deliver(ctx, e.CallKey(), m)
	}, &compensator.HandlerConfig[Mail]{TypeConfig: compensator.TypeConfig{Keep: 365 * day}})
	if err != nil {
		log.Fatal(err)
	}
}
