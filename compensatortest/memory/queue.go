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
// bubble's clock. A test can start and stop instances, and can make the Queue lose data, go back in time or have a
// wrong clock.
//
// Nothing survives the process. All methods may be called concurrently.
type Queue struct {
	mu        sync.Mutex // guards the fields below it; never held while waiting
	keys      queueKeys
	clients   int           // number of clients that were created
	shift     time.Duration // time that is added to this process's clock
	full      bool
	listeners []*listener
}

// queueKeys holds everything that the queue stores. Each field is a kind of key in Redis.
type queueKeys struct {
	due         map[string]*zset // by business type, without empty sets
	owner       string           // fingerprint of the log (empty: none)
	leader      int              // number of the leading client (0: none)
	leaderUntil int64            // time until which the leader leads, in unix ms
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
	q.keys = queueKeys{due: make(map[string]*zset)}
}

// LoseType deletes the entries of one type, as Redis does when it evicts a key. The calls of a client then report the
// type as lost.
func (q *Queue) LoseType(businessType string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.keys.due, businessType)
}

// LoseWhole keeps the entries of a type and deletes only the mark that they are complete.
func (q *Queue) LoseWhole(businessType string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if set := q.keys.due[businessType]; set != nil && set.whole == businessType {
		set.whole = ""
		q.dropEmptyLocked(businessType)
	}
}

// Fill with true makes the queue refuse new entries, as a Redis does at its memory limit. Fill with false makes it
// accept them again.
func (q *Queue) Fill(full bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.full = full
}

// Occupy replaces a type's entries with data of a foreign program under the same key. LoseType removes that data.
func (q *Queue) Occupy(businessType string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.keys.due[businessType] = newZset()
	q.keys.due[businessType].foreign = true
}

// Rename moves all entries of one type to another type, as the Redis command RENAME does. It replaces the entries of
// the type to. It does nothing when the type from has no entries.
func (q *Queue) Rename(from, to string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if set := q.keys.due[from]; set != nil {
		delete(q.keys.due, from)
		q.keys.due[to] = set
	}
}

// Snapshot returns the current content of the queue.
func (q *Queue) Snapshot() QueueState {
	q.mu.Lock()
	defer q.mu.Unlock()
	return QueueState{q.keys.clone()}
}

// Restore replaces the content of the queue with a snapshot. A restart from an old file or a failover to a lagging
// replica has the same effect. Entries that were added after the snapshot are then missing. A type that was complete in
// the snapshot counts as complete again, so no call reports it as lost.
func (q *Queue) Restore(state QueueState) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.keys = state.keys.clone()
}

// ShiftClock moves the queue's clock by d. A negative d moves it back.
func (q *Queue) ShiftClock(d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.shift += d
}

// Members lists the entries in the queue by type, and within a type in claim order.
func (q *Queue) Members() []Member {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.nowLocked()
	var members []Member
	for _, businessType := range slices.Sorted(maps.Keys(q.keys.due)) {
		for _, m := range q.keys.due[businessType].members {
			members = append(members, Member{businessType, m.id, m.at, duration(m.at - now.floor)})
		}
	}
	return members
}

func (k queueKeys) clone() queueKeys {
	due := make(map[string]*zset, len(k.due))
	for businessType, set := range k.due {
		due[businessType] = set.clone()
	}
	k.due = due
	return k
}

// queueNow is one reading of the clock, rounded down and up, in unix ms. Due times are computed from ceil and compared
// with floor, so that no entry is due early.
type queueNow struct{ floor, ceil int64 }

func (q *Queue) nowLocked() queueNow {
	now := time.Now().Add(q.shift)
	at := queueNow{now.UnixMilli(), now.UnixMilli()}
	if instant(at.floor).Before(now) {
		at.ceil++
	}
	return at
}

// The method after returns the due time of a member that has to wait for wait ms, in unix ms.
func (n queueNow) after(wait int64) int64 {
	if wait > 0 {
		return n.ceil + wait
	}
	return n.floor
}

// The method until returns the time from now until the due time at, or 0 if it has passed.
func (n queueNow) until(at int64) time.Duration { return duration(max(0, at-n.floor)) }

// maxScriptMembers is the maximum number of entries that one script of the queue on Redis takes.
const maxScriptMembers = 1000

// fullPause is how long, in ms, a full queue refuses a rebuild after it could not store an entry.
const fullPause = 5000

// enqueueLocked adds items to a type. leftOut reports that a full queue did not store some of them.
func (q *Queue) enqueueLocked(businessType string, items []processlog.QueueEntry, rules processlog.EnqueueRules) (newHead, lost, leftOut bool) {
	now := q.nowLocked()
	set := q.setLocked(businessType)
	if set.foreign {
		return false, true, true
	}
	defer q.dropEmptyLocked(businessType)
	head, hasHead := set.head()
	for _, item := range items {
		wait := waitMillis(item.In)
		due := now.after(wait)
		place, known := set.place(item.ID)
		switch {
		case known && place <= now.ceil+wait+waitMillis(rules.MaxLease):
			continue // Another process may hold a lease of the entry.
		case !known && wait > waitMillis(rules.Near) && rules.Limit > 0 && len(set.members) >= rules.Limit:
			continue
		case q.full:
			leftOut = true
			continue
		}
		set.put(item.ID, due)
		newHead = newHead || !hasHead || due < head
	}
	if leftOut { // Stop all rebuilds of the type, and let none begin during the pause.
		clear(set.marks)
		set.whole, set.marks[queueMark{businessType: businessType}] = "", now.floor+fullPause
	}
	return newHead, set.whole != businessType, leftOut
}

// setLocked returns the set of a type. It creates the set if there is none.
func (q *Queue) setLocked(businessType string) *zset {
	set := q.keys.due[businessType]
	if set == nil {
		set = newZset()
		q.keys.due[businessType] = set
	}
	return set
}

func (q *Queue) claimLocked(businessType string, limit int, lease time.Duration) processlog.Leased {
	now := q.nowLocked()
	leased := processlog.Leased{Token: now.ceil + max(1, waitMillis(lease)), Next: processlog.Never}
	set := q.keys.due[businessType]
	leased.Lost = set == nil || set.whole != businessType
	if set == nil {
		return leased
	}
	leased.IDs = set.due(now.floor, min(max(limit, 0), maxScriptMembers))
	if beyond := set.members[len(leased.IDs):]; len(beyond) > 0 {
		leased.Next = now.until(beyond[0].at)
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
		place, known := set.place(item.ID)
		switch due := now.after(waitMillis(item.In)); {
		case !known && (item.Remove || set.foreign || set.whole == businessType):
		case known && place != item.Token && (item.Remove || place <= due):
		case item.Remove:
			set.remove(item.ID)
		default:
			set.put(item.ID, due)
		}
	}
	q.dropEmptyLocked(businessType)
}

func (q *Queue) dropEmptyLocked(businessType string) {
	if set := q.keys.due[businessType]; len(set.members) == 0 && len(set.marks) == 0 && set.whole == "" && !set.foreign {
		delete(q.keys.due, businessType)
	}
}

func (q *Queue) peekLocked(businessType string) (wait time.Duration, lost bool) {
	set := q.keys.due[businessType]
	if set == nil {
		return processlog.Never, true
	}
	if head, found := set.head(); found {
		return q.nowLocked().until(head), set.whole != businessType
	}
	return processlog.Never, set.whole != businessType
}

func (q *Queue) inspectLocked(businessType string, id processlog.ID) processlog.Queued {
	set := q.keys.due[businessType]
	if set == nil || set.foreign {
		return processlog.Queued{Lost: true}
	}
	found := processlog.Queued{Lost: set.whole != businessType}
	var at int64
	if at, found.Has = set.place(id); found.Has {
		found.In = max(0, q.nowLocked().until(at))
	}
	return found
}

// rebuildLocked marks a type as being rebuilt under token. It reports whether the caller may rebuild.
func (q *Queue) rebuildLocked(businessType string, token processlog.Token, period time.Duration) (mine bool) {
	now, mark := q.nowLocked().floor, queueMark{token, businessType}
	set := q.setLocked(businessType)
	_, own := set.marks[mark]
	if set.foreign || !own && (set.whole == businessType || set.marked(businessType, now)) {
		return false
	}
	set.marks[mark] = now + max(1, waitMillis(period))
	return true
}

func (q *Queue) rebuiltLocked(businessType string, token processlog.Token) (whole bool) {
	set := q.keys.due[businessType]
	if set == nil {
		return false
	}
	if _, own := set.marks[queueMark{token, businessType}]; own && set.whole != businessType {
		clear(set.marks)
		set.whole = businessType
	}
	return set.whole == businessType
}

// checkLocked compares the stored fingerprint with fingerprint. It stores the fingerprint if there is none.
func (q *Queue) checkLocked(fingerprint string) error {
	q.keys.owner = cmp.Or(q.keys.owner, fingerprint)
	if q.keys.owner != fingerprint {
		return &processlog.FieldError{Field: "Prefix", Reason: fmt.Sprintf("the queue belongs to another log (its fingerprint is %q, ours %q)", q.keys.owner, fingerprint)}
	}
	return nil
}

func (q *Queue) leadLocked(client int, period time.Duration) bool {
	now := q.nowLocked().floor
	if q.keys.leader != 0 && q.keys.leader != client && now <= q.keys.leaderUntil {
		return false
	}
	q.keys.leader, q.keys.leaderUntil = client, now+max(1, waitMillis(period))
	return true
}

// waitMillis returns d in ms, rounded up, because no entry may be due early. A negative d counts as 0.
func waitMillis(d time.Duration) int64 { return max(0, processlog.Millis(d)) }
