package memory

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// Queue plays the role of one Redis for several Compensators of a test. Give each Compensator its own Client.
//
// A Queue returns what the queue on Redis returns, to the millisecond. In a testing/synctest bubble it uses the
// bubble's clock. Nothing survives the process. All methods may be called concurrently.
type Queue struct {
	mu         sync.Mutex // guards the fields below it; never held while waiting
	keys       queueKeys
	clients    int
	clockShift time.Duration // added to this process's clock
	isFull     bool
	listeners  []*listener
}

// queueKeys has a field for each kind of key in Redis.
type queueKeys struct {
	dueSets     map[string]*zset // by business type, without empty sets
	owner       string           // fingerprint of the log (empty: none)
	leader      int              // number of a client (0: none)
	leaderUntil int64            // unix ms
}

// Member is one entry in a Queue.
type Member struct {
	BusinessType string        // business type of the entry
	ID           processlog.ID // id of the entry
	At           int64         // due time, or end of the lease while claimed, in unix ms of the queue's clock
	In           time.Duration // time from now until At
}

// QueueState is the whole content of a Queue at one moment.
type QueueState struct{ keys queueKeys }

// NewQueue returns an empty queue.
func NewQueue() *Queue {
	q := &Queue{}
	q.Lose()
	return q
}

// Client returns a new client of the queue. Set it as Config.Queue of one Compensator. A process that restarts takes a
// new client.
func (q *Queue) Client() *QueueClient {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.clients++
	return &QueueClient{queue: q, number: q.clients}
}

// Lose deletes everything, as FLUSHALL or a restart without persistence does. The calls of every client then report
// each type as lost.
func (q *Queue) Lose() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.keys = queueKeys{dueSets: make(map[string]*zset)}
}

// LoseType deletes the entries of one type, as Redis does when it evicts a key. The calls of a client then report the
// type as lost.
func (q *Queue) LoseType(businessType string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.keys.dueSets, businessType)
}

// LoseWhole keeps the entries of a type, and deletes the mark which says that no entry is missing. The calls of every
// client then report the type as lost.
func (q *Queue) LoseWhole(businessType string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if set := q.keys.dueSets[businessType]; set != nil && set.completeType == businessType {
		set.completeType = ""
		q.dropEmptyLocked(businessType)
	}
}

// Fill with true makes the queue refuse new entries, as a Redis does at its memory limit. Fill with false makes it
// accept them again.
func (q *Queue) Fill(isFull bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.isFull = isFull
}

// Occupy replaces a type's entries with data of a foreign program under the same key. LoseType removes that data.
func (q *Queue) Occupy(businessType string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.keys.dueSets[businessType] = newZset()
	q.keys.dueSets[businessType].isForeign = true
}

// Rename moves all entries of one type to another type, as the Redis command RENAME does. It replaces the entries
// of the second type. It does nothing if the first type has no entries.
func (q *Queue) Rename(from, to string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if set := q.keys.dueSets[from]; set != nil {
		delete(q.keys.dueSets, from)
		q.keys.dueSets[to] = set
	}
}

// Snapshot returns the current content of the queue.
func (q *Queue) Snapshot() QueueState {
	q.mu.Lock()
	defer q.mu.Unlock()
	return QueueState{q.keys.clone()}
}

// Restore replaces the content of the queue with a snapshot, as a failover to a lagging replica does. Entries that were
// added after the snapshot are then missing. If the snapshot has all entries that a type had at that time, no call
// reports the type as lost.
func (q *Queue) Restore(state QueueState) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.keys = state.keys.clone()
}

// ShiftClock moves the queue's clock by d. A negative d moves it back.
func (q *Queue) ShiftClock(d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.clockShift += d
}

// Members lists the entries in the queue by type, and within a type in claim order.
func (q *Queue) Members() []Member {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.nowLocked()
	var members []Member
	for _, businessType := range slices.Sorted(maps.Keys(q.keys.dueSets)) {
		for _, m := range q.keys.dueSets[businessType].members {
			members = append(members, Member{businessType, m.id, m.at, millisToDuration(m.at - now.lower)})
		}
	}
	return members
}

func (k queueKeys) clone() queueKeys {
	due := make(map[string]*zset, len(k.dueSets))
	for businessType, set := range k.dueSets {
		due[businessType] = set.clone()
	}
	k.dueSets = due
	return k
}

// queueNow is in unix ms. Due times are computed from upper and compared with lower, so that no entry is due early.
type queueNow struct{ lower, upper int64 }

func (q *Queue) nowLocked() queueNow {
	now := time.Now().Add(q.clockShift)
	at := queueNow{now.UnixMilli(), now.UnixMilli()}
	if millisToTime(at.lower).Before(now) {
		at.upper++
	}
	return at
}

// dueAfter takes and returns ms.
func (n queueNow) dueAfter(wait int64) int64 {
	if wait > 0 {
		return n.upper + wait
	}
	return n.lower
}

func (n queueNow) timeUntil(at int64) time.Duration { return millisToDuration(max(0, at-n.lower)) }

// maxScriptMembers is the most entries that one script of the queue on Redis takes.
const maxScriptMembers = 1000

// fullPause is how long, in ms, a full queue refuses a rebuild after it could not store an entry.
const fullPause = 5000

// enqueueLocked returns leftOut if a full queue did not store some of the items.
func (q *Queue) enqueueLocked(businessType string, items []processlog.QueueEntry, rules processlog.EnqueueRules) (newHead, isLost, leftOut bool) {
	now := q.nowLocked()
	set := q.setLocked(businessType)
	if set.isForeign {
		return false, true, true
	}
	defer q.dropEmptyLocked(businessType)
	head, hasHead := set.head()
	for _, item := range items {
		wait := waitMillis(item.In)
		due := now.dueAfter(wait)
		dueMS, isKnown := set.timeOf(item.ID)
		switch {
		case isKnown && dueMS <= now.upper+wait+waitMillis(rules.MaxLease):
			continue // Another process may hold a lease of the entry.
		case !isKnown && wait > waitMillis(rules.Near) && rules.Limit > 0 && len(set.members) >= rules.Limit:
			continue
		case q.isFull:
			leftOut = true
			continue
		}
		set.put(item.ID, due)
		newHead = newHead || !hasHead || due < head
	}
	if leftOut { // Stop all rebuilds of the type, and let none begin during the pause.
		clear(set.marks)
		set.completeType, set.marks[queueMark{businessType: businessType}] = "", now.lower+fullPause
	}
	return newHead, set.completeType != businessType, leftOut
}

func (q *Queue) setLocked(businessType string) *zset {
	set := q.keys.dueSets[businessType]
	if set == nil {
		set = newZset()
		q.keys.dueSets[businessType] = set
	}
	return set
}

func (q *Queue) claimLocked(businessType string, limit int, lease time.Duration) processlog.Leased {
	now := q.nowLocked()
	leased := processlog.Leased{Token: now.upper + max(1, waitMillis(lease)), Next: processlog.Never}
	set := q.keys.dueSets[businessType]
	leased.Lost = set == nil || set.completeType != businessType
	if set == nil {
		return leased
	}
	leased.IDs = set.dueIDs(now.lower, min(max(limit, 0), maxScriptMembers))
	if rest := set.members[len(leased.IDs):]; len(rest) > 0 {
		leased.Next = now.timeUntil(rest[0].at)
	}
	for _, id := range leased.IDs {
		set.put(id, leased.Token)
	}
	return leased
}

func (q *Queue) settleLocked(businessType string, items []processlog.QueueOutcome) {
	now := q.nowLocked()
	set := q.setLocked(businessType)
	for _, item := range items {
		dueMS, isKnown := set.timeOf(item.ID)
		switch due := now.dueAfter(waitMillis(item.In)); {
		case !isKnown && (item.Remove || set.isForeign || set.completeType == businessType):
		case isKnown && dueMS != item.Token && (item.Remove || dueMS <= due):
		case item.Remove:
			set.remove(item.ID)
		default:
			set.put(item.ID, due)
		}
	}
	q.dropEmptyLocked(businessType)
}

func (q *Queue) dropEmptyLocked(businessType string) {
	if set := q.keys.dueSets[businessType]; len(set.members) == 0 && len(set.marks) == 0 && set.completeType == "" && !set.isForeign {
		delete(q.keys.dueSets, businessType)
	}
}

func (q *Queue) peekLocked(businessType string) (wait time.Duration, isLost bool) {
	set := q.keys.dueSets[businessType]
	if set == nil {
		return processlog.Never, true
	}
	if head, isFound := set.head(); isFound {
		return q.nowLocked().timeUntil(head), set.completeType != businessType
	}
	return processlog.Never, set.completeType != businessType
}

func (q *Queue) inspectLocked(businessType string, id processlog.ID) processlog.Queued {
	set := q.keys.dueSets[businessType]
	if set == nil || set.isForeign {
		return processlog.Queued{Lost: true}
	}
	found := processlog.Queued{Lost: set.completeType != businessType}
	var at int64
	if at, found.Has = set.timeOf(id); found.Has {
		found.In = max(0, q.nowLocked().timeUntil(at))
	}
	return found
}

// rebuildLocked reports whether the caller may rebuild.
func (q *Queue) rebuildLocked(businessType string, token processlog.Token, period time.Duration) (isAssigned bool) {
	now, mark := q.nowLocked().lower, queueMark{token, businessType}
	set := q.setLocked(businessType)
	_, hasMark := set.marks[mark]
	if set.isForeign || !hasMark && (set.completeType == businessType || set.hasMark(businessType, now)) {
		return false
	}
	set.marks[mark] = now + max(1, waitMillis(period))
	return true
}

func (q *Queue) rebuiltLocked(businessType string, token processlog.Token) (isRebuilt bool) {
	set := q.keys.dueSets[businessType]
	if set == nil {
		return false
	}
	if _, hasMark := set.marks[queueMark{token, businessType}]; hasMark && set.completeType != businessType {
		clear(set.marks)
		set.completeType = businessType
	}
	return set.completeType == businessType
}

// checkLocked stores the fingerprint if the queue has none.
func (q *Queue) checkLocked(fingerprint string) error {
	q.keys.owner = cmp.Or(q.keys.owner, fingerprint)
	if q.keys.owner != fingerprint {
		return &processlog.FieldError{Field: "Prefix", Reason: fmt.Sprintf("the queue belongs to another log (its fingerprint is %q, ours %q)", q.keys.owner, fingerprint)}
	}
	return nil
}

func (q *Queue) leadLocked(client int, period time.Duration) bool {
	now := q.nowLocked().lower
	if q.keys.leader != 0 && q.keys.leader != client && now <= q.keys.leaderUntil {
		return false
	}
	q.keys.leader, q.keys.leaderUntil = client, now+max(1, waitMillis(period))
	return true
}

// waitMillis rounds up, because no entry may be due early.
func waitMillis(d time.Duration) int64 { return max(0, processlog.Millis(d)) }
