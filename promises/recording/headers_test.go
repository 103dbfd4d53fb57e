package recording

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/internal/harness"
)

type traced struct{}

func (traced) Inject(context.Context) map[string]string { return map[string]string{"trace": "t1"} }

func (traced) Extract(ctx context.Context, _ map[string]string) context.Context { return ctx }

func TestChosenHeadersTravelWithTheirEntry(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		cfg.Propagator = traced{}
		c := w.New(cfg)
		seen := make(chan map[string]string, 10)
		orders, err := compensator.Handle(t.Context(), c, "close_order", func(_ context.Context, e *compensator.Entry, _ harness.Order) error {
			seen <- e.Headers
			if e.Epoch == 0 {
				return compensator.Permanent(harness.ErrSoldOut)
			}
			return nil
		}, nil)
		require.NoError(t, err)
		w.Run(c)
		chosen := map[string]string{"tenant": "ä<7>", "empty": ""}
		id := w.RecordThrough(cfg.DB, orders, 1, compensator.Options{Headers: chosen})
		want := map[string]string{"tenant": "ä<7>", "empty": "", "trace": "t1"}
		chosen["tenant"] = "changed since"
		assert.Equal(t, want, harness.Receive(t, seen))
		w.WaitState(id, compensator.Dead)
		require.NoError(t, admin.Of(c).Requeue(t.Context(), id, admin.RequeueOptions{AuditInfo: admin.AuditInfo{Actor: "ann", Reason: "again"}}))
		assert.Equal(t, want, harness.Receive(t, seen), "after a requeue")
		w.WaitState(id, compensator.Succeeded)
		e, err := c.Get(t.Context(), id)
		require.NoError(t, err)
		assert.Equal(t, want, e.Headers)
	})
}

func TestHeadersThatCannotBeKeptAreRefused(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	cfg := w.QuickConfig()
	cfg.Propagator = traced{}
	c := w.New(cfg)
	for reason, headers := range map[string]map[string]string{
		`"trace" is set by the propagator`: {"trace": "mine"},
		"at most 2048":                     {"long": strings.Repeat("x", 2040)},
		"want a name":                      {"": "x"},
		"valid UTF-8":                      {"x": "\xff"},
	} {
		err := c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
			_, err := c.Record(ctx, tx, compensator.NewEntry{BusinessType: "close_order", Content: []byte("{}"), Options: compensator.Options{Headers: headers}})
			return err
		})
		var field *compensator.FieldError
		require.ErrorAs(t, err, &field, reason)
		assert.Equal(t, "headers", field.Field)
		assert.ErrorContains(t, err, reason)
	}
	assert.Zero(t, w.Count("common_process_log"))
}
