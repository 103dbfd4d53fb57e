package intake

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest/memory"
)

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
		batch = append(batch, batch[0])
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

// Failure: F97
func TestSourceThatFailsAndRepeatsItselfGetsOneEntryAMessage(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.New(r.QuickConfig())
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
	in, err := Open(t.Context(), c, f, cfg)
	require.NoError(t, err)
	stop := r.start(in)
	r.Eventually(f.empty, "all are acknowledged")
	stop()
	r.requireBooks(500, 0)
	assert.Len(t, f.acked, 500)
}

type measured struct {
	messages chan Message
	left     bool
}

func (s *measured) Name() string { return "measured" }

func (s *measured) Next(ctx context.Context, _ int) ([]Message, error) {
	select {
	case m := <-s.messages:
		return []Message{m}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *measured) Ack(context.Context, []Message) error { return nil }

func (s *measured) Measure(context.Context) (Backlog, error) { return Backlog{Lag: 1}, nil }

func (s *measured) leaveGroup(context.Context) error { s.left = true; return nil }

func TestIntakeOfAClosedCompensatorEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		c, err := compensator.New(t.Context(), compensator.Config{Store: memory.NewStore(), Logger: cfg.Logger})
		require.NoError(t, err)
		told := make(chan Stats)
		cfg.Work, cfg.Observer.Measured = nil, func(s Stats) {
			select {
			case told <- s:
			default:
			}
		}
		source := &measured{messages: make(chan Message)}
		in, err := Open(t.Context(), c, source, cfg)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel() // Cancel at the end, because the bubble waits for all its goroutines.
		ended := make(chan error, 1)
		go func() { ended <- in.Run(ctx) }()
		source.messages <- Message{ID: "1", Fields: map[string]string{"order": `{"n":1}`}}
		assert.EqualValues(t, 1, (<-told).Recorded)
		require.NoError(t, in.Err())

		require.NoError(t, c.Close())
		source.messages <- Message{ID: "2", Fields: map[string]string{"order": `{"n":2}`}}
		synctest.Wait()
		select {
		case err := <-ended:
			assert.ErrorIs(t, err, compensator.ErrClosed)
			assert.True(t, source.left)
			assert.ErrorIs(t, in.Err(), errNotRunning)
		default:
			assert.Fail(t, "Run goes on")
		}
	})
}

// Failure: F98
func TestSlowBatchIsHalved(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.New(r.QuickConfig())
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
	r.waitSettled("shop")
	r.requireBooks(20, 0)
	assert.Zero(t, waited.Load())
}
