package observe

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

func withProblems() Health {
	since := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	return Health{
		Database: errors.New("no route"), Queue: errors.New("refused"), History: processlog.ErrHistoryLost,
		Handlers: 2, Running: true,
		OldestOverdue: 90 * time.Second, OldestOverdueType: "refund", Overdue: map[string]time.Duration{"refund": 90 * time.Second, "mail": 500 * time.Millisecond},
		UnknownTypes: []string{"mail"}, Stuck: []processlog.StuckAttempt{{ID: processlog.RowID(7), BusinessType: "refund", Running: time.Minute}},
		OpenBreakers: []OpenBreaker{{BusinessType: "refund", Since: since, ProbeAt: since.Add(time.Minute), Probes: 2, Err: errors.New("no route")}},
		Limited: []LimitedType{{BusinessType: "charge", Limit: "psp", Waiting: 12, NextAt: since.Add(2 * time.Second)},
			{BusinessType: "refund", Limit: "refund", Waiting: 3}},
		Paused:   []PausedType{{BusinessType: "mail"}, {BusinessType: "refund", EndsAt: since.Add(time.Hour)}},
		Problems: []Problem{{What: "outcomes could not be stored", BusinessType: "refund", Error: "disk full", Since: since, Times: 3}},
	}
}

func TestHealthIsToldWhole(t *testing.T) {
	assert.Equal(t, "not ready: database: no route; history: compensator: the database has gone back; queue: refused; "+
		"breaker open (refund): no route, since 2026-03-01T09:00:00Z, 2 probes failed, next from 2026-03-01T09:01:00Z; "+
		`limited (charge): 12 entries held up by the limit "psp", the next starts not before 2026-03-01T09:00:02Z; limited (refund): 3 entries held up by the limit "refund", the next starts when a running entry ends; `+
		"paused (mail); paused (refund): until 2026-03-01T10:00:00Z; "+
		"outcomes could not be stored (refund): disk full, 3 times since 2026-03-01T09:00:00Z; "+
		"stuck: refund 7 (1m0s); no handler here for mail; oldest overdue 1m30s (refund)", withProblems().String())
	assert.Equal(t, "ready; oldest overdue 0s", Health{}.String())
	assert.Equal(t, "not ready: history: compensator: the database has gone back: it has lost what it had of 0 entries remembered here: ; oldest overdue 0s",
		Health{History: &processlog.LossError{Stopped: true}}.String())
}

func TestHealthIsMarshalledWhole(t *testing.T) {
	got, err := json.Marshal(withProblems())
	require.NoError(t, err)
	assert.JSONEq(t, `{"ready": false, "not_ready": "database: no route", "database": "no route", "queue": "refused",
		"history": "compensator: the database has gone back", "handlers": 2, "running": true,
		"oldest_overdue_seconds": 90, "oldest_overdue_type": "refund", "overdue_seconds": {"refund": 90, "mail": 0.5},
		"unknown_types": ["mail"], "stuck": [{"id": "7", "type": "refund", "running_seconds": 60}],
		"open_breakers": [{"type": "refund", "error": "no route", "since": "2026-03-01T09:00:00Z", "failed_probes": 2, "probe_at": "2026-03-01T09:01:00Z"}],
		"limited": [{"type": "charge", "limit": "psp", "waiting": 12, "next_at": "2026-03-01T09:00:02Z"}, {"type": "refund", "limit": "refund", "waiting": 3}],
		"paused": [{"type": "mail"}, {"type": "refund", "ends_at": "2026-03-01T10:00:00Z"}],
		"troubles": [{"what": "outcomes could not be stored", "type": "refund", "error": "disk full", "since": "2026-03-01T09:00:00Z", "times": 3}]}`, string(got))
	got, err = json.Marshal(Health{})
	require.NoError(t, err)
	assert.JSONEq(t, `{"ready": true, "handlers": 0, "running": false, "oldest_overdue_seconds": 0}`, string(got))
}
