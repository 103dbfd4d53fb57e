package stopping

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/internal/harness"
)

// Run has returned, and the timeout of its stuck handler has not passed yet.
func TestHealthNamesWhatHangsFromAnEarlierRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := compensatortest.NewMemoryStore()
		c, err := compensator.New(t.Context(), compensator.Config{Store: store, StopTimeout: 3 * time.Second, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		release := make(chan struct{})
		_, err = compensator.Handle(t.Context(), c, "close_order", func(context.Context, *compensator.Entry, harness.Order) error {
			<-release // Ignore the context.
			return errors.New("too late")
		}, &compensator.HandlerConfig[harness.Order]{Timeout: time.Hour})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		harness.RecordLater(t, c, time.Second)
		time.Sleep(10 * time.Second)
		require.Empty(t, c.Health(t.Context()).Stuck, "it is at work")
		cancel()
		var stuck *compensator.StuckError
		require.ErrorAs(t, <-ended, &stuck)
		time.Sleep(time.Minute)
		if hangs := c.Health(t.Context()).Stuck; len(hangs) == 1 {
			require.Equal(t, stuck.Stuck[0].ID, hangs[0].ID)
		} else {
			require.Fail(t, "Health does not name it")
		}
		close(release)
		synctest.Wait()
		require.Empty(t, c.Health(t.Context()).Stuck)
		require.NoError(t, c.Close())
	})
}
