package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
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

// Serial says which entries of a type run one at a time: those of one key, in the order of their ids.
type Serial struct {
	Key      func(row *processlog.Row) string // it reads what was recorded; "": beside all others
	PassDead bool                             // a dead entry lets those behind it go on
}

// turns is the lines of serial types. An entry is claimed as any other. Then, before its handler starts, one statement asks
// whether it stands first in the line of its key and nobody in it has a lease; otherwise it is parked: given back, uncounted,
// and due after a while. When the first has come to rest the next is made due.
//
// Two of a key never start: both claims are committed before either looks, so that one at least sees the other's lease, and
// whoever does gives way (G30). If both do, each looks again once it is parked: the later one finds the first and wakes it.
type turns struct {
	*base
	agenda    *agenda
	announcer *announcer
	refusals  *refusals

	some   atomic.Bool // there is a serial type: others ask for no more than this
	mu     sync.RWMutex
	serial map[string]Serial // guarded by mu

	rested groupcommit.Batcher[restedLine] // lines somebody has left
}

// restedLine names a line.
type restedLine struct{ businessType, key string }

func newTurns(b *base, agenda *agenda, announcer *announcer, r *refusals) *turns {
	n := &turns{base: b, agenda: agenda, announcer: announcer, refusals: r, serial: make(map[string]Serial)}
	n.rested.Max, n.rested.Workers, n.rested.Bound, n.rested.Flush = processlog.MaxRows, 1, queueBound, n.next
	return n
}

// Serialize makes a type serial, whether it runs here or is recorded only. It returns a *FieldError where the store cannot.
func (e *Engine) Serialize(ctx context.Context, businessType string, s Serial) error {
	if _, err := e.Store.Lines(ctx, businessType, nil, processlog.Token{}, false); err != nil {
		return err
	}
	if e.types.named(businessType) != nil {
		return nil // it has a handler already, and stays as that one has it
	}
	e.turns.mu.Lock()
	defer e.turns.mu.Unlock()
	e.turns.serial[businessType] = s
	e.turns.some.Store(true)
	return nil
}

// of returns false for a type that is not serial.
func (n *turns) of(businessType string) (Serial, bool) {
	if !n.some.Load() {
		return Serial{}, false
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	s, ok := n.serial[businessType]
	return s, ok
}

// TakesTurns reports whether a type is serial.
func (e *Engine) TakesTurns(businessType string) bool {
	_, serial := e.turns.of(businessType)
	return serial
}

// turn is an entry's, with no key if it takes none. A key that is too long is told by its hash. What panics is the user's.
func (n *turns) turn(s Serial, row *processlog.Row) (t processlog.Turn, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &processlog.FieldError{Field: "Serial", Reason: "panicked: " + usererr.PanicText(p)}
		}
	}()
	// The same as when it was recorded, so that it cannot come to another answer later.
	key := s.Key(&processlog.Row{
		IdempotentID: row.IdempotentID, BusinessType: row.BusinessType, BatchID: row.BatchID, BusinessID: row.BusinessID,
		BusinessExtID: row.BusinessExtID, UserID: row.UserID, UserName: row.UserName, Content: row.Content,
	})
	if len(key) >= processlog.MaxTurnKey {
		sum := sha256.Sum256([]byte(key)) // also of one that would just fit: it may be another's hash
		key = hex.EncodeToString(sum[:])
	}
	return processlog.Turn{BusinessType: row.BusinessType, Key: key, ID: row.ID, Epoch: row.Epoch}, nil
}

// turnsOf lists, before anything is written, the turns of the drafts that take one; their ids are not known yet. nil: none
// does.
func (n *turns) turnsOf(drafts []processlog.Draft) (list []processlog.Turn, err error) {
	if !n.some.Load() {
		return nil, nil
	}
	for i := range drafts {
		d := &drafts[i]
		s, ok := n.of(d.BusinessType)
		if !ok || d.Done {
			continue
		}
		turn, err := n.turn(s, &processlog.Row{
			IdempotentID: d.IdempotentID, BusinessType: d.BusinessType, BatchID: d.BatchID, BusinessID: d.BusinessID,
			BusinessExtID: d.BusinessExtID, UserID: d.UserID, UserName: d.UserName, Content: d.Content,
		})
		if err != nil {
			return nil, err
		}
		if list == nil {
			list = make([]processlog.Turn, len(drafts))
		}
		list[i] = turn
	}
	return list, nil
}

// LineUp finds, before anything is written, which drafts take turns. It returns a *FieldError where a type's Serial panics.
func (r *Recording) LineUp() (err error) {
	r.turns, err = r.intake.turns.turnsOf(r.Drafts)
	return err
}

// Join has the drafts that were inserted stand in their lines. Ids the server has not told are asked for.
func (r *Recording) Join(ctx context.Context, tx processlog.Tx) error {
	if r.turns == nil {
		return nil
	}
	n := r.intake.turns
	if err := r.learnIDs(ctx, n.Store, tx); err != nil {
		return err
	}
	joining := r.turns[:0]
	for i, turn := range r.turns {
		if turn.Key != "" && !r.Inserted[i].Duplicate {
			turn.ID = r.Inserted[i].ID
			joining = append(joining, turn)
		}
	}
	r.turns = nil
	if len(joining) == 0 {
		return nil
	}
	err := n.Store.Join(ctx, tx, joining)
	failpoint.Reach(failpoint.TurnsJoined)
	return err
}

func (r *Recording) learnIDs(ctx context.Context, store processlog.Store, tx processlog.Tx) error {
	var keys []processlog.IdempotentID
	for i, turn := range r.turns {
		if turn.Key != "" && r.Inserted[i].ID.IsZero() {
			keys = append(keys, r.Drafts[i].IdempotentID)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	ids, err := store.IDs(ctx, tx, keys)
	for i := range r.turns {
		if id := ids[r.Drafts[i].IdempotentID]; r.Inserted[i].ID.IsZero() {
			r.Inserted[i].ID = id
		}
	}
	return err
}

// waiter is an attempt whose turn has not come.
type waiter struct {
	*attempt
	wait time.Duration
}

// look sorts claimed entries, which share a token, into those whose turn it is and those that wait. Who is not noted yet, or
// under an earlier epoch, waits, too, and is noted by that: recorded by a process that did not know, by hand, or requeued
// since he left. Whoever looks from then on sees him.
func (n *turns) look(s Serial, standing []waiter) (first []*attempt, wait []waiter, err error) {
	turns := make([]processlog.Turn, len(standing))
	asked := make(map[string]int, len(standing))
	for i, w := range standing {
		turns[i] = w.turn
		asked[w.turn.Key]++
	}
	ctx, cancel := n.statement()
	defer cancel()
	lines, err := n.Store.Lines(ctx, turns[0].BusinessType, turns, standing[0].row.Token, !s.PassDead)
	if err != nil {
		return nil, nil, err
	}
	for _, w := range standing {
		if l := lines[w.turn.Key]; l.First == w.row.ID && !l.Taken && l.Known == asked[w.turn.Key] {
			first = append(first, w.attempt)
		} else {
			w.wait = n.patience(l)
			wait = append(wait, w)
		}
	}
	failpoint.Reach(failpoint.TurnsRead)
	return first, wait, nil
}

// patience is how long a parked entry waits should nobody tell it that its turn has come. The longer the line, the longer:
// many that look again would cost more than they can gain, for they go one by one.
func (n *turns) patience(l processlog.Line) time.Duration {
	interval := n.ReconcileInterval
	if n.Local || !n.announcer.health.up() {
		interval = n.PollInterval
	}
	return interval + interval*time.Duration(l.Length)/longLine
}

// longLine is how many in a line double their patience.
const longLine = 100

// others are claimed entries that do not run now, and the write that gives them up. Its error: whose turn it is could not be
// read, or not be noted.
type others struct {
	list  []waiter
	write func() error
}

// inTurn returns the attempts whose turn it is, of a type that is not serial all, and the others. Where nobody knows whose
// turn it is, they are put back.
func (d *dispatcher) inTurn(t *Type, attempts []*attempt) (first []*attempt, rest []others) {
	s, serial := d.turns.of(t.Name)
	if !serial {
		return attempts, nil
	}
	var standing []waiter
	for _, a := range attempts {
		turn, err := d.turns.turn(s, &a.row)
		switch {
		case err != nil: // beside whom must it not run?
			rest = append(rest, others{[]waiter{{attempt: a}}, func() error {
				d.settler.lane.Add(settlement{a: a, outcome: t.safeOutcomeOf(&a.row, Free(Unavailable(err)), nil)})
				return nil
			}})
		case turn.Key != "":
			a.turn = turn // kept: a handler may change the content it is given
			standing = append(standing, waiter{attempt: a})
		default:
			first = append(first, a)
		}
	}
	if len(standing) == 0 {
		return first, rest
	}
	turn, wait, err := d.turns.look(s, standing)
	d.saw(troubleTurns, err)
	switch {
	case err != nil:
		rest = append(rest, others{standing, func() error { d.putBack(t, standing); return err }})
	case len(wait) > 0:
		rest = append(rest, others{wait, func() error { return d.park(t, wait) }})
	}
	return append(first, turn...), rest
}

// putOff gives back what entries hold here that do not run: the slots of their calls before anything is written, which may
// wait for the database, and the places in quarantine behind it, for as long as the leases stand a death counts.
func (d *dispatcher) putOff(t *Type, calls int, list []others) (err error) {
	d.agenda.free(t, calls)
	for _, o := range list {
		if failed := o.write(); failed != nil {
			err = failed
		}
		for _, w := range o.list {
			d.holdings.leaveQuarantine(w.attempt, false)
		}
	}
	return err
}

// park puts entries back until their turn comes, and makes sure that it has not come meanwhile. On an error they are due still.
func (d *dispatcher) park(t *Type, wait []waiter) error {
	s, _ := d.turns.of(t.Name)
	parked, keys := make([]processlog.Parked, len(wait)), make([]string, len(wait))
	for i, w := range wait {
		keys[i], parked[i] = w.turn.Key, processlog.Parked{Turn: w.turn, Version: w.row.Version, Wait: w.wait}
	}
	ctx, cancel := d.statement()
	defer cancel()
	err := d.Store.Park(ctx, parked, wait[0].row.Token)
	wait, err = d.withoutRefused(t, wait, err)
	d.saw(troubleTurns, err)
	if err != nil { // some may be parked all the same
		d.putBack(t, wait)
	}
	failpoint.Reach(failpoint.TurnsParked)
	// Whoever was first may have come to rest, or given way, before anybody waited.
	woken, advanceErr := d.Store.Advance(ctx, t.Name, keys, !s.PassDead)
	_ = d.turns.sawAdvance(t.Name, advanceErr)
	for _, w := range wait {
		if err == nil {
			d.claims.refusals.taken(troubleRefusedPark, t.Name, w.row.ID)
		}
		if err == nil && !slices.Contains(woken, w.row.ID) {
			d.settler.offerAgain(w.attempt, processlog.DueIn(w.wait))
		}
	}
	d.turns.announce(t.Name, woken)
	return err
}

// withoutRefused puts those entries back that the database refuses to park, and returns the others, and an error of another kind.
func (d *dispatcher) withoutRefused(t *Type, wait []waiter, err error) ([]waiter, error) {
	var refused *processlog.RefusedError
	if !errors.As(err, &refused) {
		return wait, err
	}
	d.claims.refusals.note(troubleRefusedPark, t.Name, refused.Refusals)
	var back, rest []waiter
	for _, w := range wait {
		if refuses(refused.Refusals, w.row.ID) {
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
	again := make([]processlog.Announcement, len(standing))
	for i, w := range standing {
		again[i] = processlog.Announcement{BusinessType: t.Name, ID: w.row.ID, In: refusedRetry}
	}
	d.claims.release(standing[0].row.Token, again...)
	for _, w := range standing { // the queue's own leases would outlast that
		d.settler.offerAgain(w.attempt, refusedRetry)
	}
}

// rest takes note that an entry has ended: the next of its line may run.
func (n *turns) rest(turn processlog.Turn, state processlog.State) {
	if turn.Key == "" {
		return
	}
	if s, _ := n.of(turn.BusinessType); state != processlog.Dead || s.PassDead {
		n.rested.Add(restedLine{turn.BusinessType, turn.Key})
	}
}

// ended is rest for an entry that a service or a person has ended.
func (n *turns) ended(before *processlog.Row, state processlog.State) { n.rest(n.place(before), state) }

// place is an entry's turn, with no key if it takes none, or where its type's Serial panics: the next comes by itself then.
func (n *turns) place(row *processlog.Row) (turn processlog.Turn) {
	if s, serial := n.of(row.BusinessType); serial {
		turn, _ = n.turn(s, row)
	}
	return turn
}

// nextTries is how often a line is tried to be moved on. In the end its next entry's own patience ends.
const nextTries = 5

// next moves lines on that somebody has left.
func (n *turns) next(batch []restedLine) {
	byType := grouped.By(batch, func(l restedLine) string { return l.businessType })
	for _, businessType := range byType.Order {
		s, _ := n.of(businessType)
		lines := byType.Groups[businessType]
		keys := make([]string, len(lines))
		for i, l := range lines {
			keys[i] = l.key
		}
		for failures := 1; ; failures++ {
			ctx, cancel := n.statement()
			woken, err := n.Store.Advance(ctx, businessType, keys, !s.PassDead)
			cancel()
			err = n.sawAdvance(businessType, err)
			failpoint.Reach(failpoint.TurnsMoved)
			n.announce(businessType, woken)
			if err == nil || failures == nextTries || !n.pause(delay(settleBackoff, failures)) {
				break
			}
		}
	}
}

// sawAdvance takes the result of an Advance, and returns an error that another try may help with. An entry that the database refuses
// to make due comes due by itself, when the time is over for which it was parked.
func (n *turns) sawAdvance(businessType string, err error) error {
	var refused *processlog.RefusedError
	if errors.As(err, &refused) {
		n.refusals.note(troubleRefusedWake, businessType, refused.Refusals)
		err = nil
	}
	n.saw(troubleTurns, err)
	return err
}

// announce tells of entries whose turn has come.
func (n *turns) announce(businessType string, woken []processlog.ID) {
	for _, id := range woken {
		n.announcer.move(businessType, id, 0)
	}
	if len(woken) > 0 && !n.announcer.health.up() {
		n.agenda.expect(businessType, 0) // who announces tells the scanner once the queue knows
	}
}
