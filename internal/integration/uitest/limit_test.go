package uitest

import (
	"context"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/observe"
)

// The limit psp allows one start an hour, so the first entry succeeds and the second waits.
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
	w.problem() // The method problem calls Run, so the entries of the type charge run, too.
	w.until(func() bool {
		all := w.c.Health(w.t.Context()).Limited
		if len(all) > 0 {
			limited = all[0]
		}
		return len(all) > 0 && len(w.entriesOf("charge", compensator.Succeeded)) == 1
	})
	return limited
}

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
		"":                    {"limit psp is used up next start " + next, "限流 psp：配额已用完 下一个条目最早开始于 " + next},
		"entries?type=charge": {"Entries of charge wait for the limit psp · next start " + next, "charge 的条目正被限流（psp） · 下一个条目最早开始于 " + next},
		entry:                 {"The limit psp allows no start now. Starts allowed in 1 h: 1.", "限流 psp 每 1 小时 最多开始执行 1 个条目，配额已用完"},
		"settings":            {"psp 1 start in 1 h · up to 1 at once after a pause charge", "psp 每 1 小时 最多开始执行 1 条 · 空闲后最多同时开始 1 条 charge"},
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

// Failure: F120
func TestLimitIsChangedAndSetBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	w.limits()
	w.allow(func(_ context.Context, a admin.Actor, right admin.Right, _ admin.Subject) bool {
		return a.ID != "bob" || right != admin.ChangeLimit
	})
	alice, bob := w.client("alice"), w.client("bob")
	const button = "do=change&#43;limit&amp;type=psp"
	has(t, alice.get("settings").text, button)
	lacks(t, bob.get("settings").text, button)
	require.Equal(t, 403, bob.get("confirm?do=change+limit&type=psp").status)
	require.Equal(t, 404, alice.get("confirm?do=change+limit&type=none").status)
	form := plain(alice.get("confirm?do=change+limit&type=psp").text)
	has(t, form, "In force: 1 start in 1 h · up to 1 at once after a pause")
	change := func(pairs ...string) []string {
		return append([]string{"do", "change limit", "type", "psp", "reason", "PSP is slow"}, pairs...)
	}
	for _, wrong := range [][]string{{"starts", "x", "per", "second"}, {"starts", "20", "per", "year"}, {"burst", "0"}, {"concurrent", "1001"}, nil} {
		require.Equal(t, 422, alice.post("do", values(change(wrong...)...)).status, "%v", wrong)
	}
	require.Equal(t, 422, alice.post("do", values("do", "change limit", "type", "psp", "burst", "3")).status, "without a reason")
	require.Equal(t, 403, bob.post("do", values(change("burst", "3")...)).status)
	require.Equal(t, 200, alice.post("do", values(change("starts", "20", "per", "second", "burst", "5")...)).status)
	require.Equal(t, 409, alice.post("do", values(change("burst", "7")...)).status, "the limit has another version")
	has(t, plain(bob.get("settings").text), "psp 20 starts in 1 s · up to 5 at once after a pause changed by alice")
	w.until(func() bool { return len(w.entriesOf("charge", compensator.Succeeded)) == 2 })
	form = plain(alice.get("confirm?do=change+limit&type=psp").text)
	has(t, form, "In force: 20 starts in 1 s · up to 5 at once after a pause · set by the program: 1 start in 1 h")
	require.Equal(t, 200, alice.post("do", values("do", "reset limit", "type", "psp", "version", "1", "reason", "PSP is back")).status)
	has(t, plain(bob.get("settings").text), "psp 1 start in 1 h · up to 1 at once after a pause charge")
	has(t, plain(alice.get("trail").text), "changed a limit psp: 20 starts in 1s, burst 5 PSP is slow")
	has(t, plain(alice.get("trail").text), "changed a limit psp: as the program PSP is back")
}

func TestLimitIsChangedInABrowser(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	w.limits()
	b := openTab(t, w, "alice")
	starts := 30
	for _, lang := range []string{"en", "zh-CN"} {
		for _, width := range []int64{360, 1280} {
			starts++
			b.look(lang, "light", width)
			b.open("settings")
			b.requireFit(width, fmt.Sprint(lang, " ", width))
			b.do(chromedp.Click(`a[href*="do=change+limit"]`), b.until(`document.querySelector("#asked").open && document.activeElement.name === "reason"`))
			b.arm()
			b.accessible("dialog", wcag)
			b.requireFit(width, fmt.Sprint(lang, " ", width))
			b.do(chromedp.SetValue(`#asked [name="starts"]`, fmt.Sprint(starts)), chromedp.SetValue(`#asked [name="per"]`, "minute"), chromedp.SendKeys(`#asked [name="reason"]`, "PSP is slow"))
			b.do(chromedp.Click(`#asked button.main`))
			b.arrive(`location.pathname === "/ops/done" && document.querySelector(".answers") !== null`)
			limits, err := w.admin.Limits(t.Context(), admin.Actor{ID: "alice"})
			require.NoError(t, err)
			require.Equal(t, admin.LimitValues{Interval: admin.Interval(int64(starts), time.Minute)}, limits[0].Person)
		}
	}
}
