package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/compensator-go/compensator/examples/internal/servers"
	"github.com/compensator-go/compensator/examples/internal/shop"
)

const tables shop.Tables = "seckill"

type settings struct {
	shop.Settings
	sending
}

type sending struct {
	gather  time.Duration // maximum time that a ticket waits for others, to be sent with them
	later   time.Duration // delay before a ticket is sent
	abandon time.Duration // age after which the process of an open ticket counts as dead
	workers int           // number of messages that one process works on concurrently
}

func (p *sending) define(flags *flag.FlagSet) {
	flags.DurationVar(&p.gather, "gather", 200*time.Millisecond, "maximum time that a ticket waits to be sent in a batch with others; batches cost less in a rush")
	flags.DurationVar(&p.later, "later", 0, "delay before tickets are sent, for example until the rush is over")
	flags.DurationVar(&p.abandon, "abandon", 5*time.Second, "time without an outcome after which other processes decide about a ticket")
	flags.IntVar(&p.workers, "workers", 8, "number of messages that this process works on concurrently")
}

func (p sending) arguments() []string {
	return []string{"-gather", p.gather.String(), "-later", p.later.String(), "-abandon", p.abandon.String(), "-workers", strconv.Itoa(p.workers)}
}

func (p sending) validate() error {
	switch {
	case p.abandon < 100*time.Millisecond, p.gather < 0, p.later < 0:
		return errors.New("-abandon wants 100ms or more, -gather and -later 0 or more")
	case p.workers < 1, p.workers > shop.PoolSize/2:
		return fmt.Errorf("-workers wants 1 to %d", shop.PoolSize/2)
	}
	return nil
}

type service struct {
	shop.Service
	settings
}

func runService(ctx context.Context, args []string, out io.Writer) error {
	s := service{Service: shop.Service{Servers: servers.Given("seckill")}}
	flags := flag.NewFlagSet("seckill", flag.ContinueOnError)
	s.Settings.Define(flags)
	s.define(flags)
	s.Service.Define(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := errors.Join(s.Servers.Validate(), s.ValidateBroker(), s.Settings.Validate(), s.validate()); err != nil {
		return err
	}
	return s.run(ctx, out)
}

func (s *service) run(ctx context.Context, out io.Writer) error {
	s.Open = s.open
	return s.Service.Run(ctx, out)
}

func (s *service) open(ctx context.Context, db *sql.DB, c *shop.Counter) (shop.Way, *shop.Shop, error) {
	if err := s.prepare(ctx, db); err != nil {
		return nil, nil, err
	}
	if s.Manual {
		base := shop.Manual{Settings: s.Settings, Tables: tables, DB: db, Redis: c.Redis, Name: s.Name}
		return &manual{Manual: base, workers: s.workers, url: s.AMQP, queue: s.Queue(orderQueue)}, nil, nil
	}
	ours, err := newSale(ctx, s.settings, s.Servers, db, c)
	if err != nil {
		return nil, nil, err
	}
	return ours, ours.Shop, nil
}

// prepare creates the tables, the goods and the queue if they are missing. A read-only database refuses the statements
// even if nothing is missing. The service then does not start.
func (s *service) prepare(ctx context.Context, db *sql.DB) error {
	return errors.Join(tables.Create(ctx, db, createHandLog), tables.PutOnSale(ctx, db, s.Goods, s.Stock), s.OnBroker(servers.Declare(s.Queue(orderQueue))))
}
