package sim

import (
	"errors"
	"slices"
	"strings"
	"time"
)

type class int

const (
	classOwn    class = iota
	classRead         // a statement that changes nothing
	classWrite        // a transaction of the store, which the store may repeat
	classOnce         // a transaction that only the engine may repeat
	classInTx         // a statement in an open transaction
	classCommit       // COMMIT
	classQueue        // a script or command of the queue
)

type fault int

const (
	none        fault = iota
	errBefore         // an error, and the step is not done
	errAfter          // an error, although the step is done
	hangBefore        // the step gets no answer until the caller's context ends, and the step is not done
	hangAfter         // the step gets no answer until the caller's context ends, although the step is done
	twice             // the step is done twice and returns the second result
	slow              // the step takes seconds
	crashBefore       // the instance dies and the step is not done
	crashAfter        // the instance dies after the step
	txAborted         // the server rolls the transaction back

	// The faults below are events.
	crash
	pause
	restart   // an instance is stopped gracefully, and another one starts
	queueLost // the queue loses everything
	queueBack
	queueJump
	storeJump
	storeCrash
	storeDown
	queueDown
	lockStorm

	// Each event below has its own random stream (see drawLosses for example).
	typeLost     // the queue loses the entries of one type
	wholeLost    // the queue loses only the mark that it holds all entries of a type
	rebuildLost  // the queue loses the entries of a type, and loses them again during the rebuild
	outcomesDown // the database refuses outcomes and renewals for a while, but accepts claims
	storeBack    // after an outage the database is in an earlier state (drawLoss)

	questionsDown // the database does not say which rows it still has, but accepts claims (drawConnections)
	queueFull     // the queue is out of memory (drawKeys)
	keyTaken      // a foreign program uses the key of a type
	keyRenamed    // a foreign program moves a type's entries to the key of another type
	stoppedMidway // an instance is stopped gracefully while it runs a batch that fails, and another one starts (drawMidway)
	rowsRefused   // the database refuses to change some entries for a while (drawTriggers)

	faults
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

var faultsOf = [...][]fault{
	classRead:   {errBefore, hangBefore, slow, crashBefore, crashAfter},
	classWrite:  {errBefore, errAfter, hangBefore, hangAfter, twice, slow, crashBefore, crashAfter},
	classOnce:   {errBefore, errAfter, hangBefore, hangAfter, slow, crashBefore, crashAfter},
	classInTx:   {errBefore, errAfter, hangBefore, hangAfter, slow, crashBefore, crashAfter, txAborted},
	classCommit: {errBefore, errAfter, slow, crashBefore, crashAfter, txAborted},
	classQueue:  {errBefore, errAfter, hangBefore, hangAfter, twice, slow, crashBefore, crashAfter},
}

// slowest is the longest extra time of a step to the server, and of its answer.
const slowest = 3 * time.Second

// The caller cannot tell from it whether the step was done.
var errBroken = errors.New("sim: connection broken")

var errDead = errors.New("sim: this instance has died")

func (w *world) drawFault(r *request) (later time.Duration) {
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

type event struct {
	at    time.Time
	fault fault
	whom  int // index of an instance, type or snapshot, modulo the number of these things
	span  time.Duration
	reads bool
	after func()
}

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

// The method rebuilds is called when a process begins to rebuild the queue for the named types. If the fault
// rebuildLost hit one of these types, the method schedules the second loss of that type, during the rebuild.
func (w *world) rebuilds(names string) {
	if lost := w.loseAgain; lost != "" && slices.Contains(strings.Fields(names), lost) {
		w.loseAgain = ""
		w.later(w.loseAfter, func() { w.queue.LoseType(lost) })
		w.gate.poke()
	}
}

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

func (w *world) pauseUntil(n *instance, until time.Time) {
	n.pausedUntil.Store(until.UnixNano())
	for _, r := range w.gate.pending {
		if r.from == n && r.ready.Before(until) {
			r.readyAt(until.Add(w.latency()))
			w.awaitAnswer(r)
		}
	}
}
