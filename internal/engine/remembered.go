package engine

import (
	"sync"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

const (
	versionsRemembered = 512 // bounds what a process can list as lost
	unverifiedKept     = 32  // entries recorded here that a check asks for
	sweepMost          = 32  // of all that is remembered, how many a check asks for: after sixteen all had their turn

	// latestRounds is how many rounds of the reconciler the trail covers: between two of them, much more may be seen
	// than is kept.
	latestRounds = 2
	latestParts  = 16

	// RememberedVersionLife is how long it means something that an entry is not there. A purge of younger ones leaves a note.
	RememberedVersionLife = time.Hour
)

// rememberedVersion is one version of an entry that the database has kept.
type rememberedVersion struct {
	processlog.Version
	businessType string
	at           time.Time // before the statement was sent whose answer says so
	clock        int64     // what the database's clock said by then, unix ms; 0: nobody knows
}

func rememberedVersionOf(row *processlog.Row, asked time.Time) rememberedVersion {
	return rememberedVersion{versionOf(row), row.BusinessType, asked, clockOf(row)}
}

// lives reports whether it still means something that the entry is not there. The zero remembered version does not live.
func (s *rememberedVersion) lives(now time.Time) bool {
	return !s.at.IsZero() && now.Sub(s.at) < RememberedVersionLife
}

// clockOf is what the database's clock said when a row was read.
func clockOf(row *processlog.Row) int64 {
	if row.NextAt.IsZero() {
		return 0
	}
	return row.NextAt.Add(-row.DueIn).UnixMilli()
}

func versionOf(row *processlog.Row) processlog.Version {
	return processlog.Version{ID: row.ID, IdempotencyKey: row.IdempotencyKey, State: row.State, Number: row.Version, Epoch: row.Epoch, Token: row.Token}
}

// storedAs is the version that an outcome leaves.
func storedAs(o *processlog.Outcome, token processlog.Token) processlog.Version {
	return processlog.Version{ID: o.ID, IdempotencyKey: o.IdempotencyKey, State: o.To, Number: o.Version + 1, Epoch: o.Epoch, Token: token}
}

// refutes reports whether a history that has had s cannot hold found, or nothing: versions only grow, each is written
// once, and over a success nobody writes but a person, who begins another epoch. That tells a success that is gone from
// a row that others have carried past it since.
func (s *rememberedVersion) refutes(found processlog.Version, exists bool) bool {
	switch {
	case !exists:
		// Later it may have been purged, and only a younger purge leaves a note.
		return time.Since(s.at) < RememberedVersionLife
	case found.IdempotencyKey != s.IdempotencyKey, found.Number < s.Number, found.Epoch < s.Epoch:
		return true
	case found.Token == s.Token:
		return false
	}
	// Another's mark: under the same number that write stands where ours was; at a higher one it is as it should be,
	// except over a success of the same epoch, which nobody but a person writes over (G3).
	return found.Number == s.Number || (s.State == processlog.Succeeded || s.State == processlog.Compensated) && found.Epoch == s.Epoch
}

// remembered is what a rollback detector remembers.
type remembered struct {
	part time.Duration // how long each part of the trail covers

	mu         sync.Mutex                            // guards the fields below
	seen       [versionsRemembered]rememberedVersion // the newest, each at its id modulo their number
	latest     [latestParts][2]rememberedVersion     // first and last of each part of the last rounds: what is read back first
	at         int                                   // the present part's place in trail
	began      time.Time                             // when it began
	unverified [unverifiedKept]freshEntry            // recorded here, and not read back yet: no evidence
	next       int                                   // place in doubts
	checked    time.Time
	sweep      int // place in seen, of what the next check asks for beside the trail
}

// sawRows remembers rows that were read as committed, or claimed. asked is when the statement was sent. One at its
// end may be old, and purged the next moment.
func (m *remembered) sawRows(rows []processlog.Row, asked time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range rows {
		if !rows[i].State.Terminal() {
			m.rememberLocked(rememberedVersionOf(&rows[i], asked))
		}
	}
}

// sawAside is sawRows for claims of a database that did not say what it has kept. They are asked for in their turn: the
// trail keeps what was seen before them, which they may be older than.
func (m *remembered) sawAside(rows []processlog.Row, asked time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range rows {
		m.keepLocked(rememberedVersionOf(&rows[i], asked))
	}
}

// sawStored remembers outcomes that are stored. An absorbed success may have got a higher number: it is then no lower.
func (m *remembered) sawStored(batch []settlement, results []processlog.Settled, asked time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, r := range results {
		if o := &batch[i].outcome; r.Applied {
			row := &batch[i].a.Row // as claimed, a while before
			m.rememberLocked(rememberedVersion{storedAs(o, batch[i].token), row.BusinessType, asked, clockOf(row)})
		}
	}
}

func (m *remembered) rememberLocked(s rememberedVersion) {
	if time.Since(m.began) > m.part {
		m.began, m.at = time.Now(), (m.at+1)%latestParts
		// The first of each part stays: an answer that was long on its way is not to be covered by the next one.
		m.latest[m.at] = [2]rememberedVersion{s}
	}
	m.latest[m.at][1] = s
	m.keepLocked(s)
}

// keepLocked remembers s among all. Ids grow: these are about the newest, each entry once. What refutes s stays: either s
// is older, or the database has gone back, and nothing else may show it.
func (m *remembered) keepLocked(s rememberedVersion) {
	place := &m.seen[s.ID.Row()%versionsRemembered]
	if place.ID == s.ID && place.refutes(s.Version, true) && time.Since(place.at) < RememberedVersionLife {
		return
	}
	*place = s
}

// refuted lists what is remembered of rows and cannot have been, as they were claimed. It may be that the claim's
// answer was on its way for long: only the database can tell.
func (m *remembered) refuted(rows []processlog.Row) (list []rememberedVersion) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range rows {
		s := &m.seen[rows[i].ID.Row()%versionsRemembered]
		// The place may be another entry's by now.
		if s.ID == rows[i].ID && s.refutes(versionOf(&rows[i]), true) {
			list = append(list, *s)
		}
	}
	return list
}

func (m *remembered) due(interval time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Since(m.checked) >= interval
}

// latestNow lists what the next check asks for.
func (m *remembered) latestNow() (list []rememberedVersion) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for p := range m.latest {
		first, last := &m.latest[p][0], &m.latest[p][1]
		if first.lives(now) {
			list = append(list, *first)
		}
		if last.lives(now) && *last != *first {
			list = append(list, *last)
		}
	}
	return list
}

// sweepOn lists some of all that is remembered, in turn: others may have carried the ends of every part past what was
// lost of them, and not what was seen between.
func (m *remembered) sweepOn() (list []rememberedVersion) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for range m.seen {
		if len(list) == sweepMost {
			break
		}
		if s := &m.seen[m.sweep]; s.lives(now) {
			list = append(list, *s)
		}
		m.sweep = (m.sweep + 1) % versionsRemembered
	}
	return list
}

// takeUnverified lists what was recorded and is to be read for the first time. What the reading does not prove is forgotten.
func (m *remembered) takeUnverified() (list []freshEntry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.checked = time.Now()
	for _, f := range m.unverified {
		if !f.id.IsZero() {
			list = append(list, f)
		}
	}
	clear(m.unverified[:])
	return list
}

// prove remembers those of doubts that are there, and returns the others. They may be older than what was seen before,
// which is not to give way to them as the last of its part.
func (m *remembered) prove(unverified []freshEntry, found map[processlog.ID]processlog.Version, asked time.Time) (missing []freshEntry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	// A part of their own, or the loss of what was seen last before them would show nowhere.
	if len(unverified) > 0 {
		m.began = time.Time{}
	}
	for _, f := range unverified {
		switch v := found[f.id]; {
		case v.IdempotencyKey != f.key:
			missing = append(missing, f)
		case !v.State.Terminal():
			m.rememberLocked(rememberedVersion{v, f.businessType, asked, 0})
		}
	}
	return missing
}

// verifyLater keeps what is to be read for the first time.
func (m *remembered) verifyLater(fresh []freshEntry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	// Of a bulk the last ones: what a database loses is the end of its history.
	for _, f := range fresh[max(0, len(fresh)-unverifiedKept):] {
		if f.id.IsZero() {
			continue // no id to ask for
		}
		m.unverified[m.next] = f
		m.next = (m.next + 1) % unverifiedKept
	}
}

// all lists everything that is remembered.
func (m *remembered) all() (list []rememberedVersion) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.seen {
		if !s.ID.IsZero() {
			list = append(list, s)
		}
	}
	return list
}

// look notes that the database is asked.
func (m *remembered) look() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.checked = time.Now()
}

// forget forgets everything.
func (m *remembered) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.seen[:])
	clear(m.latest[:])
	clear(m.unverified[:])
}
