package observe

import "github.com/compensator-go/compensator/processlog"

// Observers returns an Observer that calls the given Observers in order. If one panics, the others are still called,
// and the panic continues after that. A callback that no given Observer sets is nil and costs nothing.
func Observers(all ...Observer) Observer {
	queueUps := fields(all, func(o Observer) func(struct{}) {
		if o.QueueUp == nil {
			return nil
		}
		return func(struct{}) { o.QueueUp() }
	})
	joined := Observer{
		Recorded:       fields(all, func(o Observer) func(RecordedEvent) { return o.Recorded }),
		AttemptStarted: fields(all, func(o Observer) func(AttemptEvent) { return o.AttemptStarted }),
		AttemptEnded:   fields(all, func(o Observer) func(AttemptEvent) { return o.AttemptEnded }),
		Settled:        fields(all, func(o Observer) func(SettledEvent) { return o.Settled }),
		OutcomeDropped: fields(all, func(o Observer) func(SettledEvent) { return o.OutcomeDropped }),
		Stuck:          fields(all, func(o Observer) func(AttemptEvent) { return o.Stuck }),
		QueueDown:      fields(all, func(o Observer) func(error) { return o.QueueDown }),
		BreakerOpened:  fields(all, func(o Observer) func(OpenBreaker) { return o.BreakerOpened }),
		BreakerClosed:  fields(all, func(o Observer) func(OpenBreaker) { return o.BreakerClosed }),
		EntryMissing:   fields(all, func(o Observer) func(MissingEvent) { return o.EntryMissing }),
		HistoryLost:    fields(all, func(o Observer) func(*processlog.LossError) { return o.HistoryLost }),
		Reconciled:     fields(all, func(o Observer) func(ReconciledEvent) { return o.Reconciled }),
	}
	if queueUps != nil {
		joined.QueueUp = func() { queueUps(struct{}{}) }
	}
	return joined
}

// fields returns a callback that calls the same callback of each observer. The function of selects this callback from
// an observer. If no observer has it, fields returns nil. If only one observer has it, fields returns that callback
// unchanged.
func fields[E any](all []Observer, of func(Observer) func(E)) func(E) {
	var callbacks []func(E)
	for _, o := range all {
		if f := of(o); f != nil {
			callbacks = append(callbacks, f)
		}
	}
	switch len(callbacks) {
	case 0:
		return nil
	case 1:
		return callbacks[0]
	}
	return func(event E) { each(callbacks, event) }
}

// The function each calls all callbacks with the event. If a callback panics, the remaining ones are still called.
func each[E any](callbacks []func(E), event E) {
	if len(callbacks) > 1 {
		defer each(callbacks[1:], event)
	}
	callbacks[0](event)
}
