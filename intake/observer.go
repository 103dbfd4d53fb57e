package intake

import (
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/internal/usererr"
)

// Observer is told what an Intake does. Its functions must return at once; Measured is called concurrently with the others.
type Observer struct {
	Settled  func(SettledEvent) // a batch is in the log, whether its acknowledgement succeeds or not
	Waiting  func(WaitingEvent) // something is not as it should be, and tried again
	Measured func(Stats)        // every Config.StatsEvery, where the source is a Measurer
}

// SettledEvent is a batch.
type SettledEvent struct {
	Source     string
	Messages   int
	Recorded   int // as the entries they are meant to be
	Duplicates int // had an entry
	Failed     int // became entries of Config.Type that are tried again
	SetAside   int // became entries of Config.Type that wait for a person
	Refused    int // the log takes them in no form: they stay unacknowledged
	Took       time.Duration
}

// WaitingEvent is why an Intake waits.
type WaitingEvent struct {
	Source   string
	Messages int // held meanwhile
	Err      error
}

// Stats is how an Intake is doing: its source's backlog, and its own counts since it was opened.
type Stats struct {
	Backlog
	Batches, Messages, Recorded, Duplicates, Failed, SetAside, Refused int64
}

// tell calls a function of an Observer, whose panic is logged and harms nobody.
func tell[E any](in *Intake, observe func(E), event E) {
	if observe == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			in.cfg.Logger.Error("intake: observer panicked", "source", in.name, "panic", usererr.PanicText(p))
		}
	}()
	observe(event)
}

type counters struct {
	batches, messages, recorded, duplicates, failed, aside, refused atomic.Int64
}

func (c *counters) add(e *SettledEvent) {
	c.batches.Add(1)
	c.messages.Add(int64(e.Messages))
	c.recorded.Add(int64(e.Recorded))
	c.duplicates.Add(int64(e.Duplicates))
	c.failed.Add(int64(e.Failed))
	c.aside.Add(int64(e.SetAside))
	c.refused.Add(int64(e.Refused))
}

func (c *counters) stats(b Backlog) Stats {
	return Stats{
		Backlog: b, Batches: c.batches.Load(), Messages: c.messages.Load(), Recorded: c.recorded.Load(),
		Duplicates: c.duplicates.Load(), Failed: c.failed.Load(), SetAside: c.aside.Load(), Refused: c.refused.Load(),
	}
}
