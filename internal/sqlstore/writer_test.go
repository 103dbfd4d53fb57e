package sqlstore

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type waitOrder struct {
	w     writer
	order []string
}

func (l *waitOrder) wait(t *testing.T, name string, urgent bool) {
	go func() {
		release, err := l.w.take(t.Context(), urgent, time.Hour)
		assert.NoError(t, err)
		l.order = append(l.order, name) // Only the holder of the turn runs this, so it needs no lock.
		time.Sleep(time.Second)
		release()
	}()
	synctest.Wait()
}

func TestWritersComeInOrderAndOutcomesGoFirstButNotTwiceInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l waitOrder
		for _, name := range []string{"a", "b", "c"} {
			l.wait(t, name, false)
		}
		for _, name := range []string{"settle 1", "settle 2", "settle 3"} {
			l.wait(t, name, true)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, []string{"a", "settle 1", "b", "settle 2", "c", "settle 3"}, l.order)
		release, err := l.w.take(t.Context(), false, 0)
		require.NoError(t, err, "no waiter has the turn any more")
		release()
	})
}

func TestNobodyWaitsForTheWriterLongerThanForALock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w writer
		release, err := w.take(t.Context(), false, time.Hour)
		require.NoError(t, err)
		startedAt := time.Now()
		without, err := w.take(t.Context(), true, 5*time.Second)
		require.NoError(t, err, "SQLite is asked all the same")
		require.Equal(t, 5*time.Second, time.Since(startedAt))
		// The second call of take got no turn. So the function that it returned must not end the turn of the first
		// call.
		without()
		require.True(t, w.isTaken)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = w.take(ctx, false, time.Hour)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Empty(t, w.otherWaiters)
		require.Empty(t, w.urgentWaiters)
		release()
		release() // a second release, as by a Rollback after a Commit
		require.False(t, w.isTaken)
	})
}

// The turn ends at the moment at which the next waiter gives up.
func TestWritersPlaceIsNotLostWhereItComesAsSomebodyGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 200 {
			var w writer
			release, err := w.take(t.Context(), false, time.Hour)
			require.NoError(t, err)
			time.AfterFunc(time.Second, release)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if other, err := w.take(ctx, false, time.Hour); err == nil {
				other()
			}
			cancel()
			synctest.Wait()
			require.False(t, w.isTaken)
		}
	})
}

// A transaction that waits inside SQLite polls the lock. Its first pauses between two polls are at most 25 ms. So a
// poll meets a free file if the writer at times leaves the file free for 25 ms.
func TestWriterIsFreeNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w writer
		var free []time.Duration // pauses between two turns
		ended := time.Now()
		for range 100 {
			release, err := w.take(t.Context(), false, time.Hour)
			require.NoError(t, err)
			if between := time.Since(ended); between > 0 {
				free = append(free, between)
			}
			time.Sleep(10 * time.Millisecond)
			ended = time.Now()
			release()
		}
		require.Len(t, free, 9, "of 1,000 ms in use")
		for _, between := range free {
			require.Equal(t, breath, between)
		}
		time.Sleep(breath) // The pauses between the turns already leave the writer free for long enough.
		startedAt := time.Now()
		_, err := w.take(t.Context(), false, time.Hour)
		require.NoError(t, err)
		require.Equal(t, startedAt, time.Now())
	})
}

func TestStoresOfOneFileShareItsWriter(t *testing.T) {
	a, b, other, memory := openWriter("/a.db"), openWriter("/a.db"), openWriter("/b.db"), openWriter("")
	assert.Same(t, a, b)
	assert.NotSame(t, a, other)
	assert.NotSame(t, memory, openWriter(""))
	for _, w := range []*writer{a, other, memory} {
		w.close()
	}
	assert.Same(t, b, openWriter("/a.db"), "one store still has it open")
	b.close()
	b.close()
	assert.NotSame(t, b, openWriter("/a.db"))
}
