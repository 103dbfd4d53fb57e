package engine

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/internal/jitter"
	"github.com/compensator-go/compensator/processlog"
)

// refusals records the entries that the database refuses to change, for example because of a trigger or a constraint.
// Each entry is logged once and stands in Health until the database accepts the same change. It is tried less and less
// often, so that hundreds of refused entries do not cost a statement each in every round.
type refusals struct {
	*Base
	some atomic.Bool // whether anything is refused; lets callers skip the mutex

	answered chan struct{} // capacity 1; receives a signal when the database refuses a change, or accepts one that it refused before

	mu   sync.Mutex // guards the field below
	open map[refusalOf]map[processlog.ID]*refused
}

// refusalOf is a kind of change that the database refuses, for one type.
type refusalOf struct{ what, businessType string }

// refused is the state of one refused entry.
type refused struct {
	err   error
	times int
	until time.Time // no new try before this time
}

const (
	refusedPause     = time.Second
	refusedPauseMost = time.Minute

	// mostRefusedOutcomes limits the refused outcomes of one type that wait in a process. At this limit the process
	// claims no more entries of the type, because their outcomes could not be stored either.
	mostRefusedOutcomes = processlog.MaxRows
)

// refusalPause returns how long an entry rests after the given number of refusals. After the first it is half a second
// to a second. It doubles each time, up to half a minute to a minute.
func refusalPause(times int) time.Duration {
	half := min(refusedPause<<min(times-1, 10), refusedPauseMost) / 2
	return half + jitter.N(half)
}

// note records that the database refuses a change of the listed entries. It logs the entries that are new.
func (r *refusals) note(what, businessType string, list []processlog.Refusal) {
	if len(list) == 0 {
		return
	}
	of := refusalOf{what, businessType}
	var fresh []string
	r.forgetOld()
	r.mu.Lock()
	entries := r.open[of]
	if entries == nil {
		entries = make(map[processlog.ID]*refused)
		setIn(&r.open, of, entries)
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
		entry.until = time.Now().Add(refusalPause(entry.times))
	}
	all := refusalsIn(entries)
	r.some.Store(true)
	r.mu.Unlock()
	r.tell()
	if len(fresh) == 0 {
		r.Problems.Failed(what, businessType, all)
		return
	}
	r.Problems.Record(what, businessType, all)
	if !r.Problems.closed() {
		r.Log.Warn("compensator: "+what, "type", businessType, "entries", strings.Join(fresh, ","), "err", list[0].Err)
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

// forgetAfter is how long after its pause an entry is forgotten if it was not tried again. It was purged, or another
// process has it.
const forgetAfter = 10 * refusedPauseMost

// forgetOld forgets entries that were not tried again. It clears a problem that has no entries left.
func (r *refusals) forgetOld() {
	if !r.some.Load() {
		return
	}
	var over []refusalOf
	r.mu.Lock()
	for of, entries := range r.open {
		if of.what == problemRefusedOutcome {
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
		r.Problems.Passed(of.what, of.businessType)
	}
}

// taken records that the database has accepted the change of the entries, or that the change is no longer needed.
func (r *refusals) taken(what, businessType string, ids ...processlog.ID) {
	if !r.some.Load() {
		return
	}
	of := refusalOf{what, businessType}
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
		r.Problems.Passed(what, businessType)
	}
}

func (r *refusals) tell() {
	select {
	case r.answered <- struct{}{}:
	default:
	}
}

// aside splits the wanted entries into rest, which may be claimed now, and resting, which were refused and must wait.
func (r *refusals) aside(businessType string, want []processlog.Wanted) (rest []processlog.Wanted, resting []processlog.Refusal) {
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
var refusedClaims = [...]string{problemRefusedClaim, ProblemRefusedBlock}

// claimedLocked reports whether any entry of a type has such a refusal. The caller holds mu.
func (r *refusals) claimedLocked(businessType string) bool {
	for _, what := range refusedClaims {
		if len(r.open[refusalOf{what, businessType}]) > 0 {
			return true
		}
	}
	return false
}

// ofClaimLocked returns the refusal that makes a claim of an entry useless, or nil. The caller holds mu.
func (r *refusals) ofClaimLocked(businessType string, id processlog.ID) *refused {
	for _, what := range refusedClaims {
		if e := r.open[refusalOf{what, businessType}][id]; e != nil {
			return e
		}
	}
	return nil
}

// in returns the time until a refused entry may be claimed again.
func (r *refusals) in(businessType string, id processlog.ID) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.ofClaimLocked(businessType, id); e != nil {
		return max(time.Until(e.until), processlog.LockedRetry)
	}
	return RefusedRetry
}

// outcomes returns how many outcomes of a type wait because the database refuses them. An empty businessType counts all
// types.
func (r *refusals) outcomes(businessType string) (n int) {
	if !r.some.Load() {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for of, entries := range r.open {
		if of.what == problemRefusedOutcome && (businessType == "" || of.businessType == businessType) {
			n += len(entries)
		}
	}
	return n
}

// outcomesTried returns for each entry how many times its outcome was refused.
func (r *refusals) outcomesTried() map[processlog.ID]int {
	if r.outcomes("") == 0 {
		return nil
	}
	times := make(map[processlog.ID]int)
	r.mu.Lock()
	defer r.mu.Unlock()
	for of, entries := range r.open {
		if of.what != problemRefusedOutcome {
			continue
		}
		for id, e := range entries {
			times[id] = e.times
		}
	}
	return times
}

// outcomesWait reports whether some outcome in before has had no answer from the database since. before is an earlier
// result of outcomesTried.
func (r *refusals) outcomesWait(before map[processlog.ID]int) bool {
	for id, times := range r.outcomesTried() {
		if asked, found := before[id]; found && asked == times {
			return true
		}
	}
	return false
}

// unstored returns an error that names the entries whose outcomes the database refuses. It returns nil if there are
// none.
func (r *refusals) unstored() error {
	if r.outcomes("") == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[processlog.ID]*refused)
	for of, entries := range r.open {
		if of.what == problemRefusedOutcome {
			maps.Copy(all, entries)
		}
	}
	return refusalsIn(all)
}
