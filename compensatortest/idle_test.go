package compensatortest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
)

func greeter(t *testing.T, handler func(e *compensator.Entry) error) (*compensator.Compensator, *compensator.Type[string]) {
	c, err := compensator.New(t.Context(), compensator.Config{Store: compensatortest.NewMemoryStore()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	greet, err := compensator.Handle(t.Context(), c, "greet", func(_ context.Context, e *compensator.Entry, _ string) error { return handler(e) }, nil)
	require.NoError(t, err)
	return c, greet
}

func record(t *testing.T, c *compensator.Compensator, typ *compensator.Type[string], opts compensator.Options) {
	require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
		_, err := typ.Record(ctx, tx, "Ann", opts)
		return err
	}))
}

func TestWaitIdleWaitsForWhatIsDueAndForNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, greet := greeter(t, func(*compensator.Entry) error { <-time.After(10 * time.Second); return nil })
		record(t, c, greet, compensator.Options{})
		record(t, c, greet, compensator.Options{Delay: time.Hour})
		stop := compensatortest.Run(t, c)
		compensatortest.WaitIdle(t, c)
		entries := compensatortest.RequireRecorded(t, c, "greet", 2)
		assert.Equal(t, compensator.Succeeded, entries[0].State)
		assert.Equal(t, compensator.Pending, entries[1].State)

		began := time.Now()
		compensatortest.Elapse(t, c, time.Hour)
		compensatortest.WaitIdle(t, c)
		assert.Equal(t, compensator.Succeeded, compensatortest.RequireRecorded(t, c, "greet", 2)[1].State)
		assert.Less(t, time.Since(began), time.Minute, "by the bubble's clock")
		stop()
		require.NoError(t, c.Close())
	})
}

type failing struct {
	testing.TB
	messages string
}

func (f *failing) Errorf(format string, args ...any) { f.messages += fmt.Sprintf(format, args...) }
func (f *failing) FailNow()                          { runtime.Goexit() }
func (f *failing) Helper()                           {}

func failureOf(t *testing.T, test func(tb testing.TB)) string {
	f, done := &failing{TB: t}, make(chan struct{})
	go func() {
		defer close(done)
		test(f)
	}()
	<-done
	return f.messages
}

func TestWaitIdleTellsWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, greet := greeter(t, func(*compensator.Entry) error { return nil })
		record(t, c, greet, compensator.Options{}) // No process runs it.
		told := failureOf(t, func(tb testing.TB) { compensatortest.WaitIdle(tb, c) })
		assert.Contains(t, told, "greet "+compensatortest.RequireRecorded(t, c, "greet", 1)[0].ID.String())
		assert.Contains(t, told, "pending")
		require.NoError(t, c.Close())
	})
}

func TestAttemptRunsOneEntryAndNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var attempts []int
		c, greet := greeter(t, func(e *compensator.Entry) error {
			attempts = append(attempts, e.Attempt())
			return errors.New("nobody is there")
		})
		record(t, c, greet, compensator.Options{IdempotencyKey: "other"})
		entry := compensatortest.Call(t, c, greet, "Ann", compensator.Options{MaxAttempts: 2})
		assert.Equal(t, compensator.Retrying, entry.State)
		assert.Equal(t, "nobody is there", entry.LastError)
		assert.Contains(t, failureOf(t, func(tb testing.TB) { compensatortest.Attempt(tb, c, entry.ID) }), "due in")

		compensatortest.Elapse(t, c, time.Hour)
		entry = compensatortest.Attempt(t, c, entry.ID)
		assert.Equal(t, compensator.Dead, entry.State)
		assert.Equal(t, []int{1, 2}, attempts)
		assert.Contains(t, failureOf(t, func(tb testing.TB) { compensatortest.Attempt(tb, c, entry.ID) }), "dead")
		other, err := c.Get(t.Context(), compensator.IdempotencyKey("other"))
		require.NoError(t, err)
		assert.Equal(t, compensator.Pending, other.State)

		stop := compensatortest.Run(t, c)
		synctest.Wait()
		assert.Contains(t, failureOf(t, func(tb testing.TB) { compensatortest.Attempt(tb, c, other.ID) }), compensator.ErrRunning.Error())
		stop()
		require.NoError(t, c.Close())
	})
}

func TestWhatAnAttemptRecordsWaitsForARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c *compensator.Compensator
		var greet *compensator.Type[string]
		var ran int
		c, greet = greeter(t, func(e *compensator.Entry) error {
			if ran++; ran == 1 {
				record(t, c, greet, compensator.Options{})
				// A Run would start the recorded entry within this second. The clock is fake, so the second takes no
				// real time.
				<-time.After(time.Second)
			}
			return nil
		})
		compensatortest.Call(t, c, greet, "Ann", compensator.Options{})
		assert.Equal(t, 1, ran)
		compensatortest.RequireRecorded(t, c, "greet", 2)
		stop := compensatortest.Run(t, c)
		compensatortest.WaitIdle(t, c)
		assert.Equal(t, 2, ran)
		stop()
		require.NoError(t, c.Close())
	})
}
