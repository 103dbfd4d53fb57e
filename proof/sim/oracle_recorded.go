package sim

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

type wish struct {
	compensator.NewEntry
	on      *instance
	carried string
	done    bool
}

func (o *oracle) noteRecordings(n *instance, noteRecordings ...wish) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, w := range noteRecordings {
		w.on = n
		o.wished[string(w.IdempotencyKey)] = append(o.wished[string(w.IdempotencyKey)], w)
	}
}

func (o *oracle) checkRecordedLocked(row processlog.Row, op *operation) {
	if strings.HasPrefix(string(row.IdempotencyKey), plainType+"@") {
		return
	}
	asked := o.wished[string(row.IdempotencyKey)]
	if !slices.ContainsFunc(asked, func(w wish) bool { return w.on == op.from && w.matches(row) }) {
		o.failLocked("G11: entry %s is recorded as %+v, due after %v, but the producer asked for: %+v", row.ID, row, row.NextAt.Sub(row.CreatedAt), asked)
	}
}

func (w wish) matches(row processlog.Row) bool {
	in := row.NextAt.Sub(row.CreatedAt)
	var state compensator.State
	var endedBy compensator.EndedBy
	if w.done {
		state, endedBy = compensator.Succeeded, compensator.EndedByComplete
	}
	return row.State == state && row.EndedBy == endedBy &&
		row.BusinessType == w.BusinessType && bytes.Equal(row.Content, w.Content) && row.MaxAttempts == w.MaxAttempts &&
		row.BatchID == w.BatchID && row.BusinessID == w.BusinessID && row.BusinessExtID == w.BusinessExtID &&
		row.UserID == w.UserID && row.UserName == w.UserName && row.Headers["order"] == w.carried &&
		in >= w.Delay && in <= w.Delay+2*time.Millisecond // The store rounds up to whole milliseconds.
}
