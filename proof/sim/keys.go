package sim

import (
	"math/rand/v2"
	"time"
)

// keysStream is the stream of what happens to the queue's keys. It leaves all seeds kept until then the lives they were.
const keysStream = 24

// drawKeys draws what people and their other programs do to a shared queue: they fill its memory, and put their own data, or
// another type's, under the key of a type. Each comes once: a key that is renamed to and fro would be a queue that goes back.
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

// misuse makes it happen. What is full or taken is free again after the span, or when all is healed.
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

// giveKeyBack takes away what somebody has put in the place of a type's entries.
func (w *world) giveKeyBack() {
	if w.taken != "" {
		w.queue.LoseType(w.taken)
		w.taken = ""
	}
}
