package compensator

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/compensator-go/compensator/internal/txwatch"
)

// Receipt describes what Record did. It is safe for concurrent use, except ResolveIDs.
type Receipt struct {
	Entries []Recorded // one element for each recorded entry, in the order of Record's arguments

	rec *recording
}

// Recorded is the result for one entry.
type Recorded struct {
	ID             EntryID        // zero only after Record inserted several entries on MySQL. Then call ResolveIDs, or use IdempotencyKey
	IdempotencyKey IdempotencyKey // Options.IdempotencyKey, or the key that Record drew

	// Duplicate says that an entry with this idempotency key exists, or comes earlier in the same call. The existing
	// entry was left unchanged.
	Duplicate      bool
	State          State // of the existing entry
	ContentMatches bool  // the existing content equals the new one
}

// ID returns the id of the receipt's first entry. Use ID after you have recorded one entry.
func (r *Receipt) ID() EntryID {
	if len(r.Entries) == 0 {
		return EntryID{}
	}
	return r.Entries[0].ID
}

// Duplicate reports whether the first entry is a duplicate.
func (r *Receipt) Duplicate() bool { return len(r.Entries) > 0 && r.Entries[0].Duplicate }

func (rec *recording) fillReceipt() {
	r := &rec.receipt
	r.rec, r.Entries = rec, slices.Grow(rec.oneEntry.entries[:0], len(rec.positions))[:len(rec.positions)]
	for i, p := range rec.positions {
		in, draft := &rec.Inserted[p.draftIndex], &rec.Drafts[p.draftIndex]
		r.Entries[i] = Recorded{ID: in.ID, IdempotencyKey: draft.IdempotencyKey, Duplicate: in.Duplicate, State: in.State, ContentMatches: in.ContentMatches}
		if p.repeatsKey {
			r.Entries[i].Duplicate = true
			r.Entries[i].ContentMatches = p.sameContent && (in.ContentMatches || !in.Duplicate)
		}
	}
}

func (r *Receipt) refuseOtherEvents(entries []NewEntry) error {
	var problems []error
	for i, p := range r.rec.positions {
		if !r.Entries[i].Duplicate || entries[i].forPeriodicSlot {
			continue
		}
		if err := r.rec.otherEvent(p.draftIndex, &entries[i], &r.Entries[i]); err != nil {
			problems = append(problems, nameEntry(i, len(entries), err))
		}
	}
	return errors.Join(problems...)
}

// otherEvent returns an error if a key that was recorded before belongs to another event. A key of another type is
// always refused. Other content is refused only for a type with RefuseOtherContent. Without this option, other content
// may mean the same event: a new version of the service may have added a field to the struct that is recorded.
func (rec *recording) otherEvent(p int, e *NewEntry, result *Recorded) error {
	recorded := rec.Drafts[p].BusinessType
	if rec.Inserted[p].Duplicate {
		recorded = rec.Inserted[p].BusinessType
	}
	if recorded != e.BusinessType {
		return &OtherTypeError{IdempotencyKey: result.IdempotencyKey, Recorded: recorded, Asked: e.BusinessType}
	}
	if result.ContentMatches {
		return nil
	}
	if rec.c.types.refusesOtherContent(e.BusinessType) {
		return fmt.Errorf("%q: %w", result.IdempotencyKey, ErrOtherContent)
	}
	if rec.c.types.firstOtherContent(e.BusinessType) {
		rec.c.log.Warn("compensator: an idempotency key was recorded again with other content, which was not stored; further ones of this type are not logged",
			"type", e.BusinessType, "idempotent_id", result.IdempotencyKey, "entry", result.ID)
	}
	return nil
}

// refuseDuplicates implements Options.FailOnDuplicate.
func (r *Receipt) refuseDuplicates(entries []NewEntry) error {
	for i, e := range r.Entries {
		if e.Duplicate && entries[i].FailOnDuplicate {
			return fmt.Errorf("%q: %w", e.IdempotencyKey, ErrDuplicate)
		}
	}
	return nil
}

// ResolveIDs fills in the ids that Record could not return. Pass tx if it has not committed yet. An id stays zero if
// its entry does not exist, for example after a rollback. Do not call other methods at the same time. Each error comes
// from the database.
func (r *Receipt) ResolveIDs(ctx context.Context, tx Tx) error {
	var keys []IdempotencyKey
	for _, e := range r.Entries {
		if e.ID.IsZero() {
			keys = append(keys, e.IdempotencyKey)
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
			e.ID = ids[e.IdempotencyKey]
		}
	}
	return nil
}

// Committed tells the library that Commit has returned nil, so that the entries start at once. Without this call the
// library looks for the commit 50 ms, 200 ms and 1 s after Record. Later the reconciler finds the entries, within
// Config.Grace and Config.ReconcileInterval. Committed never blocks and never fails. A second call does nothing. On a
// Connector and in InTx the library sees the commit by itself, and Committed does nothing.
func (r *Receipt) Committed() {
	if !r.rec.Watched() {
		r.rec.Committed()
	}
}

// transactionEnded must return quickly, because it runs in the goroutine that commits.
func (r *Receipt) transactionEnded(outcome txwatch.Outcome) {
	switch outcome {
	case txwatch.Committed:
		r.rec.Committed()
	case txwatch.Unknown:
		r.rec.CommitUnknown()
	case txwatch.RolledBack:
		r.rec.RolledBack()
	}
}
