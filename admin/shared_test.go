package admin

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Failure: F133
func TestWhatIsReadIsSharedUntilItIsOldOrSomethingIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCached[int]()
		var acts atomic.Int64
		reads, took := 0, time.Millisecond
		get := func() (n int) {
			n, _, err := s.get(t.Context(), &acts, func(context.Context) (int, error) {
				reads++
				time.Sleep(took)
				return reads, nil
			})
			assert.NoError(t, err)
			return n
		}
		var group sync.WaitGroup
		for range 50 {
			group.Go(func() { assert.Equal(t, 1, get()) })
		}
		group.Wait()
		acts.Add(1)
		assert.Equal(t, 2, get(), "something was done")
		for _, read := range []struct{ takes, good time.Duration }{
			{time.Millisecond, minCacheTime}, {20 * time.Millisecond, 4 * time.Second}, {time.Second, maxCacheTime},
		} {
			before := reads
			acts.Add(1)
			took = read.takes
			assert.Equal(t, before+1, get())
			time.Sleep(read.good - read.takes - time.Nanosecond)
			assert.Equal(t, before+1, get(), "%v", read)
			time.Sleep(time.Nanosecond)
			assert.Equal(t, before+2, get(), "it is old")
		}
	})
}

// Callers that come after an action must not share a reading that began before it.
// Failure: F133
func TestSlowReadIsSharedByAllWhoWaitForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCached[int]()
		var acts atomic.Int64
		reads := 0
		get := func() int {
			n, _, err := s.get(t.Context(), &acts, func(context.Context) (int, error) {
				reads++
				time.Sleep(maxCacheTime + time.Second)
				return reads, nil
			})
			assert.NoError(t, err)
			return n
		}
		fifty := func(want int) {
			t.Helper()
			var group sync.WaitGroup
			for range 50 {
				group.Go(func() { assert.Equal(t, want, get()) })
			}
			group.Wait()
		}
		fifty(1)
		fifty(2) // A caller that asks after the action must not get the old result.
		go get()
		synctest.Wait()
		acts.Add(1)
		fifty(4)
		assert.Equal(t, 4, reads)
	})
}

// Failure: F133
func TestWhatWasDoneMeanwhileIsReadAnew(t *testing.T) {
	s := newCached[string]()
	var acts atomic.Int64
	first, _, err := s.get(t.Context(), &acts, func(context.Context) (string, error) {
		acts.Add(1)
		return "before", nil
	})
	require.NoError(t, err)
	require.Equal(t, "before", first)
	second, _, err := s.get(t.Context(), &acts, func(context.Context) (string, error) { return "after", nil })
	require.NoError(t, err)
	require.Equal(t, "after", second)
}

// Failure: F133
func TestWhatFailedIsNotShared(t *testing.T) {
	s := newCached[string]()
	var acts atomic.Int64
	broken := errors.New("broken")
	_, _, err := s.get(t.Context(), &acts, func(context.Context) (string, error) { return "half", broken })
	require.ErrorIs(t, err, broken)
	gone, leave := context.WithCancel(t.Context())
	_, _, err = s.get(gone, &acts, func(context.Context) (string, error) {
		leave()
		return "the database is down", nil
	})
	require.ErrorIs(t, err, context.Canceled)
	_, _, err = s.get(gone, &acts, func(context.Context) (string, error) { return "", errors.New("he has gone") })
	require.Error(t, err)
	whole, _, err := s.get(t.Context(), &acts, func(context.Context) (string, error) { return "whole", nil })
	require.NoError(t, err)
	require.Equal(t, "whole", whole)
}
