// Package ordering runs entries of one ordering key one at a time, in the order in which they were recorded. It
// implements TypeConfig.Serial.
//
// An entry is blocked while an earlier entry of its key has not ended. Without PassDead, a dead entry counts as not
// ended. Before a claim, the reads Store.Blocked and Store.Fronts find blocked entries, and the claim leaves these
// entries out.
//
// The results of these reads may be out of date. So this process checks each claimed entry again before the handler of
// the entry starts. The entry must be the first entry of its key that has not ended. No other entry of the key may have
// a lease. If the check fails, this process gives the entry back without counting an attempt.
//
// Two entries of a key never start at the same time. Each process commits its claim before it checks the key. So if two
// processes claim entries of one key, the later check sees both leases. See promise G30.
//
//	ordering.go   which types have keys, and which claimed entries may start
//	join.go       the positions of recorded entries
//	next.go       the next entry of a key, when the one in front has ended
//	handover.go   the next entry, claimed while the outcome of the one in front is stored
//	seen.go       which entries of a key this process has read
//	sweep.go      the entries that may run although no other event reports them
package ordering

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/groupcommit"
	"github.com/compensator-go/compensator/internal/refusals"
	"github.com/compensator-go/compensator/internal/usererr"
	"github.com/compensator-go/compensator/internal/verdict"
	"github.com/compensator-go/compensator/processlog"
)

// Serial says which entries of a type run one at a time.
type Serial struct {
	// Key returns the ordering key of an entry. An entry without a key runs independently of all others.
	Key func(row *processlog.Row) string

	// PassDead lets entries behind a dead entry run.
	PassDead bool
}

const (
	problemRead        = "the earlier entries of ordering keys could not be read"
	problemRefusedWake = "the database refuses to make entries due that no other entry of their key blocks any more"
)

// Ordering keeps the order of the types that have an ordering key.
type Ordering struct {
	e *engine.Engine

	// hasSerial is true if any type has an ordering key. Code that runs for every entry reads only this field.
	hasSerial atomic.Bool
	mu        sync.RWMutex
	serial    map[string]Serial // by type; guarded by mu
	sweeps    map[string]*sweep // by type; guarded by mu

	positions   heldPositions
	seenEntries seenEntries

	toAdvance        groupcommit.Batcher[processlog.Position] // finds the entries that come after these positions
	toDelete         groupcommit.Batcher[processlog.Position] // deletes these positions from the database
	toClaim          groupcommit.Batcher[nextEntry]           // claims these entries
	handoversToClaim groupcommit.Batcher[*handover]           // claims the entries in nextEntries of each handover
	handoversToStart groupcommit.Batcher[*handover]           // starts the entries in claimedRows of each handover
}

// waitBound is the maximum number of items that wait in one batcher. A full batcher adds no more items. A sweep through
// all keys later finds the entries of the items that were not added.
const waitBound = 100_000

// forgetPace is the least time between two DELETE statements of positions, so that one DELETE removes several
// positions. The database writes each DELETE to disk, and this slows down the statements that store outcomes and claim
// entries.
const forgetPace = 20 * time.Millisecond

// New makes the ordering of an engine.
func New(e *engine.Engine) *Ordering {
	o := &Ordering{e: e, serial: make(map[string]Serial), sweeps: make(map[string]*sweep)}
	o.toAdvance.Max, o.toAdvance.Workers, o.toAdvance.Bound, o.toAdvance.Flush = processlog.MaxRows, 1, waitBound, o.findNext
	o.toDelete.Max, o.toDelete.Workers, o.toDelete.Bound, o.toDelete.Flush = processlog.MaxRows, 1, waitBound, o.deletePositions
	o.toDelete.Pace.Least = forgetPace
	o.toClaim.Max, o.toClaim.Workers, o.toClaim.Bound, o.toClaim.Flush = processlog.MaxRows, 2, waitBound, o.claimNext
	// The engine stores at most two batches of outcomes concurrently, so two workers suffice.
	o.handoversToClaim.Max, o.handoversToClaim.Workers, o.handoversToClaim.Flush = 1, 2, o.claimAhead
	o.handoversToStart.Max, o.handoversToStart.Workers, o.handoversToStart.Flush = 1, 2, o.startAhead
	e.Await(engine.WaitForClaims, &o.handoversToClaim, &o.handoversToStart)
	e.Await(engine.WaitAtDrainEnd, &o.toClaim, &o.toAdvance, &o.toDelete)
	h := &e.Hooks
	h.BeforeInsert, h.Ordered = append(h.BeforeInsert, o.recordPositions), append(h.Ordered, o.Ordered)
	h.GivenBack, h.IsAwaited = append(h.GivenBack, o.leaseGivenBack), append(h.IsAwaited, o.waitsForOutcome)
	h.Storing, h.Stored = append(h.Storing, o.beginHandovers), append(h.Stored, o.outcomeStored)
	h.Dropped = append(h.Dropped, func(a *engine.Attempt) { o.positions.take(a) })
	h.Moved = append(h.Moved, o.endedByPerson)
	return o
}

// Serialize gives a type an ordering key. The type needs no handler in this process: a process that only records
// entries of the type also calls Serialize, because it stores the positions of the entries. If the store cannot order
// entries, Serialize returns a *FieldError.
func (o *Ordering) Serialize(ctx context.Context, businessType string, s Serial) error {
	if _, err := o.e.Store.KeyStates(ctx, businessType, nil, processlog.Token{}, false); err != nil {
		return err
	}
	if o.e.TypeNamed(businessType) != nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.serial[businessType] = s
	o.hasSerial.Store(true)
	return nil
}

// Attach makes the entries of a type run in order, if the type has an ordering key.
func (o *Ordering) Attach(t *engine.Type) {
	if !o.Ordered(t.Name) {
		return
	}
	sweep := o.sweepOf(t.Name)
	t.AttachOrder(engine.Order{
		Blocked: func(ctx context.Context, ids []processlog.ID) ([]processlog.ID, error) {
			return o.blocked(ctx, t.Name, ids)
		},
		Find:         func(ctx context.Context) ([]processlog.ID, bool, error) { return sweep.readNext(ctx, o, t.Name) },
		ContinueFind: sweep.restart,
		BlockReason:  o.reason,
		Separate: func(attempts []*engine.Attempt) ([]*engine.Attempt, []*engine.Attempt, func() error) {
			return o.separate(t, attempts)
		},
	})
}

func (o *Ordering) serialOf(businessType string) (Serial, bool) {
	if !o.hasSerial.Load() {
		return Serial{}, false
	}
	o.mu.RLock()
	defer o.mu.RUnlock()
	s, ok := o.serial[businessType]
	return s, ok
}

// Ordered reports whether a type has an ordering key.
func (o *Ordering) Ordered(businessType string) bool {
	_, serial := o.serialOf(businessType)
	return serial
}

// position returns the position of an entry. It replaces a key that is too long by the hash of the key. It returns a
// *FieldError if the user's function Key panics or ends its goroutine.
func position(s Serial, row *processlog.Row) (p processlog.Position, err error) {
	// Pass only what was recorded to the user's function, so that it returns the same key each time.
	draft := row.Draft()
	recorded := draft.Row()
	var key string
	if problem := usererr.Contain(func() { key = s.Key(&recorded) }); problem != "" {
		return p, &processlog.FieldError{Field: "Serial", Reason: problem}
	}
	if len(key) >= processlog.MaxOrderingKey {
		// The hash that replaces a long key has MaxOrderingKey bytes. Also hash a key that has exactly this length.
		// Otherwise the text of this key could be equal to the hash of another key.
		sum := sha256.Sum256([]byte(key))
		key = hex.EncodeToString(sum[:])
	}
	return processlog.Position{BusinessType: row.BusinessType, Key: key, ID: row.ID, Epoch: row.Epoch}, nil
}

// positionOf returns the position of an entry. If the user's function Key panics, the position is empty, and the end of
// the entry starts no other entry. A sweep through all keys then finds the next entry of the key.
func (o *Ordering) positionOf(row *processlog.Row) (p processlog.Position) {
	if s, serial := o.serialOf(row.BusinessType); serial {
		p, _ = position(s, row)
	}
	return p
}

// heldPositions holds the position of each running attempt. The position is not computed again at the end of the
// attempt, because a handler may change the content from which the key was made.
type heldPositions struct {
	mu        sync.Mutex // guards the field below
	byAttempt map[*engine.Attempt]heldPosition
}

type heldPosition struct {
	position processlog.Position
	handover *handover // nil if no handover claims the next entry of the key
}

func (h *heldPositions) set(a *engine.Attempt, v heldPosition) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byAttempt == nil {
		h.byAttempt = make(map[*engine.Attempt]heldPosition)
	}
	h.byAttempt[a] = v
}

func (h *heldPositions) get(a *engine.Attempt) heldPosition {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.byAttempt[a]
}

func (h *heldPositions) take(a *engine.Attempt) heldPosition {
	h.mu.Lock()
	defer h.mu.Unlock()
	v := h.byAttempt[a]
	delete(h.byAttempt, a)
	return v
}

func (o *Ordering) blocked(ctx context.Context, businessType string, ids []processlog.ID) ([]processlog.ID, error) {
	s, serial := o.serialOf(businessType)
	if !serial || len(ids) == 0 {
		return nil, nil
	}
	blocked, err := o.e.Store.Blocked(ctx, businessType, ids, !s.PassDead)
	o.e.NoteResult(problemRead, err)
	return blocked, err
}

type waiter struct {
	*engine.Attempt
	position   processlog.Position
	blockedFor time.Duration // how long the entry stays blocked if nothing makes it due earlier
}

// separate splits claimed attempts into those that may start and those that are blocked. If it cannot read the entries
// of the keys, all attempts with a key count as blocked. The caller then calls giveUp, which gives back the leases of
// the blocked entries.
func (o *Ordering) separate(t *engine.Type, attempts []*engine.Attempt) (first, blocked []*engine.Attempt, giveUp func() error) {
	s, _ := o.serialOf(t.Name)
	var waiters []waiter
	for _, a := range attempts {
		p, err := position(s, &a.Row)
		switch {
		case err != nil: // The key of the entry is unknown, so nobody knows which entries must end first.
			o.e.FailAttempt(a, verdict.LibraryWait(verdict.Unavailable(err)))
		case p.Key != "":
			waiters = append(waiters, waiter{Attempt: a, position: p})
		default:
			first = append(first, a)
		}
	}
	if len(waiters) == 0 {
		return first, nil, nil
	}
	mayStart, waiting, err := o.checkOrder(s, waiters)
	o.e.NoteResult(problemRead, err)
	if err != nil {
		return first, attemptsOf(waiters), func() error { o.putBack(t, waiters); return err }
	}
	for _, w := range mayStart {
		o.positions.set(w.Attempt, heldPosition{position: w.position})
		first = append(first, w.Attempt)
	}
	return first, attemptsOf(waiting), func() error { return o.block(t, s, waiting) }
}

func attemptsOf(list []waiter) []*engine.Attempt {
	attempts := make([]*engine.Attempt, len(list))
	for i, w := range list {
		attempts[i] = w.Attempt
	}
	return attempts
}

// checkOrder splits waiters into those that may start and those that must wait. All waiters were claimed under one
// token. A waiter may start if all these conditions are true:
//
//   - Its entry is the first entry of the key that has not ended.
//   - No entry of the key has a lease under another token.
//   - The positions of all waiters of the key are stored under their present epochs.
//
// For a waiter that must wait, the method Ordering.block stores the position.
func (o *Ordering) checkOrder(s Serial, waiters []waiter) (first, waiting []waiter, err error) {
	ctx, cancel := o.e.Statement()
	defer cancel()
	claimedPerKey := make(map[string]int, len(waiters))
	for _, w := range waiters {
		claimedPerKey[w.position.Key]++
	}
	keyStates, err := o.keyStates(ctx, s, waiters)
	if err != nil {
		o.seenEntries.forgetAll() // The next answer may come from another server.
		return nil, nil, err
	}
	for _, w := range waiters {
		if l := keyStates[w.position.Key]; l.First == w.Row.ID && !l.Taken && l.Known == claimedPerKey[w.position.Key] {
			first = append(first, w)
		} else {
			w.blockedFor = o.blockedWait()
			waiting = append(waiting, w)
		}
	}
	failpoint.Reach(failpoint.OrderingRead)
	return first, waiting, nil
}

// keyStates reads the states of the waiters' keys. If seenEntries has all waiters of a key, keyStates reads only the
// first entry of the key.
func (o *Ordering) keyStates(ctx context.Context, s Serial, waiters []waiter) (map[string]processlog.KeyState, error) {
	unseenKeys := make(map[string]bool)
	for _, w := range waiters {
		if !o.seenEntries.contains(w.position) {
			unseenKeys[w.position.Key] = true
		}
	}
	var seenPositions, unseenPositions []processlog.Position
	for _, w := range waiters {
		if unseenKeys[w.position.Key] {
			unseenPositions = append(unseenPositions, w.position)
		} else {
			seenPositions = append(seenPositions, w.position)
		}
	}
	keyStates := make(map[string]processlog.KeyState, len(waiters))
	if len(seenPositions) > 0 {
		found, err := o.e.Store.Firsts(ctx, seenPositions[0].BusinessType, seenPositions, !s.PassDead)
		if err != nil {
			return nil, err
		}
		maps.Copy(keyStates, found)
	}
	if len(unseenPositions) > 0 {
		found, err := o.e.Store.KeyStates(ctx, unseenPositions[0].BusinessType, unseenPositions, waiters[0].Row.Token, !s.PassDead)
		if err != nil {
			return nil, err
		}
		maps.Copy(keyStates, found)
		for key, keyState := range found {
			o.seenEntries.add(orderingKey{unseenPositions[0].BusinessType, key}, keyState.Members)
		}
	}
	return keyStates, nil
}

func (o *Ordering) blockedWait() time.Duration {
	if o.e.Source().Scope() != engine.ScopeAll {
		return o.e.PollInterval
	}
	return o.e.ReconcileInterval
}

// block makes waiting entries wait for the earlier entries of their keys, and gives their leases back. After an error
// the entries stay due.
func (o *Ordering) block(t *engine.Type, s Serial, waiting []waiter) error {
	blocked, keys := make([]processlog.BlockedEntry, len(waiting)), make([]processlog.Position, len(waiting))
	for i, w := range waiting {
		keys[i].Key, blocked[i] = w.position.Key, processlog.BlockedEntry{Position: w.position, Version: w.Row.Version, Wait: w.blockedFor}
	}
	ctx, cancel := o.e.Statement()
	defer cancel()
	err := o.e.Store.Block(ctx, blocked, waiting[0].Row.Token)
	waiting, err = o.withoutRefused(t, waiting, err)
	o.e.NoteResult(problemRead, err)
	if err != nil { // Some entries may be blocked in spite of the error.
		o.putBack(t, waiting)
	}
	failpoint.Reach(failpoint.OrderingBlocked)
	// The first entry may have ended before these entries were blocked. Then the end of the first entry did not wake
	// them, so look for the next entries now.
	next, advanceErr := o.e.Store.Advance(ctx, t.Name, keys, !s.PassDead)
	_ = o.sawAdvance(t.Name, advanceErr)
	for _, w := range waiting {
		if err == nil {
			o.e.Refusals.Accepted(refusals.Block, t.Name, w.Row.ID)
		}
		if err == nil && !slices.Contains(next, w.Row.ID) {
			o.e.OfferAgain(w.Attempt, processlog.DueIn(w.blockedFor))
		}
	}
	o.claimOrFindAll(t.Name, next)
	return err
}

func (o *Ordering) withoutRefused(t *engine.Type, waiting []waiter, err error) ([]waiter, error) {
	var refused *processlog.RefusedError
	if !errors.As(err, &refused) {
		return waiting, err
	}
	o.e.Refusals.Note(refusals.Block, t.Name, refused.Refusals)
	var refusedWaiters, others []waiter
	for _, w := range waiting {
		if slices.ContainsFunc(refused.Refusals, func(r processlog.Refusal) bool { return r.ID == w.Row.ID }) {
			refusedWaiters = append(refusedWaiters, w)
		} else {
			others = append(others, w)
		}
	}
	if len(refusedWaiters) > 0 {
		o.putBack(t, refusedWaiters)
	}
	if len(others) > 0 && errors.Is(err, processlog.ErrBusy) {
		return others, processlog.ErrBusy
	}
	return others, nil
}

func (o *Ordering) putBack(t *engine.Type, waiters []waiter) {
	releases := make([]processlog.QueueEntry, len(waiters))
	for i, w := range waiters {
		releases[i] = processlog.QueueEntry{BusinessType: t.Name, ID: w.Row.ID, In: engine.SkippedRetry}
	}
	o.e.Releases.Release(waiters[0].Row.Token, releases...)
	// The queue still leases the entries to this process. Without OfferAgain, the queue would offer them only after the
	// end of its leases.
	for _, w := range waiters {
		o.e.OfferAgain(w.Attempt, engine.SkippedRetry)
	}
}

func (o *Ordering) reason(ctx context.Context, row *processlog.Row) error {
	p := o.positionOf(row)
	if p.Key == "" || row.State.Terminal() {
		return nil
	}
	s, _ := o.serialOf(p.BusinessType)
	states, err := o.e.Store.Firsts(ctx, p.BusinessType, []processlog.Position{p}, !s.PassDead)
	state := states[p.Key]
	first := state.First
	// The field Known is 0 if the database stores no position for this entry yet. The entry then gets its own id as its
	// position. So an entry with a higher id comes later and does not block this entry.
	if err != nil || first.IsZero() || first == row.ID || state.Known == 0 && first.Compare(row.ID) > 0 {
		return err
	}
	frontRows, err := o.e.Store.Load(ctx, []processlog.ID{first})
	if err != nil || len(frontRows) == 0 {
		return err
	}
	return fmt.Errorf("entry %v is blocked: entry %v (%q, %v) is in front of it, because Serial makes %q of both, and entries of one key run one at a time, in the order in which they were recorded",
		row.ID, first, frontRows[0].IdempotencyKey, frontRows[0].State, p.Key)
}
