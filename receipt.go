package compensator

import (
	"context"
	"errors"
	"fmt"

	"github.com/compensator-go/compensator/internal/txwatch"
)

// Receipt tells what Record did. It may be used by several goroutines, but for ResolveIDs.
type Receipt struct {
	Entries []Recorded // one for each entry recorded, in their order

	rec *recording
}

// Recorded answers for one entry.
type Recorded struct {
	ID           EntryID // zero only after a Record of several entries on MySQL: ask ResolveIDs, or use IdempotentID
	IdempotentID IdempotentID

	// Duplicate: an entry with this idempotent id exists, or stands earlier in the same call, and was left as it is.
	Duplicate      bool
	State          State // of that one
	ContentMatches bool  // its content equals this one's
}

// ID is that of the first entry, for the common Record of one.
func (r *Receipt) ID() EntryID {
	if len(r.Entries) == 0 {
		return EntryID{}
	}
	return r.Entries[0].ID
}

// Duplicate is that of the first entry, as ID.
func (r *Receipt) Duplicate() bool { return len(r.Entries) > 0 && r.Entries[0].Duplicate }

func (rec *recording) receipt() *Receipt {
	r := &Receipt{Entries: make([]Recorded, len(rec.place)), rec: rec}
	for i, p := range rec.place {
		in, draft := &rec.Inserted[p], &rec.Drafts[p]
		r.Entries[i] = Recorded{ID: in.ID, IdempotentID: draft.IdempotentID, Duplicate: in.Duplicate, State: in.State, ContentMatches: in.ContentMatches}
		if rec.repeated[i] {
			r.Entries[i].Duplicate = true
			r.Entries[i].ContentMatches = rec.alike[i] && (in.ContentMatches || !in.Duplicate)
		}
	}
	return r
}

// refuseOtherEvents reports idempotent ids that stand for something else already.
func (r *Receipt) refuseOtherEvents(entries []NewEntry) error {
	var problems []error
	for i, p := range r.rec.place {
		if !r.Entries[i].Duplicate || entries[i].slot {
			continue
		}
		if err := r.rec.otherEvent(p, &entries[i], &r.Entries[i]); err != nil {
			problems = append(problems, nameEntry(i, len(entries), err))
		}
	}
	return errors.Join(problems...)
}

// otherEvent compares a duplicate with what has its id: what is stored or, in the same call, the draft at p. Content
// may differ because the type's struct has a new field, so that is only warned about unless the type says otherwise.
func (rec *recording) otherEvent(p int, e *NewEntry, told *Recorded) error {
	recorded := rec.Drafts[p].BusinessType
	if rec.Inserted[p].Duplicate {
		recorded = rec.Inserted[p].BusinessType
	}
	if recorded != e.BusinessType {
		return &OtherTypeError{IdempotentID: told.IdempotentID, Recorded: recorded, Asked: e.BusinessType}
	}
	if told.ContentMatches {
		return nil
	}
	if rec.c.types.refusesOtherContent(e.BusinessType) {
		return fmt.Errorf("%q: %w", told.IdempotentID, ErrOtherContent)
	}
	if rec.c.types.firstOtherContent(e.BusinessType) {
		rec.c.log.Warn("compensator: an idempotent id was recorded again with other content, which was not stored; further ones of this type are not logged",
			"type", e.BusinessType, "idempotent_id", told.IdempotentID, "entry", told.ID)
	}
	return nil
}

// refuseDuplicates is Options.FailOnDuplicate.
func (r *Receipt) refuseDuplicates(entries []NewEntry) error {
	for i, e := range r.Entries {
		if e.Duplicate && entries[i].FailOnDuplicate {
			return fmt.Errorf("%q: %w", e.IdempotentID, ErrDuplicate)
		}
	}
	return nil
}

// ResolveIDs fills in ids that Record could not tell. Before the commit give tx.
func (r *Receipt) ResolveIDs(ctx context.Context, tx Tx) error {
	var keys []IdempotentID
	for _, e := range r.Entries {
		if e.ID.IsZero() {
			keys = append(keys, e.IdempotentID)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	ids, err := r.rec.c.store.IDs(ctx, tx, keys)
	if err != nil {
		return err
	}
	for i := range r.Entries {
		if e := &r.Entries[i]; e.ID.IsZero() {
			e.ID = ids[e.IdempotentID]
		}
	}
	return nil
}

// Committed reports that Commit has returned nil, so that the entries start at once. Without the report the library polls for
// the commit 50 ms, 200 ms and 1 s after Record. After that the reconciler finds the entries, within Config.Grace and
// Config.ReconcileInterval. Committed never blocks and never fails. A second call does nothing, nor does a call on a Connector
// or in InTx, where the library sees the commit itself.
func (r *Receipt) Committed() {
	if !r.rec.Watched() {
		r.rec.Committed()
	}
}

// ended takes how the transaction has ended. It runs in the committing goroutine, so it only hands over.
func (r *Receipt) ended(outcome txwatch.Outcome) {
	switch outcome {
	case txwatch.Committed:
		r.rec.Committed()
	case txwatch.Unknown:
		r.rec.Unknown()
	case txwatch.RolledBack:
		r.rec.RolledBack()
	}
}
