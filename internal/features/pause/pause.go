// Package pause stops claims of the types that people have paused.
package pause

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/jitter"
)

// problem is what Health and the log say when the pauses could not be read.
const problem = "what people have paused could not be read"

// Pauses knows which types are paused. A paused type is not claimed in this process, and none of its entries start. Handlers
// that run go on.
type Pauses struct {
	e    *engine.Engine
	read func(ctx context.Context) (map[string]bool, error)

	known atomic.Bool // the pauses were read once

	mu     sync.Mutex              // guards the field below
	paused map[string]*atomic.Bool // by type
}

// New makes the pauses of an engine. The function read returns the names of all paused types.
func New(e *engine.Engine, read func(ctx context.Context) (map[string]bool, error)) *Pauses {
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
		a.Paused = paused.Load // a claim may have begun before the pause was read
		a.Admit = func(attempts []*engine.Attempt) (admitted, refused []*engine.Attempt) {
			if paused.Load() {
				return nil, attempts
			}
			return attempts, nil
		}
	})
}

// Look reads the pauses. If the read fails, the known pauses stay. Until the first read succeeds, every type counts as
// paused.
func (p *Pauses) Look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, engine.StatementTimeout)
	defer cancel()
	paused, err := p.read(ctx)
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
	for name, state := range p.paused {
		if was := state.Swap(paused[name] || !known); was && known && !paused[name] {
			p.e.Wake()
		}
	}
}

// Keep reads the pauses again and again until ctx ends. It reads them with each round of the reconciler, and more often as
// long as no read has succeeded.
func (p *Pauses) Keep(ctx context.Context) {
	for {
		interval := p.e.ReconcileInterval
		if !p.known.Load() {
			interval = p.e.PollInterval
		}
		if !engine.Sleep(ctx, interval+jitter.N(interval/5)) {
			return
		}
		p.Look(ctx)
	}
}
