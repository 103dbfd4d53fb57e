package engine

import (
	"context"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// Watcher is a feature that follows what the database tells this process. [Engine.Watch] attaches it. Watch gives a function that is nil
// the place of one that does nothing.
type Watcher struct {
	// Hold returns why no claim may begin and no entry may start here, or nil. It returns at once. Call Engine.Wake when Hold
	// returns nil again.
	Hold func() error

	// Claimed is called with the rows of each claim before one of them starts. asked is when the claim was sent. After an error
	// none of them starts, and the engine gives them back. Claimed may ask the database.
	Claimed func(rows []processlog.Row, asked time.Time) error

	// Read is called with rows that this process has recorded and then read back outside a transaction.
	Read func(rows []processlog.Row, asked time.Time)

	// Stored is called for each outcome that the database has stored. row is the entry as it was claimed, and token is the token
	// that the outcome was written with. asked is when the statement was sent that the database has answered.
	Stored func(row *processlog.Row, o *processlog.Outcome, token processlog.Token, asked time.Time)

	// Recorded is called for entries whose transaction has committed and that this process does not read back before they are
	// due. Of many entries of one Record call it gets the last 32. The goroutine that committed calls it: it must not wait.
	Recorded func(e RecordedEntry)

	// Failed is called when the database has not answered a claim or a search for due entries. Another server may answer next.
	Failed func()

	// Round is called in each round of the reconciler, before the round claims anything. ctx is the context of Run.
	Round func(ctx context.Context)
}

// RecordedEntry is an entry whose transaction is reported as committed. That is no proof that the entry exists.
type RecordedEntry struct {
	ID             processlog.ID // zero if the database has not told it
	IdempotencyKey processlog.IdempotencyKey
	BusinessType   string
	Watched        bool // the connection has seen the commit
}

// PurgeNoteAge is the age below which a purge of ended entries must leave a note in the audit table. Without the note, a Watcher
// could take the purged entries for lost ones.
const PurgeNoteAge = time.Hour

// recordedMost is how many entries of one Record call a Watcher gets.
const recordedMost = 32

// noWatcher is the Watcher of a feature that follows nothing.
var noWatcher = Watcher{
	Hold:     func() error { return nil },
	Claimed:  func([]processlog.Row, time.Time) error { return nil },
	Read:     func([]processlog.Row, time.Time) {},
	Stored:   func(*processlog.Row, *processlog.Outcome, processlog.Token, time.Time) {},
	Recorded: func(RecordedEntry) {},
	Failed:   func() {},
	Round:    func(context.Context) {},
}

// Watch attaches a watcher. Call it before anything is recorded or run.
func (e *Engine) Watch(w Watcher) { e.watchers = append(e.watchers, complete(w, noWatcher)) }

// Held returns why no claim may begin and no entry may start, or nil.
func (b *Base) Held() error {
	for _, w := range b.watchers {
		if err := w.Hold(); err != nil {
			return err
		}
	}
	return nil
}

func (b *Base) sawClaimed(rows []processlog.Row, asked time.Time) error {
	for _, w := range b.watchers {
		if err := w.Claimed(rows, asked); err != nil {
			return err
		}
	}
	return nil
}

func (b *Base) SawRead(rows []processlog.Row, asked time.Time) {
	for _, w := range b.watchers {
		w.Read(rows, asked)
	}
}

func (b *Base) sawStored(s *settlement, asked time.Time) {
	for _, w := range b.watchers {
		w.Stored(&s.a.Row, &s.outcome, s.token, asked)
	}
}

func (b *Base) SawRecorded(fresh []Fresh) {
	for _, w := range b.watchers {
		for _, f := range fresh[max(0, len(fresh)-recordedMost):] {
			w.Recorded(f.Recorded())
		}
	}
}

func (b *Base) sawFailed() {
	for _, w := range b.watchers {
		w.Failed()
	}
}
