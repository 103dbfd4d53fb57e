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

// Shop is a sale's database, its counter and its log, with what becomes of orders once they are there. A sale embeds it,
// and adds how a purchase becomes an order.
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

	rebuilding sync.Mutex // one filling of the counter at a time is enough for a process
}

// Business types that both sales have.
const (
	CloseType  = "close_order"
	ReturnType = "return_stock"
)

// Open puts the parts together. The caller closes Log.
func Open(ctx context.Context, cfg Settings, tables Tables, db *sql.DB, c *Counter) (*Shop, error) {
	s := &Shop{Settings: cfg, Tables: tables, DB: db, Counter: c, Logger: slog.Default()}
	// What a process that dies has recorded and not enqueued is found by the reconciler: at most grace and one interval
	// late, so both are shorter here than the defaults.
	var err error
	s.Log, err = compensator.New(ctx, compensator.Config{
		DB: db, Redis: c.Redis, Table: s.SQL("shop_log"), Prefix: c.Name, Lease: cfg.Lease, Grace: time.Second, ReconcileInterval: 2 * time.Second})
	if err != nil {
		return nil, err
	}
	soon := compensator.Exponential(50*time.Millisecond, 5*time.Second)
	if s.Closing, err = compensator.HandleTx(s.Log, CloseType, s.close, compensator.TypeConfig{Retry: soon, Concurrency: 10}); err != nil {
		return nil, err
	}
	s.Returning, err = compensator.Handle(s.Log, ReturnType, s.giveBack, compensator.TypeConfig{Retry: soon})
	return s, err
}

// InTime has an order closed when its time is up.
func (s *Shop) InTime(t Ticket) compensator.Options {
	o := t.Options(t.CloseKey())
	o.Delay = s.Window
	return o
}

// close is the end of an order that is not paid in time.
func (s *Shop) close(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry, t Ticket) error {
	closed, err := s.SetClosed(ctx, tx, t)
	if err != nil {
		return err
	}
	if closed {
		return s.PutBack(ctx, tx, t)
	}
	left, open, err := s.timeLeft(ctx, tx, t)
	if open { // the entry was recorded before the order
		return compensator.Snooze(max(left, time.Millisecond))
	}
	return err // it is paid
}

// PutBack returns a piece to the database, and records the entry by which Redis follows.
func (s *Shop) PutBack(ctx context.Context, tx *compensator.ScopedTx, t Ticket) error {
	if err := s.ReturnStock(ctx, tx, t); err != nil {
		return err
	}
	_, err := s.Returning.Record(ctx, tx, t, t.Options(t.ReturnKey()))
	return err
}

// giveBack is the handler of that entry: a ticket goes back to Redis once, however often it is told.
func (s *Shop) giveBack(ctx context.Context, _ *compensator.Entry, t Ticket) error {
	if err := s.Counter.GiveBack(ctx, t); err != nil {
		return compensator.Unavailable(err)
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) bool { return faults.Pause(ctx, d) }
