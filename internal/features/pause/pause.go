// Package pause stops claims of the types that people have paused.
package pause

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/jitter"
	"github.com/compensator-go/compensator/internal/sleep"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

const problem = "what people have paused could not be read"

// leastWait is the least time between two reads of the pauses. If the database's clock is slow, a read at the expected
// end of a pause comes too early, and finds the pause still in force. The next read follows after at least leastWait.
const leastWait = 10 * time.Millisecond

// Pauses knows which types are paused. A paused type is not claimed in this process, and none of its entries start.
type Pauses struct {
	e    *engine.Engine
	read func(ctx context.Context) ([]processlog.Setting, error)

	known atomic.Bool // the pauses were read once

	mu     sync.Mutex // guards the fields below
	paused map[string]*atomic.Bool
	all    []observe.PausedType // of the last successful read, sorted by type
	// firstEnd is the earliest end of a pause in the field all, by the clock of this process. It is zero if no pause ends
	// by itself.
	firstEnd time.Time
}

// New makes the pauses of an engine. The function read returns all settings.
func New(e *engine.Engine, read func(ctx context.Context) ([]processlog.Setting, error)) *Pauses {
	return &Pauses{e: e, read: read, paused: make(map[string]*atomic.Bool)}
}

// Attach makes a type obey its pause.
func (p *Pauses) Attach(t *engine.Type) {
	paused := new(atomic.Bool)
	p.mu.Lock()
	p.paused[t.Name] = paused
	p.mu.Unlock()
	t.AttachAdmission(func(a *engine.Admission) {
		a.CallsAllowed = func() int {
			if paused.Load() {
				return 0
			}
			return engine.Unlimited
		}
		// The engine also asks Paused during a claim, because the claim may have begun before this process read the
		// pause.
		a.Paused = paused.Load
		a.Admit = func(attempts []*engine.Attempt) (admitted, skipped []*engine.Attempt) {
			if paused.Load() {
				return nil, attempts
			}
			return attempts, nil
		}
	})
}

// Look reads the pauses. If the read fails, the known pauses stay. Until the first read succeeds, every type counts
// as paused.
//
// The database's clock alone decides that a pause has ended.
func (p *Pauses) Look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, engine.StatementTimeout)
	defer cancel()
	settings, err := p.read(ctx)
	if ctx.Err() != context.Canceled {
		p.e.NoteResult(problem, err)
	}
	known := err == nil || p.known.Load()
	if err != nil && known {
		return
	}
	p.known.Store(known)
	p.mu.Lock()
	defer p.mu.Unlock()
	paused := p.noteLocked(settings)
	for name, state := range p.paused {
		if was := state.Swap(paused[name] || !known); was && known && !paused[name] {
			p.e.Wake()
		}
	}
}

// noteLocked stores the pauses that the database has just returned in the parameter settings, and returns the paused
// types. It adds the rest of each pause to the present time to compute firstEnd. So call noteLocked only after the
// answer of the database has arrived.
func (p *Pauses) noteLocked(settings []processlog.Setting) map[string]bool {
	paused := make(map[string]bool)
	p.all, p.firstEnd = nil, time.Time{}
	for _, s := range settings {
		name, is := processlog.PausedType(s)
		if !is {
			continue
		}
		paused[name] = true
		p.all = append(p.all, observe.PausedType{BusinessType: name, EndsAt: s.PauseEnd()})
		if s.PauseEnd().IsZero() {
			continue
		}
		if end := time.Now().Add(s.PauseEnd().Sub(s.ReadAt)); p.firstEnd.IsZero() || end.Before(p.firstEnd) {
			p.firstEnd = end
		}
	}
	slices.SortFunc(p.all, func(a, b observe.PausedType) int { return strings.Compare(a.BusinessType, b.BusinessType) })
	return paused
}

// Paused returns the paused types as they were read last, sorted by type.
func (p *Pauses) Paused() []observe.PausedType {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.all)
}

// Keep reads the pauses again and again until ctx ends.
func (p *Pauses) Keep(ctx context.Context) {
	for sleep.For(ctx, p.untilNext()) {
		p.Look(ctx)
	}
}

func (p *Pauses) untilNext() time.Duration {
	interval := p.e.ReconcileInterval
	if !p.known.Load() {
		interval = p.e.PollInterval
	}
	interval += jitter.N(interval / 5)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.firstEnd.IsZero() {
		return interval
	}
	if left := time.Until(p.firstEnd); left > 0 {
		return min(max(left, leastWait), interval)
	}
	// The time firstEnd has passed, so a pause should have ended. But no read since then has succeeded. So read again
	// after PollInterval.
	return min(p.e.PollInterval, interval)
}
