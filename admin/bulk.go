package admin

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// These are the types of actions on several entries. Package processlog describes them in full.

type (
	BulkID   = processlog.BulkID   // names an action on several entries. Its text is a part of the URL of the action's page
	BulkSkip = processlog.BulkSkip // an entry that the action left as it was, and why
)

// ParseBulkID parses the text of a BulkID. Any other text is a *FieldError.
func ParseBulkID(text string) (BulkID, error) { return processlog.ParseBulkID(text) }

// BulkOptions are the options of an action on several entries.
type BulkOptions struct {
	// TryFirst changes the oldest entry only. When a person has seen how the oldest entry ended, ContinueBulk changes
	// the others.
	TryFirst bool

	// Key is a random text of the caller, 16 to 64 bytes. A second call with the same actor, action and key changes
	// nothing. It returns the id of the first action, without the result for each entry. So if a browser sends an HTML
	// form twice, the action happens once. The audit log has one record for each batch of an action. Only the newest
	// 1,000 of these records are compared, so a much later call with the same key acts again. Without a Key, every call
	// acts.
	Key string
}

func (o BulkOptions) newBulkID(a Actor, action Right) (BulkID, error) {
	switch {
	case o.Key == "":
		return BulkID{Secret: strings.ToLower(rand.Text())}, nil
	case len(o.Key) < 16 || len(o.Key) > 64:
		return BulkID{}, &compensator.FieldError{Field: "key", Reason: "want 16 to 64 bytes"}
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", a.ID, action, o.Key))
	return BulkID{Secret: hex.EncodeToString(sum[:16])}, nil
}

// begun returns the action that has begun with the same key, or a zero id.
func (d *Admin) begun(ctx context.Context, opts BulkOptions, id BulkID) (BulkID, error) {
	if opts.Key == "" {
		return BulkID{}, nil
	}
	batches, err := runQuery(ctx, d, func(ctx context.Context) ([]processlog.BulkBatch, error) { return d.log.Operations().Bulk(ctx, id) })
	if errors.Is(err, compensator.ErrNotFound) {
		return BulkID{}, nil
	}
	if err != nil {
		return BulkID{}, err
	}
	return BulkID{Record: batches[0].Record, Secret: id.Secret}, nil
}

// once returns the id of an earlier action, if the actor has used the same key for the same right before. Otherwise
// once calls the function begin, which carries out a new action. The function begin takes an id with Record 0. It
// returns the id with the number of the action's first record.
func (d *Admin) once(ctx context.Context, a Actor, action Right, opts BulkOptions, begin func(id BulkID) (BulkID, error)) (BulkID, error) {
	id, err := opts.newBulkID(a, action)
	if err != nil {
		return BulkID{}, err
	}
	if earlier, err := d.begun(ctx, opts, id); err != nil || earlier.Record > 0 {
		return earlier, err
	}
	begunNow, err := begin(id)
	if begunNow.Record == 0 && opts.Key != "" && errors.Is(err, ErrChanged) { // Meanwhile another call with the same key has begun the action.
		return d.begun(ctx, opts, id)
	}
	return begunNow, err
}

// StartBulk does what Change does, and stores the action under an id. One transaction changes the entries and stores
// the action.
//
// StartBulk returns the id, and one answer for each entry, as Change does. With TryFirst, ContinueBulk changes the
// entries that StartBulk has not tried. The answer for these entries is nil. If the actor may change none of the
// entries, StartBulk stores nothing and returns a zero BulkID.
func (d *Admin) StartBulk(ctx context.Context, a Actor, ch Change, opts BulkOptions) (BulkID, []error, error) {
	if d.readOnly {
		return BulkID{}, nil, ErrReadOnly
	}
	var answers []error
	id, err := d.once(withAction(ctx), a, ch.Action, opts, func(id BulkID) (BulkID, error) {
		c, err := d.checkChange(ctx, a, ch, part{total: len(ch.Entries)})
		if answers = c.answers; err != nil || len(c.versions) == 0 {
			return BulkID{}, err
		}
		plan := bulkPlan{Right: ch.Action, Delay: ch.Delay, Checked: ch.Checked, Again: ch.Again, Total: len(ch.Entries)}
		if opts.TryFirst && len(c.versions) > 1 {
			plan.TriesFirst = true
			plan.Rest = c.keepOldest(ch.Entries)
		}
		batch := processlog.BulkBatch{ID: id, Once: opts.Key != "", Skipped: c.skipped(ch.Entries)}
		if id.Record, err = d.storeBatch(ctx, a, c, batch, plan); err != nil {
			answers = nil
		}
		return id, err
	})
	return id, answers, err
}

// ContinueBulk changes the next entries of an action of StartBulk or StartMatching. It applies the reason, the delay
// and the confirmations with which the action began. One call changes up to four batches of MaxEntries entries. If no
// entry is left, ContinueBulk does nothing.
//
// One transaction changes the entries of a batch and stores the record of the batch. So a repeated call changes no
// entry twice.
//
// The actor needs the rights of the method Bulk, and the right for the action. ContinueBulk checks the rights and the
// amount of each entry again. ContinueBulk leaves an entry as it is in these cases:
//   - StartBulk began the action, and the entry no longer has the version that the person saw.
//   - StartMatching began the action, and the entry no longer matches.
//   - The outcome of the entry is unknown, and Checked was not set.
//   - The action would run a finished entry again, and Again was not set.
//
// If another caller continues an action of StartMatching at the same time, ContinueBulk returns ErrContinued.
func (d *Admin) ContinueBulk(ctx context.Context, a Actor, id BulkID) error {
	if d.readOnly {
		return ErrReadOnly
	}
	bulk, err := d.readBulk(withAction(ctx), id)
	if err != nil {
		return err
	}
	if bulk.plan.Matching != nil {
		return d.continueMatching(ctx, a, id, &bulk)
	}
	if _, err := d.viewBulk(ctx, a, id, &bulk); errors.Is(err, compensator.ErrNotFound) {
		return d.refuseBulk(ctx, a, &bulk, err)
	} else if err != nil {
		return err
	}
	for n := range maxBulkBatches {
		if n > 0 { // Another person may have continued the action since the last batch.
			if bulk, err = d.readBulk(withAction(ctx), id); err != nil {
				return err
			}
		}
		if len(bulk.rest) == 0 {
			return nil
		}
		entries := bulk.rest[:min(len(bulk.rest), MaxEntries)]
		if err := d.continueWith(ctx, a, id, &bulk, entries); err != nil {
			return err
		}
	}
	return nil
}

// maxTrials is the maximum number of entries that an action tries before the others. Bulk reads only the first batch and
// the last 20 batches of an action, so all trials must be among them.
const maxTrials = 10

// TryAnother changes one more entry of an action that began with TryFirst, for example if the first entry was not a
// typical one. It applies the reason, the delay and the confirmations with which the action began. It chooses the
// oldest entry that the actor may change. An action can try up to 10 entries. After that, TryAnother returns a
// *FieldError.
//
// The parameter lastBatch is BulkView.LastBatch of the view that the person saw. If another batch has followed, or if
// ContinueBulk has changed the other entries, TryAnother changes nothing and returns ErrContinued. So if a browser
// sends an HTML form twice, TryAnother tries only one entry. If no entry is left that TryAnother can try, it returns
// ErrChanged.
//
// One transaction changes the entry and stores the record of the batch. TryAnother needs the rights of ContinueBulk.
func (d *Admin) TryAnother(ctx context.Context, a Actor, id BulkID, lastBatch uint64) error {
	if d.readOnly {
		return ErrReadOnly
	}
	ctx = withAction(ctx)
	bulk, err := d.readBulk(ctx, id)
	if err != nil {
		return err
	}
	view, err := d.viewBulk(ctx, a, id, &bulk)
	switch {
	case errors.Is(err, compensator.ErrNotFound):
		return d.refuseBulk(ctx, a, &bulk, err)
	case err != nil:
		return err
	case !bulk.isTrying() || bulk.last().Record != lastBatch:
		return ErrContinued
	case bulk.trials() >= maxTrials:
		return &compensator.FieldError{Field: "bulk action", Reason: fmt.Sprintf("has tried %d entries", maxTrials)}
	case view.Left == 0:
		return ErrChanged
	case bulk.plan.Matching != nil:
		return d.tryAnotherMatching(ctx, a, id, &bulk)
	}
	plan := bulk.plan
	c, err := d.checkChange(ctx, a, plan.change(bulk.rest, bulk.first().Reason), part{total: plan.Total, leavesOut: true})
	if err != nil {
		return err
	}
	if len(c.versions) == 0 {
		if c.areRefused() {
			return ErrNotAllowed
		}
		return ErrChanged
	}
	c.keepOldest(bulk.rest)
	// Do not store the entries that this call has skipped. They stay in the action, and ContinueBulk checks them again.
	_, err = d.storeBatch(ctx, a, c, processlog.BulkBatch{ID: id, Follows: lastBatch}, bulkPlan{Right: plan.Right, Total: plan.Total, TriesFirst: true})
	if errors.Is(err, ErrChanged) {
		return ErrContinued
	}
	return err
}

// areRefused reports whether every entry was refused, because the actor may not see the entry or may not change it.
func (c *checkedChange) areRefused() bool {
	return !slices.ContainsFunc(c.answers, func(err error) bool {
		return !errors.Is(err, ErrNotAllowed) && !errors.Is(err, compensator.ErrNotFound)
	})
}

func (d *Admin) refuseBulk(ctx context.Context, a Actor, bulk *storedBulk, err error) error {
	if refusal := d.recordRefusal(ctx, a, processlog.Operation{Action: string(bulk.plan.Right), Reason: bulk.first().Reason}); refusal != ErrNotAllowed {
		return refusal
	}
	return err
}

const maxBulkBatches = 4

func (d *Admin) continueWith(ctx context.Context, a Actor, id BulkID, bulk *storedBulk, entries []Seen) error {
	plan := bulk.plan
	c, err := d.checkChange(ctx, a, plan.change(entries, bulk.first().Reason), part{total: plan.Total, leavesOut: true})
	if err != nil {
		return err
	}
	if len(c.versions) == 0 && c.areRefused() {
		// Do not store the batch. Its record would skip these entries for good, but a person with the right may still
		// change them.
		return ErrNotAllowed
	}
	_, err = d.storeBatch(ctx, a, c, processlog.BulkBatch{ID: id, Skipped: c.skipped(entries)}, bulkPlan{Right: plan.Right, Total: plan.Total})
	return err
}

// bulkPlan is stored with each batch, so that another process can continue the action. Its JSON names never
// change.
type bulkPlan struct {
	Right      Right         `json:"right"`
	Delay      time.Duration `json:"delay,omitempty"`
	Checked    bool          `json:"checked,omitempty"`
	Again      bool          `json:"again,omitempty"`
	Total      int           `json:"total"`                 // number of entries of the whole action
	TriesFirst bool          `json:"tries_first,omitempty"` // whether the batch tries one entry
	Rest       []Seen        `json:"rest,omitempty"`        // entries for the following batches
	Matching   *matchingPlan `json:"matching,omitempty"`    // for an action on all that match; nil for other actions
}

// change returns the Change of a further batch. The parameter reason is the reason of the action, with the ticket before it.
func (p *bulkPlan) change(entries []Seen, reason string) Change {
	return Change{Action: p.Right, Entries: entries, Why: Why{Reason: reason}, Delay: p.Delay, Checked: p.Checked, Again: p.Again}
}

const actionStop = "stop"

// keepOldest removes all entries but the oldest from c. It returns the removed ones.
func (c *checkedChange) keepOldest(entries []Seen) (rest []Seen) {
	oldest := slices.IndexFunc(c.versions, func(v processlog.Version) bool {
		return v.ID == slices.MinFunc(c.versions, func(a, b processlog.Version) int { return a.ID.Compare(b.ID) }).ID
	})
	for i, index := range c.indexes {
		if i != oldest {
			rest = append(rest, entries[index])
		}
	}
	c.versions, c.indexes = c.versions[oldest:oldest+1], c.indexes[oldest:oldest+1]
	return rest
}

func (c *checkedChange) skipped(entries []Seen) (skipped []BulkSkip) {
	for i, err := range c.answers {
		if err != nil && err != errNoMatch {
			skipped = append(skipped, BulkSkip{ID: entries[i].ID, Why: skipWord(err)})
		}
	}
	return skipped
}

// More values of BulkSkip.Why. Package processlog defines the other values.
const (
	bulkNotAllowed = "not_allowed"
	bulkUnknown    = "unknown"  // the outcome is unknown, and the field Change.Checked was false
	bulkFinished   = "finished" // the entry has ended, and the field Change.Again was false
)

func skipWord(err error) string {
	switch {
	case errors.Is(err, ErrNotAllowed):
		return bulkNotAllowed
	case errors.Is(err, errUnknown):
		return bulkUnknown
	case errors.Is(err, errFinished):
		return bulkFinished
	case errors.Is(err, compensator.ErrNotFound):
		return processlog.BulkNotFound
	case errors.Is(err, compensator.ErrBusy):
		return processlog.BulkBusy
	case errors.As(err, new(*compensator.StateError)):
		return processlog.BulkState
	}
	return processlog.BulkChanged
}

func (d *Admin) storeBatch(ctx context.Context, a Actor, c checkedChange, batch processlog.BulkBatch, plan bulkPlan) (uint64, error) {
	defer d.actionCount.Add(1) // Count the action even if the answer to COMMIT is lost.
	var err error
	if batch.Plan, err = json.Marshal(plan); err != nil {
		return 0, err
	}
	batch.Action, batch.Actor, batch.Reason = c.change.Action, a.ID, c.change.Reason
	if plan.Matching != nil && plan.Matching.Stopped {
		batch.Action = actionStop
	}
	record, results, err := d.log.ChangeBulk(withAction(ctx), c.versions, c.change, batch)
	if err != nil {
		return 0, err
	}
	c.addAnswers(results)
	return record, nil
}

// BulkOutcome says what has become of an entry since an action changed it.
type BulkOutcome string

// The outcomes of an entry that an action has changed.
const (
	BulkSucceeded   BulkOutcome = "succeeded"       // the entry has succeeded
	BulkCompensated BulkOutcome = "compensated"     // the entry was compensated
	BulkSettled     BulkOutcome = "settled by hand" // the entry is settled manually
	BulkCancelled   BulkOutcome = "cancelled"       // the entry is cancelled
	BulkDead        BulkOutcome = "dead"            // the entry is dead. After a requeue this means that it has died again
	BulkRetrying    BulkOutcome = "retrying"        // an attempt has failed, and the next attempt has not begun
	BulkRunning     BulkOutcome = "running"         // an attempt of the entry is running
	BulkWaiting     BulkOutcome = "waiting"         // no attempt has begun
	BulkOverridden  BulkOutcome = "changed"         // after the action, another person or a service has changed the entry
	BulkGone        BulkOutcome = "gone"            // the entry was purged
)

// BulkOutcomes lists all outcomes: first those that need a person.
var BulkOutcomes = [...]BulkOutcome{BulkDead, BulkRetrying, BulkRunning, BulkWaiting, BulkSucceeded, BulkCompensated, BulkSettled, BulkCancelled, BulkOverridden, BulkGone}

// Ended reports whether the entry has no further attempts, unless a person or a service acts on it.
func (o BulkOutcome) Ended() bool { return o != BulkRetrying && o != BulkRunning && o != BulkWaiting }

// BulkView is an action on several entries, and what has become of them.
type BulkView struct {
	ID       BulkID              `json:"id"`                // identifies the action
	Action   Right               `json:"action"`            // Change.Action
	Actor    string              `json:"actor"`             // person who started the action
	Reason   string              `json:"reason"`            // reason that Actor gave, with the ticket before it
	At       time.Time           `json:"at"`                // when the first batch was stored
	Delay    time.Duration       `json:"delay,omitempty"`   // Change.Delay
	Total    int                 `json:"total"`             // number of entries that the action is about, as far as the actor may see them
	Changed  int                 `json:"changed"`           // number of entries that the action has changed
	Left     int                 `json:"left"`              // number of entries that ContinueBulk would try to change
	Outcomes map[BulkOutcome]int `json:"outcomes"`          // number of changed entries by outcome
	Skipped  []BulkSkip          `json:"skipped,omitempty"` // entries that the action left as they were
	LeftOut  map[string]int      `json:"left_out"`          // number of entries that the action left as they were, by BulkSkip.Why
	Tried    BulkOutcome         `json:"tried,omitempty"`   // outcome of the last of Trials; empty if there is none

	Trials    []BulkTrial `json:"trials,omitempty"` // after TryFirst: the tried entries in the order of their ids. Empty as soon as ContinueBulk has changed the others
	LastBatch uint64      `json:"last_batch"`       // number of the action's last batch, for TryAnother
	ActedLast bool        `json:"-"`                // whether the actor of this call stored the last batch

	// The next fields are for actions of StartMatching. For these actions, Total is the number of matching entries that
	// StartMatching counted. StartMatching counts at most 10,000 entries. Skipped and Outcomes cover only the first batch
	// and the last 20 batches.
	Search      *Search `json:"search,omitempty"`       // search that selects the entries; nil for other actions
	More        bool    `json:"more,omitempty"`         // whether more entries may match than were counted. Left is then a lower bound
	NotFollowed int     `json:"not_followed,omitempty"` // number of changed entries that Outcomes leaves out
	StoppedBy   string  `json:"stopped_by,omitempty"`   // person who stopped the action; empty if nobody did

	MayContinue bool `json:"may_continue,omitempty"` // whether entries are left that the actor may change, as far as their types say

	LeftIDs []compensator.EntryID                 `json:"-"` // entries that ContinueBulk would try to change
	Entries map[BulkOutcome][]compensator.EntryID `json:"-"` // changed entries by outcome, the oldest first
}

// BulkTrial is an entry that an action has tried before the others.
type BulkTrial struct {
	ID      compensator.EntryID `json:"id"`      // entry that was changed
	Outcome BulkOutcome         `json:"outcome"` // what has become of the entry
}

// MayTryAnother reports whether the actor may call TryAnother: the tried entries have ended, fewer than 10 were tried,
// and more than one entry is left.
func (v BulkView) MayTryAnother() bool {
	return v.MayContinue && v.Left > 1 && len(v.Trials) > 0 && len(v.Trials) < maxTrials && v.TriesEnded()
}

// TriesEnded reports whether all entries in Trials have ended.
func (v BulkView) TriesEnded() bool {
	return !slices.ContainsFunc(v.Trials, func(t BulkTrial) bool { return !t.Outcome.Ended() })
}

// NotVisited returns how many entries the action has neither changed nor left out. For a stopped action, these entries
// stay as they are. If More is set, there may be more of them.
func (v BulkView) NotVisited() int {
	n := v.Total - v.Changed
	for _, leftOut := range v.LeftOut {
		n -= leftOut
	}
	return max(0, n)
}

// Open reports whether an entry that the action changed has not ended yet.
func (v BulkView) Open() bool {
	for outcome, n := range v.Outcomes {
		if n > 0 && !outcome.Ended() {
			return true
		}
	}
	return false
}

// Bulk reads an action on several entries, and what has become of its entries. It needs SeeEntries for each entry. An
// actor who did not start the action also needs SeeAuditLog. Bulk leaves out entries for which the actor lacks a right,
// and returns compensator.ErrNotFound if it leaves out all of them or if there is no such action.
func (d *Admin) Bulk(ctx context.Context, a Actor, id BulkID) (BulkView, error) {
	bulk, err := d.readBulk(ctx, id)
	if err != nil {
		return BulkView{}, err
	}
	return d.viewBulk(ctx, a, id, &bulk)
}

func (d *Admin) viewBulk(ctx context.Context, a Actor, id BulkID, bulk *storedBulk) (BulkView, error) {
	view := BulkView{ID: id, Action: bulk.plan.Right, Actor: bulk.first().Actor, Reason: bulk.first().Reason, At: bulk.first().At, Delay: bulk.plan.Delay, Total: bulk.plan.Total, LastBatch: bulk.last().Record, ActedLast: bulk.last().Actor == a.ID,
		Outcomes: make(map[BulkOutcome]int), LeftOut: make(map[string]int), Entries: make(map[BulkOutcome][]compensator.EntryID)}
	if bulk.plan.Matching != nil {
		return d.viewMatching(ctx, a, view, bulk)
	}
	mayRead := d.bulkReaders(a, bulk)
	rows, err := d.readRows(ctx, bulk.ids())
	if err != nil {
		return BulkView{}, err
	}
	for _, e := range bulk.entries {
		row, isFound := rows[e.ID]
		// Leave out an entry that the actor may not see. A purged entry has no row, so nobody knows its type. The
		// person who began the action still sees the purged entry. Another actor sees the purged entry only with the
		// rights for the empty type.
		if !mayRead.holds(ctx, row.BusinessType) && (isFound || a.ID != view.Actor) {
			continue
		}
		view.Changed++
		view.addOutcome(e, row, bulk.isTrying())
	}
	for _, s := range bulk.skipped {
		if row, isFound := rows[s.ID]; isFound && mayRead.holds(ctx, row.BusinessType) || a.ID == view.Actor {
			view.Skipped = append(view.Skipped, s)
			view.LeftOut[s.Why]++
		}
	}
	if view.Changed+len(view.Skipped) == 0 {
		return BulkView{}, newNotFoundError(compensator.IdempotencyKey(id.String()))
	}
	for _, seen := range bulk.rest {
		row, isFound := rows[seen.ID]
		if a.ID != view.Actor && !(isFound && mayRead.holds(ctx, row.BusinessType)) {
			continue
		}
		view.Left++
		view.LeftIDs = append(view.LeftIDs, seen.ID)
		view.MayContinue = view.MayContinue || isFound && d.May(ctx, a, SeeEntries, Subject{Type: row.BusinessType}) &&
			d.May(ctx, a, bulk.plan.Right, Subject{Type: row.BusinessType, Count: bulk.plan.Total})
	}
	if a.ID != view.Actor { // This actor may not see all entries, because another person began the action. So count only the visible entries.
		view.Total = view.Changed + len(view.Skipped) + view.Left
	}
	return view, nil
}

func (d *Admin) bulkReaders(a Actor, bulk *storedBulk) *typeRights {
	if a.ID == bulk.first().Actor {
		return d.rightsOf(a, SeeEntries)
	}
	return d.rightsOf(a, SeeEntries, SeeAuditLog)
}

// addOutcome takes a zero row for a purged entry.
func (v *BulkView) addOutcome(e processlog.BulkEntry, row processlog.Row, isTrial bool) {
	outcome := BulkGone
	if !row.ID.IsZero() {
		outcome = outcomeOf(v.Action, e, row)
	}
	v.Outcomes[outcome]++
	v.Entries[outcome] = append(v.Entries[outcome], e.ID)
	if isTrial {
		v.Trials, v.Tried = append(v.Trials, BulkTrial{e.ID, outcome}), outcome
	}
}

func (d *Admin) readRows(ctx context.Context, ids []compensator.EntryID) (map[compensator.EntryID]processlog.Row, error) {
	rows := make(map[compensator.EntryID]processlog.Row, len(ids))
	for part := range slices.Chunk(ids, MaxEntries) {
		found, err := runQuery(ctx, d, func(ctx context.Context) ([]processlog.Row, error) { return d.log.Operations().Outlines(ctx, part) })
		if err != nil {
			return nil, err
		}
		for _, row := range found {
			rows[row.ID] = row
		}
	}
	return rows, nil
}

// storedBulk is an action on several entries, joined from its batches.
type storedBulk struct {
	batches []processlog.BulkBatch
	plan    bulkPlan // plan of the first batch; for an action of StartMatching: plan of the last batch
	entries []processlog.BulkEntry
	skipped []BulkSkip
	rest    []Seen // entries of the plan that no batch has
	tries   int    // number of batches that have tried an entry; unused for an action of StartMatching
}

func (b *storedBulk) first() processlog.BulkBatch { return b.batches[0] }
func (b *storedBulk) last() processlog.BulkBatch  { return b.batches[len(b.batches)-1] }

// isTrying reports whether the action has only tried entries so far.
func (b *storedBulk) isTrying() bool {
	if m := b.plan.Matching; m != nil {
		now := b.progress()
		return b.plan.TriesFirst && !now.isOver() && now.Changed > 0 && now.Changed <= b.trials()
	}
	return b.trials() == len(b.batches)
}

// trials returns the number of batches that have tried an entry.
func (b *storedBulk) trials() int {
	if m := b.plan.Matching; m != nil {
		return max(1, m.Trials)
	}
	return b.tries
}

func (b *storedBulk) ids() (ids []compensator.EntryID) {
	for _, e := range b.entries {
		ids = append(ids, e.ID)
	}
	for _, s := range b.skipped {
		ids = append(ids, s.ID)
	}
	for _, s := range b.rest {
		ids = append(ids, s.ID)
	}
	return ids
}

func (d *Admin) readBulk(ctx context.Context, id BulkID) (storedBulk, error) {
	batches, err := runQuery(ctx, d, func(ctx context.Context) ([]processlog.BulkBatch, error) { return d.log.Operations().Bulk(ctx, id) })
	if err != nil {
		return storedBulk{}, err
	}
	b := storedBulk{batches: batches}
	if err := json.Unmarshal(b.first().Plan, &b.plan); err != nil {
		return storedBulk{}, err
	}
	for _, batch := range batches {
		var plan struct {
			TriesFirst bool `json:"tries_first"`
		}
		if err := json.Unmarshal(batch.Plan, &plan); err != nil {
			return storedBulk{}, err
		}
		if plan.TriesFirst {
			b.tries++
		}
	}
	if b.plan.Matching != nil { // The last batch says how far the action is.
		if err := json.Unmarshal(b.last().Plan, &b.plan); err != nil {
			return storedBulk{}, err
		}
	}
	b.join()
	return b, nil
}

// join counts an entry as changed if one batch changed it and a concurrent batch skipped it.
func (b *storedBulk) join() {
	isKnown := make(map[compensator.EntryID]bool)
	for _, batch := range b.batches {
		for _, e := range batch.Entries {
			if !isKnown[e.ID] {
				isKnown[e.ID], b.entries = true, append(b.entries, e)
			}
		}
	}
	for _, batch := range b.batches {
		for _, s := range batch.Skipped {
			if !isKnown[s.ID] {
				isKnown[s.ID], b.skipped = true, append(b.skipped, s)
			}
		}
	}
	slices.SortFunc(b.entries, func(x, y processlog.BulkEntry) int { return x.ID.Compare(y.ID) })
	slices.SortStableFunc(b.skipped, func(x, y BulkSkip) int { return cmp.Or(strings.Compare(x.Why, y.Why), x.ID.Compare(y.ID)) })
	for _, seen := range b.plan.Rest {
		if !isKnown[seen.ID] {
			b.rest = append(b.rest, seen)
		}
	}
}

// outcomeOf compares epochs: each requeue and each settling by a person gives the entry a new one.
func outcomeOf(right Right, e processlog.BulkEntry, row processlog.Row) BulkOutcome {
	endedByOthers := map[processlog.EndedBy]Right{processlog.EndedByCancel: Cancel, processlog.EndedByComplete: Complete, processlog.EndedByPerson: SettleManually}
	if by, is := endedByOthers[row.EndedBy]; row.Epoch != e.Epoch || row.Version < e.Version || is && by != right {
		return BulkOverridden
	}
	switch {
	case row.State == compensator.Succeeded:
		return BulkSucceeded
	case row.State == compensator.Compensated:
		return BulkCompensated
	case row.State == compensator.SettledManually:
		return BulkSettled
	case row.State == compensator.Cancelled:
		return BulkCancelled
	case row.State == compensator.Dead:
		return BulkDead
	case row.LeaseLeft > 0:
		return BulkRunning
	case row.State == compensator.Retrying || row.State == compensator.Compensating && row.CompensateCount > 0:
		return BulkRetrying
	}
	return BulkWaiting
}
