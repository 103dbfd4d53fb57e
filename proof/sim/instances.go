package sim

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

const instanceStream = 7015

func (w *world) drawInstances() {
	rng := rand.New(rand.NewPCG(w.seed, instanceStream))
	w.apart.listed = w.apart.admin && rng.IntN(2) == 0
}

type listing struct {
	// The field stored is set when the instance knows that the row about its process is stored. The field endStored is
	// set when the instance knows that this row says that the process has ended.
	stored, endStored bool
	endSent           bool // whether the instance has tried to store that the process has ended
}

func (s *gatedStore) WriteInstance(ctx context.Context, i processlog.Instance, age time.Duration, ended bool) error {
	s.from.w.oracle.readCounts(func(o *oracle) {
		if s.from.process == (processlog.InstanceID{}) {
			s.from.process = i.ID
		}
		if o.listings == nil {
			o.listings = make(map[processlog.InstanceID]*listing)
		}
		if o.listings[i.ID] == nil {
			o.listings[i.ID] = new(listing)
		}
		if s.from.process != i.ID {
			o.failLocked("G44: instance %d writes the row of another process", s.from.number)
		}
		if o.listings[i.ID].endSent {
			o.failLocked("G44: instance %d writes its row after its end", s.from.number)
		}
		o.listings[i.ID].endSent = ended
	})
	write := func() error { return s.store.WriteInstance(ctx, i, age, ended) }
	if s.from.opening {
		return write()
	}
	err := s.from.step(ctx, classWrite, "write instance", "", write)
	if err == nil {
		s.from.w.oracle.readCounts(func(o *oracle) {
			o.listings[i.ID].stored, o.listings[i.ID].endStored = true, ended
			o.sights[sawReports]++
		})
	}
	return err
}

func (s *gatedStore) Instances(ctx context.Context) ([]processlog.Instance, error) {
	return s.store.Instances(ctx)
}

func (s *gatedStore) ForgetInstances(ctx context.Context, age time.Duration) error {
	return s.from.step(ctx, classWrite, "forget instances", "", func() error { return s.store.ForgetInstances(ctx, age) })
}

func (o *oracle) checkProcessMarkLocked(n *instance, token processlog.Token) {
	if o.w.apart.listed && !token.MarkedBy(n.process) {
		o.failLocked("G44: a claim of instance %d has the token %x, without the mark of its process", n.number, token)
	}
}

// everyProcess asserts G44 (the list of processes):
//   - An instance wrote each row in the list.
//   - If an instance knows that its end is stored, its row says that the process has ended.
//   - If an instance has not tried to store its end, its row does not say that the process has ended.
//   - If an instance knows that its row is stored, the row is in the list. The row may be missing after a day.
func (w *world) everyProcess() {
	if !w.apart.listed || w.oracle.failed.Load() || len(w.oracle.losses) > 0 {
		return
	}
	found, err := w.store.Instances(context.Background())
	if err != nil {
		w.oracle.fail("G44: the processes cannot be read: %v", err)
		return
	}
	w.oracle.readCounts(func(o *oracle) {
		rows := make(map[processlog.InstanceID]processlog.Instance, len(found))
		for _, i := range found {
			rows[i.ID] = i
			if o.listings[i.ID] == nil {
				o.failLocked("G44: no instance wrote the row of process %s", i.ID)
			}
		}
		for id, l := range o.listings {
			row, isListed := rows[id]
			switch hasEnded := row.State() == processlog.InstanceEnded; {
			case !isListed && l.stored && w.storeShift == 0 && time.Since(w.began) < 24*time.Hour:
				o.failLocked("G44: process %s has no row", id)
			case isListed && hasEnded && !l.endSent:
				o.failLocked("G44: process %s is listed as ended, and has not said so", id)
			case isListed && !hasEnded && l.endStored:
				o.failLocked("G44: process %s has ended, and is listed as %s", id, row.State())
			}
		}
	})
}
