package sim

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// wish is an entry that a producer asks an instance to record.
type wish struct {
	compensator.NewEntry
	on      *instance
	carried string // value that the Propagator must carry to the handler
	done    bool   // whether the recording transaction does the work itself
}

// noteRecordings records entries before the library gets them.
func (o *oracle) noteRecordings(n *instance, noteRecordings ...wish) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, w := range noteRecordings {
		w.on = n
		o.wished[string(w.IdempotencyKey)] = append(o.wished[string(w.IdempotencyKey)], w)
	}
}

// checkRecordedLocked asserts G9 (nothing starts early) and G11 (one entry for each key): for each committed entry, a
// producer asked this instance to record it. Entries of periodic slots are an exception, because the library makes
// them.
func (o *oracle) checkRecordedLocked(row processlog.Row, op *operation) {
	if strings.HasPrefix(string(row.IdempotencyKey), plainType+"@") {
		return
	}
	asked := o.wished[string(row.IdempotencyKey)]
	if !slices.ContainsFunc(asked, func(w wish) bool { return w.on == op.from && w.matches(row) }) {
		o.failLocked("G11: entry %s is recorded as %+v, due after %v, but the producer asked for: %+v", row.ID, row, row.NextAt.Sub(row.CreatedAt), asked)
	}
}

// matches reports whether a new row has all values of the wish.
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
