package sim

import (
	"errors"
	"slices"
	"strings"
	"time"
)

// class is a kind of step, which decides what can go wrong with it.
type class int

const (
	classOwn    class = iota // the simulation's: handlers beginning and ending
	classRead                // a statement that changes nothing
	classWrite               // a transaction of the store's own that may be repeated
	classOnce                // one that only the engine may repeat
	classInTx                // a statement in an open transaction
	classCommit              // COMMIT
	classQueue               // a script or command of the queue
)

// fault is what goes wrong with a step, or an event of its own.
type fault int

const (
	none        fault = iota
	errBefore         // an error, and nothing was done
	errAfter          // an error, but it was done
	hangBefore        // no answer until the caller's context ends; nothing was done
	hangAfter         // the same, but it was done
	twice             // done twice, the second answer is given
	slow              // it takes seconds
	crashBefore       // the instance dies and the step is not done
	crashAfter        // the instance dies once it is done
	txAborted         // the server rolls the transaction back

	// Events.
	crash      // an instance dies between its steps
	pause      // an instance stands still
	restart    // an instance is stopped in order and another one started
	queueLost  // the queue forgets everything
	queueBack  // the queue goes back to an earlier moment
	queueJump  // the queue's clock jumps
	storeJump  // the database's clock jumps
	storeCrash // the database loses its open transactions
	storeDown  // the database does not answer for a while
	queueDown  // the queue does not answer for a while
	lockStorm  // a transaction holds rows

	// Events of a stream of their own; see drawLosses.
	typeLost     // the queue forgets the entries of one type
	wholeLost    // the queue forgets only that it knows all entries of a type
	rebuildLost  // it forgets a type, and once more while that is being rebuilt
	outcomesDown // the database takes neither outcomes nor renewals for a while, but claims
	storeBack    // after an outage the database is what it was a while before; see drawLoss

	questionsDown // the database does not say what it has kept, but claims; see drawConnections
	queueFull     // the queue has no memory for more; see drawKeys
	keyTaken      // somebody uses the key of a type
	keyRenamed    // somebody puts a type's entries under the key of another one
	stoppedMidway // an instance is stopped in order while it runs a batch that breaks, and another one started; see drawMidway
	rowsRefused   // the database refuses to change some entries for a while; see drawTriggers

	faults // how many
)

var faultNames = [faults]string{
	none: "none", errBefore: "error before", errAfter: "error after", hangBefore: "hang before", hangAfter: "hang after", twice: "twice",
	slow: "slow", crashBefore: "crash before", crashAfter: "crash after", txAborted: "transaction aborted", crash: "crash", pause: "pause",
	restart: "orderly restart", queueLost: "queue lost", queueBack: "queue rolled back", queueJump: "queue clock jump",
	storeJump: "database clock jump", storeCrash: "database crash", storeDown: "database down", queueDown: "queue down", lockStorm: "lock storm",
	typeLost: "type lost by the queue", wholeLost: "wholeness lost by the queue", rebuildLost: "type lost twice by the queue",
	outcomesDown: "outcomes refused", storeBack: "database rolled back",
	questionsDown: "questions refused", queueFull: "queue full", keyTaken: "key taken in the queue", keyRenamed: "key renamed in the queue", stoppedMidway: "orderly restart midway", rowsRefused: "entries refused",
}

func (f fault) String() string { return faultNames[f] }

// faultsOf are the faults a step of each class can meet.
var faultsOf = [...][]fault{
	classRead:   {errBefore, hangBefore, slow, crashBefore, crashAfter},
	classWrite:  {errBefore, errAfter, hangBefore, hangAfter, twice, slow, crashBefore, crashAfter},
	classOnce:   {errBefore, errAfter, hangBefore, hangAfter, slow, crashBefore, crashAfter},
	classInTx:   {errBefore, errAfter, hangBefore, hangAfter, slow, crashBefore, crashAfter, txAborted},
	classCommit: {errBefore, errAfter, slow, crashBefore, crashAfter, txAborted},
	classQueue:  {errBefore, errAfter, hangBefore, hangAfter, twice, slow, crashBefore, crashAfter},
}

// slowest is how long a slow step takes at most to the server, and its answer back.
const slowest = 3 * time.Second

// errBroken is what a caller is told of a step that went wrong: it says nothing about what was done.
var errBroken = errors.New("sim: connection broken")

// errDead is what an instance that has died would be told.
var errDead = errors.New("sim: this instance has died")

// spoil draws what goes wrong with a step. A kind must be active in this seed and its probability hit, so that
// seeds with one kind of problem and seeds with many both come up. It returns how much later the turn of the step comes.
func (w *world) spoil(r *request) (later time.Duration) {
	if r.lost != none {
		r.verdict.fault = r.lost
		return 0
	}
	if w.rng.Float64() >= w.plan.rate {
		return 0
	}
	kinds := faultsOf[r.class]
	f := kinds[w.rng.IntN(len(kinds))]
	if !w.plan.active[f] || (f == crashBefore || f == crashAfter) && w.rng.IntN(4) > 0 {
		return 0
	}
	r.verdict.fault = f
	if f == slow {
		later = time.Duration(w.rng.Int64N(int64(slowest)))
		r.verdict.reply += time.Duration(w.rng.Int64N(int64(slowest)))
	}
	return later
}

// outage is the fault of everything of a class right now, or of one operation.
func (w *world) outage(c class, op string) fault {
	var until time.Time
	switch {
	case c == classOwn:
	case c == classQueue:
		until = w.queueDown
	case op == "settle" || op == "settletx" || op == "renew":
		until = w.outcomesDown
	case op == "versions":
		until = w.questionsDown
	}
	now := time.Now()
	away := (c != classOwn && c != classQueue) && !(c == classRead && w.storeReads) && now.Before(w.storeDown)
	if away || now.Before(until) {
		return errBefore
	}
	return none
}

// event is a fault that comes by itself.
type event struct {
	at    time.Time
	fault fault
	whom  int           // which instance, row or snapshot: modulo how many there are
	span  time.Duration // how long, how far
	reads bool          // the database that is down answers reads
	after func()        // instead of a fault: what follows from an earlier event
}

// fire makes an event happen.
func (w *world) fire(e event) {
	if e.after != nil {
		e.after()
		return
	}
	if w.healed.Load() {
		return
	}
	w.counts[e.fault]++
	w.walk.add(time.Since(w.began), 0, "event", e.fault.String(), none)
	now := time.Now()
	switch e.fault {
	case crash:
		if n := w.alive(e.whom); n != nil {
			n.die()
		}
	case pause:
		if n := w.alive(e.whom); n != nil {
			w.pauseUntil(n, now.Add(e.span))
		}
	case restart:
		if n := w.alive(e.whom); n != nil && n.runs {
			w.retire(n)
			w.launch(true)
		}
	case stoppedMidway:
		w.stopMidway(e.whom)
	case queueLost:
		w.queue.Lose()
	case queueBack:
		if len(w.snapshots) > 0 {
			w.queue.Restore(w.snapshots[e.whom%len(w.snapshots)])
		}
	case queueJump:
		w.queueShift += e.span
		w.queue.ShiftClock(e.span)
	case storeJump:
		w.storeShift += e.span
		w.store.ShiftClock(e.span)
	case storeCrash:
		w.outages.Add(1)
		w.store.Crash()
	case storeDown:
		w.outages.Add(1)
		w.storeDown, w.storeReads = now.Add(e.span), e.reads
	case storeBack:
		w.outages.Add(1)
		w.storeDown, w.storeReads = now.Add(e.span), false
		w.goBack()
	case queueDown:
		w.queueDown = now.Add(e.span)
	case questionsDown:
		w.questionsDown = now.Add(e.span)
	case outcomesDown:
		w.outcomesDown = now.Add(e.span)
	case rowsRefused:
		w.refuseRows(e)
	case lockStorm:
		w.lockRows(e)
	case typeLost, rebuildLost:
		name := handledTypes[e.whom%len(handledTypes)]
		w.queue.LoseType(name)
		if e.fault == rebuildLost {
			w.loseAgain, w.loseAfter = name, e.span
		}
	case queueFull, keyTaken, keyRenamed:
		w.misuse(e)
	case wholeLost:
		w.queue.LoseWhole(handledTypes[e.whom%len(handledTypes)])
	}
}

// rebuilds takes note that somebody begins to rebuild types.
func (w *world) rebuilds(names string) {
	if lost := w.loseAgain; lost != "" && slices.Contains(strings.Fields(names), lost) {
		w.loseAgain = ""
		w.later(w.loseAfter, func() { w.queue.LoseType(lost) })
		w.gate.poke() // a step calls this, and the world's own goroutine waits for the events that it knows
	}
}

// later schedules what follows from an event.
func (w *world) later(in time.Duration, do func()) {
	w.schedule(event{at: time.Now().Add(in), after: do})
}

func (w *world) schedule(e event) {
	i := len(w.events)
	for i > 0 && w.events[i-1].at.After(e.at) {
		i--
	}
	w.events = append(w.events, event{})
	copy(w.events[i+1:], w.events[i:])
	w.events[i] = e
}

// pauseUntil holds every step of an instance.
func (w *world) pauseUntil(n *instance, until time.Time) {
	n.pausedUntil.Store(until.UnixNano())
	for _, r := range w.gate.pending {
		if r.from == n && r.ready.Before(until) {
			r.readyAt(until.Add(w.latency()))
			w.awaitAnswer(r)
		}
	}
}
