// Package limits implements TypeConfig.Limit: how many entries start, and run at once, over all processes.
//
// The store decides which entries get a permit, in the transaction of their claim. See StartLimits in package
// processlog. A process may also take starts in advance, and give them to entries of its later claims (advance.go). This package makes each claim of a limited type ask the store, and decides when the next claim is
// worthwhile:
//
//   - A limit without keys holds up its whole type. The type is not claimed until the limit allows a start (gate.go).
//   - A limit with keys holds up the entries of one key. This process remembers which entries wait for a permit, and
//     claims them when they may get one (line.go). Entries of other keys are claimed meanwhile.
//
// All estimates here are hints. Only one rule is exact: an entry whose permit is older than grantLife does not start.
//
//	limits.go   which types have limits, and which claimed entries may start
//	gate.go     when a type without keys is worth a claim
//	line.go     when an entry of a key is worth a claim
//	advance.go  starts that a claim takes for the entries of the next claims
package limits

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/groupcommit"
	"github.com/compensator-go/compensator/internal/grouped"
	"github.com/compensator-go/compensator/internal/usererr"
	"github.com/compensator-go/compensator/internal/verdict"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

const (
	problemKey    = "the function Key of a limit panicked"
	problemReturn = "starts that were not used could not be returned to a limit"
)

// grantLife is the maximum age of a permit when its entry starts. The limit counts a start when it grants the permit,
// and not when the entry starts. If many entries kept their permits for long and then started together, more entries
// would start at once than the limit allows.
//
// The age of a permit is counted from the moment just before this process sends the statement that grants the permit. A
// claim may send other statements first. Their time does not count, because otherwise every permit would be too old on
// a slow database, and no entry would start.
const grantLife = time.Second

// Settings are the settings of TypeConfig.Limit. The fields mean the same as those of processlog.StartLimit. Key is
// nil, or returns the key of an entry: "" means that the entry is not limited.
type Settings struct {
	Name       string
	Interval   time.Duration
	Burst      int
	Concurrent int
	Key        func(row *processlog.Row) string
}

// Limits are the limits of all types of an engine.
type Limits struct {
	e            *engine.Engine
	unusedStarts groupcommit.Batcher[unusedStart]

	types    map[*engine.Type]*limitedType // written at registration, before Run begins
	advanced chan struct{}                 // of capacity 1: holds a token when ReturnAdvances has keys to look at

	mu           sync.Mutex          // guards the fields below
	settings     map[string]Settings // by name
	limitedTypes []*limitedType      // in the order of registration
}

// unusedStart is a start that was granted and that never began.
type unusedStart struct {
	limit    *limitedType
	key      string
	granted  int64
	interval time.Duration
	sentAt   time.Time
}

// New makes the limits of an engine.
func New(e *engine.Engine) *Limits {
	l := &Limits{e: e, types: make(map[*engine.Type]*limitedType), settings: make(map[string]Settings), advanced: make(chan struct{}, 1)}
	l.unusedStarts.Max, l.unusedStarts.Workers, l.unusedStarts.Flush = processlog.MaxRows, 1, l.returnStarts
	e.Await(engine.WaitAtDrainEnd, &l.unusedStarts)
	return l
}

type limitedType struct {
	l     *Limits
	e     *engine.Engine
	t     *engine.Type
	limit processlog.StartLimit // as the program has set it

	mu           sync.Mutex // guards the fields below; nothing is called while it is held
	permits      map[holder]permit
	currentLimit processlog.StartLimit // limit that the last claim obeyed; a person may have changed its values
	gate         gate                  // used if the limit has no keys
	line         line                  // used if the limit has keys
	advances     advances              // used if the limit has keys
}

type holder struct {
	id      processlog.ID
	version uint64
}

type permit struct {
	key      string
	granted  int64         // processlog.Room.Granted after the claim
	interval time.Duration // StartLimit.Interval at the time of the grant
	sentAt   time.Time
	isUsed   bool // the handler was called
}

// With returns a function that applies a limit to a type. With returns a *FieldError if another type has a limit of the
// same name with other settings.
func (l *Limits) With(s Settings) (attach func(t *engine.Type), err error) {
	if err := l.registerLimit(&s); err != nil {
		return nil, err
	}
	return func(t *engine.Type) { l.attach(t, s) }, nil
}

func (l *Limits) attach(t *engine.Type, s Settings) {
	lt := &limitedType{l: l, e: l.e, t: t, permits: make(map[holder]permit), line: newLine(), advances: advances{keys: make(map[string]*advance)}}
	lt.limit = processlog.StartLimit{Name: s.Name, Interval: s.Interval, Burst: s.Burst, Concurrent: s.Concurrent, Keyed: s.Key != nil, Key: lt.newKeyFunc(s)}
	lt.currentLimit = lt.limit
	lt.gate.isKeyed = s.Key != nil
	t.AttachAdmission(func(a *engine.Admission) {
		a.Claim, a.CallsAllowed, a.MoreCallsAt, a.Admit, a.AttemptEnded = lt.claim, lt.countClaimable, lt.nextClaimableAt, lt.admit, lt.noteAttemptEnd
	})
	if len(l.types) == 0 { // A program without limits pays nothing when it stores an outcome.
		h := &l.e.Hooks
		h.Stored = append(h.Stored, func(a *engine.Attempt, _ processlog.State, _ bool) { l.removePermit(a) })
		h.Dropped, h.GivenBack = append(h.Dropped, l.removePermit), append(h.GivenBack, l.removePermit)
	}
	l.types[t] = lt
	l.mu.Lock()
	l.limitedTypes = append(l.limitedTypes, lt)
	l.mu.Unlock()
}

// Waiting returns the types with entries that wait for a permit, as far as this process knows, sorted by type.
func (l *Limits) Waiting() (waiting []observe.LimitedType) {
	l.mu.Lock()
	types := l.limitedTypes
	l.mu.Unlock()
	for _, lt := range types {
		if n, startAt := lt.reportWaiting(time.Now()); n > 0 {
			waiting = append(waiting, observe.LimitedType{BusinessType: lt.t.Name, Limit: lt.limit.Name, Waiting: n, NextAt: startAt.UTC()})
		}
	}
	slices.SortFunc(waiting, func(a, b observe.LimitedType) int { return strings.Compare(a.BusinessType, b.BusinessType) })
	return waiting
}

func (lt *limitedType) reportWaiting(now time.Time) (waiting int, startAt time.Time) {
	hasMore := lt.e.HasMore(lt.t)
	lt.mu.Lock()
	defer lt.mu.Unlock()
	if lt.gate.isKeyed {
		return lt.line.reportWaiting(now)
	}
	return lt.gate.reportWaiting(now, hasMore)
}

func (l *Limits) registerLimit(s *Settings) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	known, isKnown := l.settings[s.Name]
	if isKnown && (known.Interval != s.Interval || known.Burst != s.Burst || known.Concurrent != s.Concurrent || (known.Key == nil) != (s.Key == nil)) {
		return &processlog.FieldError{Field: "Limit", Reason: fmt.Sprintf("another type shares the limit %q with other settings", s.Name)}
	}
	l.settings[s.Name] = *s
	return nil
}

// newKeyFunc returns the function for StartLimit.Key, which says whether an entry needs a permit. An entry needs no
// permit if it has lost so many leases that its claim calls no handler.
func (lt *limitedType) newKeyFunc(settings Settings) func(row *processlog.Row) (string, bool, bool) {
	return func(row *processlog.Row) (string, bool, bool) {
		key, isLimited, err := settings.KeyOf(row)
		if err != nil {
			// The entry must not start, because nobody knows its key, and so nobody knows how many starts the key has
			// left.
			lt.e.Problems.LogLimited(problemKey, err, "type", lt.t.Name, "entry", row.ID)
		}
		return key, isLimited, err == nil
	}
}

// KeyOf returns the key of an entry, and whether the limit holds for it.
func (s *Settings) KeyOf(row *processlog.Row) (key string, isLimited bool, err error) {
	switch {
	case engine.RunsNothing(row):
		return "", false, nil
	case s.Key == nil:
		return "", true, nil
	}
	key, err = callKey(s.Key, row)
	return key, key != "" && err == nil, err
}

func callKey(key func(row *processlog.Row) string, row *processlog.Row) (text string, err error) {
	draft := row.Draft()
	// Pass to the user's function only what was recorded, and not the state or the counts of the row. So the function
	// returns the same key each time.
	recorded := draft.Row()
	if problem := usererr.Contain(func() { text = key(&recorded) }); problem != "" {
		return "", errors.New(problem)
	}
	if len(text) >= processlog.MaxOrderingKey {
		// The hash that replaces a long key has MaxOrderingKey bytes. Also hash a key that has exactly this length.
		// Otherwise the text of this key could be equal to the hash of another key.
		sum := sha256.Sum256([]byte(text))
		text = hex.EncodeToString(sum[:])
	}
	return text, nil
}

func (lt *limitedType) claim(ctx context.Context, wanted []processlog.Wanted, token processlog.Token, lease time.Duration, accept func(*processlog.Row) bool) (processlog.Claimed, error) {
	sentAt := time.Now()
	wanted, sleeping := lt.splitSleeping(wanted, sentAt)
	if len(wanted) == 0 {
		lt.scheduleClaim()
		return processlog.Claimed{Limited: sleeping}, nil
	}
	limit, starts := lt.limit, &startsInAdvance{lt, make(map[processlog.ID]string, len(wanted)), make(map[processlog.ID]unusedStart)}
	limit.Key, limit.Advance = starts.keyOf, lt.advance
	claim, err := lt.e.Store.ClaimLimited(ctx, wanted, token, lease, limit, accept)
	if err != nil {
		lt.returnUnused(lt.giveBack(starts, nil))
		return claim, err
	}
	wokenIDs, unused := lt.noteClaim(&claim, starts, sentAt)
	lt.returnUnused(unused)
	claim.Limited = append(claim.Limited, sleeping...)
	lt.wake(wokenIDs)
	lt.scheduleClaim()
	return claim, nil
}

func (lt *limitedType) splitSleeping(wanted []processlog.Wanted, now time.Time) (awake []processlog.Wanted, sleeping []processlog.Limited) {
	lt.mu.Lock()
	defer lt.mu.Unlock()
	return lt.line.splitSleeping(wanted, now)
}

// noteClaim sets how long each limited entry waits. wokenIDs may get a permit now. The caller must return the unused
// starts to the limit.
func (lt *limitedType) noteClaim(claim *processlog.Claimed, starts *startsInAdvance, sentAt time.Time) (wokenIDs []processlog.ID, unused []unusedStart) {
	lt.mu.Lock()
	defer lt.mu.Unlock()
	unused = lt.giveBackLocked(starts, claim.Mine)
	lt.advances.slow = time.Since(sentAt) > advanceLife/2
	if !claim.GrantedAfter.IsZero() {
		sentAt = claim.GrantedAfter
	}
	hasChanged := lt.noteValues(claim.InForce)
	started := make(map[string]int) // entries that the claim has leased, by key
	for i := range claim.Mine {
		row := &claim.Mine[i]
		if start, has := starts.starts[row.ID]; has {
			lt.permits[holder{row.ID, row.Version}] = permit{key: start.key, granted: start.granted, interval: start.interval, sentAt: start.sentAt}
		} else if key, isLimited := starts.keys[row.ID]; isLimited {
			lt.permits[holder{row.ID, row.Version}] = permit{key: key, granted: claim.Rooms[key].Granted, interval: lt.currentLimit.Interval, sentAt: sentAt}
			started[key]++
		}
	}
	now := time.Now()
	if !lt.gate.isKeyed {
		lt.gate.noteClaim(claim, &lt.currentLimit, now)
		return nil, unused
	}
	wokenIDs = lt.line.noteClaim(claim, &lt.currentLimit, now)
	if hasChanged {
		wokenIDs = append(wokenIDs, lt.line.wakeAll()...)
		old, _ := lt.advances.dropOld(true, now)
		unused = append(unused, old...)
	}
	if lt.currentLimit.Interval > 0 {
		unused = append(unused, lt.noteAdvancesLocked(claim, started, sentAt)...)
	}
	return wokenIDs, unused
}

func (lt *limitedType) noteValues(values *processlog.LimitValues) (changed bool) {
	if values == nil || *values == lt.currentLimit.Values() {
		return false
	}
	lt.currentLimit.Set(*values)
	return true
}

func (lt *limitedType) wake(ids []processlog.ID) {
	for _, id := range ids {
		lt.e.Source().Move(processlog.QueueEntry{BusinessType: lt.t.Name, ID: id})
	}
}

func (lt *limitedType) scheduleClaim() {
	lt.mu.Lock()
	at := lt.gate.nextClaimAt
	if lt.gate.isKeyed {
		at = lt.line.nextClaimAt()
	}
	lt.mu.Unlock()
	if !at.IsZero() {
		lt.e.Expect(lt.t.Name, max(0, time.Until(at)))
	}
}

// countClaimable returns how many entries a claim may lease now, and never engine.Unlimited. After engine.Unlimited, an
// entry could start without a claim. Only a claim gets permits, so this entry would have no permit.
func (lt *limitedType) countClaimable() int {
	lt.mu.Lock()
	defer lt.mu.Unlock()
	return lt.gate.countClaimable(&lt.currentLimit, time.Now())
}

func (lt *limitedType) nextClaimableAt() time.Time {
	lt.mu.Lock()
	defer lt.mu.Unlock()
	return lt.gate.opensAt()
}

func (lt *limitedType) admit(attempts []*engine.Attempt) (admitted, skipped []*engine.Attempt) {
	lt.mu.Lock()
	defer lt.mu.Unlock()
	isOld := func(a *engine.Attempt) bool {
		p, hasPermit := lt.permits[holderOf(a)]
		return hasPermit && time.Since(p.sentAt) > grantLife
	}
	if !slices.ContainsFunc(attempts, isOld) {
		return attempts, nil
	}
	for _, a := range attempts {
		if isOld(a) {
			skipped = append(skipped, a)
		} else {
			admitted = append(admitted, a)
		}
	}
	return admitted, skipped
}

func holderOf(a *engine.Attempt) holder { return holder{a.Row.ID, a.Row.Version} }

func (lt *limitedType) noteAttemptEnd(a *engine.Attempt, r engine.Result) {
	lt.mu.Lock()
	defer lt.mu.Unlock()
	if p, hasPermit := lt.permits[holderOf(a)]; hasPermit && !r.Unstarted && verdict.Of(r.Err).HandlerCalled() {
		p.isUsed = true
		lt.permits[holderOf(a)] = p
	}
}

func (l *Limits) removePermit(a *engine.Attempt) {
	if lt := l.types[a.Type]; lt != nil {
		lt.removePermit(a)
	}
}

// removePermit forgets the permit of an attempt that is over. The limit has counted a start when it granted the permit.
// If the attempt called no handler, removePermit returns this start to the limit.
func (lt *limitedType) removePermit(a *engine.Attempt) {
	lt.mu.Lock()
	p, hasPermit := lt.permits[holderOf(a)]
	delete(lt.permits, holderOf(a))
	var wokenIDs []processlog.ID
	hasOpened := false
	if hasPermit && lt.currentLimit.Concurrent > 0 {
		if lt.gate.isKeyed {
			wokenIDs = lt.line.wake(p.key, 1)
		} else {
			hasOpened = lt.gate.notePermitEnd()
		}
	}
	lt.mu.Unlock()
	if !hasPermit {
		return
	}
	if !p.isUsed && p.interval > 0 {
		lt.l.unusedStarts.Add(unusedStart{lt, p.key, p.granted, p.interval, p.sentAt})
	}
	lt.wake(wokenIDs)
	if hasOpened {
		lt.e.Expect(lt.t.Name, 0)
	}
}

func (lt *limitedType) wakeReturned(starts map[string]processlog.Unused) {
	lt.mu.Lock()
	var wokenIDs []processlog.ID
	for _, key := range slices.Sorted(maps.Keys(starts)) {
		wokenIDs = append(wokenIDs, lt.line.wake(key, starts[key].Starts)...)
	}
	lt.gate.rateOpensAt = time.Time{}
	isGated := !lt.gate.isKeyed
	lt.mu.Unlock()
	lt.wake(wokenIDs)
	if isGated {
		lt.e.Expect(lt.t.Name, 0)
	}
}

// returnStarts may fail. Then the limit allows a little less for a while.
func (l *Limits) returnStarts(batch []unusedStart) {
	type limitedInterval struct {
		limit    *limitedType
		interval time.Duration
	}
	for target, group := range grouped.Each(batch, func(u unusedStart) limitedInterval { return limitedInterval{u.limit, u.interval} }) {
		startsByKey := make(map[string]processlog.Unused)
		for _, u := range group {
			switch latest := startsByKey[u.key]; {
			// This start is of a later claim than the starts that were counted so far. The limit takes back only the
			// starts of the latest claim, so count from 1 again. A start of an earlier claim is left out.
			case u.granted > latest.Granted:
				startsByKey[u.key] = processlog.Unused{Starts: 1, Granted: u.granted}
			case u.granted == latest.Granted:
				startsByKey[u.key] = processlog.Unused{Starts: latest.Starts + 1, Granted: u.granted}
			}
		}
		ctx, cancel := l.e.Statement()
		limit := target.limit.limit
		limit.Interval = target.interval
		err := l.e.Store.ReturnStarts(ctx, limit, startsByKey)
		cancel()
		l.e.NoteResult(problemReturn, err)
		if err == nil {
			target.limit.wakeReturned(startsByKey)
		}
	}
}
