package sim

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

const triggerStream = 1644

var errTrigger = errors.New("sim: a trigger refuses to change this entry")

func (w *world) drawTriggers() {
	rng := rand.New(rand.NewPCG(w.seed, triggerStream))
	if w.plan.calm || rng.IntN(6) > 0 {
		return
	}
	for range 1 + rng.IntN(3) {
		w.schedule(event{at: w.began.Add(time.Duration(rng.Int64N(int64(w.plan.chaos)))), fault: rowsRefused,
			whom: 1 + rng.IntN(1<<12), span: time.Duration(rng.Int64N(int64(15 * time.Second)))})
	}
}

func (w *world) refuseRows(e event) {
	var ids []processlog.ID
	for i, row := range w.store.Rows() {
		if e.whom>>(i%12)&1 == 1 {
			ids = append(ids, row.ID)
		}
	}
	w.store.Refuse(errTrigger, ids...)
	w.schedule(event{at: time.Now().Add(e.span), after: w.allowRows})
}

func (w *world) allowRows() {
	for _, row := range w.store.Rows() {
		w.store.Refuse(nil, row.ID)
	}
}
