package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"io"

	"github.com/compensator-go/compensator/examples/internal/servers"
	"github.com/compensator-go/compensator/examples/internal/shop"
)

const tables shop.Tables = "seckillstream"

type service struct {
	shop.Service
	shop.Settings
}

func runService(ctx context.Context, args []string, out io.Writer) error {
	s := service{Service: shop.Service{Servers: servers.Given("seckillstream")}}
	flags := flag.NewFlagSet("seckillstream", flag.ContinueOnError)
	s.Settings.Define(flags)
	s.Service.Define(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := errors.Join(s.Servers.Validate(), s.Settings.Validate()); err != nil {
		return err
	}
	return s.run(ctx, out)
}

func (s *service) run(ctx context.Context, out io.Writer) error {
	s.Open = s.open
	return s.Service.Run(ctx, out)
}

// open first creates the tables and the goods if they are missing. A read-only database refuses the statements even if
// nothing is missing. The service then does not start.
func (s *service) open(ctx context.Context, db *sql.DB, c *shop.Counter) (shop.Way, *shop.Shop, error) {
	if err := errors.Join(tables.Create(ctx, db), tables.PutOnSale(ctx, db, s.Goods, s.Stock)); err != nil {
		return nil, nil, err
	}
	if s.Manual {
		return &manual{shop.Manual{Settings: s.Settings, Tables: tables, DB: db, Redis: c.Redis, Name: s.Name}}, nil, nil
	}
	ours, err := newSale(ctx, s.Settings, db, c)
	if err != nil {
		return nil, nil, err
	}
	return ours, ours.Shop, nil
}
