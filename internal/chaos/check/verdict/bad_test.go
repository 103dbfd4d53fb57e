package verdict

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/chaos/history"
)

// wrong are histories with one thing wrong, and the checks that must say so.
var wrong = []struct {
	name   string
	checks []string
	tell   func(s *story)
}{
	{"a committed entry is not there", []string{"lost"}, func(s *story) {
		x := s.begin()
		s.entry("ship").insert(x)
		x.commit(history.CommitOK)
	}},
	{"a duplicate of nothing", []string{"lost"}, func(s *story) {
		x, e := s.begin(), s.entry("ship")
		s.write("producer", &history.Insert{At: s.now, Tx: x.n, Key: e.key, Type: e.typ})
		s.write("producer", &history.Inserted{At: s.now, Tx: x.n, Key: e.key, ID: 77, Duplicate: true})
		x.commit(history.CommitOK)
	}},
	{"a committed entry was never attempted", []string{"lost"}, func(s *story) { s.committed("ship") }},
	{"an entry of an unknown commit was never attempted", []string{"lost"}, func(s *story) {
		e, x := s.entry("ship"), s.begin()
		e.insert(x)
		x.ask()
		e.appear(false)
		x.answer(history.CommitUnknown)
	}},
	{"forgotten between two attempts", []string{"lost"}, func(s *story) {
		s.committed("ship").claim().run("app1").end(history.OutcomeFail).fail()
	}},
	{"leased for ever by a dead process", []string{"lost"}, func(s *story) {
		s.committed("ship").claim().run("app1")
		s.fault("kill", "app1", 5000, history.TouchesApp)
	}},
	{"forgotten in its compensation", []string{"lost"}, func(s *story) {
		e := s.committed("close").claim()
		e.run("app1").end(history.OutcomePermanent).exhaust()
	}},

	{"Resolve found an entry that was rolled back", []string{"resolve"}, func(s *story) {
		e, x := s.entry("ship"), s.begin()
		e.insert(x)
		x.commit(history.CommitUnknown)
		x.resolve(e, e.id, "")
	}},
	{"Resolve did not find an entry that was committed", []string{"resolve"}, func(s *story) {
		e, x := s.entry("ship"), s.begin()
		e.insert(x)
		x.ask()
		e.appear(false)
		x.answer(history.CommitUnknown)
		x.resolve(e, 0, history.ErrNotFound)
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"Resolve found another entry", []string{"resolve"}, func(s *story) {
		e, x := s.entry("ship"), s.begin()
		e.insert(x)
		x.ask()
		e.appear(false)
		x.answer(history.CommitUnknown)
		x.resolve(e, e.id+1000, "")
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"a transactional handler returned nil in time, and failed", []string{"outcome"}, func(s *story) {
		s.run.Types[1].TimeoutMS = 500
		e := s.committed("pay").claim()
		r := e.run("app1")
		s.wait(300)
		r.end(history.OutcomeOK).fail()
		e.claim().run("app1").end(history.OutcomeOK).succeed()
		e.effectRow(0, false)
	}},
	{"a plain handler returned nil when its time was up, and failed", []string{"outcome"}, func(s *story) {
		s.run.Types[0].TimeoutMS = 100
		e := s.committed("ship").claim()
		r := e.run("app1")
		s.wait(200)
		r.end(history.OutcomeOK).fail()
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"a success in time is not recorded, and its lease is renewed until it is lost", []string{"lost success", "executions"}, func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomeOK)
		s.wait(1500)
		e.renew()
		s.wait(5000)
		s.write("app1", &history.Event{At: s.now, Event: history.EventQueueUp})
		e.claim().run("app2").end(history.OutcomeOK).succeed()
	}},
	{"a key twice in one call, and the second is what ran", []string{"content"}, func(s *story) {
		e, x := s.entry("ship"), s.begin()
		for _, hash := range []uint64{5, e.hash()} {
			s.write("producer", &history.Insert{At: s.now, Tx: x.n, Key: e.key, Type: e.typ, Hash: hash})
		}
		for _, dup := range []bool{false, true} {
			s.write("producer", &history.Inserted{At: s.now, Tx: x.n, Key: e.key, ID: e.id, Duplicate: dup})
		}
		x.ask()
		e.appear(false)
		x.answer(history.CommitOK)
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	}},

	{"a rolled-back entry is there", []string{"phantom"}, func(s *story) {
		e, x := s.entry("ship"), s.begin()
		e.insert(x).appear(false)
		x.rollback()
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"an entry of a failed commit is there", []string{"phantom"}, func(s *story) {
		e, x := s.entry("ship"), s.begin()
		e.insert(x).appear(false)
		x.commit(history.CommitFail)
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"an entry whose commit was never asked for is there", []string{"phantom"}, func(s *story) {
		e := s.entry("ship")
		e.insert(s.begin()).appear(false).claim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"an entry rolled back to a savepoint is there", []string{"phantom"}, func(s *story) {
		e, x := s.entry("ship"), s.begin()
		x.savepoint("sp")
		e.insert(x)
		x.rollbackTo("sp")
		x.ask()
		e.appear(false)
		x.answer(history.CommitOK)
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"an entry of a transaction that a deadlock ended is there", []string{"phantom"}, func(s *story) {
		e, x := s.entry("ship"), s.begin()
		other := s.entry("ship")
		s.write("producer", &history.Insert{At: s.now, Tx: x.n, Key: other.key, Type: "ship"})
		s.write("producer", &history.Inserted{At: s.now, Tx: x.n, Key: other.key, Err: history.ErrDeadlock})
		e.insert(x).appear(false)
		x.commit(history.CommitOK)
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"an entry that nobody recorded is there", []string{"phantom"}, func(s *story) {
		s.entry("ship").appear(false).claim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"ran and was never there", []string{"phantom"}, func(s *story) {
		x, e := s.begin(), s.entry("ship")
		e.insert(x)
		e.run("app1").end(history.OutcomeOK)
		x.rollback()
	}},
	{"ran before its commit was asked for", []string{"phantom"}, func(s *story) {
		e, x := s.entry("ship"), s.begin()
		e.insert(x).appear(true)
		e.run("app1")
		x.commit(history.CommitOK)
		s.fault("kill", "app1", 2500, history.TouchesApp)
		e.claim().run("app2").end(history.OutcomeOK).succeed()
	}},
	{"two rows of one key", []string{"phantom"}, func(s *story) {
		s.run.PurgeAgeMS = 0
		e, x := s.entry("ship"), s.begin()
		twin := s.entry("ship")
		twin.key = e.key
		s.write("producer", &history.Insert{At: s.now, Tx: x.n, Key: e.key, Type: e.typ, Hash: e.hash()})
		s.write("producer", &history.Inserted{At: s.now, Tx: x.n, Key: e.key})
		x.ask()
		e.appear(false)
		x.answer(history.CommitOK)
		twin.appear(false)
		e.claim().run("app1").end(history.OutcomeOK).succeed()
		twin.claim().runAs("app1", func(a *history.Attempt) { a.Hash = e.hash() }).end(history.OutcomeOK).succeed()
	}},
	{"an effect of an entry that was never there", []string{"effects", "phantom"}, func(s *story) { s.entry("pay").effectRow(0, false) }},

	{"a version is skipped", []string{"attempts", "linear history"}, func(s *story) {
		e := s.committed("ship")
		e.update(func(r *history.Image) { r.Version++; r.DeliveryCount++; r.LeaseUntil = s.dbMS() + storyLease })
		e.run("app1").end(history.OutcomeOK).succeed()
	}},
	{"a change from an image that was not there", []string{"linear history"}, func(s *story) {
		e := s.committed("ship")
		e.row.NextAt -= 5
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"out of a terminal state without a person", []string{"linear history"}, func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomeOK).succeed()
		e.settle(pending, "", nil)
		s.act(e)
	}},
	{"a success replaced by a failure", []string{"linear history"}, func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomeOK).succeed()
		e.settle(dead, "exhausted", failed1)
	}},
	{"a requeue that keeps its epoch", []string{"linear history"}, func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomePermanent).settle(dead, "permanent", failed1)
		e.settle(pending, "", func(r *history.Image) { r.ProcessCount = 0 })
		s.act(e)
	}},
	{"a requeue that keeps its counts", []string{"linear history"}, func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomePermanent).settle(dead, "permanent", failed1)
		e.settle(pending, "", func(r *history.Image) { r.Epoch++ })
		s.act(e)
	}},
	{"a failure that counts twice", []string{"linear history"}, func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomeFail).settle(retrying, "", func(r *history.Image) { r.ProcessCount += 2 })
		s.act(e)
	}},
	{"an outcome that keeps the delivery count", []string{"linear history"}, func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomeFail).settle(retrying, "", func(r *history.Image) { r.ProcessCount++; r.DeliveryCount = 1 })
		s.act(e)
	}},
	{"a claim that is not counted", []string{"linear history"}, func(s *story) {
		e := s.committed("ship")
		e.update(func(r *history.Image) { r.LeaseUntil = s.dbMS() + storyLease })
		s.act(e)
	}},
	{"a claim under the token of before", []string{"linear history"}, func(s *story) {
		e := s.committed("ship")
		token := e.row.Token
		e.update(func(r *history.Image) { r.DeliveryCount++; r.LeaseUntil = s.dbMS() + storyLease; r.Token = token })
		s.act(e)
	}},
	{"a claim that moves the due moment", []string{"linear history"}, func(s *story) {
		e := s.committed("ship")
		e.update(func(r *history.Image) { r.DeliveryCount++; r.LeaseUntil = s.dbMS() + storyLease; r.NextAt++ })
		s.act(e)
	}},
	{"a lease longer than its type's", []string{"linear history"}, func(s *story) {
		e := s.committed("ship")
		e.update(func(r *history.Image) { r.DeliveryCount++; r.LeaseUntil = s.dbMS() + 2*storyLease })
		e.run("app1").end(history.OutcomeOK).succeed()
	}},
	{"a delayed entry that is born claimed", []string{"linear history"}, func(s *story) {
		e, x := s.entry("ship"), s.begin()
		e.delay = 3000
		e.insert(x)
		x.ask()
		e.appear(true)
		x.answer(history.CommitOK)
		s.act(e)
	}},
	{"compensated straight from pending", []string{"linear history"}, func(s *story) {
		s.committed("close").claim().run("app1").end(history.OutcomeOK).compensate()
	}},
	{"a cancellation of what is compensating", []string{"linear history"}, func(s *story) {
		e := s.committed("close").claim()
		e.run("app1").end(history.OutcomePermanent).exhaust()
		e.act(history.ActionCancel, history.ErrState)
		e.settle(cancelled, "person", nil)
	}},

	{"ran from memory, at a version that was no claim", []string{"attempts"}, func(s *story) {
		e := s.committed("ship")
		e.run("app1").end(history.OutcomeOK)
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"ran at a version that never was", []string{"attempts"}, func(s *story) {
		e := s.committed("ship").claim()
		e.runAs("app2", func(a *history.Attempt) { a.Version += 7 }).end(history.OutcomeOK)
		e.run("app1").end(history.OutcomeOK).succeed()
	}},
	{"ran what had succeeded", []string{"attempts"}, func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomeOK).succeed()
		e.run("app2").end(history.OutcomeOK)
	}},
	{"ran with the state of before", []string{"attempts"}, func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomeFail).fail()
		e.claim().runAs("app1", func(a *history.Attempt) { a.State = pending }).end(history.OutcomeOK).succeed()
	}},
	{"ran its handler in the compensation's turn", []string{"attempts", "outcome"}, func(s *story) {
		e := s.committed("close").claim()
		e.run("app1").end(history.OutcomePermanent).exhaust()
		e.claim().runAs("app1", func(a *history.Attempt) { a.Compensation = false }).end(history.OutcomeFail)
		e.compensate()
	}},
	{"ran in an epoch that was over", []string{"attempts", "outcome"}, func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomePermanent).settle(dead, "permanent", failed1)
		e.act(history.ActionRequeue, "")
		e.requeue(pending).claim().runAs("app1", func(a *history.Attempt) { a.Epoch = 0 }).end(history.OutcomeOK).succeed()
	}},

	{"ran with another content", []string{"content"}, func(s *story) {
		s.committed("ship").claim().runAs("app1", func(a *history.Attempt) { a.Hash++ }).end(history.OutcomeOK).succeed()
	}},
	{"a duplicate changed the content", []string{"content"}, func(s *story) {
		e := s.committed("ship")
		x := s.begin()
		s.write("producer", &history.Insert{At: s.now, Tx: x.n, Key: e.key, Type: e.typ, Hash: 5})
		s.write("producer", &history.Inserted{At: s.now, Tx: x.n, Key: e.key, ID: e.id, Duplicate: true})
		x.commit(history.CommitOK)
		e.claim().runAs("app1", func(a *history.Attempt) { a.Hash = 5 }).end(history.OutcomeOK).succeed()
	}},

	{"succeeded, and nobody ran it", []string{"outcome"}, func(s *story) { s.committed("ship").claim().succeed() }},
	{"succeeded, and its handler failed", []string{"outcome"}, func(s *story) {
		s.committed("ship").claim().run("app1").end(history.OutcomeFail).succeed()
	}},
	{"succeeded, and its handler never returned", []string{"outcome"}, func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1")
		e.succeed()
	}},
	{"a success of the epoch before is absorbed", []string{"outcome"}, func(s *story) {
		e := s.committed("ship")
		e.claim().run("app1").end(history.OutcomeFail).fail()
		e.claim()
		stale := e.run("app1")
		e.act(history.ActionRequeue, "")
		e.requeue(pending)
		stale.end(history.OutcomeOK).succeed()
	}},
	{"a stale transactional success is recorded", []string{"outcome"}, func(s *story) {
		e := s.committed("pay").claim()
		stale := e.run("app1")
		s.fault("pause", "app1", 2500, history.TouchesApp)
		e.claim()
		e.run("app2").end(history.OutcomeFail)
		stale.end(history.OutcomeOK).succeed()
		e.effectRow(0, false)
	}},
	{"a stale failure is recorded over another's claim", []string{"outcome"}, func(s *story) {
		e := s.committed("ship").claim()
		stale := e.run("app1")
		s.fault("pause", "app1", 2500, history.TouchesApp)
		e.claim()
		fresh := e.run("app2")
		stale.end(history.OutcomeFail).fail()
		fresh.end(history.OutcomeOK).succeed()
	}},
	{"a failure of a handler that returned nil", []string{"outcome"}, func(s *story) {
		e := s.committed("pay").claim()
		e.run("app1").end(history.OutcomeOK).fail()
		e.claim().run("app1").end(history.OutcomeOK).succeed()
		e.effectRow(0, false)
	}},
	{"a failure of an attempt that never returned", []string{"outcome"}, func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1")
		e.fail().claim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"a snooze that is counted", []string{"outcome"}, func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomeSnooze).fail()
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"a failure that is not counted", []string{"outcome"}, func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomeFail).pause()
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"given up one failure early", []string{"outcome"}, func(s *story) {
		e := s.committed("ship")
		e.claim().run("app1").end(history.OutcomeFail).fail()
		e.claim().run("app1").end(history.OutcomeFail).die()
	}},
	{"tried once too often", []string{"outcome"}, func(s *story) {
		e := s.committed("ship")
		for range 3 {
			e.claim().run("app1").end(history.OutcomeFail).fail()
		}
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"its own max is not heeded", []string{"outcome"}, func(s *story) {
		e, x := s.entry("ship"), s.begin()
		e.max = 1
		e.insert(x)
		x.ask()
		e.appear(false)
		x.answer(history.CommitOK)
		e.claim().run("app1").end(history.OutcomeFail).fail()
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"compensation given up one failure early", []string{"outcome"}, func(s *story) {
		e := s.committed("close").claim()
		e.run("app1").end(history.OutcomePermanent).exhaust()
		e.claim().run("app1").end(history.OutcomeFail).undoDie()
	}},
	{"compensated, and nobody compensated", []string{"outcome"}, func(s *story) {
		e := s.committed("close").claim()
		e.run("app1").end(history.OutcomePermanent).exhaust()
		e.claim().compensate()
	}},
	{"a permanent error that says exhausted", []string{"outcome"}, func(s *story) {
		s.committed("ship").claim().run("app1").end(history.OutcomePermanent).die()
	}},
	{"quarantined after two lost leases", []string{"outcome"}, func(s *story) {
		e := s.committed("ship")
		for range 2 {
			e.claim().run("app1")
			s.fault("kill", "app1", 2500, history.TouchesApp)
		}
		e.claim().crash()
	}},
	{"quarantined by a claim that ran it", []string{"outcome"}, func(s *story) {
		e := s.committed("ship")
		for range 3 {
			e.claim().run("app1")
			s.fault("kill", "app1", 2500, history.TouchesApp)
		}
		e.claim().run("app2")
		e.crash()
	}},

	{"a success in time, and nothing recorded", []string{"lost success", "lost"}, func(s *story) {
		s.committed("ship").claim().run("app1").end(history.OutcomeOK)
		s.wait(4000)
		s.write("app1", &history.Mark{At: s.now, What: history.MarkExit})
	}},
	{"a success in time, and it ran again", []string{"lost success", "executions"}, func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomeOK)
		s.wait(4000)
		s.write("app1", &history.Mark{At: s.now, What: history.MarkExit})
		e.claim().run("app2").end(history.OutcomeOK).succeed()
	}},
	{"a success in time under a fault of another app", []string{"lost success", "executions"}, func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomeOK)
		s.fault("pause", "app2", 4000, history.TouchesApp)
		s.write("app1", &history.Mark{At: s.now, What: history.MarkExit})
		e.claim().run("app2").end(history.OutcomeOK).succeed()
	}},
	{"a compensation's success in time, and it ran again", []string{"lost success", "executions"}, func(s *story) {
		e := s.committed("close").claim()
		e.run("app1").end(history.OutcomePermanent).exhaust()
		e.claim().run("app1").end(history.OutcomeOK)
		s.wait(4000)
		s.write("app1", &history.Mark{At: s.now, What: history.MarkExit})
		e.claim().run("app2").end(history.OutcomeOK).compensate()
	}},

	{"a transactional effect twice", []string{"effects"}, func(s *story) {
		e := s.committed("pay").claim()
		e.run("app1").end(history.OutcomeOK).succeed()
		e.effectRow(0, false)
		e.effectRow(0, false)
	}},
	{"a transactional success without its effect", []string{"effects"}, func(s *story) {
		s.committed("pay").claim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"a transactional effect without its success", []string{"effects"}, func(s *story) {
		e := s.committed("pay").claim()
		e.run("app1").end(history.OutcomePermanent).exhaust()
		e.claim().run("app1").end(history.OutcomeOK).compensate()
		e.effectRow(0, false)
		e.effectRow(0, true)
	}},
	{"an effect of a completed entry", []string{"effects"}, func(s *story) {
		e := s.committed("pay").claim()
		e.run("app1").end(history.OutcomeOK)
		e.act(history.ActionComplete, "")
		e.settle(succeeded, "complete", nil)
		e.effectRow(0, false)
	}},
	{"an effect in the wrong epoch", []string{"effects"}, func(s *story) {
		e := s.committed("pay").claim()
		e.run("app1").end(history.OutcomeOK).succeed()
		e.effectRow(1, false)
	}},
	{"a compensation's effect twice", []string{"effects"}, func(s *story) {
		e := s.committed("pay").claim()
		e.run("app1").end(history.OutcomePermanent).exhaust()
		e.claim().run("app1").end(history.OutcomeOK).compensate()
		e.effectRow(0, true)
		e.effectRow(0, true)
	}},
	{"a success without the effect outside that others have", []string{"effects"}, func(s *story) {
		s.committed("truck").claim().run("app1").effect().end(history.OutcomeOK).succeed()
		s.committed("truck").claim().run("app1").end(history.OutcomeOK).succeed()
	}},

	{"compensated after its success", []string{"compensation", "linear history"}, func(s *story) {
		e := s.committed("close").claim()
		e.run("app1").end(history.OutcomeOK).succeed()
		e.settle(compensating, "", nil)
		e.claim().run("app1").end(history.OutcomeOK).compensate()
	}},
	{"compensated in the epoch of a success", []string{"compensation", "attempts"}, func(s *story) {
		e := s.committed("close").claim()
		e.run("app1").end(history.OutcomeOK).succeed()
		e.act(history.ActionRequeue, "")
		e.requeue(compensating).claim().run("app1").end(history.OutcomeFail).undoFail()
		e.claim().runAs("app1", func(a *history.Attempt) { a.Epoch = 0 }).end(history.OutcomeSnooze).pause()
		e.claim().run("app1").end(history.OutcomeOK).compensate()
	}},
	{"a type without a compensation is to be compensated", []string{"compensation"}, func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomePermanent).exhaust()
		e.act(history.ActionSettleByHand, "")
		e.settle(byHand, "person", func(r *history.Image) { r.Epoch++ })
	}},
	{"dead without its compensation", []string{"compensation"}, func(s *story) {
		s.committed("close").claim().run("app1").end(history.OutcomePermanent).settle(dead, "permanent", failed1)
	}},
	{"compensated after crashes that its type would not have compensated", []string{"compensation"}, func(s *story) {
		e := s.committed("close")
		for range 3 {
			e.claim().run("app1")
			s.fault("kill", "app1", 2500, history.TouchesApp)
		}
		e.claim().settle(compensating, "", nil)
		e.claim().run("app2").end(history.OutcomeOK).compensate()
	}},
	{"dead after crashes, and its type asks for the compensation", []string{"compensation"}, func(s *story) {
		e := s.committed("bomb")
		for range 3 {
			e.claim().run("app1")
			s.fault("kill", "app1", 2500, history.TouchesApp)
		}
		e.claim().crash()
	}},

	{"claimed before it was due", []string{"early"}, func(s *story) {
		e, x := s.entry("ship"), s.begin()
		e.delay = 3000
		e.insert(x)
		x.ask()
		e.appear(false)
		x.answer(history.CommitOK)
		s.wait(2990)
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"claimed while it was leased", []string{"early"}, func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1")
		s.fault("kill", "app1", 1900, history.TouchesApp)
		e.claim().run("app2").end(history.OutcomeOK).succeed()
	}},
	{"claimed by another under its born lease", []string{"early"}, func(s *story) {
		s.bornClaimed(1500).claim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"a delivery to another process is not counted", []string{"linear history"}, func(s *story) {
		s.bornClaimed(2500).ownClaim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"a delivery after one that ran is not counted", []string{"linear history"}, func(s *story) {
		e := s.bornClaimed(100)
		e.run("producer")
		s.fault("kill", "producer", 3000, history.TouchesApp)
		e.ownClaim().run("producer").end(history.OutcomeOK).succeed()
	}},
	{"a later delivery is not counted", []string{"linear history", "attempts"}, func(s *story) {
		e := s.bornClaimed(1500).ownClaim()
		s.fault("kill", "producer", 3000, history.TouchesApp)
		e.ownClaim().run("producer").end(history.OutcomeOK).succeed()
	}},
	{"the delivery of an entry that was not born claimed is not counted", []string{"linear history", "attempts"}, func(s *story) {
		s.committed("ship").ownClaim().run("producer").end(history.OutcomeOK).succeed()
	}},
	{"due sooner than was asked for", []string{"early"}, func(s *story) {
		e, x := s.entry("ship"), s.begin()
		e.delay = 3000
		e.insert(x)
		x.ask()
		e.delay = 2000
		e.appear(false)
		x.answer(history.CommitOK)
		s.wait(2000)
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"to run again sooner than its handler asked for", []string{"early"}, func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").endAs(history.OutcomeRetryAfter, func(a *history.AttemptEnd) { a.AfterMS = 700 })
		e.settle(retrying, "", func(r *history.Image) { r.ProcessCount++; r.NextAt = s.dbMS() + 600 })
		s.wait(701)
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"claimed early, and the clock was moved long before", []string{"early"}, func(s *story) {
		s.clock()
		s.skew = 600_000_000
		s.clock()
		s.committed("ship").claim().run("app1").end(history.OutcomeOK).succeed()
		s.clock()
		s.wait(1000)
		s.clock()
		s.wait(1000)
		e, x := s.entry("ship"), s.begin()
		e.delay = 3000
		e.insert(x)
		x.ask()
		e.appear(false)
		x.answer(history.CommitOK)
		for range 3 {
			s.wait(500)
			s.clock()
		}
		e.claim().run("app1").end(history.OutcomeOK).succeed()
		for range 3 {
			s.wait(1000)
			s.clock()
		}
	}},

	{"one claim runs in two processes", []string{"executions"}, func(s *story) {
		e := s.committed("ship").claim()
		e.run("app2").end(history.OutcomeFail)
		e.run("app1").end(history.OutcomeOK).succeed()
	}},
	{"one claim runs twice in one process", []string{"executions"}, func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomeFail)
		e.run("app1").end(history.OutcomeOK).succeed()
	}},
	{"one claim of a batch type runs three times", []string{"executions"}, func(s *story) {
		e := s.committed("mail").claim()
		for range 2 {
			e.runAs("app1", func(a *history.Attempt) { a.Batch = 1 }).end(history.OutcomeNoVerdict)
		}
		e.runAs("app1", func(a *history.Attempt) { a.Batch = 1 }).end(history.OutcomeOK).succeed()
	}},
	{"a batch's share that failed runs again", []string{"executions"}, func(s *story) {
		e := s.committed("mail").claim()
		for range 2 {
			e.runAs("app1", func(a *history.Attempt) { a.Batch = 1 }).end(history.OutcomeFail)
		}
		e.fail().claim().runAs("app1", func(a *history.Attempt) { a.Batch = 1 }).end(history.OutcomeOK).succeed()
	}},
	{"a lease is lost for no reason", []string{"executions"}, func(s *story) {
		e := s.committed("ship").claim()
		r := e.run("app1")
		s.wait(5000)
		e.claim().run("app2").end(history.OutcomeOK).succeed()
		r.end(history.OutcomeOK)
	}},
	{"a lease is lost while the machine was too busy for another app", []string{"executions"}, func(s *story) {
		e := s.committed("ship").claim()
		r := e.run("app1")
		s.stall("app2", 3000)
		e.claim().run("app2").end(history.OutcomeOK).succeed()
		r.end(history.OutcomeOK)
	}},
	{"a lease is lost long after the machine was too busy", []string{"executions"}, func(s *story) {
		s.stall("app1", 3000)
		s.wait(1100)
		e := s.committed("ship").claim()
		r := e.run("app1")
		s.wait(5000)
		e.claim().run("app2").end(history.OutcomeOK).succeed()
		r.end(history.OutcomeOK)
	}},
	{"a committed entry is lost while the machine was too busy", []string{"lost"}, func(s *story) {
		x := s.begin()
		s.entry("ship").insert(x)
		s.stall("driver", 3000)
		x.commit(history.CommitOK)
		s.stall("driver", 3000)
	}},
	{"claimed while it was leased, and the machine was too busy", []string{"early"}, func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1")
		s.stall("driver", 1900)
		e.claim().run("app2").end(history.OutcomeOK).succeed()
	}},

	{"a claim that nobody ran is lost for no reason", []string{"executions"}, func(s *story) {
		e := s.committed("ship").claim()
		s.wait(5000)
		s.write("app1", &history.Mark{At: s.now, What: history.MarkExit})
		e.claim().run("app2").end(history.OutcomeOK).succeed()
	}},

	{"a cancellation that was answered is not there", []string{"actions"}, func(s *story) {
		e := s.committed("ship")
		e.act(history.ActionCancel, "")
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"a cancellation that nobody made", []string{"actions"}, func(s *story) { s.committed("ship").settle(cancelled, "person", nil) }},
	{"a refused completion took place", []string{"actions"}, func(s *story) {
		e := s.committed("ship")
		e.act(history.ActionComplete, history.ErrBusy)
		e.settle(succeeded, "complete", nil)
	}},
	{"a cancellation of a rolled-back transaction took place", []string{"actions"}, func(s *story) {
		e, x := s.committed("ship"), s.begin()
		n := s.next()
		s.write("producer", &history.Action{At: s.now, Call: n, Action: history.ActionCancel, ID: e.id, Tx: x.n})
		s.write("producer", &history.ActionEnd{At: s.now, Call: n})
		x.rollback()
		e.settle(cancelled, "person", nil)
	}},
	{"one requeue that happened twice", []string{"actions"}, func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomePermanent).settle(dead, "permanent", failed1)
		e.act(history.ActionRequeue, "")
		e.requeue(pending).claim().run("app1").end(history.OutcomePermanent).settle(dead, "permanent", failed1)
		e.requeue(pending).claim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"an action on nothing succeeded", []string{"actions"}, func(s *story) {
		s.committed("ship").claim().run("app1").end(history.OutcomeOK).succeed()
		n := s.next()
		s.write("producer", &history.Action{At: s.now, Call: n, Action: history.ActionCancel, Key: "nothing"})
		s.write("producer", &history.ActionEnd{At: s.now, Call: n})
	}},

	{"a producer deadlocks with the library", []string{"producers"}, func(s *story) {
		s.write("driver", &history.Deadlock{Statements: []string{
			"INSERT INTO `common_process_log` (idempotent_id, business_type) VALUES (?,?)",
			"UPDATE `common_process_log` SET state=1, version=version+1, delivery_count=0 WHERE id IN (1,2)"}})
	}},
	{"a producer deadlocks with the purge", []string{"producers"}, func(s *story) {
		s.write("driver", &history.Deadlock{Statements: []string{
			"DELETE FROM `common_process_log` WHERE id IN (1,2) AND state+0=1 AND next_at<5",
			"insert into `common_process_log` (idempotent_id, business_type) VALUES (?,?)"}})
	}},

	{"purged too young", []string{"purge"}, func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomeOK).succeed()
		s.wait(purgeAge - 100)
		e.purge()
	}},
	{"purged on its way", []string{"purge"}, func(s *story) {
		e := s.committed("ship")
		s.wait(purgeAge + 100)
		e.purge()
	}},
	{"deleted, and nobody purges", []string{"purge"}, func(s *story) {
		s.run.PurgeAgeMS = 0
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomeOK).succeed()
		s.wait(purgeAge + 100)
		e.purge()
	}},

	{"ran an entry of a type that nobody serves", []string{"unknown types"}, func(s *story) {
		s.run.Types[len(s.run.Types)-1].LeaseMS = storyLease
		s.committed("nobody").claim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"born claimed, of a type that nobody serves", []string{"unknown types"}, func(s *story) {
		e, x := s.entry("nobody"), s.begin()
		e.insert(x)
		x.ask()
		e.appear(true)
		x.answer(history.CommitOK)
	}},
	{"claimed an entry of a type that nobody serves", []string{"unknown types"}, func(s *story) { s.committed("nobody").claim().release() }},

	{"the table differs from the audit", []string{"audit"}, func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomeOK).succeed()
		e.row.ProcessCount = 4
	}},
	{"a row changed its type", []string{"audit"}, func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomeOK).succeed()
		e.typ = "truck"
	}},
	{"a row vanished past the triggers", []string{"audit"}, func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomeOK).succeed()
		e.gone = true
	}},
	{"a purged row is still there", []string{"audit"}, func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomeOK).succeed()
		s.wait(purgeAge + 10)
		e.purge().gone = false
	}},
}

// act has somebody settle what a story leaves open, so that only its own fault is found.
func (s *story) act(e *subject) {
	e.act(history.ActionCancel, "")
	e.settle(cancelled, "person", nil)
}

func TestEveryWrongHistoryIsCaughtByItsCheck(t *testing.T) {
	for _, w := range wrong {
		t.Run(w.name, func(t *testing.T) {
			s := newStory(t)
			w.tell(s)
			s.rest()
			v := s.violates(w.checks...)
			for _, c := range v.Checks {
				for _, f := range c.Findings {
					require.NotEmpty(t, f.What)
				}
			}
		})
	}
}

func TestEveryCheckHasAWrongHistory(t *testing.T) {
	caught := make(map[string]bool)
	for _, w := range wrong {
		for _, name := range w.checks {
			caught[name] = true
		}
	}
	for _, w := range wrongAtRest {
		caught[w.check] = true
	}
	s := newStory(t)
	s.rest()
	for _, c := range s.judge().Checks {
		require.True(t, caught[c.Name], "no wrong history for the check %q", c.Name)
	}
}
