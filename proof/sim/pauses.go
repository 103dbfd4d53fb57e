package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/processlog"
)

// pausesStream is the stream of types that people pause. It leaves all seeds kept until then the lives they were.
const pausesStream = 9528

// pausing is a type that somebody pauses, amid the problem, and resumes a while after it.
type pausing struct {
	kind string // "": nobody does
	at   time.Duration
	on   time.Duration // after all was healed and every process has had its time to hear of it
}

// drawPauses draws whether somebody through package admin pauses a type.
func (w *world) drawPauses() {
	rng := rand.New(rand.NewPCG(w.seed, pausesStream))
	if !w.apart.admin || rng.IntN(2) > 0 {
		return
	}
	w.apart.pausing = pausing{kind: handledTypes[rng.IntN(len(handledTypes))], at: time.Duration(rng.Int64N(int64(w.plan.chaos))),
		on: 5*time.Second + time.Duration(rng.Int64N(int64(20*time.Second)))}
}

// pause has somebody pause the type, until it is certain, and resume it.
func (w *world) pause(p pausing) {
	time.Sleep(p.at)
	w.throughAdmin(func(ctx context.Context, d *admin.Admin, who admin.Actor) bool {
		_ = d.Pause(ctx, who, p.kind, admin.Why{Reason: "look"})
		return w.pausedType(ctx, d, who) != nil
	})
	w.await(2*w.plan.chaos, w.healed.Load)
	time.Sleep(w.hearing() + time.Second)
	for i := range w.living() {
		w.recordPaused(p.kind, i)
	}
	time.Sleep(p.on)
	w.throughAdmin(func(ctx context.Context, d *admin.Admin, who admin.Actor) bool {
		if seen := w.pausedType(ctx, d, who); seen != nil {
			_ = d.Resume(ctx, who, *seen, admin.Why{Reason: "looked"})
		}
		return w.pausedType(ctx, d, who) == nil
	})
}

// recordPaused has an instance record an entry of the type, which it would have claimed at once.
func (w *world) recordPaused(kind string, whom int) {
	key := fmt.Sprint("p", whom)
	w.produce(order{whom: whom, way: inTx, entries: []compensator.NewEntry{{BusinessType: kind, Content: strconv.AppendQuote(nil, key),
		Options: compensator.Options{IdempotencyKey: compensator.IdempotencyKey(key)}}}})
}

// pausedType is the one that is paused; nil: none is, or nobody can say.
func (w *world) pausedType(ctx context.Context, d *admin.Admin, who admin.Actor) *admin.Paused {
	paused, err := d.Paused(ctx, who)
	if err != nil || len(paused) == 0 {
		return nil
	}
	return &paused[0]
}

// throughAdmin has somebody try through package admin of any process, until it is done.
func (w *world) throughAdmin(try func(context.Context, *admin.Admin, admin.Actor) bool) {
	w.await(5*time.Minute, func() bool {
		n := w.alive(0)
		if n == nil {
			return false
		}
		d, err := admin.New(n.c, admin.Options{Access: anybody})
		if err != nil {
			return false
		}
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		defer cancel()
		return try(ctx, d, admin.Actor{ID: "mei"})
	})
}

// hearing is how long a process may take to hear of a pause, and what it has asked for before to be done.
func (w *world) hearing() time.Duration { return w.plan.config.ReconcileInterval*6/5 + inFlight }

// settingPut takes note of a pause, or its end.
func (o *oracle) settingPut(s processlog.Setting) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if kind, is := processlog.PausedType(s); is {
		o.sights[sawPaused]++
		o.pausedType, o.pausedAt = kind, time.Now()
	} else {
		o.pausedType = ""
	}
}

// unpausedLocked judges that an entry is claimed, or inserted with a lease: not once every process has had its time to hear that the type
// is paused. Amid problem nobody knows how long that is.
func (o *oracle) unpausedLocked(l *life, n *instance) {
	if l.kind != o.pausedType || o.calmSince.IsZero() {
		return
	}
	since := o.pausedAt
	if o.calmSince.After(since) {
		since = o.calmSince
	}
	if now := time.Since(since); now > o.w.hearing() {
		o.failLocked("entry %s is claimed by instance %d, although %s is paused, and all has been well for %v", l.id, n.number, l.kind, now)
	}
}
