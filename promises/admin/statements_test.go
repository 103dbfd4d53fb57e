package admin

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/harness"
)

func TestPageOfAnEndedEntryCostsAtMostSevenStatements(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(operated(w.QuickConfig()))
	refunds, _ := harness.HandleCounted(t, c, "refund", compensator.HandlerConfig[harness.Order]{MaxAttempts: 1}, func(e *compensator.Entry, _ int) error {
		var o harness.Order
		if err := e.Decode(&o); err != nil || o.Number == 1 {
			return err
		}
		return errors.New("status 503")
	})
	proxy, db := w.OpenProxied(true)
	cfg := operated(w.QuickConfig())
	cfg.DB = db
	d := open(t, w.New(cfg)) // This Compensator does not run, so only the Admin sends statements.
	for state, number := range map[compensator.State]int{compensator.Succeeded: 1, compensator.Dead: 2} {
		e := compensatortest.Call(t, c, refunds, harness.Order{Number: number}, compensator.Options{})
		require.Equal(t, state, e.State)
		_, err := d.AuditLog(t.Context(), mei, admin.AuditLogFilter{}) // Now the Admin knows the types, and keeps them for five seconds.
		require.NoError(t, err)
		var mu sync.Mutex
		var sent []string
		proxy.Arm(faultproxy.Rule{Fault: faultproxy.Count, Match: func(r faultproxy.Request) bool {
			if strings.Contains(r.Text, "common_process_log") {
				mu.Lock()
				defer mu.Unlock()
				sent = append(sent, r.Text)
			}
			return false
		}})
		view, explanation, err := d.ExplainedEntry(t.Context(), mei, e.ID)
		require.NoError(t, err)
		proxy.Heal()
		require.Equal(t, state, view.Entry.State)
		require.NotEmpty(t, explanation.Reasons)
		mu.Lock()
		require.NotEmpty(t, sent)
		require.LessOrEqual(t, len(sent), 7, "%s: %s", state, strings.Join(sent, "\n"))
		t.Logf("%s: %d statements", state, len(sent))
		mu.Unlock()
	}
}
