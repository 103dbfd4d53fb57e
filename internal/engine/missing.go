package engine

import (
	"context"
	"errors"

	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// Why an entry can be missing although its transaction is said to have committed. Whoever reads this has no other trace.
const (
	missingUnwatched = "the server rolled its transaction back and the error was swallowed (a deadlock, say), Committed was called without a commit, " +
		"it was rolled back to a savepoint, or somebody has deleted it"
	missingWatched = "it was rolled back to a savepoint, or somebody has deleted it"
)

// missing reports entries that are not there.
type missing struct{ *Base }

// report takes entries that were told committed and not found, and makes sure that no event of theirs is in the
// log: what was read may have come out of an old snapshot, and somebody may have recorded the event again.
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

// idsNow asks in a transaction of its own, which sees all that is committed.
func (m *missing) idsNow(ctx context.Context, keys []processlog.IdempotencyKey) (map[processlog.IdempotencyKey]processlog.ID, error) {
	tx, err := m.Store.Begin(ctx)
	if err != nil {
		return nil, err
	}
	ids, err := m.Store.IDs(ctx, tx, keys)
	return ids, errors.Join(err, tx.Rollback())
}

// tell reports one. Where the connection has seen the commit, no error was swallowed: a savepoint is the rule.
func (m *missing) tell(f freshEntry) {
	event := observe.MissingEvent{ID: f.id, BusinessType: f.businessType, IdempotencyKey: f.key, LikelyCause: missingUnwatched}
	report := m.Log.Warn
	if f.watched {
		event.LikelyCause, report = missingWatched, m.Log.Debug
	}
	report("compensator: an entry that was recorded and told committed is not there", "entry", f.id, "type", f.businessType, "idempotent_id", f.key, "likely_cause", event.LikelyCause)
	Tell(m.Base, m.Observer.EntryMissing, event)
}
