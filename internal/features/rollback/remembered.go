package rollback

import (
	"sync"
	"time"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/processlog"
)

const (
	versionsRemembered = 512 // maximum number of versions that a process remembers, and so can list as lost
	recordedKept       = 32  // maximum number of entries just recorded by this process that one check asks for
	sweepMost          = 32  // maximum number of versions from the field newest of versionMemory that one check asks for

	// latestRounds and latestParts describe the field latest of versionMemory. In a busy process, the versions in this
	// field were seen during a number of reconciler rounds, which is latestRounds. The time of these rounds is divided
	// into parts of equal length, and latestParts is their number. The field keeps only the first and the last version
	// of each part, because a process may see more versions than it can remember.
	latestRounds = 2
	latestParts  = 16
)

type version struct {
	processlog.Version
	businessType string
	seenAt       time.Time // just before sending the statement that returned the version
	databaseTime int64     // time on the database's clock at seenAt, in Unix milliseconds; 0: unknown
}

func rememberedAs(row *processlog.Row, sentAt time.Time) version {
	return version{versionOf(row), row.BusinessType, sentAt, clockOf(row)}
}

// provesLoss reports whether the database must have lost data if it does not have the entry any more.
func (v *version) provesLoss(now time.Time) bool {
	return !v.seenAt.IsZero() && now.Sub(v.seenAt) < engine.PurgeNoteAge
}

func clockOf(row *processlog.Row) int64 {
	if row.NextAt.IsZero() {
		return 0
	}
	return row.NextAt.Add(-row.DueIn).UnixMilli()
}

func versionOf(row *processlog.Row) processlog.Version {
	return processlog.Version{ID: row.ID, IdempotencyKey: row.IdempotencyKey, State: row.State, Number: row.Version, Epoch: row.Epoch, Token: row.Token}
}

// contradicts reports whether the found version of the entry shows that the database has lost the version v. The
// parameter exists is false if the database does not have the entry. The answer relies on two rules:
//
//   - The version number of an entry only grows, and one write uses each number.
//   - After a success, only a person changes the entry, and this change begins a new epoch.
func (v *version) contradicts(found processlog.Version, exists bool) bool {
	switch {
	case !exists:
		return time.Since(v.seenAt) < engine.PurgeNoteAge // an older entry may have been purged without a note
	case found.IdempotencyKey != v.IdempotencyKey, found.Number < v.Number, found.Epoch < v.Epoch:
		return true
	case found.Token == v.Token:
		return false
	}
	// The tokens differ, so the write that made the found version is not the write that made v. This proves a loss of v
	// in two cases:
	//
	//   - Both versions have the same number. Each number is used by one write, so the database has lost the write of
	//     v.
	//   - v is a success, and the found version has the same epoch. No write may follow a success in its epoch. See
	//     promise G3.
	return found.Number == v.Number || v.State.IsSuccess() && found.Epoch == v.Epoch
}

type versionMemory struct {
	partLength time.Duration // time that one element of the field latest covers

	mu          sync.Mutex                  // guards the fields below
	newest      [versionsRemembered]version // remembered versions, each at the index id modulo versionsRemembered
	latest      [latestParts][2]version     // first and last version of each partLength; each check reads both
	currentPart int
	partBegan   time.Time
	sweepIndex  int // where the next call of sweepOn begins, as an index of the field newest
}

// sawRows remembers the versions of rows that have not ended. It ignores ended entries, because they may be old, and
// old entries can be purged at any moment.
func (m *versionMemory) sawRows(rows []processlog.Row, sentAt time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range rows {
		if !rows[i].State.Terminal() {
			m.rememberLocked(rememberedAs(&rows[i], sentAt))
		}
	}
}

// sawUnconfirmed remembers versions of rows before a check has confirmed that the database has lost nothing. The rows
// may come from a database that has gone back to an older state. So sawUnconfirmed does not change the field latest,
// where such a row could replace the version that shows the loss.
func (m *versionMemory) sawUnconfirmed(rows []processlog.Row, sentAt time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range rows {
		m.keepLocked(rememberedAs(&rows[i], sentAt))
	}
}

// sawStored remembers the version that an outcome has written. The remembered number is the number in the claim plus 1.
// The real number is higher if the row has changed since the claim. A success can be stored in spite of such a change.
func (m *versionMemory) sawStored(row *processlog.Row, o *processlog.Outcome, token processlog.Token, sentAt time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	stored := processlog.Version{ID: o.ID, IdempotencyKey: o.IdempotencyKey, State: o.To, Number: o.Version + 1, Epoch: o.Epoch, Token: token}
	m.rememberLocked(version{stored, row.BusinessType, sentAt, clockOf(row)})
}

func (m *versionMemory) rememberLocked(v version) {
	if time.Since(m.partBegan) > m.partLength {
		m.partBegan, m.currentPart = time.Now(), (m.currentPart+1)%latestParts
		// Begin a new part of the field latest with the version v. Later versions of the same part replace the version
		// at index 1, but not v at index 0. The reason is that after a loss, this process reads only versions that the
		// database still has. These versions may replace index 1, and then v may be the only proof of the loss.
		m.latest[m.currentPart] = [2]version{v}
	}
	m.latest[m.currentPart][1] = v
	m.keepLocked(v)
}

// keepLocked stores the version v in the field newest. If the version that is stored there contradicts v, keepLocked
// drops v. The stored version may be the only proof of a loss.
func (m *versionMemory) keepLocked(v version) {
	place := &m.newest[v.ID.Row()%versionsRemembered]
	if place.ID == v.ID && place.contradicts(v.Version, true) && time.Since(place.seenAt) < engine.PurgeNoteAge {
		return
	}
	*place = v
}

// contradictedBy returns the remembered versions that the claimed rows contradict. The caller must read the entries of
// the returned versions once more before it reports a loss. The rows may be outdated, because the database's answer to
// the claim may have been delayed.
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

// sweepOn returns the next remembered versions of the field newest for a check. It begins where its last call stopped.
// A check also reads all versions of the field latest, but these may not show a loss: other processes may have changed
// their entries again since the loss. The versions that sweepOn returns may still show it.
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

// rememberFound remembers the recorded entries that a check has found, and returns the missing ones. It puts the found
// entries into a new part of the field latest. In the present part, a found entry would replace the last version, which
// may be the only proof of a loss. The found entry may be no proof: it may have been committed earlier than that
// version, and the database may still have the earlier commit after the loss.
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
