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

// Queue is what a Redis is to the processes that share it: a queue for several Compensators of one test,
// each of which gets a Client of its own. It answers as the queue on Redis does, to the millisecond, and runs
// on the clock of a testing/synctest bubble, so that a test may simulate instances that come and go, and a
// Redis that forgets, goes back in time or has a wrong clock.
//
// Nothing survives the process. All methods may be called concurrently.
type Queue struct {
	mu        sync.Mutex // guards what follows; never held while waiting
	keys      queueKeys
	epochs    int           // drawn so far
	clients   int           // made so far
	shift     time.Duration // of its clock
	full      bool
	listeners []*listener
}

// queueKeys is all that the queue stores, by what a Redis would store it under.
type queueKeys struct {
	due         map[string]*zset // by business type; no empty ones
	epoch       int              // 0: none
	owner       string           // fingerprint; empty: none
	leader      int              // client; 0: none
	leaderUntil int64            // unix ms, the last one of its lead
}

// Member is one entry in a Queue.
type Member struct {
	BusinessType string
	ID           processlog.ID
	At           int64         // due, or lease end while claimed; unix ms of the queue's clock
	In           time.Duration // the same from now
}

// QueueState is all that a Queue holds at one moment.
type QueueState struct{ keys queueKeys }

// NewQueue returns an empty queue.
func NewQueue() *Queue {
	q := &Queue{}
	q.Lose()
	return q
}

// Client returns the queue as one process sees it, for that process's Config.Queue. A process that is started
// again is another one.
func (q *Queue) Client() *QueueClient {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.clients++
	return &QueueClient{queue: q, number: q.clients}
}

// Lose forgets everything, as FLUSHALL or a restart without persistence does. Clients learn it from Kept.
func (q *Queue) Lose() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.keys = queueKeys{due: make(map[string]*zset)}
}

// LoseType forgets the entries of one type, as a Redis does that evicts a key. Clients learn it from what they ask.
func (q *Queue) LoseType(businessType string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.keys.due, businessType)
}

// LoseWhole forgets only that it knows all entries of a type.
func (q *Queue) LoseWhole(businessType string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if set := q.keys.due[businessType]; set != nil && set.whole == businessType {
		set.whole = ""
		q.dropEmptyLocked(businessType)
	}
}

// Fill makes the queue take in nothing more, as a Redis does that is at its memory limit, or makes it take in again.
func (q *Queue) Fill(full bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.full = full
}

// Occupy puts somebody else's data in the place of a type's entries. LoseType takes it away.
func (q *Queue) Occupy(businessType string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.keys.due[businessType] = newZset()
	q.keys.due[businessType].foreign = true
}

// Rename puts what is held of one type, if anything, in the place of another's.
func (q *Queue) Rename(from, to string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if set := q.keys.due[from]; set != nil {
		delete(q.keys.due, from)
		q.keys.due[to] = set
	}
}

// Snapshot returns what the queue holds now.
func (q *Queue) Snapshot() QueueState {
	q.mu.Lock()
	defer q.mu.Unlock()
	return QueueState{q.keys.clone()}
}

// Restore makes the queue hold what it held at a snapshot, as a restart from an old file or a failover to a
// replica that lags does. Kept notices only if the queue was lost in between.
func (q *Queue) Restore(state QueueState) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.keys = state.keys.clone()
}

// ShiftClock moves the queue's clock by d from where it stands: forward, or back when d is negative.
func (q *Queue) ShiftClock(d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.shift += d
}

// Members lists what the queue holds: by type, and within a type in the order of claiming.
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

// queueNow is one reading of the clock, in unix ms. Due moments are computed from the millisecond that ends
// it, and compared with the one that began it: so nothing comes due early.
type queueNow struct{ floor, ceil int64 }

func (q *Queue) nowLocked() queueNow {
	now := time.Now().Add(q.shift)
	at := queueNow{now.UnixMilli(), now.UnixMilli()}
	if instant(at.floor).Before(now) {
		at.ceil++
	}
	return at
}

// after is the moment wait ms from now.
func (n queueNow) after(wait int64) int64 {
	if wait > 0 {
		return n.ceil + wait
	}
	return n.floor
}

// until is how long a member at this place has to wait.
func (n queueNow) until(at int64) time.Duration { return duration(max(0, at-n.floor)) }

// maxScriptMembers is how many entries one script of the queue on Redis takes.
const maxScriptMembers = 1000

// fullPause is how many ms what had no room is left to itself.
const fullPause = 5000

// enqueueLocked reports as well whether entries were left out.
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
			continue // as far as we know somebody leases it
		case !known && wait > waitMillis(rules.Near) && rules.Limit > 0 && len(set.members) >= rules.Limit:
			continue
		case q.full:
			leftOut = true
			continue
		}
		set.put(item.ID, due)
		newHead = newHead || !hasHead || due < head
	}
	if leftOut { // nobody who is rebuilding the type may call it whole, and for a while it is no use to begin
		clear(set.marks)
		set.whole, set.marks[queueMark{businessType: businessType}] = "", now.floor+fullPause
	}
	return newHead, set.whole != businessType, leftOut
}

// setLocked makes the set of a type if there is none.
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

// rebuildLocked leaves the mark of whoever begins to rebuild a type.
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

// checkLocked writes the fingerprint where there is none.
func (q *Queue) checkLocked(fingerprint string) error {
	q.keys.owner = cmp.Or(q.keys.owner, fingerprint)
	if q.keys.owner != fingerprint {
		return &processlog.FieldError{Field: "Prefix", Reason: fmt.Sprintf("the queue belongs to another log (its fingerprint is %q, ours %q)", q.keys.owner, fingerprint)}
	}
	return nil
}

// epochLocked draws an epoch where there is none.
func (q *Queue) epochLocked() int {
	if q.keys.epoch == 0 {
		q.epochs++
		q.keys.epoch = q.epochs
	}
	return q.keys.epoch
}

func (q *Queue) leadLocked(client int, period time.Duration) bool {
	now := q.nowLocked().floor
	if q.keys.leader != 0 && q.keys.leader != client && now <= q.keys.leaderUntil {
		return false
	}
	q.keys.leader, q.keys.leaderUntil = client, now+max(1, waitMillis(period))
	return true
}

// waitMillis rounds up, because nothing may come due early. What is past is now.
func waitMillis(d time.Duration) int64 { return max(0, processlog.Millis(d)) }
