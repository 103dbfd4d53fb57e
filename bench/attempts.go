package bench

import (
	"context"
	"time"

	"github.com/compensator-go/compensator"
)

func (a *arena) attempted(c contest) contest {
	measure := c.ours
	with := func(attempts bool) func() float64 {
		return func() float64 {
			a.operations = operations()
			a.operations.Attempts = attempts
			defer func() { a.operations = nil }()
			return measure()
		}
	}
	c.other, c.goal, c.ours, c.theirs = "the same without Attempts", 0, with(true), with(false)
	return c
}

var retrying = compensator.HandlerConfig[raw]{Concurrency: 1000, Retry: compensator.Fixed(100 * time.Millisecond)}

func tenthFails(_ context.Context, e *compensator.Entry) error {
	if e.ID.Row()%10 == 0 && e.ProcessCount == 0 {
		return errFails
	}
	return nil
}

func (a *arena) drainWithFailures(n int) contest {
	return contest{
		work: "drain a backlog, a tenth fails once", unit: "entries/s", entries: n,
		prepare: func() { a.backlog(n) },
		ours: func() float64 {
			l := a.newLibraryWith(retrying, tenthFails)
			defer l.close()
			began := time.Now()
			l.run()
			a.waitUntil(func() bool { return l.settled.Load() >= int64(n+n/10) })
			return float64(n) / time.Since(began).Seconds()
		},
	}
}

func (a *arena) sustainedWithFailures(n int) contest {
	c := a.sustained(n)
	c.work = "record and run, a tenth fails once"
	c.ours = func() float64 { return a.ourSustained(retrying, tenthFails, n, n+n/10) }
	return c
}
