package engine

import (
	"context"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// Watcher is a feature that follows what the database tells this process. [Engine.Watch] attaches it. A nil function is not called.
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

// Watch attaches a watcher. Call it before anything is recorded or run.
func (e *Engine) Watch(w Watcher) { e.watchers = append(e.watchers, w) }

// Held returns why no claim may begin and no entry may start, or nil.
func (b *Base) Held() error {
	for i := range b.watchers {
		if f := b.watchers[i].Hold; f != nil {
			if err := f(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *Base) sawClaimed(rows []processlog.Row, asked time.Time) error {
	for i := range b.watchers {
		if f := b.watchers[i].Claimed; f != nil {
			if err := f(rows, asked); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *Base) SawRead(rows []processlog.Row, asked time.Time) {
	for i := range b.watchers {
		if f := b.watchers[i].Read; f != nil {
			f(rows, asked)
		}
	}
}

func (b *Base) sawStored(s *settlement, asked time.Time) {
	for i := range b.watchers {
		if f := b.watchers[i].Stored; f != nil {
			f(&s.a.Row, &s.outcome, s.token, asked)
		}
	}
}

func (b *Base) SawRecorded(fresh []Fresh) {
	for i := range b.watchers {
		f := b.watchers[i].Recorded
		if f == nil {
			continue
		}
		for _, e := range fresh[max(0, len(fresh)-recordedMost):] {
			f(e.Recorded())
		}
	}
}

func (b *Base) sawFailed() {
	for i := range b.watchers {
		if f := b.watchers[i].Failed; f != nil {
			f()
		}
	}
}

func (b *Base) roundBegins(ctx context.Context) {
	for i := range b.watchers {
		if f := b.watchers[i].Round; f != nil {
			f(ctx)
		}
	}
}
