package observe

import "github.com/compensator-go/compensator/processlog"

// Observers returns an Observer that calls the given Observers in order. If one panics, the others are still called,
// and the panic continues after that. A callback that no given Observer sets is nil and costs nothing.
func Observers(observers ...Observer) Observer {
	callQueueUp := combineCallbacks(observers, func(o Observer) func(struct{}) {
		if o.QueueUp == nil {
			return nil
		}
		return func(struct{}) { o.QueueUp() }
	})
	combined := Observer{
		Recorded:       combineCallbacks(observers, func(o Observer) func(RecordedEvent) { return o.Recorded }),
		AttemptStarted: combineCallbacks(observers, func(o Observer) func(AttemptEvent) { return o.AttemptStarted }),
		AttemptEnded:   combineCallbacks(observers, func(o Observer) func(AttemptEvent) { return o.AttemptEnded }),
		Settled:        combineCallbacks(observers, func(o Observer) func(SettledEvent) { return o.Settled }),
		OutcomeDropped: combineCallbacks(observers, func(o Observer) func(SettledEvent) { return o.OutcomeDropped }),
		Stuck:          combineCallbacks(observers, func(o Observer) func(AttemptEvent) { return o.Stuck }),
		QueueDown:      combineCallbacks(observers, func(o Observer) func(error) { return o.QueueDown }),
		BreakerOpened:  combineCallbacks(observers, func(o Observer) func(OpenBreaker) { return o.BreakerOpened }),
		BreakerClosed:  combineCallbacks(observers, func(o Observer) func(OpenBreaker) { return o.BreakerClosed }),
		EntryMissing:   combineCallbacks(observers, func(o Observer) func(MissingEvent) { return o.EntryMissing }),
		HistoryLost:    combineCallbacks(observers, func(o Observer) func(*processlog.LossError) { return o.HistoryLost }),
		Reconciled:     combineCallbacks(observers, func(o Observer) func(ReconciledEvent) { return o.Reconciled }),
	}
	if callQueueUp != nil {
		combined.QueueUp = func() { callQueueUp(struct{}{}) }
	}
	return combined
}

// combineCallbacks returns nil if no observer has the callback, and the callback itself if only one has it.
func combineCallbacks[E any](observers []Observer, selectCallback func(Observer) func(E)) func(E) {
	var callbacks []func(E)
	for _, o := range observers {
		if f := selectCallback(o); f != nil {
			callbacks = append(callbacks, f)
		}
	}
	switch len(callbacks) {
	case 0:
		return nil
	case 1:
		return callbacks[0]
	}
	return func(event E) { callAll(callbacks, event) }
}

// callAll calls the remaining callbacks also after a panic.
func callAll[E any](callbacks []func(E), event E) {
	if len(callbacks) > 1 {
		defer callAll(callbacks[1:], event)
	}
	callbacks[0](event)
}
