// Command shop refunds orders through a bank that is closed at first. It is the program of the third tutorial.
package main

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/serve"
	"github.com/compensator-go/compensator/ui"
	_ "modernc.org/sqlite"
)

type Refund struct {
	Order string
	Cents int64
}

const dsn = "file:shop.db?_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(10000)"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	db, err := compensator.Open("sqlite", dsn)
	check(err)
	check(compensator.Migrate(ctx, db))
	quiet := slog.New(slog.DiscardHandler) // a real service keeps its log
	c, err := compensator.New(ctx, compensator.Config{DB: db, Operations: cases(), Logger: quiet})
	check(err)
	refunds, err := compensator.Handle(ctx, c, "refund", refund, &compensator.HandlerConfig[Refund]{MaxAttempts: 2, Retry: compensator.Fixed(200 * time.Millisecond)})
	check(err)

	switch argument(1) {
	case "refund":
		err := c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
			r := Refund{Order: argument(2), Cents: 4990}
			_, err := refunds.Record(ctx, tx, r, compensator.Options{IdempotencyKey: compensator.IdempotencyKey("refund-" + r.Order), BusinessID: r.Order})
			return err
		})
		check(err)
		fmt.Println("the refund of order", os.Args[2], "is recorded")
	case "serve":
		pages, err := operatorPages(c)
		check(err)
		server := &http.Server{Addr: argument(2), Handler: pages, ReadTimeout: time.Minute, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute}
		check(serve.Run(ctx, serve.Config{Inside: []serve.Server{{Server: server}}}, c))
	}
	check(c.Close())
}

// argument returns an argument of the command line.
func argument(i int) string {
	if len(os.Args) <= i {
		log.Fatal("usage: shop refund <order> or shop serve <address>")
	}
	return os.Args[i]
}

// refund calls the bank. The bank is open if the file bank-is-open exists.
func refund(ctx context.Context, e *compensator.Entry, r Refund) error {
	if _, err := os.Stat("bank-is-open"); err != nil {
		fmt.Println("refund of order", r.Order, "failed")
		return errors.New("the bank is closed")
	}
	fmt.Println("refund of order", r.Order, "is paid with key", e.CallKey())
	return nil
}

// cases sets the amount of a dead refund, and how long it may wait.
func cases() *compensator.Operations {
	return &compensator.Operations{Types: map[string]compensator.CaseConfig{
		"refund": {Due: time.Hour, Amount: func(e *compensator.Entry) (compensator.Amount, error) {
			var r Refund
			err := e.Decode(&r)
			return compensator.Amount{Minor: r.Cents, Currency: "EUR"}, err
		}},
	}}
}

// operatorPages returns the admin pages. Everybody who knows the password may do everything here.
func operatorPages(c *compensator.Compensator) (http.Handler, error) {
	may := admin.AccessFunc(func(context.Context, admin.Actor, admin.Right, admin.Subject) bool { return true })
	d, err := admin.New(c, admin.Options{Access: may})
	if err != nil {
		return nil, err
	}
	return ui.New(ui.Options{Base: "/", Realm: "shop", Identify: func(r *http.Request) (admin.Actor, bool) {
		name, password, _ := r.BasicAuth()
		return admin.Actor{ID: name}, name != "" && subtle.ConstantTimeCompare([]byte(password), []byte("try")) == 1
	}}, d)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
