// Demo opens the operator's pages on a shop with problems. It uses SQLite in a temporary file and needs no server.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	_ "modernc.org/sqlite"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/internal/integration/uitest/problems"
	"github.com/compensator-go/compensator/ui"
	"github.com/compensator-go/compensator/ui/local"
)

var entries = flag.Int("entries", 0, "how many entries to begin with, one in 25 of them in trouble; 0: a small shop")

func main() {
	address := flag.String("listen", "127.0.0.1:7070", "where to serve, on loopback")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *address, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// beginning returns the entries with which the shop begins: a few of each problem, or an incident of n entries among
// many that are fine.
func beginning(n int) problems.Sum {
	if n == 0 {
		return problems.Sum{Refunds: 60, Closed: 4, Transfers: 6, Mails: 5, Locked: 12, Parcels: 9, Shelves: 3, Fine: 40}
	}
	return problems.Sum{Refunds: n / 50, Closed: n / 500, Transfers: n / 400, Mails: n / 400,
		Locked: n / 200, Parcels: n / 200, Shelves: n / 1000, Fine: n * 96 / 500}
}

func run(ctx context.Context, address string, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "compensator-ui-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	// Settings of SQLite belong to a connection, so they must be in the DSN.
	settings := url.Values{"_txlock": {"immediate"}, "_pragma": {"journal_mode(WAL)", "synchronous(FULL)", "busy_timeout(10000)"}}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "shop.db")+"?"+settings.Encode())
	if err != nil {
		return err
	}
	defer db.Close()
	if err := compensator.Migrate(ctx, db); err != nil {
		return err
	}
	c, err := compensator.New(ctx, compensator.Config{DB: db, Operations: problems.Operations(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	shop, err := problems.New(c, problems.Speed{Timeout: time.Second, Again: 3 * time.Second})
	if err != nil {
		return err
	}
	if err := errors.Join(addReport(ctx, c), storePast(ctx, db)); err != nil {
		return err
	}
	return serve(ctx, c, shop, address, out)
}

func serve(ctx context.Context, c *compensator.Compensator, shop *problems.Shop, address string, out io.Writer) error {
	listener, err := local.Listen(ctx, address)
	if err != nil {
		return err
	}
	d, err := admin.New(c, admin.Options{Access: problems.Everything})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 3)
	begin := func(part func() error) {
		go func() {
			err := part()
			cancel() // the first failure ends the others
			ended <- err
		}()
	}
	begin(func() error { return c.Run(ctx) })
	begin(func() error { return work(ctx, shop) })
	begin(func() error {
		return local.Serve(ctx, listener, admin.Actor{ID: "you"}, ui.Options{Base: "/ops/", Title: "shop", Types: problems.Views()}, func(link string) {
			fmt.Fprintf(out, "The shop's pages, for one browser:\n\n  %s\n\nRefunds fail until the payment service is back: in two minutes, and for one. Statistics and processes of the time before the start are made up. Ctrl-C ends it.\n", link)
		}, d)
	})
	for range cap(ended) {
		if e := <-ended; !errors.Is(e, context.Canceled) {
			err = errors.Join(err, e)
		}
	}
	return err
}

func work(ctx context.Context, shop *problems.Shop) error {
	ticker := time.NewTicker(5 * time.Second)
	defer ticker.Stop()
	n := beginning(*entries)
	for round := uint64(1); ; round++ {
		if _, err := shop.Record(ctx, uint64(time.Now().UnixNano()), n); err != nil && ctx.Err() == nil {
			return err
		}
		n = problems.Sum{Refunds: 1, Fine: 2}
		if round%6 == 0 {
			n = problems.Sum{Refunds: 2, Transfers: 1, Mails: 1, Shelves: 1, Fine: 3}
		}
		shop.PSPWorks.Store(round%36 >= 24)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
