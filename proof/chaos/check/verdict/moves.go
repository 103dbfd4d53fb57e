package verdict

import (
	"slices"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

const (
	pending      int8 = 0
	retrying     int8 = -1
	dead         int8 = -2
	compensating int8 = -3
	succeeded    int8 = 1
	compensated  int8 = 2
	cancelled    int8 = 3
	manual       int8 = 4
)

func terminal(state int8) bool { return !slices.Contains(open, state) }

// The slice open holds the states in which an entry can be claimed. The slice waiting holds those of them in which the
// next attempt calls the handler. In the state compensating, the next attempt calls the compensation.
var (
	open    = []int8{pending, retrying, compensating}
	waiting = []int8{pending, retrying}
)

// change says how a move changes one column of a row.
type change int

const (
	same change = iota
	plusOne
	minusOne
	zero
	fresh
	kept       // The value stays the same. If a reschedule discards a running attempt, the value may become one less.
	now        // The value becomes the database's present time.
	nowOrLater // The value becomes the database's present time or a later time.
	ended      // The end of a lease becomes 0: the lease is given up.
	renewed    // The end of a lease becomes the database's present time or later: the lease is taken or renewed.
)

// Columns that a move does not list keep their values.
type move struct {
	name     string
	inserted bool // whether the row must be as an INSERT with a lease wrote it; that INSERT has counted the delivery
	from     []int8
	to       []int8 // possible new states (nil: the state stays the same)
	version  change
	epoch    change
	process  change
	undo     change // change of compensate_count
	delivery change
	lease    change
	next     change
	token    change
	by       []string // possible new values of ended_by (nil: it stays the same)
	whole    bool     // whether the epoch must have no failed or crashed compensation
}

const (
	moveInsert          = "insert"
	moveDelete          = "delete"
	moveTouch           = "touch" // changes none of the library's columns
	moveRenew           = "renew"
	moveClaim           = "claim"
	moveOwnClaim        = "claim of its own" // by the process that inserted the row with a lease
	moveRelease         = "release"
	moveFence           = "fence" // ends the permit (right to run under a limit) of an entry whose lease has ended
	moveSuccess         = "success"
	moveRetry           = "failure"
	moveExhausted       = "exhausted to compensation"
	moveDead            = "exhausted to dead"
	movePause           = "pause" // for a snooze, an unavailable service, or an orderly stop
	moveCompensated     = "compensated"
	moveUndoFailed      = "compensation failed"
	moveUndoDead        = "compensation exhausted"
	moveCrashed         = "quarantine"
	moveCrashedUndo     = "quarantine to compensation"
	moveComplete        = "complete"
	moveCancel          = "cancel"
	moveReschedule      = "reschedule"
	moveRequeue         = "requeue"
	moveRequeueUndo     = "requeue to compensation"
	moveSettledManually = "settle by hand"
)

var nobody = []string{""}

// A move has a line for each way in which it changes the row. TestNoTwoMovesFitOneChange proves that no two lines fit
// the same change.
var moves = []move{
	{name: moveTouch},
	{name: moveRenew, from: open, lease: renewed},
	{name: moveClaim, from: open, version: plusOne, delivery: plusOne, lease: renewed, token: fresh},
	{name: moveOwnClaim, inserted: true, from: []int8{pending}, version: plusOne, lease: renewed, token: fresh},
	{name: moveRelease, from: open, version: plusOne, delivery: minusOne, lease: ended},
	{name: moveFence, from: open, version: plusOne},

	{name: moveSuccess, from: waiting, to: []int8{succeeded}, version: plusOne, delivery: zero, lease: zero, next: now, token: fresh,
		by: []string{"handler"}},
	{name: moveRetry, from: waiting, to: []int8{retrying}, version: plusOne, process: plusOne, delivery: zero, lease: ended, next: nowOrLater, token: fresh},
	{name: moveExhausted, from: waiting, to: []int8{compensating}, version: plusOne, process: plusOne, delivery: zero, lease: ended, next: now, token: fresh},
	{name: moveDead, from: waiting, to: []int8{dead}, version: plusOne, process: plusOne, delivery: zero, lease: ended, next: now, token: fresh,
		by: []string{"exhausted", "permanent"}},
	{name: movePause, from: open, version: plusOne, delivery: zero, lease: ended, next: nowOrLater, token: fresh},

	{name: moveCompensated, from: []int8{compensating}, to: []int8{compensated}, version: plusOne, delivery: zero, lease: zero, next: now, token: fresh,
		by: []string{"handler"}},
	{name: moveUndoFailed, from: []int8{compensating}, version: plusOne, undo: plusOne, delivery: zero, lease: ended, next: nowOrLater, token: fresh},
	{name: moveUndoDead, from: []int8{compensating}, to: []int8{dead}, version: plusOne, undo: plusOne, delivery: zero, lease: ended, next: now, token: fresh,
		by: []string{"exhausted", "permanent"}},

	{name: moveCrashed, from: waiting, to: []int8{dead}, version: plusOne, delivery: zero, lease: ended, next: now, token: fresh, by: []string{"crash"}},
	{name: moveCrashed, from: []int8{compensating}, to: []int8{dead}, version: plusOne, undo: plusOne, delivery: zero, lease: ended, next: now, token: fresh,
		by: []string{"crash"}},
	{name: moveCrashedUndo, from: waiting, to: []int8{compensating}, version: plusOne, delivery: zero, lease: ended, next: now, token: fresh},

	{name: moveComplete, from: waiting, to: []int8{succeeded}, version: plusOne, delivery: zero, lease: zero, next: now, token: fresh,
		by: []string{"complete"}},
	{name: moveComplete, whole: true, from: []int8{dead}, to: []int8{succeeded}, version: plusOne, delivery: zero, lease: zero, next: now, token: fresh,
		by: []string{"complete"}},
	{name: moveCancel, from: waiting, to: []int8{cancelled}, version: plusOne, delivery: zero, lease: zero, next: now, token: fresh,
		by: []string{"cancel"}},
	{name: moveCancel, whole: true, from: []int8{dead}, to: []int8{cancelled}, version: plusOne, delivery: zero, lease: zero, next: now, token: fresh,
		by: []string{"cancel"}},
	{name: moveReschedule, from: waiting, version: plusOne, delivery: kept, next: nowOrLater, token: fresh},
	{name: moveRequeue, from: []int8{dead, succeeded, compensated, cancelled, manual, retrying}, to: []int8{pending}, version: plusOne, epoch: plusOne,
		process: zero, undo: zero, delivery: zero, lease: zero, next: nowOrLater, token: fresh, by: nobody},
	{name: moveRequeueUndo, from: []int8{dead, succeeded, compensated, cancelled, manual, retrying}, to: []int8{compensating}, version: plusOne, epoch: plusOne,
		process: zero, undo: zero, delivery: zero, lease: zero, next: nowOrLater, token: fresh, by: nobody},
	{name: moveSettledManually, from: []int8{dead, retrying, compensating}, to: []int8{manual}, version: plusOne, epoch: plusOne,
		delivery: zero, lease: zero, next: now, token: fresh, by: []string{"person"}},
}

func classify(s *step) string {
	switch {
	case s.move == moveInsert && insertedRight(s):
		return moveInsert
	case s.move == moveInsert:
		return ""
	case s.move == moveDelete:
		return moveDelete // checkPurge judges deletions.
	}
	for i := range moves {
		if moves[i].fits(s) {
			return moves[i].name
		}
	}
	return ""
}

func (m *move) fits(s *step) bool {
	o, n, at := &s.old, &s.new, s.nowMS()
	return m.leads(o.state, n.state) &&
		(!m.inserted || o.version == 0 && o.deliveryCount == 1 && o.leaseUntil > 0) && (!m.whole || o.compensateCount == 0) &&
		m.version.fits(int64(o.version), int64(n.version), at) &&
		m.epoch.fits(int64(o.epoch), int64(n.epoch), at) &&
		m.process.fits(int64(o.processCount), int64(n.processCount), at) &&
		m.undo.fits(int64(o.compensateCount), int64(n.compensateCount), at) &&
		m.delivery.fits(int64(o.deliveryCount), int64(n.deliveryCount), at) &&
		m.lease.fits(o.leaseUntil, n.leaseUntil, at) &&
		m.next.fits(o.nextAt, n.nextAt, at) &&
		m.token.fits(int64(o.token), int64(n.token), at) &&
		(m.by == nil && n.endedBy == o.endedBy || slices.Contains(m.by, n.endedBy))
}

func (m *move) leads(from, to int8) bool {
	return (m.from == nil || slices.Contains(m.from, from)) && (m.to == nil && to == from || slices.Contains(m.to, to))
}

func (s *step) claims() bool {
	return s.move == moveClaim || s.move == moveOwnClaim || s.move == moveInsert && s.new.deliveryCount > 0
}

// The trigger and its statement read one clock in different precision.
const rounding = 2 // in ms

func (c change) fits(before, after, at int64) bool {
	switch c {
	case same:
		return after == before
	case plusOne:
		return after == before+1
	case minusOne:
		return after == before-1 && after >= 0
	case zero:
		return after == 0
	case fresh:
		return after != before
	case kept:
		return after == before || after == before-1 && after >= 0
	case now:
		return abs(after-at) <= rounding
	case nowOrLater, renewed:
		return after >= at-rounding
	case ended:
		return before > 0 && after == 0
	}
	return false
}

func insertedRight(s *step) bool {
	n := &s.new
	fresh := image{token: n.token, nextAt: n.nextAt, leaseUntil: n.leaseUntil, deliveryCount: n.deliveryCount}
	leased := n.deliveryCount == 1 && n.leaseUntil > s.nowMS() && now.fits(0, n.nextAt, s.nowMS())
	free := n.deliveryCount == 0 && n.leaseUntil == 0 && nowOrLater.fits(0, n.nextAt, s.nowMS())
	return *n == fresh && (leased || free)
}

// All other moves are made by the engine.
var actionOf = map[string]string{
	moveComplete: history.ActionComplete, moveCancel: history.ActionCancel, moveReschedule: history.ActionReschedule,
	moveRequeue: history.ActionRequeue, moveRequeueUndo: history.ActionRequeue, moveSettledManually: history.ActionSettleManually,
}
