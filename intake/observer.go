package intake

import (
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/internal/usererr"
)

// Observer receives events of an Intake. Its functions must return quickly. The Intake may call Measured at the same
// time as the other functions.
type Observer struct {
	Settled  func(SettledEvent) // called after a batch was settled and before it is acknowledged
	Waiting  func(WaitingEvent) // called after an operation failed and before the Intake tries it again
	Measured func(Stats)        // called every Config.StatsEvery, if the source is a Measurer
}

// SettledEvent describes a settled batch.
type SettledEvent struct {
	Source     string        // name of the source
	Messages   int           // number of messages in the batch
	Recorded   int           // messages that became the entries of Config.Entry
	Duplicates int           // messages whose entries existed already
	Failed     int           // messages that became entries of Config.Type and are tried again
	SetAside   int           // messages that became entries of Config.Type and wait for a person
	Refused    int           // messages that the log never accepts; they stay unacknowledged
	Took       time.Duration // time that the batch took until it was settled
}

// WaitingEvent says why an Intake waits.
type WaitingEvent struct {
	Source   string // name of the source
	Messages int    // number of messages that wait
	Err      error  // error of the operation that failed
}

// Stats holds the backlog of the source and the counts of an Intake since it was opened.
type Stats struct {
	Backlog

	// Batches counts settled batches. Messages counts their messages. The other counts mean the same as in
	// SettledEvent.
	Batches, Messages, Recorded, Duplicates, Failed, SetAside, Refused int64
}

func notify[E any](in *Intake, observe func(E), event E) {
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
	batches, messages, recorded, duplicates, failed, aside, isRefusal atomic.Int64
}

func (c *counters) add(e *SettledEvent) {
	c.batches.Add(1)
	c.messages.Add(int64(e.Messages))
	c.recorded.Add(int64(e.Recorded))
	c.duplicates.Add(int64(e.Duplicates))
	c.failed.Add(int64(e.Failed))
	c.aside.Add(int64(e.SetAside))
	c.isRefusal.Add(int64(e.Refused))
}

func (c *counters) stats(b Backlog) Stats {
	return Stats{
		Backlog: b, Batches: c.batches.Load(), Messages: c.messages.Load(), Recorded: c.recorded.Load(),
		Duplicates: c.duplicates.Load(), Failed: c.failed.Load(), SetAside: c.aside.Load(), Refused: c.isRefusal.Load(),
	}
}
