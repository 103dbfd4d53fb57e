package running

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/internal/harness"
)

type batches struct {
	mu   sync.Mutex
	seen [][]int
}

func (b *batches) add(items []compensator.Item[harness.Order]) (numbers []int) {
	for _, item := range items {
		numbers = append(numbers, item.Value.Number)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen = append(b.seen, numbers)
	return numbers
}

func (b *batches) sizesWith(number int) (sizes []int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, batch := range b.seen {
		if slices.Contains(batch, number) {
			sizes = append(sizes, len(batch))
		}
	}
	return sizes
}

func (b *batches) largest() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, batch := range b.seen {
		n = max(n, len(batch))
	}
	return n
}

func batched(t *testing.T, w *harness.World, n int, cfg compensator.BatchConfig[harness.Order], answer func(ctx context.Context, numbers []int) []error) (*compensator.Compensator, *batches) {
	t.Helper()
	c := w.New(w.QuickConfig())
	var seen batches
	orders, err := compensator.HandleBatch(t.Context(), c, "close_order", func(ctx context.Context, items []compensator.Item[harness.Order]) []error {
		return answer(ctx, seen.add(items))
	}, &cfg)
	require.NoError(t, err)
	w.RecordMany(c, orders, n, compensator.Options{})
	w.Run(c)
	w.WaitAllEnded()
	return c, &seen
}

// Failure: F71
func TestBatchWithoutErrorsSucceedsAsAWhole(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	_, seen := batched(t, w, 100, compensator.BatchConfig[harness.Order]{BatchSize: 40}, func(context.Context, []int) []error { return nil })
	require.Equal(t, 100, w.CountEnded(compensator.Succeeded, 0))
	require.LessOrEqual(t, seen.largest(), 40)
	require.Greater(t, seen.largest(), 1, "entries that are due together run together")
	for n := range 100 {
		require.Len(t, seen.sizesWith(n), 1)
	}
}

// Failure: F72
func TestBatchCarriesTheValuesOfNoEntryAndEachItemItsOwn(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	cfg := w.QuickConfig()
	cfg.Propagator = tracing{}
	c := w.New(cfg)
	tenant := func(number int) string { return fmt.Sprint("tenant ", number) }
	type stepKey struct{}
	var seen batches
	var mu sync.Mutex // guards owns
	var owns []context.Context
	orders, err := compensator.HandleBatch(t.Context(), c, "close_order", func(ctx context.Context, items []compensator.Item[harness.Order]) []error {
		seen.add(items)
		assert.Nil(t, ctx.Value(traceKey{}), "the batch of %d has one entry's values", len(items))
		for _, item := range items {
			own := item.Context()
			assert.Equal(t, tenant(item.Value.Number), own.Value(traceKey{}))
			assert.Equal(t, "seen by middleware", own.Value(stepKey{}))
			assert.NoError(t, own.Err())
			mu.Lock()
			owns = append(owns, own)
			mu.Unlock()
		}
		return nil
	}, &compensator.BatchConfig[harness.Order]{BatchMiddleware: []compensator.BatchMiddleware{func(next compensator.BatchFunc) compensator.BatchFunc {
		return func(ctx context.Context, entries []*compensator.Entry) []error {
			assert.Nil(t, ctx.Value(traceKey{}))
			for _, e := range entries {
				assert.Equal(t, e.Headers["trace"], e.Context(ctx).Value(traceKey{}))
			}
			return next(context.WithValue(ctx, stepKey{}, "seen by middleware"), entries)
		}
	}}})
	require.NoError(t, err)
	record := func(number int) {
		ctx := context.WithValue(t.Context(), traceKey{}, tenant(number))
		require.NoError(t, c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
			_, err := orders.Record(ctx, tx, harness.Order{Number: number}, compensator.Options{})
			return err
		}))
	}
	for number := range 4 {
		record(number)
	}
	w.Run(c)
	w.WaitAllEnded()
	record(4) // Entry 4 runs alone.
	w.WaitAllEnded()
	require.Equal(t, 5, w.CountEnded(compensator.Succeeded, 0))
	require.Greater(t, seen.largest(), 1, "no batch of several")
	require.Equal(t, []int{1}, seen.sizesWith(4))
	mu.Lock()
	defer mu.Unlock()
	for _, own := range owns {
		require.Error(t, own.Err(), "it outlives its batch")
	}
}

// Failure: F72
func TestBatchRunsThoughItsPropagatorPanics(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	cfg := w.QuickConfig()
	cfg.Propagator = trippedUp{}
	c := w.New(cfg)
	orders, err := compensator.HandleBatch(t.Context(), c, "close_order", func(ctx context.Context, items []compensator.Item[harness.Order]) []error {
		for _, item := range items {
			assert.Equal(t, ctx, item.Context(), "the batch's own, with nothing more")
		}
		return nil
	}, &compensator.BatchConfig[harness.Order]{MaxAttempts: 1})
	require.NoError(t, err)
	w.RecordMany(c, orders, 3, compensator.Options{})
	w.Run(c)
	w.WaitAllEnded()
	require.Equal(t, 3, w.CountEnded(compensator.Succeeded, 0))
}

// Failure: F71
func TestFailuresOfABatchAreEachTheirOwnEntrys(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	bad := []int{2, 5, 7}
	c, seen := batched(t, w, 10, compensator.BatchConfig[harness.Order]{MaxAttempts: 2, Retry: compensator.Fixed(0)}, func(_ context.Context, numbers []int) []error {
		verdicts := make([]error, len(numbers))
		for i, n := range numbers {
			if slices.Contains(bad, n) {
				verdicts[i] = fmt.Errorf("order %d", n)
			}
			if n == 7 {
				verdicts[i] = compensator.Permanent(verdicts[i])
			}
		}
		return verdicts
	})
	require.Equal(t, 7, w.CountEnded(compensator.Succeeded, 0))
	require.Equal(t, 2, w.CountEnded(compensator.Dead, 2))
	require.Equal(t, 1, w.CountEnded(compensator.Dead, 1))
	dead, err := admin.Of(c).List(t.Context(), admin.Filter{States: []compensator.State{compensator.Dead}})
	require.NoError(t, err)
	for _, e := range dead.Entries {
		var o harness.Order
		require.NoError(t, e.Decode(&o))
		require.Equal(t, fmt.Sprintf("order %d", o.Number), e.LastError, "each has its own error")
	}
	require.Len(t, seen.sizesWith(0), 1, "a good entry does not run again for a bad one's sake")
}

// Failure: F63, F71
func TestBatchWithoutAVerdictForEachEntrySpendsNoAttempt(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(ctx context.Context, n int) []error{
		"panic":      func(context.Context, int) []error { panic("the whole batch") },
		"goexit":     func(context.Context, int) []error { runtime.Goexit(); return nil },
		"too few":    func(_ context.Context, n int) []error { return make([]error, n-1) },
		"too many":   func(_ context.Context, n int) []error { return make([]error, n+1) },
		"none":       func(context.Context, int) []error { return []error{} },
		"timed out":  func(ctx context.Context, n int) []error { <-ctx.Done(); return slices.Repeat([]error{ctx.Err()}, n) },
		"one of all": func(context.Context, int) []error { return []error{errors.New("the connection broke")} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t).WithRedis()
			_, seen := batched(t, w, 20, compensator.BatchConfig[harness.Order]{MaxAttempts: 1, Timeout: 300 * time.Millisecond}, func(ctx context.Context, numbers []int) []error {
				switch {
				case len(numbers) > 1:
					return fail(ctx, len(numbers))
				case numbers[0] == 13:
					return []error{errors.New("thirteen")}
				}
				return nil
			})
			require.Equal(t, 19, w.CountEnded(compensator.Succeeded, 0), "one attempt would have been one too many")
			require.Equal(t, 1, w.CountEnded(compensator.Dead, 1))
			require.Equal(t, 1, w.Count("common_process_log WHERE last_error LIKE '%thirteen'"))
			for n := range 20 {
				sizes := seen.sizesWith(n)
				require.Equal(t, 1, sizes[len(sizes)-1], "the verdict on %d came when it ran alone", n)
				require.LessOrEqual(t, len(sizes), 2)
			}
		})
	}
}

// Failure: F63
func TestEntryThatFailsAloneIsFailedByItsOwnPanic(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c, _ := batched(t, w, 20, compensator.BatchConfig[harness.Order]{MaxAttempts: 1}, func(_ context.Context, numbers []int) []error {
		if slices.Contains(numbers, 13) {
			panic("thirteen")
		}
		return nil
	})
	require.Equal(t, 19, w.CountEnded(compensator.Succeeded, 0))
	dead, err := admin.Of(c).List(t.Context(), admin.Filter{States: []compensator.State{compensator.Dead}})
	require.NoError(t, err)
	require.Len(t, dead.Entries, 1)
	require.Contains(t, dead.Entries[0].LastError, "handler panicked: thirteen")
}

func TestBatchOfOneComesToItsVerdictAtOnce(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(ctx context.Context) []error{
		"panic":     func(context.Context) []error { panic("alone") },
		"none":      func(context.Context) []error { return []error{} },
		"too many":  func(context.Context) []error { return make([]error, 2) },
		"timed out": func(ctx context.Context) []error { <-ctx.Done(); return []error{ctx.Err()} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t)
			_, seen := batched(t, w, 1, compensator.BatchConfig[harness.Order]{MaxAttempts: 2, Retry: compensator.Fixed(0), Timeout: 300 * time.Millisecond},
				func(ctx context.Context, _ []int) []error { return fail(ctx) })
			require.Equal(t, 1, w.CountEnded(compensator.Dead, 2))
			require.Len(t, seen.sizesWith(0), 2, "a run for each attempt")
		})
	}
}

// Failure: F71
func TestUndecodableEntryLeavesItsBatch(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	var seen batches
	orders, err := compensator.HandleBatch(t.Context(), c, "close_order", func(_ context.Context, items []compensator.Item[harness.Order]) []error {
		seen.add(items)
		return make([]error, len(items))
	}, &compensator.BatchConfig[harness.Order]{Retry: compensator.Fixed(time.Hour)})
	require.NoError(t, err)
	w.RecordMany(c, orders, 10, compensator.Options{})
	w.Exec("UPDATE common_process_log SET content='[]' WHERE business_id=4")
	w.Run(c)
	w.Eventually(func() bool { return w.CountEnded(compensator.Succeeded, 0) == 9 }, "the others succeed")
	require.Empty(t, seen.sizesWith(4))
	w.Eventually(func() bool {
		return w.Count("common_process_log WHERE state=0 AND process_count=0 AND last_error LIKE '%decode%'") == 1
	}, "the undecodable one waits, uncounted")
}

// Failure: F61
func TestSuspectsStayOutOfBatches(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	var seen batches
	orders, err := compensator.HandleBatch(t.Context(), c, "close_order", func(_ context.Context, items []compensator.Item[harness.Order]) []error {
		seen.add(items)
		return nil
	}, nil)
	require.NoError(t, err)
	w.RecordMany(c, orders, 20, compensator.Options{})
	w.Exec("UPDATE common_process_log SET delivery_count=1 WHERE business_id IN (3,4)") // These entries have lost one lease.
	w.Exec("UPDATE common_process_log SET delivery_count=2 WHERE business_id IN (5,6)") // These entries have lost two leases in a row.
	w.Exec("UPDATE common_process_log SET delivery_count=3 WHERE business_id=7")        // This entry has lost as many leases as the maximum allows.
	w.Run(c)
	w.WaitAllEnded()
	for _, n := range []int{5, 6} {
		require.Equal(t, []int{1}, seen.sizesWith(n), "%d runs alone", n)
	}
	for _, n := range []int{3, 4} {
		require.Len(t, seen.sizesWith(n), 1)
		require.LessOrEqual(t, seen.sizesWith(n)[0], 2, "%d runs with the other one that has lost a lease at most", n)
	}
	require.Empty(t, seen.sizesWith(7), "it is taken out, not run")
	require.Equal(t, 1, w.Count("common_process_log WHERE state=-2 AND ended_by='crash' AND process_count=0"))
	require.Equal(t, 19, w.CountEnded(compensator.Succeeded, 0))
	require.Greater(t, seen.largest(), 1)
}

// Failure: F71
func TestCompensationsOfABatchTypeRunOneByOne(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	var undone harness.Calls
	_, _ = batched(t, w, 10, compensator.BatchConfig[harness.Order]{
		MaxAttempts: 1,
		Compensate: func(_ context.Context, e *compensator.Entry, o harness.Order) error {
			assert.Equal(t, fmt.Sprintf("order %d", o.Number), e.LastError)
			undone.Add(e.ID)
			return nil
		},
	}, func(_ context.Context, numbers []int) []error {
		verdicts := make([]error, len(numbers))
		for i, n := range numbers {
			verdicts[i] = fmt.Errorf("order %d", n)
		}
		return verdicts
	})
	require.Equal(t, 10, w.CountEnded(compensator.Compensated, 1))
	require.Equal(t, 10, undone.Total())
}

// Some entries of a batch cannot be decoded, so the batch handler gets only the other entries.
// Failure: F71
func TestAnswerForEntriesThatCouldNotBeDecodedIsNoVerdict(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	sizes := make(chan int, 10)
	var seen harness.Calls
	_, err := compensator.HandleBatch(t.Context(), c, "close_order", func(_ context.Context, items []compensator.Item[harness.Order]) []error {
		for _, item := range items {
			seen.Add(item.Entry.ID)
		}
		sizes <- len(items)
		if len(items) > 1 {
			return make([]error, len(items)+1)
		}
		return nil
	}, &compensator.BatchConfig[harness.Order]{BatchSize: 3})
	require.NoError(t, err)
	ids := w.InsertDue("close_order", 1, 3)
	w.Exec("UPDATE common_process_log SET content='no order' WHERE id=2")
	w.Run(c)
	w.WaitState(ids[0], compensator.Succeeded)
	w.WaitState(ids[2], compensator.Succeeded)
	require.Equal(t, 2, <-sizes, "of a batch of three")
	require.Zero(t, seen.Of(ids[1]))
	require.Equal(t, compensator.Pending, w.State(ids[1]))
}
