package running

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/observe"
)

func afterItsSubject(e *compensator.Entry) string { return e.BusinessID }

const unfinished = "SELECT COUNT(*) FROM common_process_log WHERE batch_id=? AND state IN (0,-1,-3)"

func reported(t *testing.T, w *harness.World, c *compensator.Compensator) *compensator.Type[harness.Order] {
	t.Helper()
	report, err := compensator.HandleTx(t.Context(), c, "report", func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, _ harness.Order) error {
		var open int
		if err := w.DB.QueryRowContext(ctx, unfinished, e.BusinessID).Scan(&open); err != nil {
			return err
		}
		assert.Zero(t, open, "entries of %s have not ended", e.BusinessID)
		assert.Zero(t, e.ProcessCount, "to wait costs no attempt")
		_, err := tx.ExecContext(ctx, "INSERT INTO effects (what) VALUES (?)", e.BusinessID)
		return err
	}, &compensator.HandlerConfig[harness.Order]{AfterBatch: afterItsSubject, MaxWait: time.Millisecond}) // MaxWait limits only waits that the handler asks for, not the wait for the batch.
	require.NoError(t, err)
	return report
}

// Failure: F60, F108
func TestFollowUpRunsOnceAllOfItsBatchHaveEnded(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		const uploads, rows = 3, 12
		handler := func(_ context.Context, e *compensator.Entry, o harness.Order) error {
			switch {
			case o.Number == 7:
				return compensator.Permanent(harness.ErrSoldOut)
			case o.Number%3 == 0 && e.ProcessCount == 0:
				return harness.ErrSoldOut
			}
			return nil
		}
		var c *compensator.Compensator
		var types []*compensator.Type[harness.Order]
		for range 2 {
			c = w.New(cfg)
			types = types[:0]
			for _, name := range []string{"row", "picture"} {
				typ, err := compensator.Handle(t.Context(), c, name, handler, &compensator.HandlerConfig[harness.Order]{Retry: compensator.Fixed(300 * time.Millisecond)})
				require.NoError(t, err)
				types = append(types, typ)
			}
			types = append(types, reported(t, w, c))
			w.Run(c)
		}
		for upload := range uploads {
			name := fmt.Sprint("upload-", upload)
			var entries []compensator.NewEntry
			for i := range rows {
				entry := types[i%2].Entry(harness.Order{Number: i}, compensator.Options{BatchID: name})
				entries = append(entries, entry)
			}
			last := types[2].Entry(harness.Order{}, compensator.Options{BusinessID: name, IdempotencyKey: compensator.IdempotencyKey("report-" + name)})
			w.InTx(w.DB, func(tx *sql.Tx) {
				_, err := c.Record(t.Context(), tx, append(entries, last)...)
				require.NoError(t, err)
			})
		}
		for upload := range uploads {
			name := fmt.Sprint("upload-", upload)
			p, err := c.Batch(name).Wait(t.Context())
			require.NoError(t, err)
			require.Equal(t, rows, p.Total)
			require.Equal(t, rows, p.Done)
			require.Equal(t, 1, p.Dead)
			require.Equal(t, rows-1, p.Succeeded)
			require.True(t, p.Finished())
		}
		w.WaitAllEnded()
		require.Equal(t, uploads, w.Count("effects"))
		require.Equal(t, uploads, w.Count("(SELECT DISTINCT what FROM effects) AS e"), "one for each")
	})
}

// Failure: F108
func TestFollowUpOfNothingRunsAndOfItsOwnBatchWaitsForAPerson(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	report := reported(t, w, c)
	w.Run(c)
	w.WaitState(w.Record(report, 0, compensator.Options{BusinessID: "nobody's"}), compensator.Succeeded)
	w.InTx(w.DB, func(tx *sql.Tx) {
		entry := report.Entry(harness.Order{}, compensator.Options{BusinessID: "b", BatchID: "b"})
		_, err := c.Record(t.Context(), tx, entry)
		require.NoError(t, err)
	})
	w.Eventually(func() bool { return w.CountEnded(compensator.Dead, 1) == 1 }, "it would wait for itself")
	require.Equal(t, 1, w.Count("common_process_log WHERE state=-2 AND last_error LIKE '%own batch%'"))
}

// MySQL and MariaDB compare "b " and "b" as equal, and the other stores do not.
// Failure: F15
func TestBatchIDThatEndsWithASpaceIsRefused(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	cfg := w.QuickConfig()
	double := cfg
	double.DB, double.Store = nil, compensatortest.NewMemoryStore()
	for name, cfg := range map[string]compensator.Config{"MariaDB": cfg, "the double": double} {
		c := w.New(cfg)
		report, err := compensator.Handle(t.Context(), c, "report", func(context.Context, *compensator.Entry, harness.Order) error { return nil },
			&compensator.HandlerConfig[harness.Order]{AfterBatch: afterItsSubject})
		require.NoError(t, err)
		put := func(opts compensator.Options) (id compensator.EntryID, err error) {
			err = c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
				receipt, err := report.Record(ctx, tx, harness.Order{}, opts)
				if err == nil {
					id = receipt.ID()
				}
				return err
			})
			return id, err
		}
		refused := func(err error) {
			var field *compensator.FieldError
			require.ErrorAs(t, err, &field, name)
			require.Equal(t, "batch id", field.Field, name)
			require.Contains(t, field.Reason, "ends with a space", name)
		}
		refused(harness.ErrOf(put(compensator.Options{BatchID: "b "})))
		refused(harness.ErrOf(c.Batch("b ").Progress(t.Context())))
		refused(harness.ErrOf(c.Batch("b ").Wait(t.Context())))
		_, err = put(compensator.Options{BatchID: " b"})
		require.NoError(t, err, "in front it is another id: %s", name)
		id, err := put(compensator.Options{BusinessID: "b "})
		require.NoError(t, err, name)
		w.Run(c)
		w.Eventually(func() bool { return w.Entry(c, id).State == compensator.Dead }, name)
		require.Contains(t, w.Entry(c, id).LastError, "ends with a space", name)
	}
}

// The entry waits for the batch "b", and its own batch id is "b ". When the server compares batch ids, it ignores a
// space at the end. So the entry would wait for itself.
// Failure: F15
func TestFollowUpOfABatchThatDiffersFromItsOwnByASpaceWaitsForAPerson(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	report := reported(t, w, c)
	id := w.Record(report, 0, compensator.Options{BusinessID: "b", BatchID: "b"})
	w.Exec("UPDATE common_process_log SET batch_id='b '")
	w.Run(c)
	w.WaitState(id, compensator.Dead)
	require.Contains(t, w.Entry(c, id).LastError, "own batch")
}

// The pool has one connection, which the follow-up's transaction would take.
// Failure: F108
func TestFollowUpLooksBeforeItsTransactionBegins(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	w.DB.SetMaxOpenConns(1)
	c := w.New(w.QuickConfig())
	rows, gate := harness.HandleGated(t, c, "row", compensator.HandlerConfig[harness.Order]{Timeout: harness.Timeout, Lease: 2 * harness.Timeout}, nil)
	report, err := compensator.HandleTx(t.Context(), c, "report", func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, _ harness.Order) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO effects (what) VALUES (?)", e.BusinessID)
		return err
	}, &compensator.HandlerConfig[harness.Order]{AfterBatch: afterItsSubject, MaxWait: time.Millisecond})
	require.NoError(t, err)
	w.Run(c)
	w.WaitState(w.Record(report, 0, compensator.Options{}), compensator.Succeeded) // This entry waits for no batch.
	row := rows.Entry(harness.Order{}, compensator.Options{BatchID: "b"})
	after := report.Entry(harness.Order{}, compensator.Options{BusinessID: "b"})
	w.InTx(w.DB, func(tx *sql.Tx) {
		_, err := c.Record(t.Context(), tx, row, after)
		require.NoError(t, err)
	})
	gate.Await(t)
	w.Eventually(func() bool { return w.Count("common_process_log WHERE business_id='b' AND version>2") == 1 }, "it has looked, and was snoozed")
	gate.Open()
	w.WaitAllEnded()
	require.Equal(t, 2, w.Count("effects"))
}

// Failure: F108
func TestFollowUpIsLateByAPartOfWhatItsBatchTook(t *testing.T) {
	for _, took := range []time.Duration{time.Second, time.Minute, 2 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			store := compensatortest.NewMemoryStore()
			var snoozed atomic.Int64
			c, err := compensator.New(t.Context(), compensator.Config{Store: store, PollInterval: 10 * time.Minute, Observer: observe.Observer{
				AttemptEnded: func(e observe.AttemptEvent) {
					if compensator.VerdictOf(e.Err) == observe.Snooze {
						snoozed.Add(1)
					}
				},
			}})
			require.NoError(t, err)
			began := time.Now()
			_, err = compensator.Handle(t.Context(), c, "row", nothing, nil)
			require.NoError(t, err)
			var mu sync.Mutex
			var late []time.Duration
			_, err = compensator.Handle(t.Context(), c, "report", func(context.Context, *compensator.Entry, harness.Order) error {
				mu.Lock()
				defer mu.Unlock()
				late = append(late, time.Since(began)-took)
				return nil
			}, &compensator.HandlerConfig[harness.Order]{AfterBatch: afterItsSubject, MaxWait: time.Millisecond})
			require.NoError(t, err)
			stop := compensatortest.Run(t, c)
			harness.RecordIn(t, c, store,
				compensator.NewEntry{BusinessType: "row", Content: []byte(`{}`), Options: compensator.Options{BatchID: "b", Delay: took}},
				compensator.NewEntry{BusinessType: "report", Content: []byte(`{}`), Options: compensator.Options{BusinessID: "b"}})
			<-time.After(took + 2*time.Minute)
			stop()
			require.NoError(t, c.Close())
			mu.Lock()
			defer mu.Unlock()
			require.Len(t, late, 1)
			require.GreaterOrEqual(t, late[0], time.Duration(0))
			require.LessOrEqual(t, late[0], min(max(took/7, 600*time.Millisecond), time.Minute+time.Second))
			require.LessOrEqual(t, snoozed.Load(), int64(8+38+took/time.Minute), "it does not ask all the time")
		})
	}
}

// Failure: F108
func TestWaitBatchSaysWhatItCannotWaitFor(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	_, err := c.Batch("").Wait(t.Context())
	var field *compensator.FieldError
	require.ErrorAs(t, err, &field)
	require.Equal(t, "batch id", field.Field)
	_, err = c.Batch("nobody's").Wait(t.Context())
	require.ErrorIs(t, err, compensator.ErrNotFound)

	rows, err := compensator.Declare[harness.Order](t.Context(), c, "row", nil)
	require.NoError(t, err)
	w.Record(rows, 0, compensator.Options{BatchID: "b"})
	lost := errors.New("the caller's timeout")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 200*time.Millisecond, lost)
	defer cancel()
	_, err = c.Batch("b").Wait(ctx)
	require.ErrorIs(t, err, lost)
}

// Failure: F108
func TestWaitBatchWaitsForWhatIsRequeuedMeanwhile(t *testing.T) {
	t.Parallel()
	var healed atomic.Bool
	var rows, sour *compensator.Type[harness.Order]
	var gate, again *harness.Gate
	harness.InBubble(t, func(c *compensator.Compensator) {
		rows, gate = harness.HandleGated(t, c, "held", compensator.HandlerConfig[harness.Order]{Timeout: time.Hour}, nil)
		again = harness.NewGate()
		var err error
		sour, err = compensator.Handle(t.Context(), c, "sour", func(ctx context.Context, e *compensator.Entry, _ harness.Order) error {
			if healed.Load() {
				return again.Pass(ctx, e)
			}
			return compensator.Permanent(harness.ErrSoldOut)
		}, &compensator.HandlerConfig[harness.Order]{Timeout: time.Hour})
		require.NoError(t, err)
	}, func(t *testing.T, c *compensator.Compensator, store *compensatortest.MemoryStore) {
		batch := compensator.Options{BatchID: "b"}
		dead := harness.RecordIn(t, c, store, sour.Entry(harness.Order{}, batch)).ID()
		time.Sleep(time.Second)
		harness.RecordIn(t, c, store, rows.Entry(harness.Order{}, batch), rows.Entry(harness.Order{}, batch))
		type result struct {
			compensator.Progress
			err error
		}
		done := make(chan result, 1)
		go func() {
			p, err := c.Batch("b").Wait(t.Context())
			done <- result{p, err}
		}()
		time.Sleep(time.Minute) // By now Batch.Wait has read the batch and found the first held entry.
		healed.Store(true)
		require.NoError(t, admin.Of(c).Requeue(t.Context(), dead, admin.RequeueOptions{AuditInfo: admin.AuditInfo{Actor: "ops", Reason: "healed"}}))
		gate.Open()
		time.Sleep(time.Minute)
		require.Empty(t, done, "the one in front runs")
		again.Open()
		got := <-done
		require.NoError(t, got.err)
		require.Equal(t, 3, got.Succeeded)
	})
}
