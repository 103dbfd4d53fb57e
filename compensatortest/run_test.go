package compensatortest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/compensatortest"
)

func lineUp(t *testing.T, cfg compensator.HandlerConfig[string], handler func(name string) error) (*compensator.Compensator, *compensator.Type[string], *[]string) {
	c := newLog(t)
	ran := new([]string)
	typ, err := compensator.Handle(t.Context(), c, "book", func(_ context.Context, _ *compensator.Entry, name string) error {
		*ran = append(*ran, name)
		return handler(name)
	}, &cfg)
	require.NoError(t, err)
	return c, typ, ran
}

func byUser(e *compensator.Entry) string { return e.UserID }

func TestAttemptLeavesABlockedEntryAlone(t *testing.T) {
	t.Parallel()
	c, book, ran := lineUp(t, compensator.HandlerConfig[string]{TypeConfig: compensator.TypeConfig{Serial: byUser}}, func(string) error { return nil })
	first, second := compensator.IdempotencyKey("first"), compensator.IdempotencyKey("second")
	record(t, c, book, compensator.Options{IdempotencyKey: "first", UserID: "ann"})
	record(t, c, book, compensator.Options{IdempotencyKey: "second", UserID: "ann"})
	before, err := c.Get(t.Context(), second)
	require.NoError(t, err)
	for range 2 { // A second call of stop changes nothing.
		told := failureOf(t, func(tb testing.TB) { compensatortest.Attempt(tb, c, second) })
		for _, word := range []string{"in front", `"first"`, `"ann"`, "pending"} {
			require.Contains(t, told, word)
		}
	}
	after, err := c.Get(t.Context(), second)
	require.NoError(t, err)
	require.Equal(t, before.Version, after.Version)
	require.Empty(t, *ran)

	assert.Contains(t, failureOf(t, func(tb testing.TB) {
		compensatortest.Call(tb, c, book, "third", compensator.Options{UserID: "ann"})
	}), `"first"`)
	require.Empty(t, *ran)
	require.Equal(t, compensator.Succeeded, compensatortest.Call(t, c, book, "Bob", compensator.Options{UserID: "bob"}).State, "another key's")
	require.Equal(t, compensator.Succeeded, compensatortest.Attempt(t, c, first).State)
	require.Equal(t, compensator.Succeeded, compensatortest.Attempt(t, c, second).State)
	require.Equal(t, []string{"Bob", "Ann", "Ann"}, *ran)
}

func TestAttemptOfWhatIsNotNotedUnderItsKeyRuns(t *testing.T) {
	t.Parallel()
	fails := true
	c, book, ran := lineUp(t, compensator.HandlerConfig[string]{TypeConfig: compensator.TypeConfig{Serial: byUser}}, func(string) error {
		if fails {
			return compensator.Permanent(errors.New("no such account"))
		}
		return nil
	})
	dead := compensatortest.Call(t, c, book, "dead", compensator.Options{UserID: "ann"})
	require.Equal(t, compensator.Dead, dead.State)
	assert.Contains(t, failureOf(t, func(tb testing.TB) {
		compensatortest.Call(tb, c, book, "behind", compensator.Options{UserID: "ann"})
	}), "dead", "a dead entry keeps its position")
	fails = false
	require.NoError(t, admin.Of(c).Requeue(t.Context(), dead.ID, admin.RequeueOptions{AuditInfo: admin.AuditInfo{Actor: "ann", Reason: "the account is there"}}))
	require.Equal(t, compensator.Succeeded, compensatortest.Attempt(t, c, dead.ID).State, "the entry runs in a new epoch")
	require.Equal(t, []string{"dead", "dead"}, *ran)
}

func TestAttemptTellsOfASerialThatPanics(t *testing.T) {
	t.Parallel()
	panics := false
	c, book, ran := lineUp(t, compensator.HandlerConfig[string]{TypeConfig: compensator.TypeConfig{Serial: func(e *compensator.Entry) string {
		if panics {
			panic("no user")
		}
		return e.UserID
	}}}, func(string) error { return nil })
	record(t, c, book, compensator.Options{IdempotencyKey: "one", UserID: "ann"})
	panics = true
	entry := compensatortest.Attempt(t, c, compensator.IdempotencyKey("one"))
	require.Equal(t, compensator.Pending, entry.State)
	require.Contains(t, entry.LastError, "no user")
	require.Empty(t, *ran)
}
