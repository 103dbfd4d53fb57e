// Package refusals remembers the entries that the database refuses to change, for example because of a trigger or a
// constraint.
//
// A refused change is tried less and less often, so that hundreds of refused entries do not cost a statement each in
// every round.
package refusals

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/internal/jitter"
	"github.com/compensator-go/compensator/internal/problems"
	"github.com/compensator-go/compensator/processlog"
)

const (
	Outcome = "the database refuses to store outcomes of entries"
	Claim   = "the database refuses to lease entries"
	Block   = "the database refuses to put entries back until their turn comes"
	Release = "the database refuses to take back leases of entries"
	Renewal = "the database refuses to renew leases of entries"
)

// List holds the refused entries. Its methods are safe for concurrent use.
type List struct {
	problems *problems.List
	log      *slog.Logger
	closed   func() bool

	anyRefused     atomic.Bool
	outcomeRefused atomic.Bool   // whether an outcome was refused since AwaitRetry last read this flag
	answered       chan struct{} // capacity 1; the database has refused a change, or accepted one that it refused before
	endPause       chan struct{} // capacity 1; a signal ends the pause of AwaitRetry

	mu        sync.Mutex // guards the fields below
	entries   map[change]map[processlog.ID]*refusedEntry
	stopBegan time.Time
}

// New returns an empty List that reports to p and to log. The function closed returns true after the Compensator was
// closed. From then on, the List logs nothing.
func New(p *problems.List, log *slog.Logger, closed func() bool) *List {
	return &List{problems: p, log: log, closed: closed, answered: make(chan struct{}, 1), endPause: make(chan struct{}, 1), entries: make(map[change]map[processlog.ID]*refusedEntry)}
}

// Any reports whether the database refuses a change of any entry. Any reads only one atomic flag.
func (r *List) Any() bool { return r.anyRefused.Load() }

type change struct{ what, businessType string }

type refusedEntry struct {
	err         error
	since       time.Time
	refusals    int
	pausedUntil time.Time
	retryAtOnce bool
}

// RetryUnknown is the time that PauseLeft returns for an entry that is not in the List. The refusal of the entry may
// have been forgotten in the meantime.
const RetryUnknown = time.Second

const (
	firstPause = time.Second
	maxPause   = time.Minute
)

// Pause returns the time between a refusal of an entry and the next try. After the first refusal, the pause is a random
// time between half a second and one second. Each further refusal doubles both limits, until they are half a minute and
// one minute.
func Pause(refusals int) time.Duration {
	half := min(firstPause<<min(refusals-1, 10), maxPause) / 2
	return half + jitter.N(half)
}

// Note records that the database refuses a change of the listed entries. Note logs the ids of the entries that were not
// refused before.
func (r *List) Note(what, businessType string, list []processlog.Refusal) {
	r.NoteTry(what, businessType, time.Now(), list)
}

// NoteTry does what Note does, for a statement that was sent at the time sentAt. RetryOutcomes waits for the answers to
// statements that were sent after its begin. NoteTry compares sentAt with this begin. If the statement was sent before,
// RetryOutcomes goes on waiting.
func (r *List) NoteTry(what, businessType string, sentAt time.Time, list []processlog.Refusal) {
	if len(list) == 0 {
		return
	}
	key := change{what, businessType}
	if what == Outcome {
		r.outcomeRefused.Store(true)
	}
	var newIDs []string
	r.ForgetOld()
	r.mu.Lock()
	byID := r.entries[key]
	if byID == nil {
		byID = make(map[processlog.ID]*refusedEntry)
		r.entries[key] = byID
	}
	for _, refusal := range list {
		entry := byID[refusal.ID]
		if entry == nil {
			entry = &refusedEntry{since: time.Now()}
			byID[refusal.ID] = entry
			newIDs = append(newIDs, refusal.ID.String())
		}
		entry.err = refusal.Err
		entry.refusals++
		entry.retryAtOnce = sentAt.Before(r.stopBegan)
		entry.pausedUntil = time.Now().Add(Pause(entry.refusals))
	}
	all := refusalsIn(byID)
	r.anyRefused.Store(true)
	r.mu.Unlock()
	signal(r.answered)
	if len(newIDs) == 0 {
		r.problems.Failed(what, businessType, all)
		return
	}
	r.problems.Record(what, businessType, all)
	if !r.closed() {
		r.log.Warn("compensator: "+what, "type", businessType, "entries", strings.Join(newIDs, ","), "err", list[0].Err)
	}
}

func refusalsIn(entries map[processlog.ID]*refusedEntry) error {
	ids := slices.SortedFunc(maps.Keys(entries), processlog.ID.Compare)
	list := make([]processlog.Refusal, len(ids))
	for i, id := range ids {
		list[i] = processlog.Refusal{ID: id, Err: entries[id].err}
	}
	return &processlog.RefusedError{Refusals: list}
}

// forgetAfter is the time between the end of an entry's pause and the moment at which ForgetOld forgets the entry. An
// entry is not tried after its pause if it was purged, or if another process has claimed it.
const forgetAfter = 10 * maxPause

// ForgetOld forgets entries that were not tried again after their pause. If a problem has no entries left, ForgetOld
// ends the problem.
func (r *List) ForgetOld() {
	if !r.anyRefused.Load() {
		return
	}
	var emptied []change
	r.mu.Lock()
	for key, entries := range r.entries {
		if key.what == Outcome {
			// Do not forget refused outcomes. This process holds each refused outcome and tries until it is stored.
			continue
		}
		maps.DeleteFunc(entries, func(_ processlog.ID, e *refusedEntry) bool { return time.Since(e.pausedUntil) > forgetAfter })
		if len(entries) == 0 {
			delete(r.entries, key)
			emptied = append(emptied, key)
		}
	}
	r.anyRefused.Store(len(r.entries) > 0)
	r.mu.Unlock()
	for _, key := range emptied {
		r.problems.Passed(key.what, key.businessType)
	}
}

// Accepted removes entries from the list of a refused change. The database has accepted the change of these entries, or
// the change is no longer needed. If no refused entry of the type is left for this change, Accepted also removes the
// problem from Health.
func (r *List) Accepted(what, businessType string, ids ...processlog.ID) {
	if !r.anyRefused.Load() {
		return
	}
	key := change{what, businessType}
	r.mu.Lock()
	entries, found := r.entries[key]
	for _, id := range ids {
		delete(entries, id)
	}
	emptied := found && len(entries) == 0
	if emptied {
		delete(r.entries, key)
		r.anyRefused.Store(len(r.entries) > 0)
	}
	r.mu.Unlock()
	signal(r.answered)
	if emptied {
		r.problems.Passed(what, businessType)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// WithoutPaused splits the wanted entries: the entries in claimable may be claimed now, and those in paused were
// refused and must wait.
func (r *List) WithoutPaused(businessType string, wanted []processlog.Wanted) (claimable []processlog.Wanted, paused []processlog.Refusal) {
	if !r.anyRefused.Load() {
		return wanted, nil
	}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	claimable = slices.DeleteFunc(slices.Clone(wanted), func(w processlog.Wanted) bool {
		e := r.claimRefusalLocked(businessType, w.ID)
		isPaused := e != nil && now.Before(e.pausedUntil)
		if isPaused {
			paused = append(paused, processlog.Refusal{ID: w.ID, Err: e.err})
		}
		return isPaused
	})
	return claimable, paused
}

var refusedClaims = [...]string{Claim, Block}

// The caller holds mu.
func (r *List) claimRefusalLocked(businessType string, id processlog.ID) *refusedEntry {
	for _, what := range refusedClaims {
		if e := r.entries[change{what, businessType}][id]; e != nil {
			return e
		}
	}
	return nil
}

// IsPaused reports whether the database has refused a change of an entry so recently that the change must not be tried yet.
func (r *List) IsPaused(what, businessType string, id processlog.ID) bool {
	if !r.anyRefused.Load() {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[change{what, businessType}][id]
	return e != nil && time.Now().Before(e.pausedUntil)
}

// PauseLeft returns the time until a refused entry may be claimed again.
func (r *List) PauseLeft(businessType string, id processlog.ID) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.claimRefusalLocked(businessType, id); e != nil {
		return max(time.Until(e.pausedUntil), processlog.LockedRetry)
	}
	return RetryUnknown
}

// Outcomes returns how many outcomes of a type wait because the database refuses them.
func (r *List) Outcomes(businessType string) int {
	if !r.anyRefused.Load() {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.entries[change{Outcome, businessType}])
}

// OutcomesFor returns the age of the n-th oldest refusal among the outcomes that the database refuses for a type. So n
// outcomes were refused during the whole of this time. OutcomesFor returns 0 if fewer than n outcomes are refused.
func (r *List) OutcomesFor(businessType string, n int) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	var since []time.Time
	for _, e := range r.entries[change{Outcome, businessType}] {
		since = append(since, e.since)
	}
	if len(since) < n {
		return 0
	}
	slices.SortFunc(since, time.Time.Compare)
	return time.Since(since[n-1])
}

// RefusedOutcome returns how often the database has refused to store the outcome of an entry. It returns 0 if the
// database has not refused the outcome. The result atOnce is true if RetryOutcomes has asked for another try of the
// outcome. AwaitRetry then makes no pause.
func (r *List) RefusedOutcome(businessType string, id processlog.ID) (refusals int, atOnce bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.entries[change{Outcome, businessType}][id]; e != nil {
		return e.refusals, e.retryAtOnce
	}
	return 0, false
}

// AwaitRetry waits before refused outcomes are tried again. It returns false if ctx ends first. It does not pause if
// the parameter atOnce is true, or if the database has refused no outcome since the last call.
func (r *List) AwaitRetry(ctx context.Context, refusals int, atOnce bool) bool {
	if !r.outcomeRefused.Swap(false) || atOnce {
		return true
	}
	timer := time.NewTimer(Pause(refusals))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.endPause:
	case <-ctx.Done():
	}
	// Another case may be ready together with ctx.Done, and select then takes either of them. So ask ctx here.
	return ctx.Err() == nil
}

// RetryOutcomes asks for a further try of each refused outcome and waits up to timeout for the answers. The answer to a
// try that was sent before RetryOutcomes was called does not count. The error names the entries whose outcomes are
// still refused.
func (r *List) RetryOutcomes(timeout time.Duration) error {
	if !r.askRetries() {
		return nil
	}
	signal(r.endPause)
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		unanswered, err := r.unstored()
		if !unanswered {
			return err
		}
		select {
		case <-r.answered:
		case <-timer.C:
			return err
		}
	}
}

func (r *List) askRetries() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	outcomes := r.outcomesLocked()
	for _, e := range outcomes {
		e.retryAtOnce, r.stopBegan = true, time.Now()
	}
	return len(outcomes) > 0
}

// The caller holds mu.
func (r *List) outcomesLocked() map[processlog.ID]*refusedEntry {
	all := make(map[processlog.ID]*refusedEntry)
	for key, entries := range r.entries {
		if key.what == Outcome {
			maps.Copy(all, entries)
		}
	}
	return all
}

func (r *List) unstored() (unanswered bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	refused := r.outcomesLocked()
	if len(refused) == 0 {
		return false, nil
	}
	for _, e := range refused {
		unanswered = unanswered || e.retryAtOnce
	}
	return unanswered, refusalsIn(refused)
}

// Has reports whether an entry is in a list of refusals.
func Has(list []processlog.Refusal, id processlog.ID) bool { return Of(list, id) != nil }

// Of returns the error of an entry in a list of refusals, or nil if the entry is not in the list.
func Of(list []processlog.Refusal, id processlog.ID) error {
	for _, r := range list {
		if r.ID == id {
			return r.Err
		}
	}
	return nil
}
