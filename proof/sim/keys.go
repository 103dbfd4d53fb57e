package sim

import (
	"math/rand/v2"
	"time"
)

const keysStream = 24

// drawKeys chooses at random what other programs do to a shared queue: they fill its memory, or write data to
// the key of a type. They may also rename the key of another type to this key. Each of these events happens at most once. If a key were renamed
// back and forth, the queue would be back in an earlier state.
func (w *world) drawKeys() {
	rng := rand.New(rand.NewPCG(w.seed, keysStream))
	if w.plan.calm || !w.plan.sharedQueue || rng.IntN(8) > 0 {
		return
	}
	for _, f := range []fault{queueFull, keyTaken, keyRenamed} {
		if rng.IntN(2) == 0 {
			w.schedule(event{at: w.began.Add(time.Duration(rng.Int64N(int64(w.plan.chaos)))), fault: f, whom: rng.IntN(64),
				span: time.Duration(rng.Int64N(int64(12 * time.Second)))})
		}
	}
}

// The event ends after its span, or when all faults end.
func (w *world) misuse(e event) {
	name := handledTypes[e.whom%len(handledTypes)]
	switch e.fault {
	case queueFull:
		w.queue.Fill(true)
		w.later(e.span, func() { w.queue.Fill(false) })
	case keyTaken:
		w.queue.Occupy(name)
		w.taken = name
		w.later(e.span, w.giveKeyBack)
	case keyRenamed:
		w.queue.Rename(name, handledTypes[(e.whom+1+e.whom/len(handledTypes)%(len(handledTypes)-1))%len(handledTypes)])
	}
}

func (w *world) giveKeyBack() {
	if w.taken != "" {
		w.queue.LoseType(w.taken)
		w.taken = ""
	}
}
