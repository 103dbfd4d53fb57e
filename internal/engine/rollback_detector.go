package engine

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/internal/groupcommit"
	"github.com/compensator-go/compensator/processlog"
)

// rollbackDetector remembers a little of what this process has seen the database keep, and reads it back from time to time. A
// database that knows less has gone back: it was promoted although it lagged, or restored. From then on nothing is
// started and nothing recorded here until a person has said go on, who may still have the better choice.
//
// What is remembered was read as committed, or its COMMIT was acknowledged. An INSERT that merely worked is no
// evidence: a savepoint may have been rolled back since, a deadlock swallowed.
type rollbackDetector struct {
	*Base
	types         *types
	claimSchedule *claimSchedule
	missing       *missing
	remembered    remembered

	batcher    groupcommit.Batcher[struct{}] // a process that only records reads back
	mustVerify atomic.Bool                   // the database is to be asked before anything claimed starts
	own        atomic.Int64                  // how many connections of our own had been opened at the last check
	users      atomic.Int64                  // the same of the user's, where a Connector counts them
	met        atomic.Int64                  // when those were last a reason to ask, unix ns
	lost       atomic.Pointer[loss]          // nil unless stopped

	guard    chan struct{}         // full while somebody asks the database; guards the fields below
	told     time.Time             // when the log was last told of the loss
	accepted map[goAhead]time.Time // when each was written, by this process's clock
}

// connected is what a store may tell beyond the contract, of its connections.
type connected interface {
	Connections() (own, users int64) // how many were opened so far
	ReadsCommitted() bool            // what is read outside a transaction is committed
}

func newRollbackDetector(b *Base, t *types, a *claimSchedule, m *missing) *rollbackDetector {
	w := &rollbackDetector{Base: b, types: t, claimSchedule: a, missing: m, guard: make(chan struct{}, 1), accepted: make(map[goAhead]time.Time)}
	w.remembered.part = latestRounds * b.ReconcileInterval / latestParts
	w.batcher.Max, w.batcher.Workers, w.batcher.Flush = 1000, 1, func([]struct{}) { _ = w.check(nil) }
	return w
}

// sawRead is sawRows for what was read outside a transaction, which in the user's pool may be at READ UNCOMMITTED: a change
// in flight would be remembered as kept, and its rollback stop the process.
func (w *rollbackDetector) sawRead(rows []processlog.Row, asked time.Time) {
	if s, ok := w.Store.(connected); !ok || s.ReadsCommitted() {
		w.remembered.sawRows(rows, asked)
	}
}

// recorded takes entries whose transaction has ended well, and that nobody here reads back before they are due. The
// next check finds out whether they are there; in a process that only records, it comes now and then.
func (w *rollbackDetector) recorded(fresh []freshEntry) {
	if len(fresh) == 0 {
		return
	}
	w.remembered.verifyLater(fresh)
	if !w.types.accepts.Load() && w.remembered.due(w.ReconcileInterval) {
		w.batcher.Add(struct{}{})
	}
}

// verify tells why rows that were just claimed may not run, or remembers them. A claim is the first that is sent over a new
// connection, and the first to be told of an outcome that is forgotten.
func (w *rollbackDetector) verify(rows []processlog.Row, asked time.Time) error {
	// Seen without a question: the row is older than what this process has seen of it.
	if refuted := w.remembered.refuted(rows); len(refuted) > 0 {
		if err := w.check(refuted); err != nil {
			return err
		}
	}
	// And with one, where the server may not be the one that was asked last. With no answer nothing starts, but that
	// the claim was committed is known.
	if err := w.checkIf(w.unsure); err != nil {
		w.remembered.sawAside(rows, asked)
		return err
	}
	if err := w.refusal(); err != nil {
		return err
	}
	w.remembered.sawRows(rows, asked)
	return nil
}

// verifyLater has the database asked before the next claim's entries start: its last answer was an error.
func (w *rollbackDetector) verifyLater() { w.mustVerify.Store(true) }

// unsure reports whether the server may be another one than at the last check.
func (w *rollbackDetector) unsure() bool {
	own, _ := w.connections()
	return w.mustVerify.Load() || own != w.own.Load()
}

// strange reports the same of the server the user's transactions are on. His pool may open connections all the time.
func (w *rollbackDetector) strange() bool {
	_, users := w.connections()
	return users != w.users.Load() && time.Since(time.Unix(0, w.met.Load())) > strangePause
}

// strangePause is how often the user's new connections are a reason to ask, at most.
const strangePause = time.Second

// connections counts those of our own that were opened so far, and those of the user's.
func (w *rollbackDetector) connections() (own, users int64) {
	if s, ok := w.Store.(connected); ok {
		return s.Connections()
	}
	return 0, 0
}

// stopped is why nothing is started and recorded here, or nil.
func (w *rollbackDetector) stopped() *loss { return w.lost.Load() }

// refusal is stopped as an error. A process that only records has no rounds: each refusal may have it look whether a
// person has said go on.
func (w *rollbackDetector) refusal() error {
	lost := w.stopped()
	if lost == nil {
		return nil
	}
	if !w.types.accepts.Load() && w.remembered.due(w.PollInterval) {
		w.batcher.Add(struct{}{})
	}
	return &lost.LossError
}

// refusesRecords is refusal before something is recorded: the first that may be sent over a new connection.
func (w *rollbackDetector) refusesRecords() error {
	if w.strange() {
		if len(w.remembered.latestNow()) > 0 { // with nothing remembered nothing is asked
			defer w.met.Store(time.Now().UnixNano())
		}
		_ = w.checkIf(w.strange) // refusing what may be well is worse: the business would stand still
	}
	return w.refusal()
}

// round is a round of the reconciler.
func (w *rollbackDetector) round() {
	_ = w.checkIf(func() bool { return w.stopped() != nil || w.unsure() || w.remembered.due(w.ReconcileInterval) })
}

// checkIf checks unless somebody else just has.
func (w *rollbackDetector) checkIf(needed func() bool) error {
	if !needed() {
		return nil
	}
	w.guard <- struct{}{}
	defer func() { <-w.guard }()
	if needed() { // whoever had the turn before has asked, perhaps
		return w.ask(nil)
	}
	return nil
}

// check asks the database for what is remembered, and for more.
func (w *rollbackDetector) check(more []rememberedVersion) error {
	w.guard <- struct{}{}
	defer func() { <-w.guard }()
	return w.ask(more)
}

// ask is check by whoever has the turn; when stopped it asks whether a person has said go on.
func (w *rollbackDetector) ask(more []rememberedVersion) error {
	ctx, cancel := w.Statement()
	defer cancel()
	// Counted before the question, and kept only after its answer: a connection that is opened meanwhile, and a doubt
	// that is raised, are reasons to ask again.
	own, users := w.connections()
	w.mustVerify.Store(false)
	var err error
	if w.stopped() == nil {
		err = w.compare(ctx, more)
	} else {
		err = w.seekAcceptance(ctx)
	}
	w.Saw(problemRollbackDetector, err)
	if err != nil {
		w.verifyLater()
		return err
	}
	w.own.Store(own)
	w.users.Store(users)
	return nil
}

// compare reads back.
func (w *rollbackDetector) compare(ctx context.Context, more []rememberedVersion) error {
	asked, began := slices.Concat(w.remembered.latestNow(), w.remembered.sweepOn(), more), time.Now()
	unverified := w.remembered.takeUnverified()
	if len(asked)+len(unverified) == 0 {
		return nil
	}
	wanted := slices.Clone(asked)
	for _, f := range unverified {
		wanted = append(wanted, rememberedVersion{Version: processlog.Version{ID: f.id}})
	}
	found, err := w.read(ctx, wanted)
	if err != nil {
		return err
	}
	w.missing.report(w.remembered.prove(unverified, found, began))
	if len(lostOf(asked, found, nil)) == 0 {
		return nil
	}
	return w.examine(ctx, asked, found)
}

func (w *rollbackDetector) read(ctx context.Context, list []rememberedVersion) (map[processlog.ID]processlog.Version, error) {
	ids := make([]processlog.ID, len(list))
	for i := range list {
		ids[i] = list[i].ID
	}
	slices.SortFunc(ids, processlog.ID.Compare)
	versions, err := w.Store.Versions(ctx, slices.Compact(ids))
	found := make(map[processlog.ID]processlog.Version, len(versions))
	for _, v := range versions {
		found[v.ID] = v
	}
	return found, err
}
