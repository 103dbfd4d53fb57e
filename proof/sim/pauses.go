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

const pausesStream = 9528

// pausing is one pause of a type. The pause begins during the faults, and ends some time after them.
type pausing struct {
	kind string
	at   time.Duration
	// after is the length of the last part of the pause. This part begins when every process must have read the
	// setting.
	after time.Duration
	ends  bool
	again bool // whether this pause replaces an earlier pause of the type, which has another end
}

func (w *world) drawPauses() {
	rng := rand.New(rand.NewPCG(w.seed, pausesStream))
	if !w.apart.admin || rng.IntN(2) > 0 {
		return
	}
	w.apart.pausing = pausing{kind: handledTypes[rng.IntN(len(handledTypes))], at: time.Duration(rng.Int64N(int64(w.plan.chaos))),
		after: 5*time.Second + time.Duration(rng.Int64N(int64(20*time.Second))), ends: rng.IntN(2) == 0, again: rng.IntN(2) == 0}
}

const otherLength = 5 * time.Hour

func (w *world) length(p pausing) time.Duration {
	if !p.ends {
		return 0
	}
	return w.plan.chaos - p.at + 2*w.settingDelay() + p.after
}

func (w *world) pause(p pausing) {
	time.Sleep(p.at)
	opts := admin.PauseOptions{For: w.length(p)}
	if p.again {
		opts.For = otherLength
	}
	w.throughAdmin(func(ctx context.Context, d *admin.Admin, who admin.Actor) bool {
		_ = d.PauseWith(ctx, who, p.kind, opts, admin.Why{Reason: "look"})
		return w.pausedType(ctx, d, who) != nil
	})
	if p.again {
		w.throughAdmin(func(ctx context.Context, d *admin.Admin, who admin.Actor) bool {
			seen := w.pausedType(ctx, d, who)
			if seen == nil {
				return false
			}
			if seen.Until.Equal(seen.At.Add(otherLength)) {
				_ = d.PauseWith(ctx, who, p.kind, admin.PauseOptions{For: w.length(p), Instead: seen.Version}, admin.Why{Reason: "look longer"})
				seen = w.pausedType(ctx, d, who)
			}
			return seen != nil && !seen.Until.Equal(seen.At.Add(otherLength))
		})
	}
	w.await(2*w.plan.chaos, w.healed.Load)
	time.Sleep(w.settingDelay() + time.Second)
	for i := range w.living() {
		w.recordPaused(p.kind, i)
	}
	time.Sleep(p.after)
	if p.ends {
		w.await(2*w.length(p), func() bool { return !w.store.Now().Before(w.oracle.pauseEnd()) })
		return
	}
	w.throughAdmin(func(ctx context.Context, d *admin.Admin, who admin.Actor) bool {
		if seen := w.pausedType(ctx, d, who); seen != nil {
			_ = d.Resume(ctx, who, *seen, admin.Why{Reason: "looked"})
		}
		return w.pausedType(ctx, d, who) == nil
	})
}

func (w *world) recordPaused(kind string, whom int) {
	key := fmt.Sprint("p", whom)
	w.produce(order{whom: whom, way: inTx, entries: []compensator.NewEntry{{BusinessType: kind, Content: strconv.AppendQuote(nil, key),
		Options: compensator.Options{IdempotencyKey: compensator.IdempotencyKey(key)}}}})
}

func (w *world) pausedType(ctx context.Context, d *admin.Admin, who admin.Actor) *admin.Paused {
	paused, err := d.Paused(ctx, who)
	if err != nil || len(paused) == 0 {
		return nil
	}
	return &paused[0]
}

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

func (w *world) settingDelay() time.Duration { return w.plan.config.ReconcileInterval*6/5 + inFlight }

func (o *oracle) noteSetting(s processlog.Setting) {
	s.At = o.w.store.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	if kind, is := processlog.PausedType(s); is {
		o.sights[sawPaused]++
		o.pausedType, o.pausedAt, o.pauseEnds = kind, time.Now(), s.PauseEnd()
	} else {
		o.pausedType = ""
	}
}

// pauseEnd returns the time at which the pause ends by itself. It returns the zero time if the pause has no such end.
func (o *oracle) pauseEnd() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.pauseEnds
}

// checkNotPausedLocked asserts that no instance claims an entry of a paused type. During the faults it asserts nothing,
// because then nobody knows when an instance reads the setting.
func (o *oracle) checkNotPausedLocked(l *rowHistory, n *instance) {
	if l.kind != o.pausedType || o.calmSince.IsZero() {
		return
	}
	if now := time.Now().Add(o.w.storeShift); !o.pauseEnds.IsZero() && !now.Before(o.pauseEnds) {
		o.sights[sawPauseEnded]++
		return
	}
	since := o.pausedAt
	if o.calmSince.After(since) {
		since = o.calmSince
	}
	if now := time.Since(since); now > o.w.settingDelay() {
		o.failLocked("entry %s is claimed by instance %d, although type %s is paused until %v and there have been no faults for %v", l.id, n.number, l.kind, o.pauseEnds, now)
	}
}
