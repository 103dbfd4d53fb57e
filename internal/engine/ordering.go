package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/groupcommit"
	"github.com/compensator-go/compensator/internal/grouped"
	"github.com/compensator-go/compensator/internal/usererr"
	"github.com/compensator-go/compensator/processlog"
)

// Serial says which entries of a type run one at a time: those of one key, in the order in which they were recorded.
type Serial struct {
	Key      func(row *processlog.Row) string // it reads what was recorded; "": beside all others
	PassDead bool                             // a dead entry lets those behind it go on
}

// turns keeps the order of serial types. Entries of one key run one at a time, by their positions.
//
// An entry that another of its key blocks is not claimed: Blocked and Fronts tell before a claim, and such an entry costs no
// write. The answer may be out of date, so each claim is looked at again before its handler starts. The entry must be the
// first that counts of its key, and no other entry of the key may have a lease. Otherwise it is blocked: given back, uncounted,
// and due after a while. When the first entry has ended, the next is claimed here, or enqueued to others.
//
// Two of a key never start: both claims are committed before either looks, so at least one of them sees the other's lease and
// gives way (G30). If both give way, each looks again once it is blocked: the later one finds the first and wakes it.
//
// To read the leases of a key is to read all its entries, so it is done once for many of them: see seen.
type ordering struct {
	*Base
	claimSchedule *claimSchedule
	source        *source
	refusals      *refusals
	follow        func(next ...nextEntry) // runs entries that nothing blocks any more

	claimAhead func(h *handover) // claims the entries of a handover
	startAhead func(h *handover) // starts them where nothing blocks them any more

	some   atomic.Bool // there is a serial type: others ask for no more than this
	mu     sync.RWMutex
	serial map[string]Serial // guarded by mu
	sweeps map[string]*sweep // guarded by mu

	seen   seen
	rested groupcommit.Batcher[processlog.Position] // of entries that have ended the next are looked for
	gone   groupcommit.Batcher[processlog.Position] // their notes are forgotten
}

func newOrdering(b *Base, claimSchedule *claimSchedule, source *source, r *refusals) *ordering {
	n := &ordering{Base: b, claimSchedule: claimSchedule, source: source, refusals: r, serial: make(map[string]Serial)}
	n.rested.Max, n.rested.Workers, n.rested.Bound, n.rested.Flush = processlog.MaxRows, 1, waitBound, n.next
	n.gone.Max, n.gone.Workers, n.gone.Bound, n.gone.Flush = processlog.MaxRows, 1, waitBound, n.forget
	n.gone.Pace.Least = forgetPace
	return n
}

// Serialize makes a type serial, whether it runs here or is recorded only. It returns a *FieldError where the store cannot.
func (e *Engine) Serialize(ctx context.Context, businessType string, s Serial) error {
	if _, err := e.Store.KeyStates(ctx, businessType, nil, processlog.Token{}, false); err != nil {
		return err
	}
	if e.types.named(businessType) != nil {
		return nil // it has a handler already, and stays as that one has it
	}
	e.ordering.mu.Lock()
	defer e.ordering.mu.Unlock()
	e.ordering.serial[businessType] = s
	e.ordering.some.Store(true)
	return nil
}

// of returns false for a type that is not serial.
func (n *ordering) of(businessType string) (Serial, bool) {
	if !n.some.Load() {
		return Serial{}, false
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	s, ok := n.serial[businessType]
	return s, ok
}

// IsSerial reports whether a type is serial.
func (e *Engine) IsSerial(businessType string) bool {
	_, serial := e.ordering.of(businessType)
	return serial
}

// position is an entry's, with no key if it takes none. A key that is too long is told by its hash. What panics is the user's.
func (n *ordering) position(s Serial, row *processlog.Row) (t processlog.Position, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &processlog.FieldError{Field: "Serial", Reason: "panicked: " + usererr.PanicText(p)}
		}
	}()
	// The same as when it was recorded, so that it cannot come to another answer later.
	key := s.Key(&processlog.Row{
		IdempotencyKey: row.IdempotencyKey, BusinessType: row.BusinessType, BatchID: row.BatchID, BusinessID: row.BusinessID,
		BusinessExtID: row.BusinessExtID, UserID: row.UserID, UserName: row.UserName, Content: row.Content,
	})
	if len(key) >= processlog.MaxOrderingKey {
		sum := sha256.Sum256([]byte(key)) // also of one that would just fit: it may be another's hash
		key = hex.EncodeToString(sum[:])
	}
	return processlog.Position{BusinessType: row.BusinessType, Key: key, ID: row.ID, Epoch: row.Epoch}, nil
}

// positionsOf lists, before anything is written, the turns of the drafts that take one; their ids are not known yet. nil: none
// does.
func (n *ordering) positionsOf(drafts []processlog.Draft) (list []processlog.Position, err error) {
	if !n.some.Load() {
		return nil, nil
	}
	for i := range drafts {
		d := &drafts[i]
		s, ok := n.of(d.BusinessType)
		if !ok || d.Done {
			continue
		}
		position, err := n.position(s, &processlog.Row{
			IdempotencyKey: d.IdempotencyKey, BusinessType: d.BusinessType, BatchID: d.BatchID, BusinessID: d.BusinessID,
			BusinessExtID: d.BusinessExtID, UserID: d.UserID, UserName: d.UserName, Content: d.Content,
		})
		if err != nil {
			return nil, err
		}
		if list == nil {
			list = make([]processlog.Position, len(drafts))
		}
		list[i] = position
	}
	return list, nil
}

// FindPositions finds, before anything is written, which drafts take turns. It returns a *FieldError where a type's Serial panics.
func (r *Recording) FindPositions() (err error) {
	r.positions, err = r.intake.ordering.positionsOf(r.Drafts)
	return err
}

// Join has the drafts that were inserted stand in their lines. Ids the server has not told are asked for.
func (r *Recording) Join(ctx context.Context, tx processlog.Tx) error {
	if r.positions == nil {
		return nil
	}
	n := r.intake.ordering
	if err := r.learnIDs(ctx, n.Store, tx); err != nil {
		return err
	}
	joining := r.positions[:0]
	for i, position := range r.positions {
		if position.Key != "" && !r.Inserted[i].Duplicate {
			position.ID = r.Inserted[i].ID
			joining = append(joining, position)
		}
	}
	orderAsGiven(joining)
	r.positions = nil
	if len(joining) == 0 {
		return nil
	}
	err := n.Store.Join(ctx, tx, joining)
	failpoint.Reach(failpoint.OrderingJoined)
	return err
}

// orderAsGiven has turns of one key stand in the order of the list. The server gave out their ids in the order of their
// idempotency keys, by which Insert sorts rows so that two transactions with the same keys do not deadlock. So each turn takes
// the place of one of these ids: the first turn the lowest id, and so on.
func orderAsGiven(positions []processlog.Position) {
	lists := make(map[orderingKey][]int, len(positions))
	for i, position := range positions {
		key := orderingKey{position.BusinessType, position.Key}
		lists[key] = append(lists[key], i)
	}
	for _, list := range lists {
		orderIDs := make([]processlog.ID, len(list))
		for n, i := range list {
			orderIDs[n] = positions[i].ID
		}
		slices.SortFunc(orderIDs, processlog.ID.Compare)
		for n, i := range list {
			positions[i].OrderID = orderIDs[n]
		}
	}
}

func (r *Recording) learnIDs(ctx context.Context, store processlog.Store, tx processlog.Tx) error {
	var keys []processlog.IdempotencyKey
	for i, position := range r.positions {
		if position.Key != "" && r.Inserted[i].ID.IsZero() {
			keys = append(keys, r.Drafts[i].IdempotencyKey)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	ids, err := store.IDs(ctx, tx, keys)
	for i := range r.positions {
		if id := ids[r.Drafts[i].IdempotencyKey]; r.Inserted[i].ID.IsZero() {
			r.Inserted[i].ID = id
		}
	}
	return err
}

// waiter is an attempt that are blocked.
type waiter struct {
	*Attempt
	wait time.Duration
}

// look sorts claimed entries, which share a token, into those that may start and those that wait. An entry that is not noted,
// or under an earlier epoch, waits as well, and is noted by that. A process that did not know the type as serial has recorded
// it, or a person has, or it was requeued. Whoever looks from then on sees it.
func (n *ordering) look(s Serial, standing []waiter) (first []*Attempt, wait []waiter, err error) {
	ctx, cancel := n.Statement()
	defer cancel()
	asked := make(map[string]int, len(standing))
	for _, w := range standing {
		asked[w.position.Key]++
	}
	keyStates, err := n.keyStates(ctx, s, standing)
	if err != nil {
		n.seen.forgetAll() // what answers next may be another server
		return nil, nil, err
	}
	for _, w := range standing {
		if l := keyStates[w.position.Key]; l.First == w.Row.ID && !l.Taken && l.Known == asked[w.position.Key] {
			first = append(first, w.Attempt)
		} else {
			w.wait = n.blockedWait()
			wait = append(wait, w)
		}
	}
	failpoint.Reach(failpoint.OrderingRead)
	return first, wait, nil
}

// keyStates reads how the keys of claimed entries stand: of entries that are seen only who is first, and of the others all.
func (n *ordering) keyStates(ctx context.Context, s Serial, standing []waiter) (map[string]processlog.KeyState, error) {
	unseen := make(map[string]bool)
	for _, w := range standing {
		if !n.seen.has(w.position) {
			unseen[w.position.Key] = true
		}
	}
	var some, all []processlog.Position
	for _, w := range standing {
		if unseen[w.position.Key] {
			all = append(all, w.position)
		} else {
			some = append(some, w.position)
		}
	}
	keyStates := make(map[string]processlog.KeyState, len(standing))
	if len(some) > 0 {
		found, err := n.Store.Firsts(ctx, some[0].BusinessType, some, !s.PassDead)
		if err != nil {
			return nil, err
		}
		maps.Copy(keyStates, found)
	}
	if len(all) > 0 {
		found, err := n.Store.KeyStates(ctx, all[0].BusinessType, all, standing[0].Row.Token, !s.PassDead)
		if err != nil {
			return nil, err
		}
		maps.Copy(keyStates, found)
		for key, keyState := range found {
			n.seen.add(orderingKey{all[0].BusinessType, key}, keyState.Members)
		}
	}
	return keyStates, nil
}

// blockedWait is how long a blocked entry waits should nobody tell it that nothing blocks it any more.
func (n *ordering) blockedWait() time.Duration {
	if n.source.Reach() != ReachAll {
		return n.PollInterval
	}
	return n.ReconcileInterval
}

// blocked returns those of ids, of a type, that wait for another of their key. It is nil for a type that is not serial.
func (n *ordering) blocked(ctx context.Context, businessType string, ids []processlog.ID) ([]processlog.ID, error) {
	s, serial := n.of(businessType)
	if !serial || len(ids) == 0 {
		return nil, nil
	}
	blocked, err := n.Store.Blocked(ctx, businessType, ids, !s.PassDead)
	n.Saw(problemOrdering, err)
	return blocked, err
}

// others are claimed entries that do not run now, and the write that gives them up. Its error: whose turn it is could not be
// read, or not be noted.
type others struct {
	list  []waiter
	write func() error
}

// splitBlocked returns the attempts whose turn it is, of a type that is not serial all, and the others. Where nobody knows whose
// turn it is, they are put back.
func (d *dispatcher) splitBlocked(t *Type, attempts []*Attempt) (first []*Attempt, rest []others) {
	s, serial := d.ordering.of(t.Name)
	if !serial {
		return attempts, nil
	}
	var standing []waiter
	for _, a := range attempts {
		position, err := d.ordering.position(s, &a.Row)
		switch {
		case err != nil: // beside whom must it not run?
			rest = append(rest, others{[]waiter{{Attempt: a}}, func() error {
				d.settler.batcher.Add(settlement{a: a, outcome: t.safeOutcomeOf(&a.Row, Free(Unavailable(err)), nil)})
				return nil
			}})
		case position.Key != "":
			a.position = position // kept: a handler may change the content it is given
			standing = append(standing, waiter{Attempt: a})
		default:
			first = append(first, a)
		}
	}
	if len(standing) == 0 {
		return first, rest
	}
	position, wait, err := d.ordering.look(s, standing)
	d.Saw(problemOrdering, err)
	switch {
	case err != nil:
		rest = append(rest, others{standing, func() error { d.putBack(t, standing); return err }})
	case len(wait) > 0:
		rest = append(rest, others{wait, func() error { return d.block(t, wait) }})
	}
	return append(first, position...), rest
}

// putOff gives back what entries hold here that do not run: the slots of their calls before anything is written, which may
// wait for the database, and the places in quarantine behind it, for as long as the leases stand a death counts.
func (d *dispatcher) putOff(t *Type, calls int, list []others) (err error) {
	d.claimSchedule.free(t, calls)
	for _, o := range list {
		if failed := o.write(); failed != nil {
			err = failed
		}
		for _, w := range o.list {
			w.left(NotRun)
		}
	}
	return err
}

// block puts entries back until their turn comes, and makes sure that it has not come meanwhile. On an error they are due still.
func (d *dispatcher) block(t *Type, wait []waiter) error {
	s, _ := d.ordering.of(t.Name)
	blocked, keys := make([]processlog.BlockedEntry, len(wait)), make([]processlog.Position, len(wait))
	for i, w := range wait {
		keys[i].Key, blocked[i] = w.position.Key, processlog.BlockedEntry{Position: w.position, Version: w.Row.Version, Wait: w.wait}
	}
	ctx, cancel := d.Statement()
	defer cancel()
	err := d.Store.Block(ctx, blocked, wait[0].Row.Token)
	wait, err = d.withoutRefused(t, wait, err)
	d.Saw(problemOrdering, err)
	if err != nil { // some may be blocked all the same
		d.putBack(t, wait)
	}
	failpoint.Reach(failpoint.OrderingBlocked)
	// Whoever was first may have come to rest, or given way, before anybody waited.
	next, advanceErr := d.Store.Advance(ctx, t.Name, keys, !s.PassDead)
	_ = d.ordering.sawAdvance(t.Name, advanceErr)
	for _, w := range wait {
		if err == nil {
			d.claims.refusals.taken(problemRefusedBlock, t.Name, w.Row.ID)
		}
		if err == nil && !slices.Contains(next, w.Row.ID) {
			d.settler.offerAgain(w.Attempt, processlog.DueIn(w.wait))
		}
	}
	d.ordering.followAll(t.Name, next)
	return err
}

// withoutRefused puts those entries back that the database refuses to park, and returns the others, and an error of another kind.
func (d *dispatcher) withoutRefused(t *Type, wait []waiter, err error) ([]waiter, error) {
	var refused *processlog.RefusedError
	if !errors.As(err, &refused) {
		return wait, err
	}
	d.claims.refusals.note(problemRefusedBlock, t.Name, refused.Refusals)
	var back, rest []waiter
	for _, w := range wait {
		if refuses(refused.Refusals, w.Row.ID) {
			back = append(back, w)
		} else {
			rest = append(rest, w)
		}
	}
	if len(back) > 0 {
		d.putBack(t, back)
	}
	if len(rest) > 0 && errors.Is(err, processlog.ErrBusy) {
		return rest, processlog.ErrBusy
	}
	return rest, nil
}

// putBack gives claims back of which nobody knows whose turn it is.
func (d *dispatcher) putBack(t *Type, standing []waiter) {
	again := make([]processlog.QueueEntry, len(standing))
	for i, w := range standing {
		again[i] = processlog.QueueEntry{BusinessType: t.Name, ID: w.Row.ID, In: RefusedRetry}
	}
	d.claims.release(standing[0].Row.Token, again...)
	for _, w := range standing { // the queue's own leases would outlast that
		d.settler.offerAgain(w.Attempt, RefusedRetry)
	}
}

// rest takes note that an attempt of an entry is over. Once the entry has ended the next of its key may run. Until then only
// one that was committed late, in front of it, may: the lease was in its way.
func (n *ordering) rest(position processlog.Position, state processlog.State) {
	switch {
	case position.Key == "":
		return
	case !state.Terminal():
		n.rested.Add(processlog.Position{BusinessType: position.BusinessType, Key: position.Key})
		return
	}
	if s, _ := n.of(position.BusinessType); state != processlog.Dead || s.PassDead {
		// The one behind it is tried at once where this process knows it. Otherwise, or if it cannot be claimed, it is looked for.
		if next := n.seen.ended(position); !next.IsZero() {
			n.follow(nextEntry{businessType: position.BusinessType, id: next, behind: position})
		} else {
			n.rested.Add(position)
		}
	}
}

// ended is rest for an entry that a service or a person has ended.
func (n *ordering) ended(before *processlog.Row, state processlog.State) {
	n.rest(n.positionOf(before), state)
}

// positionOf is an entry's turn, with no key if it takes none, or where its type's Serial panics: the next comes by itself then.
func (n *ordering) positionOf(row *processlog.Row) (position processlog.Position) {
	if s, serial := n.of(row.BusinessType); serial {
		position, _ = n.position(s, row)
	}
	return position
}

// nextTries is how often the next entry of a key is looked for. After the last try a look at all keys finds it.
const nextTries = 5

// next finds the entries that those of a batch have blocked.
func (n *ordering) next(batch []processlog.Position) {
	byType := grouped.By(batch, func(t processlog.Position) string { return t.BusinessType })
	for _, businessType := range byType.Order {
		s, _ := n.of(businessType)
		for failures := 1; ; failures++ {
			ctx, cancel := n.Statement()
			next, err := n.Store.Advance(ctx, businessType, byType.Groups[businessType], !s.PassDead)
			cancel()
			err = n.sawAdvance(businessType, err)
			failpoint.Reach(failpoint.OrderingMoved)
			n.followAll(businessType, next)
			if err == nil || failures == nextTries || !n.Wait(delay(settleBackoff, failures)) {
				break
			}
		}
	}
	n.gone.Add(batch...)
}

// sawAdvance takes the result of an Advance, and returns an error that another try may help with. An entry that the database refuses
// to make due comes due by itself, when the time is over for which it was blocked.
func (n *ordering) sawAdvance(businessType string, err error) error {
	var refused *processlog.RefusedError
	if errors.As(err, &refused) {
		n.refusals.note(problemRefusedWake, businessType, refused.Refusals)
		err = nil
	}
	n.Saw(problemOrdering, err)
	return err
}

// followAll runs entries that nothing blocks any more.
func (n *ordering) followAll(businessType string, ids []processlog.ID) {
	next := make([]nextEntry, len(ids))
	for i, id := range ids {
		next[i] = nextEntry{businessType: businessType, id: id}
	}
	n.follow(next...)
}

// forgetPace is how long a note waits for others to be forgotten with it. Nothing waits for that, but each DELETE is a synced
// write beside those that the next entries wait for. A note that stays is read by each look at its key.
const forgetPace = 20 * time.Millisecond

// forget removes the notes of entries that have ended. A note that stays counts for nothing, and goes when it is met at the
// front of its key.
func (n *ordering) forget(batch []processlog.Position) {
	batch = slices.DeleteFunc(batch, func(t processlog.Position) bool { return t.ID.IsZero() })
	if len(batch) == 0 {
		return
	}
	for failures := 1; ; failures++ {
		ctx, cancel := n.Statement()
		err := n.Store.Forget(ctx, batch)
		cancel()
		n.Saw(problemOrdering, err)
		if err == nil || failures == nextTries || !n.Wait(delay(settleBackoff, failures)) {
			return
		}
	}
}

// enqueue tells of entries that nothing blocks any more.
func (n *ordering) enqueue(businessType string, ids []processlog.ID) {
	for _, id := range ids {
		n.source.Move(processlog.QueueEntry{BusinessType: businessType, ID: id})
	}
	if len(ids) > 0 && !n.source.up() {
		n.sweep(businessType).begin()
		n.claimSchedule.expect(businessType, 0) // who enqueues tells the scanner once the queue knows
	}
}
