package stopping

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest/memory"
	"github.com/compensator-go/compensator/processlog"
)

// closable is a store or a queue that must be closed exactly once.
type closable struct{ closed int }

func (c *closable) Close() error { c.closed++; return nil }

type givenStore struct {
	*memory.Store
	*closable
	check error
}

func (s givenStore) Close() error                { return s.closable.Close() }
func (s givenStore) Check(context.Context) error { return s.check }

type givenQueue struct {
	processlog.Queue
	*closable
}

func (q givenQueue) Close() error { return q.closable.Close() }

func TestNewThatFailsClosesWhatItWasGiven(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	given := func(check error) (compensator.Config, *closable, *closable) {
		store, queue := &closable{}, &closable{}
		return compensator.Config{
			Store: givenStore{memory.NewStore(), store, check}, Queue: givenQueue{memory.NewQueue().Client(), queue}, Logger: slog.New(slog.DiscardHandler),
		}, store, queue
	}

	cfg, store, queue := given(broken)
	_, err := compensator.New(t.Context(), cfg)
	require.ErrorIs(t, err, broken)
	require.Equal(t, 1, store.closed)
	require.Equal(t, 1, queue.closed)

	cfg, store, queue = given(nil)
	cfg.Lease = -1
	_, err = compensator.New(t.Context(), cfg)
	require.ErrorContains(t, err, "Lease")
	require.Zero(t, store.closed, "a Config that was refused has given nothing away")
	require.Zero(t, queue.closed)

	cfg, _, queue = given(nil)
	cfg.Store = nil
	cfg.DB, err = sql.Open("mysql", "nobody@tcp(127.0.0.1:1)/nowhere")
	require.NoError(t, err)
	defer cfg.DB.Close()
	_, err = compensator.New(t.Context(), cfg)
	require.Error(t, err)
	require.Equal(t, 1, queue.closed, "no database answers")

	cfg, store, queue = given(nil)
	c, err := compensator.New(t.Context(), cfg)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.Equal(t, 1, store.closed)
	require.Equal(t, 1, queue.closed)
}
