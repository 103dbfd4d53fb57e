package running

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

type countedQueue struct {
	processlog.Queue
	claims *atomic.Int64
}

func (q countedQueue) Claim(ctx context.Context, businessType string, limit int, lease time.Duration) (processlog.Leased, error) {
	q.claims.Add(1)
	return q.Queue.Claim(ctx, businessType, limit, lease)
}

// countedStore counts a search for due entries as a claim.
type countedStore struct {
	*harness.HookedStore
	claims, released *atomic.Int64
}

func (s countedStore) Due(ctx context.Context, businessType string, limit int) ([]processlog.ID, error) {
	s.claims.Add(1)
	return s.HookedStore.Due(ctx, businessType, limit)
}

func (s countedStore) Release(ctx context.Context, ids []processlog.ID, token processlog.Token) (processlog.Unreleased, error) {
	s.released.Add(int64(len(ids)))
	return s.HookedStore.Release(ctx, ids, token)
}

// service is a dependency and one process whose handlers call it.
type service struct {
	t     *testing.T
	c     *compensator.Compensator
	store *compensatortest.MemoryStore
	queue *compensatortest.MemoryQueue

	up, hangs     atomic.Bool
	calls, claims atomic.Int64 // claims is the number of claims in the queue and of searches for due entries in the store
	released      atomic.Int64

	mu           sync.Mutex // guards the fields below it
	opens, ended []observe.OpenBreaker
}

func (s *service) opened() []observe.OpenBreaker { return s.told(&s.opens) }
func (s *service) closed() []observe.OpenBreaker { return s.told(&s.ended) }

func (s *service) told(list *[]observe.OpenBreaker) []observe.OpenBreaker {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(*list)
}

func (s *service) note(list *[]observe.OpenBreaker) func(observe.OpenBreaker) {
	return func(open observe.OpenBreaker) {
		s.mu.Lock()
		defer s.mu.Unlock()
		*list = append(*list, open)
	}
}

// onClaim, unless nil, runs before each claim in the store.
func newService(t *testing.T, onClaim func()) *service {
	s := &service{t: t, store: compensatortest.NewMemoryStore(), queue: compensatortest.NewMemoryQueue()}
	store := &harness.HookedStore{Store: s.store, OnClaim: func() error {
		if s.claims.Add(1) > 3000 {
			// The process claims without a pause, so the clock of the bubble does not move. After an error the process
			// sleeps, so the clock moves and the test can end.
			return errTooMany
		}
		if onClaim != nil {
			onClaim()
		}
		return nil
	}}
	c, err := compensator.New(t.Context(), compensator.Config{Store: countedStore{store, &s.claims, &s.released}, Queue: countedQueue{s.queue.Client(), &s.claims}, Logger: slog.New(slog.DiscardHandler),
		Observer: observe.Observer{
			BreakerOpened: s.note(&s.opens), BreakerClosed: s.note(&s.ended),
		}})
	require.NoError(t, err)
	s.c = c
	return s
}

var (
	errNoRoute = errors.New("no route")
	errTooMany = errors.New("too many claims")
)

func (s *service) call(context.Context, *compensator.Entry) error {
	s.calls.Add(1)
	switch {
	case s.hangs.Load():
		time.Sleep(3 * time.Minute) // Ignore the context.
	case !s.up.Load():
		return compensator.Unavailable(errNoRoute)
	}
	return nil
}

func (s *service) handle(cfg compensator.HandlerConfig[harness.Order]) {
	_, err := compensator.Handle(s.t.Context(), s.c, "quiet", func(ctx context.Context, e *compensator.Entry, _ harness.Order) error { return s.call(ctx, e) }, &cfg)
	require.NoError(s.t, err)
}

func (s *service) record(n int) {
	s.t.Helper()
	entries := make([]compensator.NewEntry, n)
	for i := range entries {
		entries[i] = compensator.NewEntry{BusinessType: "quiet", Content: []byte(`{}`)}
	}
	harness.RecordIn(s.t, s.c, s.store, entries...)
}

// outage returns when the failures have opened the breaker and no handler runs.
func (s *service) outage(n int) {
	s.t.Helper()
	s.record(n)
	time.Sleep(time.Minute)
	synctest.Wait()
	require.Len(s.t, s.opened(), 1)
}

func (s *service) requireWhole(n int) {
	s.t.Helper()
	rows := s.store.Rows()
	require.Len(s.t, rows, n)
	for _, row := range rows {
		require.Equal(s.t, compensator.Succeeded, row.State)
		require.Zero(s.t, row.ProcessCount)
		require.Zero(s.t, row.DeliveryCount)
	}
}

func (s *service) comesBack(n int, stop func()) {
	s.t.Helper()
	s.up.Store(true)
	time.Sleep(2 * time.Hour)
	synctest.Wait()
	s.requireWhole(n)
	s.close(stop)
}

func (s *service) close(stop func()) {
	stop()
	require.NoError(s.t, s.c.Close())
}

// Failure: F77
func TestOpenBreakerCostsNoClaim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		s.handle(compensator.HandlerConfig[harness.Order]{Breaker: compensator.Breaker{Of: 3, Pause: 80 * time.Minute}})
		stop := compensatortest.Run(t, s.c)
		s.outage(200)
		calls, claims := s.calls.Load(), s.claims.Load()
		for range 20 {
			time.Sleep(3 * time.Minute)
			s.record(10)
		}
		synctest.Wait()
		assert.Equal(t, calls, s.calls.Load())
		assert.Equal(t, claims, s.claims.Load())
		for _, row := range s.store.Rows() {
			assert.Zero(t, row.DeliveryCount, "no entry is inserted with a lease, and none is held")
			assert.LessOrEqual(t, row.LeaseLeft, time.Duration(0))
		}
		s.up.Store(true)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		require.Len(t, s.closed(), 1)
		s.requireWhole(400)
		s.close(stop)
	})
}

// Failure: F77
func TestOpenBreakerProbesWithTheEntryThatHasWaitedLongest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		var probed []compensator.EntryID
		_, err := compensator.Handle(t.Context(), s.c, "quiet", func(ctx context.Context, e *compensator.Entry, _ harness.Order) error {
			if len(s.opened()) > 0 && len(s.closed()) == 0 {
				probed = append(probed, e.ID)     // Only one probe runs at a time, so no mutex is needed.
				defer time.Sleep(5 * time.Second) // No other entry may start while the probe runs.
			}
			return s.call(ctx, e)
		}, &compensator.HandlerConfig[harness.Order]{Concurrency: 3, Retry: compensator.Fixed(time.Hour), Breaker: compensator.Breaker{Of: 3, Pause: time.Minute}})
		require.NoError(t, err)
		stop := compensatortest.Run(t, s.c)
		s.record(3) // These entries fail and ask for a retry in an hour.
		time.Sleep(time.Second)
		synctest.Wait()
		require.Len(t, s.opened(), 1)
		var waiting []compensator.EntryID
		for range 5 {
			waiting = append(waiting, harness.RecordIn(t, s.c, s.store, compensator.NewEntry{BusinessType: "quiet", Content: []byte(`{}`)}).ID())
			time.Sleep(time.Second)
		}
		time.Sleep(5 * time.Minute)
		s.up.Store(true)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		require.Greater(t, len(probed), 2)
		require.Equal(t, waiting[:len(probed)], probed, "each that failed is to come again later")
		require.Len(t, s.opened(), len(probed), "one probe for each pause")
		s.requireWhole(8)
		s.close(stop)
	})
}

// Failure: F77
func TestProbeThatHangsDoesNotEndTheProbing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		s.handle(compensator.HandlerConfig[harness.Order]{Concurrency: 3, Timeout: 10 * time.Second, Lease: 2 * time.Minute, Breaker: compensator.Breaker{Of: 3, Pause: 30 * time.Second}})
		stop := compensatortest.Run(t, s.c)
		s.record(20)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Len(t, s.opened(), 1)
		s.hangs.Store(true)
		time.Sleep(time.Minute)
		s.hangs.Store(false)
		s.up.Store(true)
		synctest.Wait()
		require.Equal(t, 1, s.opened()[len(s.opened())-1].Probes)
		require.ErrorIs(t, s.opened()[len(s.opened())-1].Err, compensator.ErrTimeout)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.Len(t, s.closed(), 1, "the first probe is still stuck")
		time.Sleep(time.Hour)
		synctest.Wait()
		s.requireWhole(20)
		s.close(stop)
	})
}

// A batch of two entries ignores its timeout, so the process calls Observer.Stuck for each of the two entries. During
// the first of these calls the batch returns, without usable verdicts. So both entries run again, each alone. The
// second call of Stuck comes while the entries run alone.
// Failure: F77
func TestBatchThatReturnsWhileItIsToldToHangSpeaksForNoCallAfterIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &service{t: t, store: compensatortest.NewMemoryStore()}
		told, returned := make(chan struct{}, 2), make(chan struct{})
		c, err := compensator.New(t.Context(), compensator.Config{Store: s.store, Logger: slog.New(slog.DiscardHandler),
			Observer: observe.Observer{BreakerOpened: s.note(&s.opens), Stuck: func(observe.AttemptEvent) {
				told <- struct{}{}
				<-returned
				time.Sleep(time.Second) // The entries run alone during this time.
			}}})
		require.NoError(t, err)
		s.c = c
		_, err = compensator.HandleBatch(t.Context(), c, "quiet", func(_ context.Context, items []compensator.Item[harness.Order]) []error {
			if len(items) == 1 {
				s.calls.Add(1)
				time.Sleep(5 * time.Second)
				return nil
			}
			<-told // Ignore the context.
			close(returned)
			return make([]error, len(items)+1)
		}, &compensator.BatchConfig[harness.Order]{Timeout: 10 * time.Second, Breaker: compensator.Breaker{Of: 2, Share: 1, Pause: time.Hour}})
		require.NoError(t, err)
		s.record(2)
		stop := compensatortest.Run(t, c)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, told, 1, "of the second entry, too")
		require.EqualValues(t, 2, s.calls.Load())
		require.Empty(t, s.opened(), "one call of three was stuck, and it was reported for one entry")
		s.requireWhole(2)
		s.close(stop)
	})
}

// Failure: F77
func TestEntriesThatWereClaimedWhileTheBreakerOpenedAreGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Bool
		s := newService(t, func() {
			if slow.Load() {
				time.Sleep(2 * time.Second)
			}
		})
		_, err := compensator.Handle(t.Context(), s.c, "quiet", func(ctx context.Context, e *compensator.Entry, _ harness.Order) error {
			time.Sleep(time.Second)
			return s.call(ctx, e)
		}, &compensator.HandlerConfig[harness.Order]{Concurrency: 20, Breaker: compensator.Breaker{Of: 5, Pause: time.Hour}})
		require.NoError(t, err)
		stop := compensatortest.Run(t, s.c)
		s.record(5)
		harness.RecordIn(t, s.c, s.store, compensator.NewEntry{BusinessType: "quiet", Content: []byte(`{}`), Options: compensator.Options{Delay: 700 * time.Millisecond}})
		time.Sleep(500 * time.Millisecond)
		slow.Store(true)
		s.record(5) // The process claims these five entries by id. It claims the entry with a Delay through the queue.
		time.Sleep(5 * time.Second)
		synctest.Wait()
		require.Len(t, s.opened(), 1)
		require.EqualValues(t, 5, s.calls.Load())
		require.GreaterOrEqual(t, s.claims.Load(), int64(3))
		for _, row := range s.store.Rows() {
			assert.Zero(t, row.DeliveryCount)
			assert.LessOrEqual(t, row.LeaseLeft, time.Duration(0))
		}
		require.Len(t, s.queue.Members(), 11)
		for _, m := range s.queue.Members() {
			assert.LessOrEqual(t, m.In, time.Duration(0), "another process need not wait for the end of a lease")
		}
		s.comesBack(11, stop)
	})
}

// Failure: F77
func TestBatchThatOpensTheBreakerIsGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		_, err := compensator.HandleBatch(t.Context(), s.c, "quiet", func(ctx context.Context, items []compensator.Item[harness.Order]) []error {
			s.calls.Add(1)
			if s.up.Load() {
				return nil
			}
			<-ctx.Done()
			return make([]error, len(items)+1)
		}, &compensator.BatchConfig[harness.Order]{Timeout: 10 * time.Second, Breaker: compensator.Breaker{Of: 1, Pause: time.Hour}})
		require.NoError(t, err)
		s.record(30)
		stop := compensatortest.Run(t, s.c)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, s.opened(), 1)
		require.ErrorIs(t, s.opened()[0].Err, compensator.ErrTimeout)
		require.EqualValues(t, 1, s.calls.Load(), "no entry ran alone")
		require.Zero(t, s.released.Load(), "a lease that ran something is not given back as if it had not (G4)")
		for _, row := range s.store.Rows() {
			assert.Zero(t, row.DeliveryCount)
			assert.Zero(t, row.ProcessCount)
		}
		s.comesBack(30, stop)
	})
}

// Failure: F77
func TestCompensationsCountAndWaitWithTheirHandlers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		_, err := compensator.Handle(t.Context(), s.c, "quiet", func(context.Context, *compensator.Entry, harness.Order) error {
			return compensator.Permanent(errNoRoute)
		}, &compensator.HandlerConfig[harness.Order]{Compensate: func(ctx context.Context, e *compensator.Entry, _ harness.Order) error { return s.call(ctx, e) }, Breaker: compensator.Breaker{Of: 20, Share: 0.1, Pause: time.Hour}})
		require.NoError(t, err)
		stop := compensatortest.Run(t, s.c)
		s.outage(30)
		before := s.calls.Load()
		time.Sleep(30 * time.Minute)
		require.Equal(t, before, s.calls.Load())
		s.up.Store(true)
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		for _, row := range s.store.Rows() {
			require.Equal(t, compensator.Compensated, row.State)
		}
		s.close(stop)
	})
}

// Failure: F77
func TestStopWhileTheBreakerIsOpenWaitsForNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		s.handle(compensator.HandlerConfig[harness.Order]{Breaker: compensator.Breaker{Of: 3, Pause: 24 * time.Hour}})
		stop := compensatortest.Run(t, s.c)
		s.outage(10)
		asked := time.Now()
		stop()
		require.Zero(t, time.Since(asked))
		s.up.Store(true)
		stop = compensatortest.Run(t, s.c) // The new Run begins with a closed breaker.
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		s.requireWhole(10)
		s.close(stop)
	})
}

// Failure: F77
func TestOpenBreakerHoldsUpNoEntryThatHasHadItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		s.handle(compensator.HandlerConfig[harness.Order]{MaxWait: time.Hour, MaxAttempts: 5, Retry: compensator.Exponential(time.Second, 10*time.Minute), Breaker: compensator.Breaker{Of: 5, Pause: time.Second}})
		stop := compensatortest.Run(t, s.c)
		s.record(20)
		time.Sleep(59 * time.Minute)
		require.NotEmpty(t, s.c.Health(t.Context()).OpenBreakers)
		for _, row := range s.store.Rows() {
			require.Zero(t, row.ProcessCount)
		}
		time.Sleep(10 * time.Minute)
		for _, row := range s.store.Rows() {
			require.Equal(t, compensator.Dead, row.State, "entry %s, %d attempts counted", row.ID, row.ProcessCount)
			require.Equal(t, 5, row.ProcessCount)
		}
		s.close(stop)
	})
}

// Entries that wait for their batch do not call the dependency, so they must not open or close the breaker.
// Failure: F77
func TestEntriesThatWaitForTheirBatchGiveWayToTheProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		s.claims.Store(-1_000_000) // Allow many claims, because each of these entries is claimed many times.
		s.handle(compensator.HandlerConfig[harness.Order]{Breaker: compensator.Breaker{Of: 3, Pause: 2 * time.Minute}, AfterBatch: func(e *compensator.Entry) string { return e.BusinessExtID }})
		_, err := compensator.Handle(t.Context(), s.c, "part", func(context.Context, *compensator.Entry, harness.Order) error { return nil }, nil)
		require.NoError(t, err)
		stop := compensatortest.Run(t, s.c)
		after := make([]compensator.NewEntry, 50)
		for i := range after {
			after[i] = compensator.NewEntry{BusinessType: "quiet", Content: []byte(`{}`), Options: compensator.Options{BusinessExtID: "long"}}
		}
		harness.RecordIn(t, s.c, s.store, append(after, compensator.NewEntry{
			BusinessType: "part", Content: []byte(`{}`), Options: compensator.Options{BatchID: "long", Delay: 4 * time.Hour},
		})...)
		time.Sleep(2 * time.Hour) // By now each of these entries checks its batch once a minute.
		s.outage(3)
		time.Sleep(10 * time.Minute)
		s.up.Store(true)
		time.Sleep(10 * time.Minute) // The breaker probes at least once in three minutes.
		synctest.Wait()
		require.Len(t, s.closed(), 1)
		time.Sleep(4 * time.Hour)
		synctest.Wait()
		s.requireWhole(len(after) + 1 + 3)
		s.close(stop)
	})
}

// A newer version of the service has recorded entries that this process cannot decode.
// Failure: F77
func TestEntriesThatNobodyHereCanReadGiveWayToTheProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		s.claims.Store(-1_000_000) // Allow many claims, because each of these entries is claimed many times.
		s.handle(compensator.HandlerConfig[harness.Order]{Retry: compensator.Fixed(time.Minute), Breaker: compensator.Breaker{Of: 3, Pause: 2 * time.Minute}})
		stop := compensatortest.Run(t, s.c)
		unread := make([]compensator.NewEntry, 50)
		for i := range unread {
			unread[i] = compensator.NewEntry{BusinessType: "quiet", Content: []byte("of a newer version")}
		}
		harness.RecordIn(t, s.c, s.store, unread...)
		time.Sleep(30 * time.Second)
		s.outage(3) // The three entries of the outage are due again after the unread entries.
		s.up.Store(true)
		time.Sleep(10 * time.Minute) // The breaker probes at least once in three minutes.
		synctest.Wait()
		require.Len(t, s.opened(), 1)
		require.Len(t, s.closed(), 1)
		states := make(map[compensator.State]int)
		for _, row := range s.store.Rows() {
			states[row.State]++
			require.Zero(t, row.ProcessCount)
		}
		require.Equal(t, map[compensator.State]int{compensator.Pending: len(unread), compensator.Succeeded: 3}, states)
		s.close(stop)
	})
}
