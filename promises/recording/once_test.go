package recording

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
)

var errSpoilt = errors.New("spoilt")

func inbox(t *testing.T, c *compensator.Compensator, cfg compensator.TypeConfig) *compensator.Type[harness.Order] {
	t.Helper()
	messages, err := compensator.Declare[harness.Order](t.Context(), c, "inbox", &cfg)
	require.NoError(t, err)
	return messages
}

func consume(ctx context.Context, db *sql.DB, messages *compensator.Type[harness.Order], id string, fails error) (first bool, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }()
	if first, err = messages.Once(ctx, tx, compensator.IdempotencyKey(id), harness.Order{}); err != nil || !first {
		return first, err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO effects (what) VALUES (?)", id); err != nil {
		return first, err
	}
	if fails != nil {
		return first, fails
	}
	return first, tx.Commit()
}

// Failure: F94
func TestMessageIsDoneOnceHoweverOftenItComesAtOnce(t *testing.T) {
	t.Parallel()
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		cfg := w.QuickConfig()
		cfg.DB = db
		messages := inbox(t, w.New(cfg), compensator.TypeConfig{})
		const n = 20
		var consumers sync.WaitGroup
		for delivery := range 6 {
			for i := range n {
				consumers.Go(func() {
					fails := error(nil)
					if delivery < 2 {
						fails = errSpoilt
					}
					for { // Deliver the message until the broker gets its acknowledgement.
						switch _, err := consume(t.Context(), db, messages, fmt.Sprint("message ", i), fails); {
						case err == nil:
							return
						case !errors.Is(err, errSpoilt) && !errors.Is(err, compensator.ErrTxAborted):
							assert.NoError(t, err)
							return
						}
						fails = nil
					}
				})
			}
		}
		consumers.Wait()
		require.Equal(t, n, w.Count("effects"))
		require.Equal(t, n, w.Count("(SELECT DISTINCT what FROM effects) AS done"))
		require.Equal(t, n, w.Count("common_process_log WHERE state=1 AND ended_by='complete' AND version=0 AND process_count=0"))
	})
}

// The method Once records an entry that has already succeeded, so no handler runs for it.
// Failure: F94
func TestWorkThatIsDoneWhereItIsRecordedNeverRuns(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(cfg)
		one := func(*compensator.Entry) string { return "one" }
		messages, ran := harness.HandleCounted(t, c, "inbox", compensator.HandlerConfig[harness.Order]{TypeConfig: compensator.TypeConfig{Serial: one}}, nil)
		w.Run(c)
		for i := range 10 {
			first, err := consume(t.Context(), cfg.DB, messages, fmt.Sprint(i), nil)
			require.NoError(t, err)
			require.True(t, first)
		}
		require.Zero(t, w.Count("common_process_log_turns"))
		last := w.RecordThrough(cfg.DB, messages, 1, compensator.Options{}) // This entry comes after the entries of Once in its ordering key.
		w.WaitState(last, compensator.Succeeded)
		require.Equal(t, 1, ran.Total())
		require.Equal(t, 1, ran.Of(last))
		require.Equal(t, 10, w.Count("common_process_log WHERE state=1 AND ended_by='complete' AND version=0 AND lease_until=0"))
		require.Empty(t, c.Health(t.Context()).Overdue)
	})
}

// Failure: F94
func TestOnceCompletesWhatIsOpenAndRefusesWhatEndedOtherwise(t *testing.T) {
	t.Parallel()
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		cfg := w.QuickConfig()
		cfg.DB = db
		c := w.New(cfg)
		messages := inbox(t, c, compensator.TypeConfig{})
		for name, was := range map[string]struct {
			set     string // new values of columns of the existing row
			first   bool
			refused bool
		}{
			"pending":                          {"state=0", true, false},
			"retrying":                         {"state=-1, process_count=1", true, false},
			"dead":                             {"state=-2, ended_by='exhausted'", true, false},
			"dead, its compensation has begun": {"state=-2, ended_by='exhausted', compensate_count=1", false, true},
			"compensating":                     {"state=-3", false, true},
			"compensated":                      {"state=2, ended_by='handler'", false, true},
			"cancelled":                        {"state=3, ended_by='cancel'", false, true},
			"settled by hand":                  {"state=4, ended_by='person'", false, true},
			"succeeded":                        {"state=1, ended_by='handler'", false, false},
		} {
			id := w.RecordThrough(db, messages, 1, compensator.Options{IdempotencyKey: compensator.IdempotencyKey(name)})
			w.Exec("UPDATE common_process_log SET "+was.set+" WHERE id=?", id.Row())
			stored := w.Row(id)
			first, err := consume(t.Context(), db, messages, name, nil)
			require.Equal(t, was.first, first, name)
			if was.refused {
				require.ErrorAs(t, err, new(*compensator.StateError), name)
			} else {
				require.NoError(t, err, name)
			}
			require.Equal(t, was.first, w.Count("effects WHERE what=?", name) == 1, name)
			require.Equal(t, was.first, w.State(id) == compensator.Succeeded && w.Row(id) != stored, name)
			first, err = consume(t.Context(), db, messages, name, nil)
			require.False(t, first, "%s, again", name)
			require.Equal(t, was.refused, err != nil, name)
		}
		_, err := c.Cancel(t.Context(), compensator.IdempotencyKey("pending"))
		require.ErrorAs(t, err, new(*compensator.StateError), "it is done")
		w.RecordThrough(db, got(t)(compensator.Declare[harness.Order](t.Context(), c, "other", nil)), 1, compensator.Options{IdempotencyKey: "other's"})
		_, err = consume(t.Context(), db, messages, "other's", nil)
		require.ErrorAs(t, err, new(*compensator.OtherTypeError))
	})
}

func got(t *testing.T) func(*compensator.Type[harness.Order], error) *compensator.Type[harness.Order] {
	return func(typ *compensator.Type[harness.Order], err error) *compensator.Type[harness.Order] {
		require.NoError(t, err)
		return typ
	}
}

// Failure: F94
func TestOnceWithNoIDRefusesItsTransaction(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	messages := inbox(t, c, compensator.TypeConfig{})
	err := c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
		_, err := messages.Once(ctx, tx, "", harness.Order{})
		require.ErrorAs(t, err, new(*compensator.FieldError))
		w.WriteEffect(tx, "swallowed")
		return nil
	})
	require.ErrorIs(t, err, compensator.ErrNotRecorded)
	require.Zero(t, w.Count("effects"))
}

// On MySQL, a plain pool lacks @@in_transaction, so it needs one more statement to check whether a transaction is open.
func TestOnceCostsOneStatementAndARepetitionTwoMore(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	messages := inbox(t, w.New(w.QuickConfig()), compensator.TypeConfig{})
	asked := func(tx *sql.Tx) (n int) {
		var name string
		require.NoError(t, tx.QueryRow("SHOW SESSION STATUS LIKE 'Questions'").Scan(&name, &n))
		return n
	}
	for _, want := range []struct {
		first bool
		sent  int
	}{{true, 1}, {false, 3}} {
		w.InTx(w.DB, func(tx *sql.Tx) {
			before := asked(tx)
			first, err := messages.Once(t.Context(), tx, "message", harness.Order{})
			require.NoError(t, err)
			require.Equal(t, want.first, first)
			require.Equal(t, want.sent, asked(tx)-before-1)
		})
	}
}
