package uitest

import (
	"context"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/observe"
)

// limits registers the type charge with the limit psp of one start an hour, and records two entries. It waits until the second one
// waits for the limit.
func (w *world) limits() (limited observe.LimitedType) {
	w.t.Helper()
	typ, err := compensator.Handle(w.t.Context(), w.c, "charge", func(context.Context, *compensator.Entry, string) error { return nil },
		&compensator.HandlerConfig[string]{TypeConfig: compensator.TypeConfig{Limit: compensator.Limit{Rate: compensator.Rate{Starts: 1, Per: time.Hour}, Of: "psp"}}})
	require.NoError(w.t, err)
	require.NoError(w.t, w.c.InTx(w.t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
		for _, key := range []compensator.IdempotencyKey{"c1", "c2"} {
			if _, err := typ.Record(ctx, tx, "", compensator.Options{IdempotencyKey: key}); err != nil {
				return err
			}
		}
		return nil
	}))
	w.problem() // runs the log
	w.until(func() bool {
		all := w.c.Health(w.t.Context()).Limited
		if len(all) > 0 {
			limited = all[0]
		}
		return len(all) > 0 && len(w.entriesOf("charge", compensator.Succeeded)) == 1
	})
	return limited
}

// A limit holds entries up. A reader with the right sees which limit, and when the next entry starts.
func TestLimitThatIsUsedUpIsToldBesideItsType(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	limited := w.limits()
	w.allow(func(_ context.Context, a admin.Actor, _ admin.Right, on admin.Subject) bool {
		return a.ID != "half" || on.Type != "charge"
	})
	next := limited.NextAt.UTC().Format("2006-01-02 15:04")
	page := func(who, path, lang string) string {
		return plain(w.client(who).get(path, "Accept-Language", lang).text)
	}
	waiting := w.entriesOf("charge", compensator.Pending)[0]
	entry := "entries/" + waiting.ID.String()
	for path, of := range map[string]struct{ en, zh string }{
		"":                    {"limit psp is used up next start " + next, "额度 psp 已用完 下一次启动 " + next},
		"entries?type=charge": {"Entries of charge wait for the limit psp · next start " + next, "charge 的条目在等待额度 psp · 下一次启动 " + next},
		entry:                 {"The limit psp allows 1 starts in 1 h, and none is left now.", "额度 psp 每 1 小时 允许启动 1 次，现已用完"},
		"settings":            {"psp 1 starts in 1 h · up to 1 at once after a pause charge", "psp 每 1 小时 启动 1 次 · 空闲后最多连续 1 次 charge"},
	} {
		has(t, page("alice", path, "en"), of.en)
		has(t, page("alice", path, "zh-CN"), of.zh)
	}
	for _, path := range []string{"", "entries", "settings"} {
		lacks(t, page("half", path, "en"), "charge")
	}
	row := regexp.MustCompile(`(?s)<tr[^>]*>\s*<th[^>]*><a[^>]*><bdi>charge</bdi>.*?</tr>`).FindString(w.client("alice").get("").text)
	require.NotEmpty(t, row)
	lacks(t, row, "on time")
}
