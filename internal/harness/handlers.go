package harness

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
)

var ErrSoldOut = errors.New("sold out")

func FailAlways(*compensator.Entry, int) error { return ErrSoldOut }

// HandleGated registers a type whose handlers wait at a gate and then return the result of verdict. A nil verdict means
// success.
func HandleGated(t *testing.T, c *compensator.Compensator, name string, cfg compensator.HandlerConfig[Order], verdict func(e *compensator.Entry) error) (*compensator.Type[Order], *Gate) {
	t.Helper()
	g := NewGate()
	orders, err := compensator.Handle(t.Context(), c, name, func(ctx context.Context, e *compensator.Entry, _ Order) error {
		if err := g.Pass(ctx, e); err != nil || verdict == nil {
			return err
		}
		return verdict(e)
	}, &cfg)
	require.NoError(t, err)
	return orders, g
}

func HandleTransactional(t *testing.T, c *compensator.Compensator, cfg compensator.HandlerConfig[Order], extra func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry) error) *compensator.Type[Order] {
	t.Helper()
	orders, err := compensator.HandleTx(t.Context(), c, "pay_order", func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, _ Order) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO effects (what) VALUES (?)", e.ID.String()); err != nil {
			return err
		}
		return extra(ctx, tx, e)
	}, &cfg)
	require.NoError(t, err)
	return orders
}

// HandleCounted registers a type whose handler counts its calls and returns the result of verdict. A nil verdict means
// success.
func HandleCounted(t *testing.T, c *compensator.Compensator, name string, cfg compensator.HandlerConfig[Order], verdict func(e *compensator.Entry, call int) error) (*compensator.Type[Order], *Calls) {
	t.Helper()
	ran := new(Calls)
	orders, err := compensator.Handle(t.Context(), c, name, func(_ context.Context, e *compensator.Entry, _ Order) error {
		call := ran.Add(e.ID)
		if verdict == nil {
			return nil
		}
		return verdict(e, call)
	}, &cfg)
	require.NoError(t, err)
	return orders, ran
}

type Order struct {
	Number int    `json:"number"`
	Note   string `json:"note,omitempty"`
}

type Calls struct {
	mu sync.Mutex
	n  map[compensator.EntryID]int
}

func (c *Calls) Add(id compensator.EntryID) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = make(map[compensator.EntryID]int)
	}
	c.n[id]++
	return c.n[id]
}

func (c *Calls) Of(id compensator.EntryID) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[id]
}

func (c *Calls) Total() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.n {
		n += k
	}
	return n
}

var ByMei = admin.AuditInfo{Actor: "mei", Reason: "the customer called"}
