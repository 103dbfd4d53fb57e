package order

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/processlog"
)

// refusing is a store that can fail its calls about ordering keys.
type refusing struct {
	*compensatortest.MemoryStore
	claims atomic.Int64
	stale  bool                           // if set, KeyStates reports no entry as blocked, like an outdated answer
	lines  func() error                   // called by KeyStates, which fails with the error of this function (nil: KeyStates works)
	block  func(block func() error) error // called by Block with a function that blocks the entries (nil: Block works)
}

var errRefused = errors.New("table is full")

func (s *refusing) Claim(ctx context.Context, want []processlog.Wanted, token processlog.Token, lease time.Duration, accept func(*processlog.Row) bool) (processlog.Claimed, error) {
	if s.claims.Add(1) > 5000 {
		// The process claims without a pause, so the clock of the bubble does not move. After an error the process
		// sleeps, so the clock moves and the test can end.
		return processlog.Claimed{}, errRefused
	}
	return s.MemoryStore.Claim(ctx, want, token, lease, accept)
}

func (s *refusing) KeyStates(ctx context.Context, businessType string, positions []processlog.Position, token processlog.Token, dead bool) (map[string]processlog.KeyState, error) {
	if s.lines != nil && len(positions) > 0 {
		if err := s.lines(); err != nil {
			return nil, err
		}
	}
	return s.MemoryStore.KeyStates(ctx, businessType, positions, token, dead)
}

func (s *refusing) Blocked(ctx context.Context, businessType string, ids []processlog.ID, dead bool) ([]processlog.ID, error) {
	if s.stale {
		return nil, nil
	}
	return s.MemoryStore.Blocked(ctx, businessType, ids, dead)
}

func (s *refusing) Block(ctx context.Context, blocked []processlog.BlockedEntry, token processlog.Token) error {
	block := func() error { return s.MemoryStore.Block(ctx, blocked, token) }
	if s.block != nil {
		return s.block(block)
	}
	return block()
}

// runSerial runs a serial type on the store, with reconciler rounds an hour apart.
func runSerial(t *testing.T, store *refusing, queue processlog.Queue, cfg compensator.HandlerConfig[harness.Order], more func(ctx context.Context, e *compensator.Entry) error) (c *compensator.Compensator, stop func()) {
	t.Helper()
	store.MemoryStore = compensatortest.NewMemoryStore()
	c, err := compensator.New(t.Context(), compensator.Config{Store: store, Queue: queue, ReconcileInterval: time.Hour, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	serial(t, c, newWatch(t), cfg, more)
	return c, compensatortest.Run(t, c)
}

func book(key string, delay time.Duration) compensator.NewEntry {
	return compensator.NewEntry{BusinessType: "book", Content: []byte(`{}`), Options: compensator.Options{UserID: key, Delay: delay}}
}

func (s *refusing) requireSucceeded(t *testing.T, n int) {
	t.Helper()
	synctest.Wait()
	rows := s.Rows()
	require.Len(t, rows, n)
	for _, row := range rows {
		require.Equal(t, compensator.Succeeded, row.State, "%s", row.ID)
		require.Zero(t, row.ProcessCount)
	}
}

// Failure: F116
func TestClaimsRestWhileTheStoreRefusesPositions(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]func(s *refusing, refuses *atomic.Bool){
		"lines": func(s *refusing, refuses *atomic.Bool) {
			s.lines = func() error {
				if refuses.Load() {
					return errRefused
				}
				return nil
			}
		},
		"park": func(s *refusing, refuses *atomic.Bool) {
			s.block = func(block func() error) error {
				if refuses.Load() {
					return errRefused
				}
				return block()
			}
		},
	} {
		for mode, queue := range map[string]func() processlog.Queue{
			"wheel": func() processlog.Queue { return nil },
			"queue": func() processlog.Queue { return compensatortest.NewMemoryQueue().Client() },
		} {
			t.Run(name+" "+mode, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					store, refuses := &refusing{stale: true}, new(atomic.Bool)
					refuses.Store(true)
					refuse(store, refuses)
					c, stop := runSerial(t, store, queue(), compensator.HandlerConfig[harness.Order]{Concurrency: 10, Timeout: time.Hour}, func(context.Context, *compensator.Entry) error {
						for refuses.Load() { // Only the first entry of each key gets to this line.
							time.Sleep(time.Second)
						}
						return nil
					})
					entries := make([]compensator.NewEntry, 500)
					for i := range entries {
						entries[i] = book(strconv.Itoa(i%5), 0)
					}
					harness.RecordIn(t, c, store.MemoryStore, entries...)
					time.Sleep(10 * time.Minute)
					require.Less(t, store.claims.Load(), int64(1500))
					refuses.Store(false)
					time.Sleep(3 * time.Hour)
					store.requireSucceeded(t, 500)
					stop()
					require.NoError(t, c.Close())
				})
			})
		}
	}
}

// The queue leases an entry to the process for an hour.
// Failure: F116
func TestEntryThatIsPutBackForWantOfAPositionComesSoon(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]func(s *refusing, once func() error){
		"lines": func(s *refusing, once func() error) { s.lines = once },
		"park": func(s *refusing, once func() error) {
			s.block = func(block func() error) error { return cmp.Or(once(), block()) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, refused := &refusing{stale: true}, new(atomic.Int64)
				refuse(store, func() error {
					if refused.Add(1) == 1 {
						return errRefused
					}
					return nil
				})
				c, stop := runSerial(t, store, compensatortest.NewMemoryQueue().Client(), compensator.HandlerConfig[harness.Order]{Lease: time.Hour}, taking(30*time.Second))
				harness.RecordIn(t, c, store.MemoryStore, book("ann", time.Second), book("ann", 10*time.Second))
				time.Sleep(2 * time.Minute)
				store.requireSucceeded(t, 2)
				require.Positive(t, refused.Load())
				stop()
				require.NoError(t, c.Close())
			})
		})
	}
}

// The first entry ends before the store marks the second entry as blocked, so the end of the first does not wake the
// second. The call of Block reports an error although it has blocked the second entry. The process must still wake the
// second entry.
// Failure: F115
func TestEntryThatWaitsWithoutItsProcessKnowingIsWoken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &refusing{stale: true}
		store.block = func(block func() error) error {
			time.Sleep(6 * time.Second) // The first entry ends during this time.
			store.block = nil
			return cmp.Or(block(), errRefused)
		}
		c, stop := runSerial(t, store, compensatortest.NewMemoryQueue().Client(), compensator.HandlerConfig[harness.Order]{}, taking(15*time.Second))
		harness.RecordIn(t, c, store.MemoryStore, book("ann", 0))
		time.Sleep(12 * time.Second)
		harness.RecordIn(t, c, store.MemoryStore, book("ann", 0))
		time.Sleep(time.Minute)
		store.requireSucceeded(t, 2)
		require.Nil(t, store.block)
		stop()
		require.NoError(t, c.Close())
	})
}

func taking(d time.Duration) func(context.Context, *compensator.Entry) error {
	return func(context.Context, *compensator.Entry) error {
		time.Sleep(d)
		return nil
	}
}
