package rollback

import (
	"sync"
	"time"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/processlog"
)

const (
	versionsRemembered = 512 // limits what a process can list as lost
	recordedKept       = 32  // number of entries recorded here that a check asks for
	sweepMost          = 32  // number of other remembered versions that a check asks for; 16 checks ask for all

	// The field latest covers the time of the last latestRounds rounds of the reconciler. It keeps two versions for
	// each of latestParts parts of this time, because a process may see more versions than it can remember.
	latestRounds = 2
	latestParts  = 16
)

// version is a version that an entry once had in the database.
type version struct {
	processlog.Version
	businessType string
	seenAt       time.Time // time just before sending the statement that returned the version
	databaseTime int64     // what the database's clock said then, in Unix milliseconds; 0: unknown
}

func rememberedAs(row *processlog.Row, sentAt time.Time) version {
	return version{versionOf(row), row.BusinessType, sentAt, clockOf(row)}
}

// provesLoss reports whether the entry of v must still exist, so that a missing entry proves a loss. The zero version proves
// nothing.
func (v *version) provesLoss(now time.Time) bool {
	return !v.seenAt.IsZero() && now.Sub(v.seenAt) < engine.PurgeNoteAge
}

// clockOf returns the time on the database's clock when a row was read.
func clockOf(row *processlog.Row) int64 {
	if row.NextAt.IsZero() {
		return 0
	}
	return row.NextAt.Add(-row.DueIn).UnixMilli()
}

func versionOf(row *processlog.Row) processlog.Version {
	return processlog.Version{ID: row.ID, IdempotencyKey: row.IdempotencyKey, State: row.State, Number: row.Version, Epoch: row.Epoch, Token: row.Token}
}

// contradicts reports whether the database must have gone back. The database once had version v. The parameter found is
// what the database has now. The parameter exists is false if the database lacks the entry.
//
// Version numbers only grow, and each number is written once. After a success only a person changes the entry, and that
// change begins a new epoch. So if a success is gone although the epoch is the same, the success was lost.
func (v *version) contradicts(found processlog.Version, exists bool) bool {
	switch {
	case !exists:
		return time.Since(v.seenAt) < engine.PurgeNoteAge // an older entry may have been purged without a note
	case found.IdempotencyKey != v.IdempotencyKey, found.Number < v.Number, found.Epoch < v.Epoch:
		return true
	case found.Token == v.Token:
		return false
	}
	// Another write has this number, or has replaced a success of the same epoch (G3, who may leave a terminal state).
	return found.Number == v.Number || (v.State == processlog.Succeeded || v.State == processlog.Compensated) && found.Epoch == v.Epoch
}

// versionMemory holds the versions that a detector remembers.
type versionMemory struct {
	partLength time.Duration // how long each part of the field latest covers

	mu          sync.Mutex                  // guards the fields below
	newest      [versionsRemembered]version // newest versions, each at the index id modulo versionsRemembered
	latest      [latestParts][2]version     // first and last version of each part of the last rounds; every check asks for them
	currentPart int                         // index of the present part
	partBegan   time.Time                   // when the present part began
	sweepIndex  int                         // index in newest of the next version that a check asks for beside latest
}

// sawRows remembers rows that were read as committed, or claimed. sentAt is the time at which the statement was sent.
// sawRows leaves out ended entries, because they may be old and purged at any moment.
func (m *versionMemory) sawRows(rows []processlog.Row, sentAt time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range rows {
		if !rows[i].State.Terminal() {
			m.rememberLocked(rememberedAs(&rows[i], sentAt))
		}
	}
}

// sawUnconfirmed remembers claimed rows that no check has confirmed yet. The database that leased these rows may have
// been rolled back to an earlier state. So sawUnconfirmed adds the rows only to the field newest. In the field latest
// they could replace a version that shows the loss.
func (m *versionMemory) sawUnconfirmed(rows []processlog.Row, sentAt time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range rows {
		m.keepLocked(rememberedAs(&rows[i], sentAt))
	}
}

// sawStored remembers a stored outcome. The parameter row is the entry as it was claimed. A success may be stored
// although the row has changed since the claim. The version number in the database is then higher than the number that
// sawStored remembers. It is never lower.
func (m *versionMemory) sawStored(row *processlog.Row, o *processlog.Outcome, token processlog.Token, sentAt time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	stored := processlog.Version{ID: o.ID, IdempotencyKey: o.IdempotencyKey, State: o.To, Number: o.Version + 1, Epoch: o.Epoch, Token: token}
	m.rememberLocked(version{stored, row.BusinessType, sentAt, clockOf(row)})
}

func (m *versionMemory) rememberLocked(v version) {
	if time.Since(m.partBegan) > m.partLength {
		m.partBegan, m.currentPart = time.Now(), (m.currentPart+1)%latestParts
		// Keep the first version of each part, which is a short span of time. A late answer may show a version from
		// before a loss. Later versions must not replace that version, because only it shows the loss.
		m.latest[m.currentPart] = [2]version{v}
	}
	m.latest[m.currentPart][1] = v
	m.keepLocked(v)
}

// keepLocked remembers v in the field newest. Ids grow, so newest has the newest entries, and each entry once. If v
// contradicts the remembered version of its entry, keepLocked drops v. Either v is older, or the database has gone
// back. If it has gone back, the remembered version may be the only proof.
func (m *versionMemory) keepLocked(v version) {
	place := &m.newest[v.ID.Row()%versionsRemembered]
	if place.ID == v.ID && place.contradicts(v.Version, true) && time.Since(place.seenAt) < engine.PurgeNoteAge {
		return
	}
	*place = v
}

// contradictedBy returns the remembered versions that claimed rows contradict. These versions need not be lost, because
// the answer to the claim may have been delayed. The caller must read them from the database once more.
func (m *versionMemory) contradictedBy(rows []processlog.Row) (list []version) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range rows {
		v := &m.newest[rows[i].ID.Row()%versionsRemembered]
		if v.ID == rows[i].ID && v.contradicts(versionOf(&rows[i]), true) {
			list = append(list, *v)
		}
	}
	return list
}

// latestNow returns the versions in the field latest. Every check reads them back.
func (m *versionMemory) latestNow() (list []version) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for p := range m.latest {
		first, last := &m.latest[p][0], &m.latest[p][1]
		if first.provesLoss(now) {
			list = append(list, *first)
		}
		if last.provesLoss(now) && *last != *first {
			list = append(list, *last)
		}
	}
	return list
}

// sweepOn returns up to sweepMost versions of the field newest. Each call continues where the last one stopped.
//
// The versions in the field latest are not enough, because latest holds only the first and the last version of each
// part. After a loss, other processes may change the entries of these two versions again. If the new version numbers
// are higher than the remembered ones, the two versions no longer show the loss. Other versions of the part still show
// it.
func (m *versionMemory) sweepOn() (list []version) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for range m.newest {
		if len(list) == sweepMost {
			break
		}
		if v := &m.newest[m.sweepIndex]; v.provesLoss(now) {
			list = append(list, *v)
		}
		m.sweepIndex = (m.sweepIndex + 1) % versionsRemembered
	}
	return list
}

// rememberFound remembers the recorded entries that were found, and returns the others. A found entry may be older than
// the newest version seen so far. The found entries therefore begin a new part of the field latest, and do not replace
// the newest version in its part.
func (m *versionMemory) rememberFound(recorded []engine.RecordedEntry, found map[processlog.ID]processlog.Version, sentAt time.Time) (missing []engine.RecordedEntry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(recorded) > 0 {
		m.partBegan = time.Time{}
	}
	for _, r := range recorded {
		switch v := found[r.ID]; {
		case v.IdempotencyKey != r.IdempotencyKey:
			missing = append(missing, r)
		case !v.State.Terminal():
			m.rememberLocked(version{v, r.BusinessType, sentAt, 0})
		}
	}
	return missing
}

func (m *versionMemory) all() (list []version) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, v := range m.newest {
		if !v.ID.IsZero() {
			list = append(list, v)
		}
	}
	return list
}

func (m *versionMemory) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.newest[:])
	clear(m.latest[:])
}
