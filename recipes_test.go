package compensator_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/httpcall"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/observe/probe"
	"github.com/compensator-go/compensator/serve"
)

// recipe returns a Compensator with a store in memory, and the function runUntil. This function runs the Compensator
// until the given number of entries has ended, and then closes the Compensator.
func recipe() (c *compensator.Compensator, runUntil func(ended int)) {
	ends := make(chan observe.SettledEvent, 100)
	c, err := compensator.New(context.Background(), compensator.Config{
		Store: compensatortest.NewMemoryStore(), Logger: slog.New(slog.DiscardHandler),
		Observer: observe.Observer{Settled: func(e observe.SettledEvent) {
			if e.State.Terminal() {
				ends <- e
			}
		}},
	})
	if err != nil {
		log.Fatal(err)
	}
	return c, func(ended int) {
		ctx, stop := context.WithCancel(context.Background())
		stopped := make(chan error)
		go func() { stopped <- c.Run(ctx) }()
		for range ended {
			<-ends
		}
		stop()
		if err := errors.Join(<-stopped, c.Close()); err != nil {
			log.Fatal(err)
		}
	}
}

func record[T any](c *compensator.Compensator, typ *compensator.Type[T], v T, opts compensator.Options) {
	err := c.InTx(context.Background(), func(ctx context.Context, tx *compensator.ScopedTx) error {
		_, err := typ.Record(ctx, tx, v, opts)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}

// The bank may answer much later. The handler asks the bank for its answer. If the bank has not decided yet, the
// handler returns Snooze, and asks again in its next run. A snooze is no failure and costs no attempt. The handler must
// limit the total time itself.
func ExampleSnooze() {
	ctx := context.Background()
	c, runUntil := recipe()
	answers := []string{"pending", "pending", "booked"} // answers of the bank
	ask := func(context.Context, string) (answer string, err error) {
		answer, answers = answers[0], answers[1:]
		return answer, nil
	}
	refund, err := compensator.Handle(ctx, c, "refund", func(ctx context.Context, e *compensator.Entry, id string) error {
		answer, err := ask(ctx, id)
		fmt.Println(answer, "at attempt", e.Attempt())
		switch {
		case err != nil:
			return err // counts as a failed attempt
		case answer == "booked":
			return nil
		case time.Since(e.CreatedAt) > 3*24*time.Hour:
			return compensator.Permanent(errors.New("no answer for three days"))
		}
		return compensator.Snooze(100 * time.Millisecond) // use about a minute in production
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	record(c, refund, "42", compensator.Options{})
	runUntil(1)
	// Output:
	// pending at attempt 1
	// pending at attempt 1
	// booked at attempt 1
}

// Register the handler under both names as long as entries with the old name wait. Remove the old name when Count finds
// no unfinished entry of it.
func ExampleHandle_renamed() {
	ctx := context.Background()
	c, runUntil := recipe()
	closeOrder := func(_ context.Context, e *compensator.Entry, id string) error {
		fmt.Println("closed", id, "of type", e.BusinessType)
		return nil
	}
	types := make(map[string]*compensator.Type[string])
	for _, name := range []string{"close", "close_order"} {
		typ, err := compensator.Handle(ctx, c, name, closeOrder, nil)
		if err != nil {
			log.Fatal(err)
		}
		types[name] = typ
	}
	record(c, types["close"], "41", compensator.Options{})       // written by the previous release
	record(c, types["close_order"], "42", compensator.Options{}) // written by this release
	runUntil(2)
	// Unordered output:
	// closed 41 of type close
	// closed 42 of type close_order
}

// Two versions of a program may run at the same time. The old version drops a new field when it decodes an entry. If
// the loss of the field would be wrong, declare a new type. If a process cannot decode an entry at all, the entry waits
// for a process that can.
func ExampleHandle_versions() {
	ctx := context.Background()
	c, runUntil := recipe()
	type PaymentV1 struct{ Cents int }
	type Payment struct {
		Cents    int
		Currency string // new field; empty in entries of the previous version
	}
	old, err := compensator.Declare[PaymentV1](ctx, c, "pay", nil) // stands for the previous version of the program
	if err != nil {
		log.Fatal(err)
	}
	pay, err := compensator.Handle(ctx, c, "pay", func(_ context.Context, _ *compensator.Entry, p Payment) error {
		if p.Currency == "" {
			p.Currency = "EUR"
		}
		fmt.Println(p.Cents, p.Currency)
		return nil
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	record(c, old, PaymentV1{Cents: 100}, compensator.Options{})
	record(c, pay, Payment{Cents: 200, Currency: "CHF"}, compensator.Options{})
	runUntil(2)
	// Unordered output:
	// 100 EUR
	// 200 CHF
}

// serve.Run stops the parts of the program in this order: the servers and consumers that record entries, the handlers,
// and the operators' server. After serve.Run has returned, the program closes the clients of databases.
func Example_gracefulStop() {
	c, _ := recipe()
	if _, err := compensator.Handle(context.Background(), c, "close_order", func(context.Context, *compensator.Entry, string) error { return nil }, nil); err != nil {
		log.Fatal(err)
	}
	public, operators := http.NewServeMux(), http.NewServeMux()
	operators.Handle("GET /readyz", probe.Ready(time.Second, c))
	consume := func(ctx context.Context) error { // consume stands for rabbitmq.Consumer.Run, Run of an intake, or Run of a router
		<-ctx.Done()
		return nil
	}
	run := func(ctx context.Context) error {
		err := serve.Run(ctx, serve.Config{
			Servers:   []serve.Server{{Server: &http.Server{Addr: "127.0.0.1:0", Handler: public, ReadTimeout: time.Minute, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute}}},
			Consumers: []func(context.Context) error{consume},
			Inside:    []serve.Server{{Server: &http.Server{Addr: "127.0.0.1:0", Handler: operators, ReadTimeout: time.Minute, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute}}},
		}, c)
		return errors.Join(err, c.Close()) // Close sends what the queue has not got yet. After it, close telemetry providers, the database pool and the Redis client.
	}
	ctx, stop := context.WithCancel(context.Background()) // in production: signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	stop()
	fmt.Println("stopped:", run(ctx))
	// Output: stopped: <nil>
}

// A consumer stores the rows of each message once, even if the broker delivers the message twice. Once records an entry
// that marks the message as processed. This entry commits in the same transaction as the rows.
func ExampleType_Once() {
	ctx := context.Background()
	c, _ := recipe()
	inbox, err := compensator.Declare[string](ctx, c, "orders_inbox", &compensator.TypeConfig{Keep: 30 * 24 * time.Hour})
	if err != nil {
		log.Fatal(err)
	}
	receive := func(ctx context.Context, messageID, order string) error { // receive returns nil if the broker may drop the message
		id := compensator.IdempotencyKey("orders:" + messageID)
		return c.WithRetry(ctx, id, func(ctx context.Context) error {
			return c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
				first, err := inbox.Once(ctx, tx, id, order)
				if err != nil || !first {
					return err
				}
				fmt.Println("rows of", order) // in production: tx.ExecContext(ctx, "INSERT INTO orders …")
				return nil
			})
		})
	}
	for _, messageID := range []string{"m1", "m2", "m1"} {
		if err := receive(ctx, messageID, "order of "+messageID); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// rows of order of m1
	// rows of order of m2
}

// One transaction writes the rows of a message, and records an entry for the work that follows. If this entry is a
// duplicate, the message was delivered before.
func ExampleReceipt_onceAMessage() {
	ctx := context.Background()
	c, runUntil := recipe()
	confirm, err := compensator.Handle(ctx, c, "confirm", func(_ context.Context, _ *compensator.Entry, order string) error {
		fmt.Println("mail about", order)
		return nil
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	receive := func(ctx context.Context, messageID, order string) error { // receive returns nil if the broker may drop the message
		return c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
			receipt, err := confirm.Record(ctx, tx, order, compensator.Options{IdempotencyKey: compensator.IdempotencyKey("confirm:" + messageID), Delay: 50 * time.Millisecond})
			if err != nil || receipt.Duplicate() {
				return err
			}
			fmt.Println("rows of", order) // in production: tx.ExecContext(ctx, "INSERT INTO orders …")
			return nil
		})
	}
	for _, messageID := range []string{"m1", "m1"} {
		if err := receive(ctx, messageID, "order of "+messageID); err != nil {
			log.Fatal(err)
		}
	}
	runUntil(1)
	// Output:
	// rows of order of m1
	// mail about order of m1
}

// Send the entry's CallKey with each call that the handler makes to another service. By this key, the service can
// recognise a repeated call. A manual requeue changes the key, so that the service does the work again.
func ExampleEntry_CallKey() {
	ctx := context.Background()
	c, runUntil := recipe()
	first := true
	pay, err := compensator.Handle(ctx, c, "pay", func(_ context.Context, e *compensator.Entry, _ string) error {
		fmt.Println(e.IdempotencyKey, e.CallKey()) // in production: request.Header.Set("Idempotency-Key", e.CallKey())
		if first {
			first = false
			return compensator.RetryAfter(100*time.Millisecond, errors.New("no answer"))
		}
		return nil
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	record(c, pay, "42", compensator.Options{IdempotencyKey: "pay-42"})
	runUntil(1)
	// Output:
	// pay-42 1-0
	// pay-42 1-0
}

// The handler calls the bank with PostJSON. PostJSON sends the entry's CallKey as the header Idempotency-Key. PostJSON
// returns an error that depends on the bank's answer. The handler returns this error, and the error decides the outcome
// of the entry.
func ExampleUnavailable() {
	ctx := context.Background()
	c, runUntil := recipe()
	answers := []int{http.StatusConflict, http.StatusOK} // answers of the bank
	bank := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Header.Get("Idempotency-Key"), answers[0])
		w.WriteHeader(answers[0])
		answers = answers[1:]
	}))
	defer bank.Close()
	pay, err := compensator.Handle(ctx, c, "pay", func(ctx context.Context, e *compensator.Entry, cents int) error {
		return httpcall.PostJSON(ctx, bank.Client(), bank.URL, e.CallKey(), cents, nil) // Return this error unchanged. It decides the outcome of the entry.
	}, &compensator.HandlerConfig[int]{
		MaxWait: 24 * time.Hour, // attempts cost nothing for a day if the bank is down
		Breaker: compensator.Breaker{Of: 20},
		Retry:   compensator.Fixed(100 * time.Millisecond),
	})
	if err != nil {
		log.Fatal(err)
	}
	record(c, pay, 100, compensator.Options{})
	runUntil(1)
	// Output:
	// 1-0 409
	// 1-0 200
}

func ExampleTypeConfig_compensation() {
	ctx := context.Background()
	var c *compensator.Compensator // made by New
	var callBank func(ctx context.Context, e *compensator.Entry, orderID int64) error
	var giveBack func(ctx context.Context, orderID int64) error // giveBack asks the bank by the order's id whether there is a charge, and refunds it
	refund, err := compensator.Handle(ctx, c, "refund", func(ctx context.Context, _ *compensator.Entry, orderID int64) error {
		return giveBack(ctx, orderID)
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	charge, err := compensator.Handle(ctx, c, "charge", callBank, &compensator.HandlerConfig[int64]{
		MaxWait: 24 * time.Hour,
		CompensateTx: func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, orderID int64) error {
			if _, err := tx.ExecContext(ctx, "UPDATE orders SET state='refused' WHERE id=? AND state='paid'", orderID); err != nil {
				return err
			}
			_, err := refund.Record(ctx, tx, orderID, compensator.Options{IdempotencyKey: compensator.IdempotencyKey(fmt.Sprint("refund-", orderID))})
			return err
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(charge.Name())
}

// One transaction records all rows of an upload, and a report about the upload. All rows have the same BatchID, so they
// are a batch. The function AfterBatch tells the library which batch must end before the report runs.
func ExampleBatch_Wait() {
	ctx := context.Background()
	c, runUntil := recipe()
	rows, err := compensator.Handle(ctx, c, "row", func(_ context.Context, _ *compensator.Entry, line string) error {
		if line == "" {
			return compensator.Permanent(errors.New("an empty line"))
		}
		return nil
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	report, err := compensator.Handle(ctx, c, "report", func(ctx context.Context, e *compensator.Entry, upload string) error {
		p, err := c.Batch(upload).Progress(ctx)
		if err != nil {
			return err
		}
		// If the report must wait until a person has repaired the dead rows, add this line:
		// if p.Dead > 0 { return compensator.Snooze(time.Hour) }
		fmt.Printf("%s: %d of %d rows are in\n", upload, p.Succeeded, p.Total)
		return nil
	}, &compensator.HandlerConfig[string]{AfterBatch: func(e *compensator.Entry) string { return e.BusinessID }})
	if err != nil {
		log.Fatal(err)
	}
	err = c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		for _, line := range []string{"salt", "", "pepper"} {
			if _, err := rows.Record(ctx, tx, line, compensator.Options{BatchID: "upload-7"}); err != nil {
				return err
			}
		}
		_, err := report.Record(ctx, tx, "upload-7", compensator.Options{BusinessID: "upload-7", IdempotencyKey: "report-upload-7"})
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	runUntil(4)
	p, err := c.Batch("upload-7").Wait(ctx) // may run in another process, while the entries run
	fmt.Println(p.Finished(), p.Dead, err)
	// Output:
	// upload-7: 2 of 3 rows are in
	// true 1 <nil>
}

// Entries of one account run one at a time, in the order of their ids. A booking first changes the account's row, and
// then records the entry. The change locks the row until the commit. So the next booking of the account waits for this
// commit, and its entry gets a later id. The order of the ids is the order of the commits.
func ExampleTypeConfig_serial() {
	ctx := context.Background()
	c, runUntil := recipe()
	book, err := compensator.Handle(ctx, c, "book", func(_ context.Context, e *compensator.Entry, cents int) error {
		if cents < 0 && e.ProcessCount == 0 {
			return errors.New("the bank is busy") // the later entries wait, too
		}
		fmt.Println(e.UserID, cents)
		return nil
	}, &compensator.HandlerConfig[int]{
		TypeConfig: compensator.TypeConfig{Serial: func(e *compensator.Entry) string { return e.UserID }},
		Retry:      compensator.Fixed(10 * time.Millisecond),
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, cents := range []int{100, -30, 5} {
		record(c, book, cents, compensator.Options{UserID: "ann"})
	}
	runUntil(3)
	// Output:
	// ann 100
	// ann -30
	// ann 5
}

// A lock on the account's row makes entries of one account run one at a time, in no particular order. An entry that
// finds the row locked comes again later.
func ExampleHandleTx_rowLock() {
	ctx := context.Background()
	c, _ := recipe()
	_, err := compensator.HandleTx(ctx, c, "book", func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, cents int) error {
		var balance int
		err := tx.QueryRowContext(ctx, "SELECT balance FROM accounts WHERE user=? FOR UPDATE NOWAIT", e.UserID).Scan(&balance)
		if err != nil {
			return compensator.Snooze(100 * time.Millisecond) // in production, only for MySQL's error 3572 and MariaDB's 1205
		}
		_, err = tx.ExecContext(ctx, "UPDATE accounts SET balance=? WHERE user=?", balance+cents, e.UserID)
		return err
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
}

// Each entry carries a number from the account's row, drawn in the transaction that records the entry. Each entry waits
// until the one before it has ended.
func ExampleSnooze_inOrder() {
	ctx := context.Background()
	c, runUntil := recipe()
	done := 0 // stands for a column of the account's row, which changes in the transaction that does the work
	book, err := compensator.Handle(ctx, c, "book", func(_ context.Context, _ *compensator.Entry, number int) error {
		if done < number-1 {
			return compensator.Snooze(100 * time.Millisecond)
		}
		// Entries of one user run in order, so a number above done is the next one. In SQL: UPDATE accounts SET done=? WHERE user=? AND done=?-1
		if done < number {
			fmt.Println("booking", number)
			done = number
		}
		return nil
	}, &compensator.HandlerConfig[int]{Concurrency: 1})
	if err != nil {
		log.Fatal(err)
	}
	// The entries may be recorded in any order. In production, draw each number in the transaction that records the
	// entry: UPDATE accounts SET recorded=recorded+1 WHERE user=?, then read the value.
	for _, number := range []int{2, 1, 3} {
		record(c, book, number, compensator.Options{UserID: "ann"})
	}
	runUntil(3)
	// Output:
	// booking 1
	// booking 2
	// booking 3
}
