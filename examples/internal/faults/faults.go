// Package faults kills processes and disturbs servers of an example while it runs, one fault after the other.
package faults

import (
	"context"
	"fmt"
	"time"
)

// Fault is one fault.
type Fault struct {
	What   string
	Strike func(context.Context) error
}

// DownFor is how long a killed instance stays down.
const DownFor = 500 * time.Millisecond

// Process can be killed and started again.
type Process interface {
	Kill() error
	Start(context.Context) error
}

// Kill returns a fault that kills a process and starts it again.
func Kill(name string, p Process) Fault {
	return Fault{What: "kill -9 " + name, Strike: func(ctx context.Context) error {
		if err := p.Kill(); err != nil {
			return err
		}
		Pause(ctx, DownFor)
		return p.Start(ctx)
	}}
}

// Plan returns the faults in their order: kills of the processes in rotation, with the other faults between them.
func Plan(kills int, processes []Process, others []Fault) (all []Fault) {
	for i := range kills {
		n := i % len(processes)
		all = append(all, Kill(fmt.Sprintf("instance %d", n+1), processes[n]))
		if len(others) > 0 {
			all, others = append(all, others[0]), others[1:]
		}
	}
	return append(all, others...)
}

// Strike spreads the faults evenly over a span.
func Strike(ctx context.Context, all []Fault, span time.Duration, report func(context.Context, string) error) error {
	startedAt := time.Now()
	for i, b := range all {
		dueAt := startedAt.Add(span * time.Duration(2*i+1) / time.Duration(2*len(all)))
		if !Pause(ctx, time.Until(dueAt)) {
			return context.Cause(ctx)
		}
		if err := report(ctx, b.What); err != nil {
			return err
		}
		if err := b.Strike(ctx); err != nil {
			return fmt.Errorf("%s: %w", b.What, err)
		}
	}
	return nil
}

// Pause waits for d. It returns false if ctx ends first.
func Pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
