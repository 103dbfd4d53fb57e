package compensator

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/grouped"
	"github.com/compensator-go/compensator/processlog"
)

// settlement is an attempt's outcome on its way to the database.
type settlement struct {
	a        *attempt
	outcome  Outcome
	token    Token // it was handed in under, which tells whether it was stored; zero: not yet
	takesOut bool  // for lost leases: nobody has reported it
}

// ack is what the queue is to be told of an outcome.
type ack struct {
	businessType string
	outcome      QueueOutcome
}

// settleBatch writes outcomes, the database first and the queue second.
func (c *Compensator) settleBatch(batch []settlement) {
	var twice []settlement // a second attempt of an entry in this batch: its turn comes next
	seen := make(map[EntryID]bool, len(batch))
	batch = slices.DeleteFunc(batch, func(s settlement) bool {
		again := seen[s.outcome.ID]
		if seen[s.outcome.ID] = true; again {
			twice = append(twice, s)
		}
		return again
	})
	if len(twice) > 0 {
		c.settleLane.Add(twice...)
	}
	byToken := grouped.By(batch, func(s settlement) Token { return s.token })
	for _, token := range byToken.Order {
		if group := byToken.Groups[token]; token == (Token{}) {
			c.settleUnder(processlog.NewToken(), group)
		} else {
			c.settleUnder(token, group)
		}
	}
}

// settleUnder writes outcomes that share a token.
func (c *Compensator) settleUnder(token Token, batch []settlement) {
	for i := range batch {
		batch[i].token = token
	}
	failpoint.Reach(failpoint.OutcomesNext)
	asked := time.Now()
	batch, results := c.writeOutcomes(token, batch)
	failpoint.Reach(failpoint.OutcomesStored)
	c.witness.sawStored(batch, results, asked)
	for i, r := range results {
		c.settled(batch[i], r)
	}
}

// writeOutcomes keeps trying, with the same token, until the database has answered: a handler that has run must not run
// again because of a deadlock or a restart. What was applied by a try whose answer was lost is recognised. It returns no
// results only when the Compensator is closed before the database has answered, or nothing is left to be written.
func (c *Compensator) writeOutcomes(token Token, batch []settlement) ([]settlement, []Settled) {
	for failures := 1; ; failures++ {
		if batch = c.withdraw(batch); len(batch) == 0 {
			return nil, nil
		}
		ctx, cancel := c.statement()
		results, err := c.store.Settle(ctx, token, outcomesOf(batch))
		cancel()
		c.saw(troubleStore, err)
		if err == nil {
			return batch, results
		}
		if !c.pause(settleBackoff.delay(failures)) {
			return nil, nil
		}
	}
}

func outcomesOf(batch []settlement) []Outcome {
	outcomes := make([]Outcome, len(batch))
	for i := range batch {
		outcomes[i] = batch[i].outcome
	}
	return outcomes
}

// maxWaitingOutcomes is how far the database may be behind with outcomes before no more entries are claimed: more
// attempts would only wait there.
const maxWaitingOutcomes = 4 * processlog.MaxRows

func (c *Compensator) behind() bool { return c.settleLane.Size() > maxWaitingOutcomes }

var settleBackoff = Exponential(200*time.Millisecond, stopPatience/2) // a stop sees one more try

// pause waits, and returns false when the Compensator is closed meanwhile.
func (c *Compensator) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.work.Done():
		return false
	}
}

// settled deals with the answer to one outcome.
func (c *Compensator) settled(s settlement, r Settled) {
	a, o := s.a, s.outcome
	if !r.Busy {
		c.dispatcher.forget(a)
	}
	event := SettledEvent{ID: o.ID, BusinessType: a.t.name, State: o.To, EndedBy: o.EndedBy, Attempt: a.row.Attempt()}
	switch {
	case r.Busy:
		c.slowLane.Add(s)
		return
	case !r.Applied:
		event.State, event.EndedBy = r.State, ""
		c.log.Log(context.Background(), droppedLevel(o, r), "compensator: outcome dropped: the entry has moved on", "entry", o.ID, "type", a.t.name, "reported", o.To, "state", r.State)
		tell(c, c.cfg.Observer.OutcomeDropped, event)
		return // its queue entry is somebody else's now, or comes back and is found out
	}
	if o.To == Dead {
		c.log.Error("compensator: entry waits for a person", "entry", o.ID, "type", a.t.name, "attempt", event.Attempt, "ended_by", o.EndedBy)
	}
	tell(c, c.cfg.Observer.Settled, event)
	c.tellQueue(a, o)
}

// droppedLevel: work that was done, and that the log tells otherwise, is a person's business.
func droppedLevel(o Outcome, r Settled) slog.Level {
	if o.EndedBy == EndedByHandler && r.State != o.To {
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// settleSlowly offers outcomes again whose rows another transaction holds. They wait here, not where they
// would hold up the others.
func (c *Compensator) settleSlowly(batch []settlement) {
	if c.pause(processlog.LockedRetry) {
		c.settleBatch(batch)
	}
}

// tellQueue removes what is finished and makes the rest due again.
func (c *Compensator) tellQueue(a *attempt, o Outcome) {
	again := !o.To.Terminal()
	in := processlog.DueIn(o.After)
	switch {
	case a.token != 0:
		c.ackLane.Add(ack{a.t.name, QueueOutcome{ID: o.ID, Token: a.token, Remove: !again, In: in}}) // a lost one heals when its lease ends
	case again && c.announces(a.t.name, in):
		c.handOver(c.moveLane, []Announcement{{BusinessType: a.t.name, ID: o.ID, In: in}}) // it may be there, leased to a process that died
	}
	if again {
		c.scanner.expect(a.t.name, in)
	}
}

func (c *Compensator) ackBatch(batch []ack) {
	if !c.health.up() {
		return
	}
	byType := grouped.By(batch, func(a ack) string { return a.businessType })
	for _, name := range byType.Order {
		items := make([]QueueOutcome, len(byType.Groups[name]))
		for i, a := range byType.Groups[name] {
			items[i] = a.outcome
		}
		ctx, cancel := c.queueCall()
		err := c.queue.Settle(ctx, name, items)
		failpoint.Reach(failpoint.QueueSettled)
		cancel()
		c.health.saw(err)
		for _, item := range items {
			if !item.Remove && err == nil {
				c.scanner.expect(name, item.In) // only now: a claim before the queue knows would find nothing
			}
		}
	}
}
