package readback

import (
	"context"
	"errors"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// The log message names these causes, because a person finds no other trace of what happened.
const (
	missingUnwatched = "the server rolled its transaction back and the error was swallowed (a deadlock, say), Committed was called without a commit, " +
		"it was rolled back to a savepoint, or somebody has deleted it"
	missingWatched = "it was rolled back to a savepoint, or somebody has deleted it"
)

func (s *Starter) reportUnfound(unfound []engine.InsertedEntry) {
	entries := make([]engine.RecordedEntry, len(unfound))
	for i := range unfound {
		entries[i] = unfound[i].RecordedEntry
	}
	s.ReportMissing(entries)
}

// ReportMissing reports recorded entries that an earlier read by id did not find. It searches for each entry by its
// idempotency key in a new transaction. If the key exists, the entry is not reported. The key can exist for two
// reasons:
//
//   - The earlier read used an old snapshot of the database.
//   - The entry was rolled back, and another transaction has recorded the key since.
func (s *Starter) ReportMissing(unfound []engine.RecordedEntry) {
	if len(unfound) == 0 {
		return
	}
	keys := make([]processlog.IdempotencyKey, len(unfound))
	for i := range unfound {
		keys[i] = unfound[i].IdempotencyKey
	}
	ctx, cancel := s.e.Statement()
	defer cancel()
	ids, err := s.idsNow(ctx, keys)
	s.e.NoteResult(engine.ProblemReadBack, err)
	if err != nil {
		return
	}
	for _, f := range unfound {
		if ids[f.IdempotencyKey].IsZero() {
			s.reportMissingEntry(f)
		}
	}
}

// idsNow reads in a new transaction, so that it sees everything that is committed.
func (s *Starter) idsNow(ctx context.Context, keys []processlog.IdempotencyKey) (map[processlog.IdempotencyKey]processlog.ID, error) {
	tx, err := s.e.Store.Begin(ctx)
	if err != nil {
		return nil, err
	}
	ids, err := s.e.Store.IDs(ctx, tx, keys)
	return ids, errors.Join(err, tx.Rollback())
}

// reportMissingEntry reports a recorded entry that the database does not have, although its transaction was reported as
// committed. If the connection saw the commit, the usual cause is a rollback to a savepoint, which is no failure. So the
// log level is then Debug.
func (s *Starter) reportMissingEntry(f engine.RecordedEntry) {
	event := observe.MissingEvent{ID: f.ID, BusinessType: f.BusinessType, IdempotencyKey: f.IdempotencyKey, LikelyCause: missingUnwatched}
	log := s.e.Log.Warn
	if f.Watched {
		event.LikelyCause, log = missingWatched, s.e.Log.Debug
	}
	log("compensator: an entry that was recorded and told committed is not there", "entry", f.ID, "type", f.BusinessType, "idempotent_id", f.IdempotencyKey, "likely_cause", event.LikelyCause)
	engine.NotifyObserver(s.e.Base, s.e.Observer.EntryMissing, event)
}
