package compensatortest_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
)

func TestServiceCodeCanBeTestedWithoutServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := compensatortest.NewMemoryStore()
		c, err := compensator.New(t.Context(), compensator.Config{Store: store})
		require.NoError(t, err)
		var greeted []string
		greet, err := compensator.Handle(t.Context(), c, "greet", func(_ context.Context, _ *compensator.Entry, name string) error {
			greeted = append(greeted, name)
			return nil
		}, nil)
		require.NoError(t, err)

		tx, err := store.BeginTx(t.Context())
		require.NoError(t, err)
		receipt, err := greet.Record(t.Context(), tx, "Ann", compensator.Options{})
		require.NoError(t, err)
		compensatortest.RequireRecorded(t, c, "greet", 0)
		require.NoError(t, tx.Commit())
		receipt.Committed()
		compensatortest.RequireRecorded(t, c, "greet", 1)

		stop := compensatortest.Run(t, c)
		synctest.Wait()
		require.Equal(t, []string{"Ann"}, greeted)
		require.Equal(t, compensator.Succeeded, compensatortest.RequireRecorded(t, c, "greet", 1)[0].State)
		stop()
		require.NoError(t, c.Close())
	})
}

func TestMemoryStoreRunsInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := compensatortest.NewMemoryStore()
		c, err := compensator.New(t.Context(), compensator.Config{Store: store})
		require.NoError(t, err)
		require.NoError(t, c.Close())
	})
}
