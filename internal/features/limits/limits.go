// Package limits implements TypeConfig.Limit: how many entries start, and run at once, over all processes.
//
// The store decides which entries get a permit, in the transaction of their claim. See StartLimits in package
// processlog. This package makes each claim of a limited type ask the store, and decides when the next claim is
// worthwhile:
//
//   - A limit without keys holds up its whole type. The type is not claimed until the limit allows a start (gate.go).
//   - A limit with keys holds up the entries of one key. This process remembers which entries wait for a permit, and claims
//     them when they may get one (line.go). Entries of other keys are claimed meanwhile.
//
// All estimates here are hints. Only one rule is exact: an entry whose permit is older than grantLife does not start.
//
//	limits.go   which types have limits, and which claimed entries may start
//	gate.go     when a type without keys is worth a claim
//	line.go     when an entry of a key is worth a claim
package limits

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
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
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// These are the texts of problems in Health and in the log.
const (
	problemKey    = "the function Key of a limit panicked"
	problemReturn = "starts that were not used could not be returned to a limit"
)

// grantLife is the maximum age of a permit when its entry starts. The age counts from just before the claim is sent, so
// it includes the commit. An entry that starts later could fall into the same window of time as starts that were
// granted after it. That window could then hold more starts than the limit allows.
const grantLife = time.Second

// Settings are the settings of TypeConfig.Limit. The fields mean the same as those of processlog.StartLimit. Key is nil, or returns
// the key of an entry: "" means that the entry is not limited.
type Settings struct {
	Name       string
	Interval   time.Duration
	Burst      int
	Concurrent int
	Key        func(row *processlog.Row) string
}

// Limits are the limits of all types of an engine.
type Limits struct {
	e      *engine.Engine
	unused groupcommit.Batcher[unused]

	types map[*engine.Type]*limited // written at registration, before Run begins

	mu       sync.Mutex          // guards the fields below
	settings map[string]Settings // by name
	all      []*limited          // in the order of registration
}

// unused is a start that was granted and that never began.
type unused struct {
	limit    *limited
	key      string
	granted  int64
	interval time.Duration // under which it was granted
}

// New makes the limits of an engine.
func New(e *engine.Engine) *Limits {
	l := &Limits{e: e, types: make(map[*engine.Type]*limited), settings: make(map[string]Settings)}
	l.unused.Max, l.unused.Workers, l.unused.Flush = processlog.MaxRows, 1, l.giveBack
	e.AwaitInDrain(&l.unused)
	return l
}

// limited is a type with a limit.
type limited struct {
	l     *Limits
	e     *engine.Engine
	t     *engine.Type
	limit processlog.StartLimit // as the program has set it

	mu      sync.Mutex // guards the fields below; nothing is called while it is held
	permits map[holder]*permit
	inForce processlog.StartLimit // with what a person has changed, as the last claim has obeyed it
	gate    gate                  // used if the limit has no keys
	line    line                  // used if the limit has keys
}

// holder is an entry with the version under which it holds a permit.
type holder struct {
	id      processlog.ID
	version uint64
}

// permit is a permit that this process holds.
type permit struct {
	key      string
	granted  int64         // processlog.Room.Granted after the claim
	interval time.Duration // under which the start was granted
	asked    time.Time     // before the claim was sent
	used     bool          // the handler was called
}

// With returns a function that applies a limit to a type. With returns a *FieldError if another type has a limit of the
// same name with other settings.
func (l *Limits) With(s Settings) (attach func(t *engine.Type), err error) {
	if err := l.share(&s); err != nil {
		return nil, err
	}
	return func(t *engine.Type) { l.attach(t, s) }, nil
}

func (l *Limits) attach(t *engine.Type, s Settings) {
	lt := &limited{l: l, e: l.e, t: t, permits: make(map[holder]*permit), line: newLine()}
	lt.limit = processlog.StartLimit{Name: s.Name, Interval: s.Interval, Burst: s.Burst, Concurrent: s.Concurrent, Keyed: s.Key != nil, Key: lt.keyOf(s)}
	lt.inForce = lt.limit
	lt.gate.open = s.Key != nil
	t.AttachClaimer(lt.claim)
	t.AttachAdmission(func(a *engine.Admission) {
		a.CallsAllowed, a.MoreCallsAt, a.Admit, a.AttemptEnded = lt.room, lt.roomAt, lt.admit, lt.ended
	})
	if len(l.types) == 0 { // A program without limits pays nothing when it stores an outcome.
		l.e.AttachSettlement(func(s *engine.Settlement) {
			s.Stored = func(a *engine.Attempt, _ processlog.State, _ bool) { l.over(a) }
			s.Dropped, s.GivenBack = l.over, l.over
		})
	}
	l.types[t] = lt
	l.mu.Lock()
	l.all = append(l.all, lt)
	l.mu.Unlock()
}

// Waiting returns the types with entries that this process knows to wait for a permit, sorted by type.
func (l *Limits) Waiting() (waiting []observe.LimitedType) {
	l.mu.Lock()
	all := l.all
	l.mu.Unlock()
	for _, lt := range all {
		if n, free := lt.report(time.Now()); n > 0 {
			waiting = append(waiting, observe.LimitedType{BusinessType: lt.t.Name, Limit: lt.limit.Name, Waiting: n, NextAt: free.UTC()})
		}
	}
	slices.SortFunc(waiting, func(a, b observe.LimitedType) int { return strings.Compare(a.BusinessType, b.BusinessType) })
	return waiting
}

func (lt *limited) report(now time.Time) (waiting int, free time.Time) {
	more := lt.e.HasMore(lt.t)
	lt.mu.Lock()
	defer lt.mu.Unlock()
	if lt.gate.open {
		return lt.line.report(now)
	}
	return lt.gate.report(now, more)
}

// share stores the settings of a limit. It returns an error if another type uses the limit with other settings.
func (l *Limits) share(s *Settings) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	first, shared := l.settings[s.Name]
	if shared && (first.Interval != s.Interval || first.Burst != s.Burst || first.Concurrent != s.Concurrent || (first.Key == nil) != (s.Key == nil)) {
		return &processlog.FieldError{Field: "Limit", Reason: fmt.Sprintf("another type shares the limit %q with other settings", s.Name)}
	}
	l.settings[s.Name] = *s
	return nil
}

// keyOf returns the function for StartLimit.Key. The parameter key is the user's function, or nil. A claim that runs no
// handler, because it only counts a lost lease, needs no permit.
func (lt *limited) keyOf(settings Settings) func(row *processlog.Row) (string, bool, bool) {
	return func(row *processlog.Row) (string, bool, bool) {
		key, limited, err := settings.KeyOf(row)
		if err != nil {
			// Without its key, it is unknown which limit applies to this entry.
			lt.e.Problems.LogLimited(problemKey, err, "type", lt.t.Name, "entry", row.ID)
		}
		return key, limited, err == nil
	}
}

// KeyOf returns the key of an entry, and whether the limit holds for it.
func (s *Settings) KeyOf(row *processlog.Row) (key string, limited bool, err error) {
	switch {
	case engine.RunsNothing(row):
		return "", false, nil
	case s.Key == nil:
		return "", true, nil
	}
	key, err = call(s.Key, row)
	return key, key != "" && err == nil, err
}

// call calls a user's key function. A key that is too long is replaced by its hash.
func call(key func(row *processlog.Row) string, row *processlog.Row) (text string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %s", usererr.PanicText(p))
		}
	}()
	draft := row.Draft()
	recorded := draft.Row() // The function gets what was recorded and nothing else, so that it returns the same key each time.
	text = key(&recorded)
	if len(text) >= processlog.MaxOrderingKey {
		sum := sha256.Sum256([]byte(text)) // also of a key that would just fit, which could be the hash of another key
		text = hex.EncodeToString(sum[:])
	}
	return text, nil
}

// claim is the engine.Claimer of the type. Its statement leaves out entries that are known to wait for a permit.
func (lt *limited) claim(ctx context.Context, want []processlog.Wanted, token processlog.Token, lease time.Duration, accept func(*processlog.Row) bool) (processlog.Claimed, error) {
	asked := time.Now()
	want, asleep := lt.awake(want, asked)
	if len(want) == 0 {
		lt.expect()
		return processlog.Claimed{Limited: asleep}, nil
	}
	found, err := lt.e.Store.ClaimLimited(ctx, want, token, lease, lt.limit, accept)
	if err != nil {
		return found, err
	}
	woken := lt.claimed(&found, asked)
	found.Limited = append(found.Limited, asleep...)
	lt.wake(woken)
	lt.expect()
	return found, nil
}

// awake separates wanted entries from those that still wait for a permit.
func (lt *limited) awake(want []processlog.Wanted, now time.Time) (rest []processlog.Wanted, asleep []processlog.Limited) {
	lt.mu.Lock()
	defer lt.mu.Unlock()
	return lt.line.awake(want, now)
}

// claimed notes the result of a claim. It sets how long each limited entry waits. woken are entries that may get a permit now.
func (lt *limited) claimed(found *processlog.Claimed, asked time.Time) (woken []processlog.ID) {
	lt.mu.Lock()
	defer lt.mu.Unlock()
	changed := lt.obey(found.InForce)
	for i := range found.Mine {
		row := &found.Mine[i]
		before := *row
		before.DeliveryCount--
		if key, needed, ok := lt.limit.Of(&before); needed && ok {
			lt.permits[holder{row.ID, row.Version}] = &permit{key: key, granted: found.Rooms[key].Granted, interval: lt.inForce.Interval, asked: asked}
		}
	}
	now := time.Now()
	if lt.gate.open {
		woken = lt.line.claimed(found, &lt.inForce, now)
		if changed {
			woken = append(woken, lt.line.wakeAll()...)
		}
		return woken
	}
	lt.gate.claimed(found, &lt.inForce, now)
	return nil
}

// obey notes the values that a claim has obeyed. It reports whether they are new.
func (lt *limited) obey(values *processlog.LimitValues) (changed bool) {
	if values == nil || *values == lt.inForce.Values() {
		return false
	}
	lt.inForce.Set(*values)
	return true
}

// wake makes the entries due now, because they may get a permit.
func (lt *limited) wake(ids []processlog.ID) {
	for _, id := range ids {
		lt.e.Move(lt.t.Name, id, 0)
	}
}

// expect schedules a claim of the type for the time when a waiting entry may get a permit.
func (lt *limited) expect() {
	lt.mu.Lock()
	at := lt.gate.expected
	if lt.gate.open {
		at = lt.line.next()
	}
	lt.mu.Unlock()
	if !at.IsZero() {
		lt.e.Expect(lt.t.Name, max(0, time.Until(at)))
	}
}

// room returns how many entries are worth a claim. It never returns Unlimited, because entries of an unlimited type are
// inserted with a lease, and such an entry would have no permit.
func (lt *limited) room() int {
	lt.mu.Lock()
	defer lt.mu.Unlock()
	return lt.gate.room(&lt.inForce, time.Now())
}

func (lt *limited) roomAt() time.Time {
	lt.mu.Lock()
	defer lt.mu.Unlock()
	return lt.gate.until()
}

// admit refuses attempts whose permits are too old.
func (lt *limited) admit(attempts []*engine.Attempt) (admitted, refused []*engine.Attempt) {
	lt.mu.Lock()
	defer lt.mu.Unlock()
	for _, a := range attempts {
		if p := lt.permits[holderOf(a)]; p != nil && time.Since(p.asked) > grantLife {
			refused = append(refused, a)
		} else {
			admitted = append(admitted, a)
		}
	}
	return admitted, refused
}

func holderOf(a *engine.Attempt) holder { return holder{a.Row.ID, a.Row.Version} }

// ended notes whether an attempt has called its handler.
func (lt *limited) ended(a *engine.Attempt, r engine.Result) {
	lt.mu.Lock()
	defer lt.mu.Unlock()
	if p := lt.permits[holderOf(a)]; p != nil && !r.Unstarted {
		p.used = true
	}
}

// The method over notes that an attempt is over, if its type has a limit.
func (l *Limits) over(a *engine.Attempt) {
	if lt := l.types[a.Type]; lt != nil {
		lt.over(a)
	}
}

// The method over notes that an attempt no longer holds its permit. A start that was not used is returned to the limit.
func (lt *limited) over(a *engine.Attempt) {
	lt.mu.Lock()
	p := lt.permits[holderOf(a)]
	delete(lt.permits, holderOf(a))
	var woken []processlog.ID
	opened := false
	if p != nil && lt.inForce.Concurrent > 0 {
		if lt.gate.open {
			woken = lt.line.wake(p.key, 1)
		} else {
			opened = lt.gate.permitEnded()
		}
	}
	lt.mu.Unlock()
	if p == nil {
		return
	}
	if !p.used && p.interval > 0 {
		lt.l.unused.Add(unused{lt, p.key, p.granted, p.interval})
	}
	lt.wake(woken)
	if opened {
		lt.e.Expect(lt.t.Name, 0)
	}
}

// returned wakes waiting entries that may use the starts that were returned.
func (lt *limited) returned(starts map[string]processlog.Unused) {
	lt.mu.Lock()
	var woken []processlog.ID
	for _, key := range slices.Sorted(maps.Keys(starts)) {
		woken = append(woken, lt.line.wake(key, starts[key].Starts)...)
	}
	lt.gate.rate = time.Time{}
	gated := !lt.gate.open
	lt.mu.Unlock()
	lt.wake(woken)
	if gated {
		lt.e.Expect(lt.t.Name, 0)
	}
}

// giveBack returns starts that were not used. If that fails, the limit allows a little less for a while.
func (l *Limits) giveBack(batch []unused) {
	type under struct {
		limit    *limited
		interval time.Duration
	}
	for of, unused := range grouped.Each(batch, func(u unused) under { return under{u.limit, u.interval} }) {
		starts := make(map[string]processlog.Unused)
		for _, u := range unused {
			switch last := starts[u.key]; {
			case u.granted > last.Granted: // The starts of earlier claims cannot be returned any more.
				starts[u.key] = processlog.Unused{Starts: 1, Granted: u.granted}
			case u.granted == last.Granted:
				starts[u.key] = processlog.Unused{Starts: last.Starts + 1, Granted: u.granted}
			}
		}
		ctx, cancel := l.e.Statement()
		limit := of.limit.limit
		limit.Interval = of.interval
		err := l.e.Store.ReturnStarts(ctx, limit, starts)
		cancel()
		l.e.NoteResult(problemReturn, err)
		if err == nil {
			of.limit.returned(starts)
		}
	}
}
