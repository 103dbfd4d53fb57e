package shop

import (
	"context"
	"database/sql"
	"log/slog"
	"sync"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/examples/internal/faults"
)

// Shop is a sale's database, counter and log.
type Shop struct {
	Settings
	Tables
	DB      *sql.DB
	Counter *Counter
	Log     *compensator.Compensator
	Logger  *slog.Logger
	Look    Look

	Closing   *compensator.Type[Ticket]
	Returning *compensator.Type[Ticket]

	rebuilding sync.Mutex // allows one filling of the counter at a time in this process
}

// These business types exist in both sales.
const (
	CloseType  = "close_order"
	ReturnType = "return_stock"
)

// Open creates the Shop. The caller closes Log.
func Open(ctx context.Context, cfg Settings, tables Tables, db *sql.DB, c *Counter) (*Shop, error) {
	s := &Shop{Settings: cfg, Tables: tables, DB: db, Counter: c, Logger: slog.Default()}
	// A process may die before it has enqueued its entries. The reconciler then finds them. They start at most Grace
	// plus 1.2 × ReconcileInterval after they are due, which is 3.4 s.
	var err error
	s.Log, err = compensator.New(ctx, compensator.Config{
		DB: db, Redis: c.Redis, Table: s.SQL("shop_log"), Prefix: c.Name, Lease: cfg.Lease, Grace: time.Second, ReconcileInterval: 2 * time.Second})
	if err != nil {
		return nil, err
	}
	soon := compensator.Exponential(50*time.Millisecond, 5*time.Second)
	if s.Closing, err = compensator.HandleTx(ctx, s.Log, CloseType, s.close, &compensator.HandlerConfig[Ticket]{Retry: soon, Concurrency: 10}); err != nil {
		return nil, err
	}
	s.Returning, err = compensator.Handle(ctx, s.Log, ReturnType, s.giveBack, &compensator.HandlerConfig[Ticket]{Retry: soon})
	return s, err
}

// InTime returns the options for the entry that closes the order when the time to pay is over.
func (s *Shop) InTime(t Ticket) compensator.Options {
	o := t.Options(t.CloseKey())
	o.Delay = s.Window
	return o
}

func (s *Shop) close(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry, t Ticket) error {
	closed, err := s.SetClosed(ctx, tx, t)
	if err != nil {
		return err
	}
	if closed {
		return s.PutBack(ctx, tx, t)
	}
	left, isOpen, err := s.timeLeft(ctx, tx, t)
	// The entry was recorded before the order, so the entry may come due shortly before the time to pay is over.
	if isOpen {
		return compensator.Snooze(max(left, time.Millisecond))
	}
	return err // The order is paid.
}

// PutBack returns a piece to the database, and records the entry that returns it to Redis.
func (s *Shop) PutBack(ctx context.Context, tx *compensator.ScopedTx, t Ticket) error {
	if err := s.ReturnStock(ctx, tx, t); err != nil {
		return err
	}
	_, err := s.Returning.Record(ctx, tx, t, t.Options(t.ReturnKey()))
	return err
}

// Repeated attempts return the ticket only once.
func (s *Shop) giveBack(ctx context.Context, _ *compensator.Entry, t Ticket) error {
	if err := s.Counter.GiveBack(ctx, t); err != nil {
		return compensator.Unavailable(err)
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) bool { return faults.Pause(ctx, d) }
