package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"strings"
	"sync"
	"time"
)

type load struct {
	servers
	orders           int
	rate             float64 // orders a second
	earliest, latest time.Duration
	skus             int
	kills            int
	gap, lease       time.Duration

	run     string // prefix of the keys and SKUs of this run, which separates it from other runs in the database
	out     io.Writer
	db      *sql.DB
	service *child
	client  *client
}

const (
	piecesAtMost = 3               // largest number of pieces in one order
	waitAtMost   = 2 * time.Minute // maximum time from the last deadline to the end of the run
)

var errWrong = errors.New("at least one check is WRONG")

func runLoad(ctx context.Context, args []string, out io.Writer) error {
	l := load{out: out, run: strings.ToLower(rand.Text()[:10])}
	flags := flag.NewFlagSet("ordertimeout load", flag.ContinueOnError)
	l.define(flags)
	flags.IntVar(&l.orders, "n", 5000, "orders to place")
	flags.Float64Var(&l.rate, "rate", 500, "orders a second")
	flags.DurationVar(&l.earliest, "earliest", time.Second, "the shortest deadline")
	flags.DurationVar(&l.latest, "latest", 30*time.Second, "the longest deadline")
	flags.IntVar(&l.skus, "skus", 100, "number of articles; with fewer, orders wait for each other's stock")
	flags.IntVar(&l.kills, "kill", 0, "kill the service this many times with SIGKILL")
	flags.DurationVar(&l.gap, "gap", 500*time.Millisecond, "pause between a kill and the next start")
	flags.DurationVar(&l.lease, "lease", 5*time.Second, "the service's -lease")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := errors.Join(l.fill(), l.validate()); err != nil {
		return err
	}
	return l.start(ctx)
}

func (l *load) validate() error {
	switch {
	case l.orders < 1, l.rate <= 0, l.skus < 1, l.kills < 0:
		return errors.New("-n, -rate and -skus want more than 0, -kill 0 or more")
	case l.earliest < time.Millisecond, l.latest < l.earliest:
		return errors.New("want 1ms <= -earliest <= -latest")
	}
	return nil
}

func (l *load) placing() time.Duration {
	return time.Duration(float64(l.orders) / l.rate * float64(time.Second))
}

func (l *load) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.placing()+l.latest+waitAtMost)
	defer cancel()
	db, err := l.openDB()
	if err != nil {
		return err
	}
	defer db.Close()
	l.db = db
	if err := createTables(ctx, db); err != nil {
		return err
	}
	if err := l.fillStock(ctx); err != nil {
		return err
	}
	l.service = &child{servers: l.servers, lease: l.lease}
	if err := l.service.start(ctx); err != nil {
		return err
	}
	l.client = newClient(l.service.address)
	defer l.client.close()
	paid, err := l.drive(ctx)
	if err = errors.Join(err, l.service.stop()); err != nil {
		return err
	}
	return l.report(context.WithoutCancel(ctx), paid)
}

func (l *load) stockEach() int { return (l.orders + l.skus - 1) / l.skus * piecesAtMost }

func (l *load) fillStock(ctx context.Context) error {
	for i := range l.skus {
		if _, err := l.db.ExecContext(ctx, `INSERT INTO stock (sku, n) VALUES (?, ?)`, l.sku(i), l.stockEach()); err != nil {
			return fmt.Errorf("fill the stock: %w", err)
		}
	}
	return nil
}

func (l *load) sku(i int) string { return fmt.Sprintf("%s-%d", l.run, i%l.skus) }

func (l *load) drive(ctx context.Context) (paid int, err error) {
	var killing error
	var killed sync.WaitGroup
	killed.Go(func() { killing = l.kill(ctx) })
	paid, err = l.place(ctx)
	killed.Wait()
	if err = errors.Join(err, killing); err != nil {
		return paid, err
	}
	return paid, l.waitUntilNoneIsOpen(ctx)
}

// place places orders at a fixed rate without waiting for answers, and pays one in three.
func (l *load) place(ctx context.Context) (paid int, err error) {
	var (
		customers sync.WaitGroup
		mu        sync.Mutex // guards paid and err
		startedAt = time.Now()
	)
	for i := range l.orders {
		dueAt := startedAt.Add(time.Duration(float64(i) / l.rate * float64(time.Second)))
		if !pause(ctx, time.Until(dueAt)) {
			break
		}
		customers.Go(func() {
			settled, failed := l.customer(ctx, i)
			mu.Lock()
			defer mu.Unlock()
			if settled {
				paid++
			}
			if err == nil {
				err = failed
			}
		})
	}
	customers.Wait()
	return paid, errors.Join(err, ctx.Err())
}

func (l *load) customer(ctx context.Context, i int) (paid bool, err error) {
	deadline := l.earliest + mathrand.N(l.latest-l.earliest+1)
	id, err := l.client.place(ctx, newOrder{
		Key: fmt.Sprintf("%s-%d", l.run, i), SKU: l.sku(i), Quantity: 1 + i%piecesAtMost, DeadlineMS: deadline.Milliseconds(),
	})
	if err != nil || i%3 != 0 {
		return false, err
	}
	pause(ctx, mathrand.N(deadline*8/10))
	return l.client.pay(ctx, id)
}

func (l *load) kill(ctx context.Context) error {
	span := l.placing() + l.latest/2
	for range l.kills {
		if !pause(ctx, span/time.Duration(l.kills+1)) {
			return nil
		}
		if err := l.service.kill(); err != nil {
			return fmt.Errorf("kill the service: %w", err)
		}
		pause(ctx, l.gap)
		if err := l.service.start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// waitUntilNoneIsOpen also returns nil when ctx ends, because the report then shows the open orders.
func (l *load) waitUntilNoneIsOpen(ctx context.Context) error {
	for {
		var isOpen bool
		err := l.db.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM orders WHERE state = 'open' AND order_key LIKE ?)`, l.run+"-%").Scan(&isOpen)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case !isOpen:
			return nil
		}
		pause(ctx, 200*time.Millisecond)
	}
}
