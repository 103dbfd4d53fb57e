package order

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/compensatortest/memory"
	"github.com/compensator-go/compensator/internal/harness"
)

var steps = map[string]func(i int) compensator.IdempotencyKey{
	"counted": func(i int) compensator.IdempotencyKey {
		return compensator.IdempotencyKey(fmt.Sprintf("order-7-step-%d", i+1))
	},
	"backwards": func(i int) compensator.IdempotencyKey {
		return compensator.IdempotencyKey(fmt.Sprintf("%05d", 99_999-i))
	},
	"drawn": func(int) compensator.IdempotencyKey { return "" },
	"some drawn": func(i int) compensator.IdempotencyKey {
		return compensator.IdempotencyKey([]string{"", fmt.Sprint("z", i)}[i%2])
	},
}

type numbers struct {
	mu  sync.Mutex
	ran map[string][]int
}

func (n *numbers) note(key string, number int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ran == nil {
		n.ran = make(map[string][]int)
	}
	n.ran[key] = append(n.ran[key], number)
}

func numbered(t *testing.T, c *compensator.Compensator, ran *numbers, cfg compensator.HandlerConfig[harness.Order]) *compensator.Type[harness.Order] {
	t.Helper()
	cfg.Serial = account
	orders, err := compensator.Handle(t.Context(), c, "book", func(_ context.Context, e *compensator.Entry, o harness.Order) error {
		ran.note(e.UserID, o.Number)
		return nil
	}, &cfg)
	require.NoError(t, err)
	return orders
}

func batch(orders *compensator.Type[harness.Order], n int, id func(i int) compensator.IdempotencyKey, keys ...string) (entries []compensator.NewEntry) {
	for i := range n {
		entries = append(entries, orders.Entry(harness.Order{Number: i}, compensator.Options{UserID: keys[i%len(keys)], IdempotencyKey: id(i)}))
	}
	return entries
}

func upTo(first, n, step int) (list []int) {
	for i := first; i < n; i += step {
		list = append(list, i)
	}
	return list
}

// Failure: F112
func TestEntriesOfOneCallRunInTheOrderInWhichTheyWereGiven(t *testing.T) {
	t.Parallel()
	for name, id := range steps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
				c := w.New(cfg)
				var ran numbers
				orders := numbered(t, c, &ran, compensator.HandlerConfig[harness.Order]{})
				w.Run(c)
				var receipt *compensator.Receipt
				w.InTx(cfg.DB, func(tx *sql.Tx) {
					var err error
					receipt, err = c.Record(t.Context(), tx, batch(orders, 24, id, "ann", "bob")...)
					require.NoError(t, err)
				})
				receipt.Committed()
				w.WaitAllEnded()
				require.Equal(t, map[string][]int{"ann": upTo(0, 24, 2), "bob": upTo(1, 24, 2)}, ran.ran)
			})
		})
	}
}

// One call records more entries than one statement takes.
// Failure: F112
func TestLargeCallKeepsItsOrderBesideDuplicates(t *testing.T) {
	t.Parallel()
	harness.InOppositeModes(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(cfg)
		var ran numbers
		orders := numbered(t, c, &ran, compensator.HandlerConfig[harness.Order]{})
		const n = 1300
		id := func(i int) compensator.IdempotencyKey {
			return compensator.IdempotencyKey(fmt.Sprintf("%x", uint32(i)*2654435761))
		}
		all := batch(orders, n, id, "ann")
		record := func(entries ...compensator.NewEntry) {
			var receipt *compensator.Receipt
			w.InTx(cfg.DB, func(tx *sql.Tx) {
				var err error
				receipt, err = c.Record(t.Context(), tx, entries...)
				require.NoError(t, err)
			})
			receipt.Committed()
		}
		record(all[700], all[3])
		record(append(slices.Clone(all), all[0], all[900])...)
		w.Run(c)
		w.WaitAllEnded()
		want := append([]int{700, 3}, slices.DeleteFunc(upTo(0, n, 1), func(i int) bool { return i == 3 || i == 700 })...)
		require.Equal(t, want, ran.ran["ann"])
	})
}

// Failure: F112
func TestCallsOfOneTransactionKeepTheirOrder(t *testing.T) {
	t.Parallel()
	harness.InOppositeModes(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(cfg)
		var ran numbers
		orders := numbered(t, c, &ran, compensator.HandlerConfig[harness.Order]{})
		w.Run(c)
		work := func(key string) func(ctx context.Context, tx *compensator.ScopedTx) error {
			return func(ctx context.Context, tx *compensator.ScopedTx) error {
				all := batch(orders, 12, func(i int) compensator.IdempotencyKey { return compensator.IdempotencyKey(fmt.Sprint(key, " ", i)) }, key)
				for _, entries := range [][]compensator.NewEntry{all[:1], all[1:5], all[5:]} {
					if _, err := c.Record(ctx, tx, entries...); err != nil {
						return err
					}
				}
				return nil
			}
		}
		require.NoError(t, c.InTx(t.Context(), work("in")))
		require.NoError(t, c.WithRetry(t.Context(), "retry 0", func(ctx context.Context) error { return c.InTx(ctx, work("retry")) }))
		w.WaitAllEnded()
		require.Equal(t, map[string][]int{"in": upTo(0, 12, 1), "retry": upTo(0, 12, 1)}, ran.ran)
	})
}

func TestEntriesOfOneCallRunInTheOrderInWhichTheyWereGivenInMemory(t *testing.T) {
	t.Parallel()
	store := memory.NewStore()
	c, err := compensator.New(t.Context(), compensator.Config{Store: store})
	require.NoError(t, err)
	var ran numbers
	orders := numbered(t, c, &ran, compensator.HandlerConfig[harness.Order]{})
	require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
		_, err := c.Record(ctx, tx, batch(orders, 40, steps["counted"], "ann")...)
		return err
	}))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	compensatortest.WaitIdle(t, c)
	stop()
	require.NoError(t, <-ended)
	require.NoError(t, c.Close())
	require.Equal(t, upTo(0, 40, 1), ran.ran["ann"])
}

// Failure: F112
func TestCrossedCallsDoNotDeadlock(t *testing.T) {
	t.Parallel()
	harness.InOppositeModes(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(cfg)
		var ran numbers
		orders := numbered(t, c, &ran, compensator.HandlerConfig[harness.Order]{})
		const rounds, n = 25, 120
		for round := range rounds {
			key := fmt.Sprint("round ", round)
			id := func(i int) compensator.IdempotencyKey { return compensator.IdempotencyKey(fmt.Sprint(key, " ", i)) }
			given := batch(orders, n, id, key)
			var recorders sync.WaitGroup
			for _, order := range orderings(n) {
				entries := make([]compensator.NewEntry, n)
				for place, i := range order {
					entries[place] = given[i]
				}
				recorders.Go(func() {
					tx, err := cfg.DB.Begin()
					if !assert.NoError(t, err) {
						return
					}
					defer tx.Rollback()
					receipt, err := c.Record(t.Context(), tx, entries...)
					if assert.NoError(t, err) && assert.NoError(t, tx.Commit()) {
						receipt.Committed()
					}
				})
			}
			recorders.Wait()
		}
		w.Run(c)
		w.WaitAllEnded()
		for round := range rounds {
			require.Contains(t, orderings(n), ran.ran[fmt.Sprint("round ", round)])
		}
	})
}

func orderings(n int) [][]int {
	forth := upTo(0, n, 1)
	back := slices.Clone(forth)
	slices.Reverse(back)
	return [][]int{forth, back, append(upTo(0, n, 2), upTo(1, n, 2)...)}
}
