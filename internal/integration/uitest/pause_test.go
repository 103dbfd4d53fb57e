package uitest

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/admin"
)

// Failure: F124
func TestEndOfAPauseIsChangedWithClicks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	w.problem()
	require.NoError(t, w.admin.PauseWith(t.Context(), admin.Actor{ID: "mei"}, "refund", admin.PauseOptions{For: time.Hour}, admin.Why{Reason: "PSP is down"}))
	paused := func() admin.Paused {
		all, err := w.admin.Paused(t.Context(), admin.Actor{ID: "test"})
		require.NoError(t, err)
		require.Len(t, all, 1)
		return all[0]
	}
	before := paused()
	require.Equal(t, time.Hour, before.Until.Sub(before.At))
	b := openTab(t, w, "alice")
	b.look("en", "light", 1280)
	b.open("settings")
	b.do(chromedp.Click(`a[aria-label="Change the end of the pause of refund"]`), b.until(`document.querySelector("#asked").open`))
	b.arm()
	b.accessible("the end of a pause", wcag)
	b.do(chromedp.SetValue(`#asked [name="length"]`, (4*time.Hour).String()), chromedp.SendKeys(`#asked [name="reason"]`, "back at six"), chromedp.Click(`#asked button.main`))
	b.arrive(`document.querySelector("#asked")?.open !== true && document.body.innerText.includes("Done")`)
	b.quiet("a new end")

	after := paused()
	assert.Equal(t, []any{"alice", "back at six", 4 * time.Hour}, []any{after.Actor, after.Reason, after.Until.Sub(after.At)})
	b.open("settings")
	assert.True(t, b.holds(fmt.Sprintf(`[...document.querySelectorAll(".settings time")].some(time => Math.floor(Date.parse(time.dateTime) / 1000) === %d)`, after.Until.Unix())), "the page shows the new end")
	assert.False(t, b.holds(fmt.Sprintf(`[...document.querySelectorAll(".settings time")].some(time => Math.floor(Date.parse(time.dateTime) / 1000) === %d)`, before.Until.Unix())))
	b.quiet("settings")

	log, err := w.admin.AuditLog(t.Context(), admin.Actor{ID: "test"}, admin.AuditLogFilter{Action: "change pause"})
	require.NoError(t, err)
	require.Len(t, log.Records, 1)
	newest := log.Records[0]
	assert.Equal(t, []string{"alice", "refund", "for 4h0m0s", "back at six"}, []string{newest.Actor, newest.BusinessType, newest.Subject, newest.Reason})
	b.open("trail?action=change+pause")
	assert.True(t, b.holds(`document.querySelector(".trail li").innerText.includes("back at six") && document.querySelector(".trail li").innerText.includes("alice")`))
}
