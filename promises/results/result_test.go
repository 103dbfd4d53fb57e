package results

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/internal/harness"
)

type Receipt struct {
	Number int    `json:"number"`
	Of     string `json:"of"`
}

func paying(t *testing.T, c *compensator.Compensator, cfg compensator.HandlerConfig[harness.Order], verdict func(e *compensator.Entry, o harness.Order) error) *compensator.ResultType[harness.Order, Receipt] {
	t.Helper()
	pay, err := compensator.HandleResult(t.Context(), c, "pay", func(_ context.Context, e *compensator.Entry, o harness.Order) (Receipt, error) {
		var err error
		if verdict != nil {
			err = verdict(e, o)
		}
		return Receipt{o.Number, e.ID.String()}, err
	}, &cfg)
	require.NoError(t, err)
	return pay
}

func TestResultIsStoredWithItsSuccess(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(cfg)
		pay := paying(t, c, compensator.HandlerConfig[harness.Order]{}, nil)
		w.Run(c)
		id := w.Record(pay.Type, 42, compensator.Options{IdempotencyKey: "pay-42"})
		w.WaitState(id, compensator.Succeeded)
		elsewhere, err := compensator.DeclareResult[harness.Order, Receipt](t.Context(), w.New(cfg), "pay", nil)
		require.NoError(t, err)
		for _, pay := range []*compensator.ResultType[harness.Order, Receipt]{pay, elsewhere} {
			for _, ref := range []compensator.Ref{id, compensator.IdempotencyKey("pay-42")} {
				got, err := pay.Result(t.Context(), ref)
				require.NoError(t, err)
				require.Equal(t, Receipt{42, id.String()}, got)
			}
		}
		require.Equal(t, 1, w.Count("common_process_log_result"))
	})
}

func TestResultSaysWhyThereIsNone(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	pay := paying(t, c, compensator.HandlerConfig[harness.Order]{}, func(_ *compensator.Entry, o harness.Order) error {
		if o.Number == 13 {
			return compensator.Permanent(harness.ErrSoldOut)
		}
		return nil
	})
	other, _ := harness.HandleCounted(t, c, "ship", compensator.HandlerConfig[harness.Order]{}, nil)
	waiting := w.Record(pay.Type, 1, compensator.Options{Delay: time.Hour})
	completed := w.Record(pay.Type, 2, compensator.Options{Delay: time.Hour})
	_, err := c.Complete(t.Context(), completed)
	require.NoError(t, err)
	w.Run(c)
	dead, shipped := w.Record(pay.Type, 13, compensator.Options{}), w.Record(other, 4, compensator.Options{})
	w.WaitState(dead, compensator.Dead)
	w.WaitState(shipped, compensator.Succeeded)

	var state *compensator.StateError
	for id, want := range map[compensator.EntryID]compensator.State{waiting: compensator.Pending, dead: compensator.Dead} {
		_, err := pay.Result(t.Context(), id)
		require.ErrorAs(t, err, &state)
		require.Equal(t, want, state.State)
		require.NotErrorIs(t, err, compensator.ErrAlreadySucceeded)
	}
	_, err = pay.Result(t.Context(), completed)
	require.ErrorIs(t, err, compensator.ErrNoResult)
	var wrong *compensator.OtherTypeError
	_, err = pay.Result(t.Context(), shipped)
	require.ErrorAs(t, err, &wrong)
	for _, ref := range []compensator.Ref{compensator.IdempotencyKey("nobody"), compensator.IdempotencyKey("pay "), compensator.EntryID{}} {
		_, err = pay.Result(t.Context(), ref)
		require.ErrorIs(t, err, compensator.ErrNotFound)
	}
	misread, err := compensator.DeclareResult[harness.Order, []string](t.Context(), w.New(w.QuickConfig()), "pay", nil)
	require.NoError(t, err)
	paid := w.Record(pay.Type, 5, compensator.Options{})
	w.WaitState(paid, compensator.Succeeded)
	_, err = misread.Result(t.Context(), paid)
	require.ErrorContains(t, err, "decode the result of pay entry")
}

func TestSuccessWithoutResultWritesNoResult(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	plain, _ := harness.HandleCounted(t, c, "ship", compensator.HandlerConfig[harness.Order]{}, nil)
	w.Run(c)
	id := w.Record(plain, 1, compensator.Options{})
	w.WaitState(id, compensator.Succeeded)
	require.Zero(t, w.Count("common_process_log_result"))
}

// brokenCodec fails for receipts with the numbers 1 to 3, each in a different way. It encodes a receipt with any other
// number as zero bytes.
type brokenCodec struct{ compensator.Codec }

func (b brokenCodec) Marshal(v any) ([]byte, error) {
	receipt, is := v.(Receipt)
	if !is {
		return b.Codec.Marshal(v)
	}
	switch receipt.Number {
	case 1:
		return nil, errors.New("no words")
	case 2:
		panic("no words at all")
	case 3:
		return bytes.Repeat([]byte("a"), 1025), nil
	}
	return nil, nil
}

func TestResultThatCannotBeStoredIsAFailure(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	cfg := w.QuickConfig()
	cfg.MaxContent = 1024
	c := w.New(cfg)
	pay := paying(t, c, compensator.HandlerConfig[harness.Order]{TypeConfig: compensator.TypeConfig{Codec: brokenCodec{compensator.JSON}}, MaxAttempts: 1}, nil)
	w.Run(c)
	for number, reason := range map[int]string{1: "encode results.Receipt: no words", 2: "panicked: no words at all", 3: "1025 bytes, at most 1024"} {
		id := w.Record(pay.Type, number, compensator.Options{})
		w.WaitState(id, compensator.Dead)
		require.Contains(t, w.Entry(c, id).LastError, reason)
	}
	empty := w.Record(pay.Type, 4, compensator.Options{})
	w.WaitState(empty, compensator.Succeeded)
	require.Equal(t, 1, w.Count("common_process_log_result WHERE LENGTH(result)=0"))
	_, err := pay.Result(t.Context(), empty)
	require.NotErrorIs(t, err, compensator.ErrNoResult)
	require.ErrorContains(t, err, "decode the result", "JSON cannot decode no bytes")
}

// sealed is a SealingCodec that changes each byte, and puts the key of the entry in front of the result.
type sealed struct{ compensator.Codec }

func (sealed) Seal(content []byte, _, key string) ([]byte, error) { return turned(content, key) }

func (sealed) Open(content []byte, _, key string) ([]byte, error) {
	inner, found := bytes.CutPrefix(content, []byte(key))
	if !found {
		return nil, errors.New("of another entry")
	}
	opened, err := turned(inner, "")
	return opened, err
}

func turned(content []byte, key string) ([]byte, error) {
	out := []byte(key)
	for _, b := range content {
		out = append(out, ^b)
	}
	return out, nil
}

// The handler changes the idempotency key and the type in its copy of the entry. The library must seal the result with
// the stored key and type.
func TestResultIsSealedByTheCodecOfItsType(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	pay := paying(t, c, compensator.HandlerConfig[harness.Order]{TypeConfig: compensator.TypeConfig{Codec: sealed{compensator.JSON}}}, func(e *compensator.Entry, _ harness.Order) error {
		e.IdempotencyKey, e.BusinessType = "of the handler", "of the handler"
		return nil
	})
	w.Run(c)
	id := w.Record(pay.Type, 7, compensator.Options{IdempotencyKey: "pay-7"})
	w.WaitState(id, compensator.Succeeded)
	got, err := pay.Result(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, 7, got.Number)
	var stored []byte
	require.NoError(t, w.DB.QueryRow("SELECT result FROM common_process_log_result WHERE entry_id=?", id.Row()).Scan(&stored))
	require.True(t, bytes.HasPrefix(stored, []byte("pay-7")))
	require.NotContains(t, string(stored), "number")
	w.Exec("UPDATE common_process_log_result SET result=CONCAT('x', result)")
	_, err = pay.Result(t.Context(), id)
	require.ErrorContains(t, err, "of another entry")
}

func TestResultGoesWithItsEntry(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	var says atomic.Int64
	pay := paying(t, c, compensator.HandlerConfig[harness.Order]{}, func(*compensator.Entry, harness.Order) error {
		says.Add(1)
		return nil
	})
	w.Run(c)
	erased, purged := w.Record(pay.Type, 1, compensator.Options{}), w.Record(pay.Type, 2, compensator.Options{})
	w.WaitState(erased, compensator.Succeeded)
	w.WaitState(purged, compensator.Succeeded)
	log := admin.Of(c)
	_, err := log.Erase(t.Context(), erased, harness.ByMei)
	require.NoError(t, err)
	_, err = pay.Result(t.Context(), erased)
	require.ErrorIs(t, err, compensator.ErrNoResult)
	require.Equal(t, 1, w.Count("common_process_log_result"))

	require.NoError(t, log.Requeue(t.Context(), purged, admin.RequeueOptions{AuditInfo: harness.ByMei, Delay: time.Hour}))
	_, err = pay.Result(t.Context(), purged)
	var state *compensator.StateError
	require.ErrorAs(t, err, &state, "the new epoch has no result yet")
	require.NoError(t, c.Reschedule(t.Context(), purged, 0))
	w.WaitState(purged, compensator.Succeeded)
	_, err = pay.Result(t.Context(), purged)
	require.NoError(t, err)
	require.EqualValues(t, 3, says.Load())

	w.Exec("UPDATE common_process_log SET next_at=next_at-10000000")
	w.Eventually(func() bool {
		_, err := log.Purge(t.Context(), 2*time.Hour, compensator.Succeeded)
		require.NoError(t, err)
		return w.Count("common_process_log") == 0
	}, "the entries are purged")
	require.Zero(t, w.Count("common_process_log_result"))
}

func TestMiddlewareSeesAResultsHandler(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	pay := paying(t, c, compensator.HandlerConfig[harness.Order]{MaxAttempts: 1, Middleware: []compensator.Middleware{func(next compensator.HandlerFunc) compensator.HandlerFunc {
		return func(ctx context.Context, e *compensator.Entry) error {
			switch e.BusinessID {
			case "answered":
				return nil
			case "replaced":
				e = &compensator.Entry{Content: e.Content}
			case "twice":
				if err := next(ctx, e); err != nil {
					return err
				}
				return errors.New("after the handler")
			}
			return next(ctx, e)
		}
	}}}, nil)
	w.Run(c)
	passed, answered := w.Record(pay.Type, 1, compensator.Options{}), w.Record(pay.Type, 2, compensator.Options{BusinessID: "answered"})
	replaced, failed := w.Record(pay.Type, 3, compensator.Options{BusinessID: "replaced"}), w.Record(pay.Type, 4, compensator.Options{BusinessID: "twice"})
	w.WaitState(passed, compensator.Succeeded)
	w.WaitState(answered, compensator.Succeeded)
	w.WaitState(replaced, compensator.Dead)
	w.WaitState(failed, compensator.Dead)
	_, err := pay.Result(t.Context(), passed)
	require.NoError(t, err)
	_, err = pay.Result(t.Context(), answered)
	require.ErrorIs(t, err, compensator.ErrNoResult)
	require.Contains(t, w.Entry(c, replaced).LastError, "replaced the *Entry")
	require.Equal(t, 1, w.Count("common_process_log_result"), "a failure stores no result")
}

func TestOnlyRevealShowsAResult(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	cfg := w.QuickConfig()
	cfg.Operations = &compensator.Operations{}
	c := w.New(cfg)
	pay := paying(t, c, compensator.HandlerConfig[harness.Order]{}, nil)
	w.Run(c)
	id := w.Record(pay.Type, 11, compensator.Options{})
	w.WaitState(id, compensator.Succeeded)
	allowed := true
	d, err := admin.New(c, admin.Options{Access: admin.AccessFunc(func(_ context.Context, _ admin.Actor, right admin.Right, _ admin.Subject) bool {
		return allowed || right != admin.SeeContent
	})})
	require.NoError(t, err)
	who := admin.Actor{ID: "mei"}
	view, err := d.Entry(t.Context(), who, id)
	require.NoError(t, err)
	assert.Nil(t, view.Entry.Result)
	assert.True(t, view.HasResult)
	assert.Equal(t, len(`{"number":11,"of":"1"}`)+len(id.String())-1, view.ResultSize)
	shown, err := d.Reveal(t.Context(), who, id, admin.Why{Reason: "the customer called"})
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(string(shown.Result), `{"number":11,`), string(shown.Result))
	allowed = false
	_, err = d.Reveal(t.Context(), who, id, admin.Why{Reason: "the customer called"})
	require.ErrorIs(t, err, admin.ErrNotAllowed)
	page, err := d.Entries(t.Context(), who, admin.Filter{})
	require.NoError(t, err)
	require.Len(t, page.Entries, 1)
	assert.Nil(t, page.Entries[0].Result)
}

func TestResultNeedsItsTable(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	w.Exec("DROP TABLE common_process_log_result")
	_, err := compensator.New(t.Context(), w.QuickConfig())
	require.ErrorContains(t, err, "_result`: does not exist")
	require.NoError(t, compensator.Migrate(t.Context(), w.DB))
	_ = w.New(w.QuickConfig())
}
