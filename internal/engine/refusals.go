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

// refusals keeps which entries the database refuses to change, by a trigger or a constraint for example. Each is logged once,
// stands in Health until the same change is taken, and is tried less and less often, so that hundreds of them cost no statement
// each in every round.
type refusals struct {
	*Base
	some atomic.Bool // there is any: what works asks for no more than this

	answered chan struct{} // of capacity 1: holds a token once the database has refused or taken what it refused before

	mu   sync.Mutex // guards the field below
	open map[refusalOf]map[processlog.ID]*refused
}

// refusalOf is what the database refuses for entries of one type.
type refusalOf struct{ what, businessType string }

// refused is one entry.
type refused struct {
	err   error
	times int
	until time.Time // it is not tried again before
}

const (
	refusedPause     = time.Second
	refusedPauseMost = time.Minute

	// mostRefusedOutcomes is how many refused outcomes of one type wait in a process before it claims no more of that type: the
	// handlers' work could not be stored either.
	mostRefusedOutcomes = processlog.MaxRows
)

// refusalPause returns how long an entry rests after it was refused so many times: half a second to a second at first, twice as
// long each time, and half a minute to a minute in the end.
func refusalPause(times int) time.Duration {
	half := min(refusedPause<<min(times-1, 10), refusedPauseMost) / 2
	return half + jitter.N(half)
}

// note takes what the database refuses for entries of one type. It logs those that are new.
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

// refusalsIn names all refused entries, in ascending order.
func refusalsIn(entries map[processlog.ID]*refused) error {
	ids := slices.SortedFunc(maps.Keys(entries), processlog.ID.Compare)
	list := make([]processlog.Refusal, len(ids))
	for i, id := range ids {
		list[i] = processlog.Refusal{ID: id, Err: entries[id].err}
	}
	return &processlog.RefusedError{Refusals: list}
}

// forgetAfter is how long after its pause an entry is forgotten that was not tried again: it was purged, or another process has it.
const forgetAfter = 10 * refusedPauseMost

// forgetOld forgets entries that were not tried again, and what the database then refuses no more.
func (r *refusals) forgetOld() {
	if !r.some.Load() {
		return
	}
	var over []refusalOf
	r.mu.Lock()
	for of, entries := range r.open {
		if of.what == problemRefusedOutcome {
			continue // each is held here, and tried until it is stored
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

// taken notes that the database has taken the change of entries, or that nobody asks for it any more.
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

// aside splits wanted entries into those that may be claimed now and those that were refused and rest.
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

// refusedClaims are what makes a claim of an entry vain: it cannot be leased, or not be put back until its turn comes.
var refusedClaims = [...]string{problemRefusedClaim, ProblemRefusedBlock}

// claimedLocked reports whether a claim of some entry of a type is vain.
func (r *refusals) claimedLocked(businessType string) bool {
	for _, what := range refusedClaims {
		if len(r.open[refusalOf{what, businessType}]) > 0 {
			return true
		}
	}
	return false
}

// ofClaimLocked returns what makes a claim of an entry vain; nil: nothing does.
func (r *refusals) ofClaimLocked(businessType string, id processlog.ID) *refused {
	for _, what := range refusedClaims {
		if e := r.open[refusalOf{what, businessType}][id]; e != nil {
			return e
		}
	}
	return nil
}

// in returns when a refused entry is to be claimed again.
func (r *refusals) in(businessType string, id processlog.ID) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.ofClaimLocked(businessType, id); e != nil {
		return max(time.Until(e.until), processlog.LockedRetry)
	}
	return RefusedRetry
}

// outcomes returns how many outcomes of a type wait because the database refuses them; of all types where it is empty.
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

// outcomesTried returns how many times the outcome of each entry was refused.
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

// outcomesWait reports whether the database has not answered about some outcome since outcomesTried returned before.
func (r *refusals) outcomesWait(before map[processlog.ID]int) bool {
	for id, times := range r.outcomesTried() {
		if asked, found := before[id]; found && asked == times {
			return true
		}
	}
	return false
}

// unstored names the entries whose outcomes the database refuses; nil: there are none.
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
