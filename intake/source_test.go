package intake

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
)

// flaky is a source that gives everything again, however often, until it is acknowledged, and whose methods fail now and then.
type flaky struct {
	mu    sync.Mutex
	left  []Message
	calls int
	acked map[string]int
}

func (f *flaky) Name() string { return "flaky" }

func (f *flaky) Next(ctx context.Context, max int) ([]Message, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls++; f.calls%3 == 0 {
		return nil, errTest
	}
	batch := append([]Message(nil), f.left[:min(max, len(f.left))]...)
	if len(batch) > 1 {
		batch = append(batch, batch[0]) // twice in one batch
	}
	return batch, nil
}

func (f *flaky) Ack(_ context.Context, messages []Message) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls%4 == 1 {
		return errTest
	}
	for _, m := range messages {
		f.acked[m.ID]++
	}
	left := f.left[:0]
	for _, m := range f.left {
		if f.acked[m.ID] == 0 {
			left = append(left, m)
		}
	}
	f.left = left
	return nil
}

func (f *flaky) empty() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.left) == 0
}

func TestSourceThatFailsAndRepeatsItselfGetsOneEntryAMessage(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.New(r.Quick())
	f := &flaky{acked: make(map[string]int)}
	for i := range 500 {
		f.left = append(f.left, Message{ID: fmt.Sprint(i), Fields: map[string]string{"order": fmt.Sprintf(`{"n":%d}`, i)}})
	}
	cfg := testConfig()
	cfg.Batch = 60
	var once atomic.Bool
	cfg.Work = func(ctx context.Context, tx *compensator.ScopedTx, batch []*Message) error {
		if len(batch) > 10 && !once.Swap(true) {
			return errors.New("not the whole batch")
		}
		return effects(ctx, tx, batch)
	}
	in, err := Open(c, f, cfg)
	require.NoError(t, err)
	stop := r.start(in)
	r.Eventually(f.empty, "all are acknowledged")
	stop()
	r.requireBooks(500, 0)
	assert.Len(t, f.acked, 500)
}

// TestSlowBatchIsHalved: a transaction that takes too long is no outage.
func TestSlowBatchIsHalved(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.New(r.Quick())
	cfg := testConfig()
	cfg.Timeout = time.Second
	cfg.Work = func(ctx context.Context, tx *compensator.ScopedTx, batch []*Message) error {
		if len(batch) > 5 {
			<-ctx.Done()
			return ctx.Err()
		}
		return effects(ctx, tx, batch)
	}
	var waited atomic.Int64
	cfg.Observer.Waiting = func(WaitingEvent) { waited.Add(1) }
	r.add(1, 20)
	r.start(r.open(c, r.spec(), cfg))
	r.settled("shop")
	r.requireBooks(20, 0)
	assert.Zero(t, waited.Load())
}
