// Package day runs one day of a flash sale: three instances, a crowd, faults, and the final check.
package day

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/examples/internal/crowd"
	"github.com/compensator-go/compensator/examples/internal/faults"
	"github.com/compensator-go/compensator/examples/internal/instance"
	"github.com/compensator-go/compensator/examples/internal/servers"
	"github.com/compensator-go/compensator/examples/internal/shop"
)

// Day is one run of a sale.
type Day struct {
	servers.Servers
	shop.Tables
	shop.Settings
	Manual bool
	Buyers int
	Span   time.Duration // time in which the crowd comes and the faults happen
	Rest   time.Duration // time without any change after which the day is over
	Kills  int
	Faults []faults.Fault       // faults of servers, besides the kills
	Out    io.Writer            // receives progress lines
	Watch  func(address string) // called with an instance's address while the crowd is there
	Sale

	DB        *sql.DB
	Counter   *shop.Counter
	instances []*instance.Instance
}

// Sale holds what differs between sales.
type Sale struct {
	Arguments   []string // flags of an instance, besides those of the settings
	Besides     []string // statements that create more tables of the sale
	HandTickets string   // query with the columns ticket, buyer and the literal 1, one row per ticket that the hand-written version sold

	// Clear removes the sale's data that is neither in a table nor in Redis.
	Clear func(context.Context) error

	// Left returns the amount of unfinished work besides entries and open orders.
	Left func(context.Context) (int, error)
}

const (
	instances  = 3
	restAtMost = 3 * time.Minute // maximum time from the last buyer until nothing changes any more
)

// Define defines the flags of a day.
func (d *Day) Define(flags *flag.FlagSet) {
	d.Settings.Define(flags)
	flags.IntVar(&d.Buyers, "buyers", 300, "number of buyers")
	flags.DurationVar(&d.Span, "span", 6*time.Second, "time during which buyers keep trying")
	flags.IntVar(&d.Kills, "kills", 1, "number of kills of instances")
}

// Run runs the day and returns the books, right or wrong. It removes the sale's tables and keys before and after the
// day.
func (d *Day) Run(ctx context.Context, read func(context.Context, *Books) error) (b *Books, err error) {
	if d.DB, err = d.OpenDB(8); err != nil {
		return nil, err
	}
	defer d.DB.Close()
	d.Counter = &shop.Counter{Redis: d.OpenRedis(), Name: d.Name}
	defer d.Counter.Redis.Close()
	if err := d.Empty(ctx); err != nil {
		return nil, err
	}
	if err := errors.Join(d.Create(ctx, d.DB, d.Besides...), d.PutOnSale(ctx, d.DB, d.Goods, d.Stock)); err != nil {
		return nil, err
	}
	if err := d.start(ctx); err != nil {
		return nil, err
	}
	b, err = d.pass(ctx)
	if err = errors.Join(err, d.stop()); err != nil {
		return nil, err
	}
	if err := d.read(ctx, b); err != nil {
		return nil, err
	}
	if err := read(ctx, b); err != nil {
		return nil, err
	}
	return b, d.Empty(ctx)
}

// Empty removes everything of the sale from all servers.
func (d *Day) Empty(ctx context.Context) error {
	err := errors.Join(d.Drop(ctx, d.DB), d.Forget(ctx))
	if d.Clear != nil {
		err = errors.Join(err, d.Clear(ctx))
	}
	return err
}

func (d *Day) start(ctx context.Context) error {
	arguments := append(append(d.Settings.Arguments(), d.Sale.Arguments...), "-name", d.Name)
	if d.Manual {
		arguments = append(arguments, "-by-hand")
	}
	for range instances {
		one := &instance.Instance{Arguments: arguments, Environment: d.Environment()}
		if err := one.Start(ctx); err != nil {
			return errors.Join(err, d.stop())
		}
		d.instances = append(d.instances, one)
	}
	return nil
}

func (d *Day) stop() (err error) {
	for _, one := range d.instances {
		err = errors.Join(err, one.Stop())
	}
	d.instances = nil
	return err
}

func (d *Day) pass(ctx context.Context) (*Books, error) {
	longest := 3*d.Span + restAtMost
	ctx, cancel := context.WithTimeoutCause(ctx, longest, fmt.Errorf("not at rest after %v", longest))
	defer cancel()
	addresses := make([]func() string, len(d.instances))
	for i, one := range d.instances {
		addresses[i] = one.Address
	}
	c := &crowd.Crowd{Client: crowd.NewClient(addresses...), Goods: d.Goods, Name: "b", Buyers: d.Buyers, Span: d.Span, Seed: d.Seed}
	defer c.Client.Close()
	b := &Books{Settings: d.Settings, Manual: d.Manual}
	looking, stopLooking := context.WithCancel(ctx)
	var striking error
	var group sync.WaitGroup
	group.Go(func() { striking = faults.Strike(ctx, d.plan(), d.Span, d.tell) })
	group.Go(func() { c.Run(ctx) })
	var watchers sync.WaitGroup
	watchers.Go(func() { b.Moments = d.lookAtMoments(looking) })
	if d.Watch != nil {
		d.Watch(addresses[len(addresses)-1]()) // Watch the instance that is killed last.
	}
	group.Wait()
	resting := d.awaitRest(ctx)
	stopLooking()
	watchers.Wait()
	b.Answers = c.Answers
	return b, errors.Join(striking, resting)
}

func (d *Day) plan() []faults.Fault {
	processes := make([]faults.Process, len(d.instances))
	for i, one := range d.instances {
		processes[i] = one
	}
	return faults.Plan(d.Kills, processes, d.Faults)
}

// tell records the name of the next fault, so that the page shows it. Before that, tell waits until pieces are in
// stock, so that the fault hits purchases.
func (d *Day) tell(ctx context.Context, subject string) error {
	deadline := time.Now().Add(d.Span / 10)
	for left := 0; left < d.Stock/50 && time.Now().Before(deadline) && faults.Pause(ctx, 5*time.Millisecond); {
		if err := d.DB.QueryRowContext(ctx, d.SQL(`SELECT stock FROM shop_goods WHERE goods = ?`), d.Goods).Scan(&left); err != nil {
			return err
		}
	}
	return d.Note(ctx, subject)
}

// Note records an event, so that the page shows it.
func (d *Day) Note(ctx context.Context, subject string) error {
	fmt.Fprintf(d.Out, "  %s\n", subject)
	_, err := d.DB.ExecContext(ctx, d.SQL(`INSERT INTO shop_faults (what, struck_at) VALUES (?, UTC_TIMESTAMP(3))`), subject)
	return err
}

// The sale is at rest if no entry, message or open order is left and nobody buys.
func (d *Day) awaitRest(ctx context.Context) error {
	var previous, now moving
	var err error
	startedAt := time.Now()
	for faults.Pause(ctx, 200*time.Millisecond) {
		if now, err = d.moving(ctx); err != nil {
			continue // A server is restarting, for example.
		}
		if now.left > 0 || now != previous {
			previous, startedAt = now, time.Now()
		}
		if time.Since(startedAt) > d.Rest {
			return nil
		}
	}
	return fmt.Errorf("%w: %+v, %v", context.Cause(ctx), now, err)
}

type moving struct{ left, tickets, orders int }

func (d *Day) moving(ctx context.Context) (m moving, err error) {
	left, err := d.Left(ctx)
	if err != nil {
		return m, err
	}
	states := []any{compensator.Pending, compensator.Retrying, compensator.Compensating}
	var open int
	err = errors.Join(
		d.DB.QueryRowContext(ctx, d.SQL(`SELECT COUNT(*) FROM shop_log WHERE state IN (?, ?, ?)`), states...).Scan(&m.left),
		d.DB.QueryRowContext(ctx, d.SQL(`SELECT COUNT(*) FROM shop_orders WHERE state = 'open'`)).Scan(&open),
		d.DB.QueryRowContext(ctx, d.SQL(`SELECT COUNT(*) FROM shop_tickets`)).Scan(&m.tickets),
		d.DB.QueryRowContext(ctx, d.SQL(`SELECT COUNT(*) FROM shop_orders`)).Scan(&m.orders))
	m.left += left + open
	return m, err
}
