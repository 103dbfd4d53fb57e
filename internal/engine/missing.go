package engine

import (
	"context"
	"errors"

	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// The constants name the likely causes of an entry that is missing although its transaction was reported as committed.
// The reader of the log has no other trace.
const (
	missingUnwatched = "the server rolled its transaction back and the error was swallowed (a deadlock, say), Committed was called without a commit, " +
		"it was rolled back to a savepoint, or somebody has deleted it"
	missingWatched = "it was rolled back to a savepoint, or somebody has deleted it"
)

// missing reports entries that were reported as committed but do not exist.
type missing struct{ *Base }

// report checks again for entries that were reported as committed and not found. The first read may have used an old
// snapshot, or the event may have been recorded again. It reports an entry only if no entry with its idempotency key
// exists.
func (m *missing) report(unfound []freshEntry) {
	if len(unfound) == 0 {
		return
	}
	keys := make([]processlog.IdempotencyKey, len(unfound))
	for i, f := range unfound {
		keys[i] = f.key
	}
	ctx, cancel := m.Statement()
	defer cancel()
	ids, err := m.idsNow(ctx, keys)
	m.Saw(ProblemReadBack, err)
	if err != nil {
		return
	}
	for _, f := range unfound {
		if ids[f.key].IsZero() {
			m.tell(f)
		}
	}
}

// idsNow reads in a new transaction, so that it sees everything that is committed.
func (m *missing) idsNow(ctx context.Context, keys []processlog.IdempotencyKey) (map[processlog.IdempotencyKey]processlog.ID, error) {
	tx, err := m.Store.Begin(ctx)
	if err != nil {
		return nil, err
	}
	ids, err := m.Store.IDs(ctx, tx, keys)
	return ids, errors.Join(err, tx.Rollback())
}

// tell logs one missing entry and calls Observer.EntryMissing. If the connection saw the commit, no error was ignored.
// The usual cause is then a savepoint, which is logged at debug level only.
func (m *missing) tell(f freshEntry) {
	event := observe.MissingEvent{ID: f.id, BusinessType: f.businessType, IdempotencyKey: f.key, LikelyCause: missingUnwatched}
	report := m.Log.Warn
	if f.watched {
		event.LikelyCause, report = missingWatched, m.Log.Debug
	}
	report("compensator: an entry that was recorded and told committed is not there", "entry", f.id, "type", f.businessType, "idempotent_id", f.key, "likely_cause", event.LikelyCause)
	Tell(m.Base, m.Observer.EntryMissing, event)
}
