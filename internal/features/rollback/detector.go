// Package rollback notices a database that has gone back to an earlier state: a lagging replica was promoted, or a backup was
// restored. The package reports the loss, and on request it also stops this process until a person accepts the loss.
package rollback

import (
	"context"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/groupcommit"
	"github.com/compensator-go/compensator/processlog"
)

const problem = "what the database has kept so far could not be read back"

// Detector remembers some versions of entries that this process has seen committed, and reads them back from time to
// time. A version that the database no longer has is a loss.
//
// The success of an INSERT shows no commit, because its transaction may have been rolled back to a savepoint.
type Detector struct {
	e          *engine.Engine
	stopOnLoss bool // a loss stops this process until a person accepts it
	versions   versionMemory

	reportMissing func(entries []engine.RecordedEntry)

	// recorded holds recorded entries that no check has read yet. Before a check has read an entry, the detector does
	// not know whether the entry was committed.
	recorded chan engine.RecordedEntry
	// checks is the batcher of checks in the background. Each added version requests a check that also reads this
	// version. The zero version names no entry. If only zero versions were added, the check is made in two cases:
	// ReconcileInterval has passed since the last check, or another server may answer now.
	checks          groupcommit.Batcher[version]
	mustCheck       atomic.Bool  // another server may answer after a failed statement
	connectionsSeen atomic.Int64 // at the last check
	startedAt       time.Time
	lastCheck       atomic.Int64         // in nanoseconds since startedAt
	openLoss        atomic.Pointer[loss] // nil if there is none

	guard      chan struct{} // holds a value during a check; guards the fields below
	loggedAt   time.Time
	toReport   findings                 // of the present check; the method unlock reports these findings
	acceptedAt map[acceptance]time.Time // when each acceptance was written, by this process's clock
}

type connectionReporter interface {
	Connections() int64   // opened so far
	ReadsCommitted() bool // whether a read outside a transaction returns committed rows only
}

// New makes a detector. The detector calls reportMissing with recorded entries whose ids are not in the database. It
// notices nothing before Watch.
func New(e *engine.Engine, stopOnLoss bool, reportMissing func(entries []engine.RecordedEntry)) *Detector {
	d := &Detector{e: e, stopOnLoss: stopOnLoss, reportMissing: reportMissing, recorded: make(chan engine.RecordedEntry, recordedKept), startedAt: time.Now(), guard: make(chan struct{}, 1),
		acceptedAt: make(map[acceptance]time.Time)}
	d.versions.partLength = latestRounds * e.ReconcileInterval / latestParts
	d.lastCheck.Store(math.MinInt64 / 2)
	d.checks.Max, d.checks.Workers, d.checks.Flush = processlog.MaxRows, 1, d.checkAside
	e.Await(engine.WaitInClose, &d.checks)
	return d
}

// Watch attaches the detector to the engine. Call it before anything is recorded or run.
func (d *Detector) Watch() {
	d.e.AttachWatcher(func(w *engine.Watcher) {
		w.Claimed, w.Read, w.Stored, w.Recorded, w.Failed, w.Round = d.rememberClaimed, d.sawRead, d.versions.sawStored, d.sawRecorded, d.checkLater, d.checkInRound
		if d.stopOnLoss {
			w.Claimed, w.HoldReason = d.verifyClaimed, d.Lost
		}
	})
}

// Lost returns a *processlog.LossError with the loss that no person has accepted, or nil. It asks no server.
func (d *Detector) Lost() error {
	if loss := d.openLoss.Load(); loss != nil {
		return &loss.LossError
	}
	return nil
}

// sawRead ignores a pool at READ UNCOMMITTED, because changes that are rolled back would look lost.
func (d *Detector) sawRead(rows []processlog.Row, sentAt time.Time) {
	if s, ok := d.e.Store.(connectionReporter); !ok || s.ReadsCommitted() {
		d.versions.sawRows(rows, sentAt)
	}
}

// sawRecorded keeps recorded entries for the next check. It does not wait, because the caller has just committed. If
// the list is full, sawRecorded drops the oldest entry. The newer entries are more useful, because a database that goes
// back to an earlier state loses its newest entries.
//
// A process without Run has no rounds of the reconciler. In such a process, sawRecorded starts a check in the
// background if ReconcileInterval has passed since the last check.
func (d *Detector) sawRecorded(fresh []engine.InsertedEntry) {
	for i := max(0, len(fresh)-recordedKept); i < len(fresh); i++ {
		d.keepRecorded(fresh[i].RecordedEntry)
	}
}

func (d *Detector) keepRecorded(r engine.RecordedEntry) {
	if r.ID.IsZero() {
		return
	}
	for {
		select {
		case d.recorded <- r:
			if !d.e.Accepts() && d.checkDue() {
				d.checks.Add(version{})
			}
			return
		default:
		}
		select {
		case <-d.recorded:
		default:
		}
	}
}

// rememberClaimed remembers the versions of claimed rows. There are two cases in which the rows count as unconfirmed,
// and a check starts in the background:
//
//   - The rows contradict remembered versions.
//   - Another server may have answered, because a connection was opened or a statement failed.
func (d *Detector) rememberClaimed(rows []processlog.Row, sentAt time.Time) error {
	contradicted := d.versions.contradictedBy(rows)
	if len(contradicted) == 0 && !d.serverMayDiffer() {
		d.versions.sawRows(rows, sentAt)
		return nil
	}
	d.versions.sawUnconfirmed(rows, sentAt)
	d.checks.Add(append(contradicted, version{})...)
	return nil
}

// verifyClaimed is used instead of rememberClaimed if a loss stops this process. It returns an error if the claimed
// rows may not run.
func (d *Detector) verifyClaimed(rows []processlog.Row, sentAt time.Time) error {
	ctx := d.e.Work
	if contradicted := d.versions.contradictedBy(rows); len(contradicted) > 0 {
		if err := d.check(ctx, contradicted); err != nil {
			return err
		}
	}
	// Without an answer nothing starts. The claim has committed, so its rows are remembered.
	if err := d.checkIf(ctx, d.serverMayDiffer); err != nil {
		d.versions.sawUnconfirmed(rows, sentAt)
		return err
	}
	if err := d.Lost(); err != nil {
		return err
	}
	d.versions.sawRows(rows, sentAt)
	return nil
}

func (d *Detector) checkLater() { d.mustCheck.Store(true) }

func (d *Detector) serverMayDiffer() bool {
	return d.mustCheck.Load() || d.connections() != d.connectionsSeen.Load()
}

func (d *Detector) connections() int64 {
	if s, ok := d.e.Store.(connectionReporter); ok {
		return s.Connections()
	}
	return 0
}

func (d *Detector) checkDue() bool {
	return time.Since(d.startedAt)-time.Duration(d.lastCheck.Load()) >= d.e.ReconcileInterval
}

// checkInRound makes a check in a round of the reconciler if one of these conditions holds:
//
//   - A loss has stopped this process. A person may have accepted the loss since the last round.
//   - Another server may answer now.
//   - ReconcileInterval has passed since the last check.
func (d *Detector) checkInRound(ctx context.Context) {
	_ = d.checkIf(ctx, func() bool { return d.stopOnLoss && d.openLoss.Load() != nil || d.serverMayDiffer() || d.checkDue() })
}

func (d *Detector) checkAside(batch []version) {
	extraVersions := slices.DeleteFunc(batch, func(v version) bool { return v.ID.IsZero() })
	if len(extraVersions) > 0 {
		_ = d.check(d.e.Work, extraVersions)
		return
	}
	_ = d.checkIf(d.e.Work, func() bool { return d.serverMayDiffer() || d.checkDue() })
}

func (d *Detector) checkIf(ctx context.Context, needed func() bool) error {
	if !needed() {
		return nil
	}
	if err := d.lock(ctx); err != nil {
		return err
	}
	defer d.unlock()
	if needed() {
		return d.checkLocked(ctx, nil)
	}
	return nil
}

func (d *Detector) check(ctx context.Context, extraVersions []version) error {
	if err := d.lock(ctx); err != nil {
		return err
	}
	defer d.unlock()
	return d.checkLocked(ctx, extraVersions)
}

func (d *Detector) lock(ctx context.Context) error {
	select {
	case d.guard <- struct{}{}:
		if ctx.Err() == nil {
			return nil
		}
		d.unlock()
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}

// unlock reports the findings after the unlock, because the observer may call Accept, which needs the lock.
func (d *Detector) unlock() {
	found := d.toReport
	d.toReport = findings{}
	<-d.guard
	d.reportMissing(found.missing)
	if found.loss != nil {
		engine.NotifyObserver(d.e.Base, d.e.Observer.HistoryLost, &found.loss.LossError)
	}
}

type findings struct {
	loss    *loss // nil if there is no new loss
	missing []engine.RecordedEntry
}

// checkLocked makes a check. The caller must hold the lock. The check lasts for engine.StatementTimeout at most. It
// ends early when ctx ends or the engine is closed.
func (d *Detector) checkLocked(ctx context.Context, extraVersions []version) error {
	limited, cancel := context.WithTimeout(ctx, engine.StatementTimeout)
	defer cancel()
	defer context.AfterFunc(d.e.Work, cancel)()
	// If a connection opens or a statement fails during the check, another check is needed.
	opened := d.connections()
	d.mustCheck.Store(false)
	d.lastCheck.Store(int64(time.Since(d.startedAt)))
	err := d.askDatabase(limited, extraVersions)
	if err != nil {
		d.checkLater()
	} else {
		d.connectionsSeen.Store(opened)
	}
	if ctx.Err() == nil { // A caller that gives up says nothing about the database.
		d.e.NoteResult(problem, err)
	}
	return err
}

// askDatabase looks for no second loss after a loss has stopped this process.
func (d *Detector) askDatabase(ctx context.Context, extraVersions []version) error {
	if loss := d.openLoss.Load(); loss != nil {
		accepted, err := d.endIfAccepted(ctx, loss)
		if err != nil || accepted || d.stopOnLoss {
			return err
		}
	}
	return d.compareVersions(ctx, extraVersions)
}

func (d *Detector) compareVersions(ctx context.Context, extraVersions []version) error {
	remembered, began := slices.Concat(d.versions.latestNow(), d.versions.sweepOn(), extraVersions), time.Now()
	recorded := d.takeRecorded()
	if len(remembered)+len(recorded) == 0 {
		return nil
	}
	wanted := slices.Clone(remembered)
	for _, r := range recorded {
		wanted = append(wanted, version{Version: processlog.Version{ID: r.ID}})
	}
	found, err := d.readVersions(ctx, wanted)
	if err != nil {
		return err
	}
	d.toReport.missing = append(d.toReport.missing, d.versions.rememberFound(recorded, found, began)...)
	if len(lostOf(remembered, found, nil)) == 0 {
		return nil
	}
	return d.confirmLoss(ctx, remembered, found)
}

// takeRecorded returns each recorded entry once.
func (d *Detector) takeRecorded() (list []engine.RecordedEntry) {
	for range recordedKept {
		select {
		case r := <-d.recorded:
			list = append(list, r)
		default:
			return list
		}
	}
	return list
}

func (d *Detector) readVersions(ctx context.Context, list []version) (map[processlog.ID]processlog.Version, error) {
	ids := make([]processlog.ID, len(list))
	for i := range list {
		ids[i] = list[i].ID
	}
	slices.SortFunc(ids, processlog.ID.Compare)
	versions, err := d.e.Store.Versions(ctx, slices.Compact(ids))
	found := make(map[processlog.ID]processlog.Version, len(versions))
	for _, v := range versions {
		found[v.ID] = v
	}
	return found, err
}
