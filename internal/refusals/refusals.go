// Package refusals remembers the entries that the database refuses to change, for example because of a trigger or a
// constraint.
//
// Each entry is logged once, and Health shows it until the database accepts the same change. The change is tried less
// and less often, so that hundreds of refused entries do not cost a statement each in every round.
package refusals

import (
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

// These texts say which change the database refuses. Each is a problem in Health.
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

	some     atomic.Bool   // whether anything is refused; lets callers skip the mutex
	answered chan struct{} // capacity 1; receives a signal when the database refuses a change, or accepts one that it refused before

	mu   sync.Mutex // guards the field below
	open map[change]map[processlog.ID]*refused
}

// New returns an empty List that reports to p and to log. It logs nothing once closed returns true.
func New(p *problems.List, log *slog.Logger, closed func() bool) *List {
	return &List{problems: p, log: log, closed: closed, answered: make(chan struct{}, 1), open: make(map[change]map[processlog.ID]*refused)}
}

// Some reports whether anything is refused. It reads only one atomic flag.
func (r *List) Some() bool { return r.some.Load() }

// Answered returns a channel that receives a value when the database refuses a change, or accepts one that it refused before.
func (r *List) Answered() <-chan struct{} { return r.answered }

// change is a kind of change that the database refuses, for one type.
type change struct{ what, businessType string }

// refused is the state of one refused entry.
type refused struct {
	err   error
	times int
	until time.Time // no new try before this time
}

// RetryUnknown is how long an entry without a known refusal waits for its next try.
const RetryUnknown = time.Second

const (
	firstPause = time.Second
	mostPause  = time.Minute
)

// Pause returns how long an entry is not tried after the given number of refusals. After the first refusal it is half a
// second to a second. It doubles each time, up to half a minute to a minute.
func Pause(times int) time.Duration {
	half := min(firstPause<<min(times-1, 10), mostPause) / 2
	return half + jitter.N(half)
}

// Note records that the database refuses a change of the listed entries. It logs the entries that are new.
func (r *List) Note(what, businessType string, list []processlog.Refusal) {
	if len(list) == 0 {
		return
	}
	of := change{what, businessType}
	var fresh []string
	r.ForgetOld()
	r.mu.Lock()
	entries := r.open[of]
	if entries == nil {
		entries = make(map[processlog.ID]*refused)
		r.open[of] = entries
	}
	for _, refusal := range list {
		entry := entries[refusal.ID]
		if entry == nil {
			entry = new(refused)
			entries[refusal.ID] = entry
			fresh = append(fresh, refusal.ID.String())
		}
		entry.err = refusal.Err
		entry.times++
		entry.until = time.Now().Add(Pause(entry.times))
	}
	all := refusalsIn(entries)
	r.some.Store(true)
	r.mu.Unlock()
	r.tell()
	if len(fresh) == 0 {
		r.problems.Failed(what, businessType, all)
		return
	}
	r.problems.Record(what, businessType, all)
	if !r.closed() {
		r.log.Warn("compensator: "+what, "type", businessType, "entries", strings.Join(fresh, ","), "err", list[0].Err)
	}
}

// refusalsIn returns one error that names all refused entries, in ascending order of their ids.
func refusalsIn(entries map[processlog.ID]*refused) error {
	ids := slices.SortedFunc(maps.Keys(entries), processlog.ID.Compare)
	list := make([]processlog.Refusal, len(ids))
	for i, id := range ids {
		list[i] = processlog.Refusal{ID: id, Err: entries[id].err}
	}
	return &processlog.RefusedError{Refusals: list}
}

// If an entry is not tried again for forgetAfter after its pause, it is forgotten. Such an entry was purged, or another
// process has claimed it.
const forgetAfter = 10 * mostPause

// ForgetOld forgets entries that were not tried again. It clears a problem that has no entries left.
func (r *List) ForgetOld() {
	if !r.some.Load() {
		return
	}
	var over []change
	r.mu.Lock()
	for of, entries := range r.open {
		if of.what == Outcome {
			continue // this process holds these outcomes and tries until they are stored
		}
		maps.DeleteFunc(entries, func(_ processlog.ID, e *refused) bool { return time.Since(e.until) > forgetAfter })
		if len(entries) == 0 {
			delete(r.open, of)
			over = append(over, of)
		}
	}
	r.some.Store(len(r.open) > 0)
	r.mu.Unlock()
	for _, of := range over {
		r.problems.Passed(of.what, of.businessType)
	}
}

// Taken records that the database has accepted the change of the entries, or that the change is no longer needed.
func (r *List) Taken(what, businessType string, ids ...processlog.ID) {
	if !r.some.Load() {
		return
	}
	of := change{what, businessType}
	r.mu.Lock()
	entries, found := r.open[of]
	for _, id := range ids {
		delete(entries, id)
	}
	over := found && len(entries) == 0
	if over {
		delete(r.open, of)
		r.some.Store(len(r.open) > 0)
	}
	r.mu.Unlock()
	r.tell()
	if over {
		r.problems.Passed(what, businessType)
	}
}

func (r *List) tell() {
	select {
	case r.answered <- struct{}{}:
	default:
	}
}

// Aside splits the wanted entries into rest, which may be claimed now, and resting, which were refused and must wait.
func (r *List) Aside(businessType string, want []processlog.Wanted) (rest []processlog.Wanted, resting []processlog.Refusal) {
	if !r.some.Load() {
		return want, nil
	}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.claimedLocked(businessType) {
		return want, nil
	}
	rest = slices.DeleteFunc(slices.Clone(want), func(w processlog.Wanted) bool {
		e := r.ofClaimLocked(businessType, w.ID)
		rests := e != nil && now.Before(e.until)
		if rests {
			resting = append(resting, processlog.Refusal{ID: w.ID, Err: e.err})
		}
		return rests
	})
	return rest, resting
}

// refusedClaims lists the refusals that make a claim of an entry useless. The database refuses to lease the entry, or
// refuses to put it back while it is blocked.
var refusedClaims = [...]string{Claim, Block}

// claimedLocked reports whether any entry of a type has such a refusal. The caller holds mu.
func (r *List) claimedLocked(businessType string) bool {
	for _, what := range refusedClaims {
		if len(r.open[change{what, businessType}]) > 0 {
			return true
		}
	}
	return false
}

// ofClaimLocked returns the refusal that makes a claim of an entry useless, or nil. The caller holds mu.
func (r *List) ofClaimLocked(businessType string, id processlog.ID) *refused {
	for _, what := range refusedClaims {
		if e := r.open[change{what, businessType}][id]; e != nil {
			return e
		}
	}
	return nil
}

// RestLeft returns the time until a refused entry may be claimed again.
func (r *List) RestLeft(businessType string, id processlog.ID) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.ofClaimLocked(businessType, id); e != nil {
		return max(time.Until(e.until), processlog.LockedRetry)
	}
	return RetryUnknown
}

// Outcomes returns how many outcomes of a type wait because the database refuses them. An empty businessType counts all
// types.
func (r *List) Outcomes(businessType string) (n int) {
	if !r.some.Load() {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for of, entries := range r.open {
		if of.what == Outcome && (businessType == "" || of.businessType == businessType) {
			n += len(entries)
		}
	}
	return n
}

// OutcomesTried returns for each entry how many times its outcome was refused.
func (r *List) OutcomesTried() map[processlog.ID]int {
	if r.Outcomes("") == 0 {
		return nil
	}
	times := make(map[processlog.ID]int)
	r.mu.Lock()
	defer r.mu.Unlock()
	for of, entries := range r.open {
		if of.what != Outcome {
			continue
		}
		for id, e := range entries {
			times[id] = e.times
		}
	}
	return times
}

// OutcomesWait reports whether a refused outcome still waits for the answer to its next try. before is an earlier
// result of OutcomesTried. An outcome waits if its number of refusals is still the number in before.
func (r *List) OutcomesWait(before map[processlog.ID]int) bool {
	for id, times := range r.OutcomesTried() {
		if asked, found := before[id]; found && asked == times {
			return true
		}
	}
	return false
}

// Unstored returns an error that names the entries whose outcomes the database refuses. It returns nil if there are
// none.
func (r *List) Unstored() error {
	if r.Outcomes("") == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[processlog.ID]*refused)
	for of, entries := range r.open {
		if of.what == Outcome {
			maps.Copy(all, entries)
		}
	}
	return refusalsIn(all)
}

// Has reports whether an entry is in a list of refusals.
func Has(list []processlog.Refusal, id processlog.ID) bool {
	return slices.ContainsFunc(list, func(r processlog.Refusal) bool { return r.ID == id })
}
