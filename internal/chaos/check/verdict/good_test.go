package verdict

import (
	"fmt"
	"testing"

	"github.com/compensator-go/compensator/internal/chaos/history"
)

// strange are histories with something in them that looks wrong and is not.
var strange = map[string]func(s *story){
	"an entry runs and succeeds": func(s *story) {
		s.committed("ship").claim().run("app1").end(history.OutcomeOK).succeed()
	},
	"born claimed": func(s *story) {
		e, x := s.entry("ship"), s.begin()
		e.insert(x)
		x.ask()
		e.appear(true)
		x.answer(history.CommitOK)
		e.run("producer").end(history.OutcomeOK).succeed()
	},
	"born claimed, committed late, and claimed again by its own process": func(s *story) {
		s.bornClaimed(1500).ownClaim().run("producer").end(history.OutcomeOK).succeed()
	},
	"born claimed, committed after its lease, and claimed again by its own process": func(s *story) {
		s.bornClaimed(2500).ownClaim().run("producer").end(history.OutcomeOK).succeed()
	},
	"born claimed, claimed again by its own process, which is killed": func(s *story) {
		e := s.bornClaimed(1500).ownClaim()
		s.fault("kill", "producer", 3000, history.TouchesApp)
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	},
	"born claimed, claimed again by its own process, and given back": func(s *story) {
		s.bornClaimed(1500).ownClaim().release().claim().run("app1").end(history.OutcomeOK).succeed()
	},
	"born claimed, and its process was killed": func(s *story) {
		e, x := s.entry("ship"), s.begin()
		e.insert(x)
		x.ask()
		e.appear(true)
		x.answer(history.CommitOK)
		s.fault("kill", "app1", 3000, history.TouchesApp)
		e.claim().run("app2").end(history.OutcomeOK).succeed()
	},
	"rolled back": func(s *story) {
		x := s.begin()
		s.entry("ship").insert(x)
		x.rollback()
	},
	"killed before its commit": func(s *story) { s.entry("ship").insert(s.begin()) },
	"certainly failed commit": func(s *story) {
		x := s.begin()
		s.entry("ship").insert(x)
		x.commit(history.CommitFail)
	},
	"unknown commit that happened": func(s *story) {
		e, x := s.entry("ship"), s.begin()
		e.insert(x)
		x.ask()
		e.appear(false)
		x.answer(history.CommitUnknown)
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	},
	"unknown commit that did not": func(s *story) {
		x := s.begin()
		s.entry("ship").insert(x)
		x.commit(history.CommitUnknown)
	},
	"unknown commit that happened, and Resolve found it": func(s *story) {
		e, x := s.entry("ship"), s.begin()
		e.insert(x)
		x.ask()
		e.appear(false)
		x.answer(history.CommitUnknown)
		x.resolve(e, e.id, "")
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	},
	"unknown commit that did not, and Resolve did not find it": func(s *story) {
		e, x := s.entry("ship"), s.begin()
		e.insert(x)
		x.commit(history.CommitUnknown)
		x.resolve(e, 0, history.ErrNotFound)
	},
	"unknown commit that happened, and Resolve could not tell": func(s *story) {
		e, x := s.entry("ship"), s.begin()
		e.insert(x)
		x.ask()
		e.appear(false)
		x.answer(history.CommitUnknown)
		x.resolve(e, 0, history.ErrBusy)
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	},
	"a transactional handler returned nil when its time was up": func(s *story) {
		s.run.Types[1].TimeoutMS = 500
		e := s.committed("pay").claim()
		r := e.run("app1")
		s.wait(500)
		r.end(history.OutcomeOK).fail()
		e.claim().run("app1").end(history.OutcomeOK).succeed()
		e.effectRow(0, false)
	},
	"a success waited for the database, its lease renewed, and its process was killed": func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomeOK)
		s.wait(1500)
		e.renew()
		s.wait(1000) // past the first lease
		s.write("app1", &history.Event{At: s.now, Event: history.EventQueueUp})
		s.start("app1 again", "app1")
		s.wait(5000)
		e.claim().run("app2").end(history.OutcomeOK).succeed()
	},
	"one key twice in one call": func(s *story) {
		e, x := s.entry("ship"), s.begin()
		for _, hash := range []uint64{e.hash(), 5} {
			s.write("producer", &history.Insert{At: s.now, Tx: x.n, Key: e.key, Type: e.typ, Hash: hash})
		}
		for _, dup := range []bool{false, true} {
			s.write("producer", &history.Inserted{At: s.now, Tx: x.n, Key: e.key, ID: e.id, Duplicate: dup})
		}
		x.ask()
		e.appear(false)
		x.answer(history.CommitOK)
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	},
	"a lease lost while the machine was too busy for its app": func(s *story) {
		e := s.committed("ship").claim()
		r := e.run("app1")
		s.stall("app1", 3000)
		e.claim().run("app2").end(history.OutcomeOK).succeed()
		r.end(history.OutcomeOK)
	},
	"a lease lost while the machine was too busy for all": func(s *story) {
		e := s.committed("ship").claim()
		r := e.run("app1")
		s.stall("driver", 3000)
		e.claim().run("app2").end(history.OutcomeOK).succeed()
		r.end(history.OutcomeOK)
	},
	"commit that was asked for by a producer that died": func(s *story) {
		e, x := s.entry("ship"), s.begin()
		e.insert(x)
		x.ask()
		e.appear(false).claim().run("app1").end(history.OutcomeOK).succeed()
	},
	"rolled back to a savepoint": func(s *story) {
		x := s.begin()
		kept, gone := s.entry("ship"), s.entry("ship")
		kept.insert(x)
		x.savepoint("sp")
		gone.insert(x)
		x.rollbackTo("sp")
		x.ask()
		kept.appear(false)
		x.answer(history.CommitOK)
		kept.claim().run("app1").end(history.OutcomeOK).succeed()
	},
	"rolled back to a savepoint, recorded again": func(s *story) {
		x := s.begin()
		e := s.entry("ship")
		x.savepoint("sp")
		e.insert(x)
		x.rollbackTo("sp")
		e.insert(x)
		x.ask()
		e.appear(false)
		x.answer(history.CommitOK)
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	},
	"recorded again in another transaction": func(s *story) {
		e := s.committed("ship")
		x := s.begin()
		s.write("producer", &history.Insert{At: s.now, Tx: x.n, Key: e.key, Type: e.typ, Hash: 5})
		s.write("producer", &history.Inserted{At: s.now, Tx: x.n, Key: e.key, ID: e.id, Duplicate: true})
		x.commit(history.CommitOK)
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	},
	"rolled back by one, committed by another": func(s *story) {
		e, x := s.entry("ship"), s.begin()
		e.insert(x)
		x.rollback()
		y := s.begin()
		e.insert(y)
		y.ask()
		e.appear(false)
		y.answer(history.CommitOK)
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	},
	"a swallowed deadlock undid what was inserted": func(s *story) {
		x := s.begin()
		s.entry("ship").insert(x)
		other := s.entry("ship")
		s.write("producer", &history.Insert{At: s.now, Tx: x.n, Key: other.key, Type: "ship"})
		s.write("producer", &history.Inserted{At: s.now, Tx: x.n, Key: other.key, Err: history.ErrDeadlock})
		x.commit(history.CommitOK)
	},
	"an insert refused by a lock wait, and the transaction committed without it": func(s *story) {
		x := s.begin()
		e := s.entry("ship")
		s.write("producer", &history.Insert{At: s.now, Tx: x.n, Key: e.key, Type: "ship"})
		s.write("producer", &history.Inserted{At: s.now, Tx: x.n, Key: e.key, Err: history.ErrLockWait})
		x.commit(history.CommitOK)
	},
	"delayed, and claimed when due": func(s *story) {
		e := s.entry("ship")
		e.delay = 3000
		x := s.begin()
		e.insert(x)
		x.ask()
		e.appear(false)
		x.answer(history.CommitOK)
		s.wait(3000)
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	},
	"open at the end and not due": func(s *story) {
		e := s.entry("ship")
		e.delay = 30_000
		x := s.begin()
		e.insert(x)
		x.ask()
		e.appear(false)
		x.answer(history.CommitOK)
	},
	"open at the end, beyond the horizon": func(s *story) {
		e := s.entry("ship")
		e.delay = 90_000
		x := s.begin()
		e.insert(x)
		x.ask()
		e.appear(false)
		x.answer(history.CommitOK)
		s.rest()
		s.members = nil
		for i, r := range s.records["driver"] {
			if _, ok := r.(*history.Member); ok {
				s.records["driver"] = s.records["driver"][:i]
				return
			}
		}
	},
	"released unrun": func(s *story) {
		s.committed("ship").claim().release().claim().run("app1").end(history.OutcomeOK).succeed()
	},
	"renewed": func(s *story) {
		e := s.committed("ship").claim()
		r := e.run("app1")
		s.wait(1500)
		e.renew()
		s.wait(1500)
		r.end(history.OutcomeOK).succeed()
	},
	"touched by somebody's own column": func(s *story) {
		e := s.committed("ship")
		s.audit(history.OpUpdate, e, &e.row, &e.row)
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	},
	"failed, retried and exhausted": func(s *story) {
		e := s.committed("ship")
		for range 2 {
			e.claim().run("app1").end(history.OutcomeFail).fail()
		}
		e.claim().run("app2").end(history.OutcomePanic).die()
	},
	"its own max": func(s *story) {
		e := s.entry("ship")
		e.max = 1
		x := s.begin()
		e.insert(x)
		x.ask()
		e.appear(false)
		x.answer(history.CommitOK)
		e.claim().run("app1").end(history.OutcomeFail).die()
	},
	"permanent": func(s *story) {
		s.committed("ship").claim().run("app1").end(history.OutcomePermanent).settle(dead, "permanent", failed1)
	},
	"retry after, and not before": func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").endAs(history.OutcomeRetryAfter, func(a *history.AttemptEnd) { a.AfterMS = 700 })
		e.settle(retrying, "", func(r *history.Image) { r.ProcessCount++; r.NextAt = s.dbMS() + 701 })
		s.wait(701)
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	},
	"snoozed, unavailable, told to stop": func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomeSnooze).pause()
		e.claim().run("app1").end(history.OutcomeUnavailable).pause()
		e.claim().run("app1").endAs(history.OutcomeCanceled, func(a *history.AttemptEnd) { a.Cause = history.CauseStopping })
		e.pause().claim().run("app2").end(history.OutcomeOK).succeed()
	},
	"compensated at the second try": func(s *story) {
		e := s.committed("close")
		e.claim().run("app1").end(history.OutcomeFail).fail()
		e.claim().run("app1").end(history.OutcomeFail).exhaust()
		e.claim().run("app2").end(history.OutcomeFail).undoFail()
		e.claim().run("app2").end(history.OutcomeOK).compensate()
	},
	"compensation exhausted": func(s *story) {
		e := s.committed("close").claim()
		e.run("app1").end(history.OutcomePermanent).exhaust()
		e.claim().run("app2").end(history.OutcomeFail).undoFail()
		e.claim().run("app2").end(history.OutcomeFail).undoDie()
	},
	"transactional, with its effect": func(s *story) {
		e := s.committed("pay")
		e.claim().run("app1").end(history.OutcomeOK).succeed()
		e.effectRow(0, false)
	},
	"transactional, run twice, committed once": func(s *story) {
		e := s.committed("pay").claim()
		stale := e.run("app1")
		s.fault("pause", "app1", 2500, history.TouchesApp)
		e.claim().run("app2").end(history.OutcomeOK).succeed()
		e.effectRow(0, false)
		stale.end(history.OutcomeOK)
		s.write("app1", &history.Event{At: s.now, Event: history.EventOutcomeDropped, ID: e.id})
	},
	"transactional, its commit did not happen and it runs again": func(s *story) {
		e := s.committed("pay")
		e.claim().run("app1").end(history.OutcomeOK)
		s.fault("cut", "app1", 10, history.TouchesAppToDB)
		e.pause()
		e.claim().pause() // no transaction could be begun
		e.claim().run("app1").end(history.OutcomeOK).succeed()
		e.effectRow(0, false)
	},
	"transactional compensation": func(s *story) {
		e := s.committed("pay").claim()
		e.run("app1").end(history.OutcomePermanent).exhaust()
		e.claim().run("app1").end(history.OutcomeOK).compensate()
		e.effectRow(0, true)
	},
	"an effect outside, twice, after a lost lease": func(s *story) {
		e := s.committed("truck").claim()
		e.run("app1").effect()
		s.fault("kill", "app1", 2500, history.TouchesApp)
		e.claim().run("app2").effect().end(history.OutcomeOK).succeed()
	},
	"a stale success is absorbed over another's claim": func(s *story) {
		e := s.committed("ship").claim()
		stale := e.run("app1")
		s.fault("pause", "app1", 2500, history.TouchesApp)
		e.claim()
		fresh := e.run("app2")
		stale.end(history.OutcomeOK).succeed()
		fresh.end(history.OutcomeFail)
		s.write("app2", &history.Event{At: s.now, Event: history.EventOutcomeDropped, ID: e.id})
	},
	"a stale success comes after the exhaustion": func(s *story) {
		e := s.committed("close")
		e.claim().run("app1").end(history.OutcomeFail).fail()
		e.claim()
		stale := e.run("app1")
		s.fault("pause", "app1", 2500, history.TouchesApp)
		e.claim().run("app2").end(history.OutcomeFail).exhaust()
		stale.end(history.OutcomeOK)
		e.claim().run("app2").end(history.OutcomeOK).compensate()
	},
	"a success reported in time, and the database away": func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomeOK)
		s.fault("kill", "mariadb", 3000, history.TouchesDatabase)
		e.claim().run("app2").end(history.OutcomeOK).succeed()
	},
	"a success whose process was killed before it was stored": func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomeOK)
		s.fault("kill", "app1", 100, history.TouchesApp)
		s.wait(3000)
		e.claim().run("app2").end(history.OutcomeOK).succeed()
	},
	"a handler killed its own process, and those beside it": func(s *story) {
		bomb, beside, unrun := s.committed("ship").claim(), s.committed("ship").claim(), s.committed("ship").claim()
		file := fmt.Sprintf("app1 again %d", s.next())
		s.start(file, "app1")
		beside.run(file).end(history.OutcomeOK)
		bomb.run(file)
		s.wait(3000)
		s.start(file+" and again", "app1")
		for _, e := range []*subject{bomb, beside, unrun} {
			e.claim().run("app2").end(history.OutcomeOK).succeed()
		}
	},
	"quarantined": func(s *story) {
		e := s.committed("ship")
		for range 3 {
			e.claim().run("app1")
			s.fault("kill", "app1", 2500, history.TouchesApp)
		}
		e.claim().crash()
	},
	"quarantined to its compensation": func(s *story) {
		e := s.committed("bomb")
		for range 3 {
			e.claim().run("app1")
			s.fault("kill", "app1", 2500, history.TouchesApp)
		}
		e.claim().settle(compensating, "", nil)
		e.claim().run("app2").end(history.OutcomeOK).compensate()
	},
	"completed while it runs": func(s *story) {
		e := s.committed("ship").claim()
		r := e.run("app1")
		e.act(history.ActionComplete, "")
		e.settle(succeeded, "complete", nil)
		r.endAs(history.OutcomeCanceled, func(a *history.AttemptEnd) { a.Cause = history.CauseCancelled })
	},
	"cancelled while it succeeds": func(s *story) {
		e := s.committed("ship").claim()
		r := e.run("app1")
		e.act(history.ActionCancel, "")
		e.settle(cancelled, "person", nil)
		r.end(history.OutcomeOK)
	},
	"cancelled in a transaction that commits": func(s *story) {
		e, x := s.committed("ship"), s.begin()
		n := s.next()
		s.write("producer", &history.Action{At: s.now, Call: n, Action: history.ActionCancel, Key: e.key, Tx: x.n})
		s.write("producer", &history.ActionEnd{At: s.now, Call: n})
		x.ask()
		e.settle(cancelled, "person", nil)
		x.answer(history.CommitOK)
	},
	"cancelled in a transaction that is rolled back": func(s *story) {
		e, x := s.committed("ship"), s.begin()
		n := s.next()
		s.write("producer", &history.Action{At: s.now, Call: n, Action: history.ActionCancel, ID: e.id, Tx: x.n})
		s.write("producer", &history.ActionEnd{At: s.now, Call: n})
		x.rollback()
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	},
	"a refused action": func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomeOK).succeed()
		e.act(history.ActionCancel, history.ErrState)
	},
	"an action whose answer was lost": func(s *story) {
		e := s.committed("ship")
		e.act(history.ActionCancel, history.ErrConnection)
		e.settle(cancelled, "person", nil)
		other := s.committed("ship")
		other.act(history.ActionCancel, history.ErrConnection)
		other.claim().run("app1").end(history.OutcomeOK).succeed()
	},
	"rescheduled while it runs, and its failure dropped": func(s *story) {
		e := s.committed("ship").claim()
		r := e.run("app1")
		e.reschedule(3000)
		r.end(history.OutcomeFail)
		s.wait(3001)
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	},
	"rescheduled while it runs, and its success absorbed": func(s *story) {
		e := s.committed("ship").claim()
		r := e.run("app1")
		e.reschedule(3000)
		r.end(history.OutcomeOK).succeed()
	},
	"requeued after its success, and again": func(s *story) {
		e := s.committed("pay").claim()
		e.run("app1").end(history.OutcomeOK).succeed()
		e.effectRow(0, false)
		e.act(history.ActionRequeue, "")
		e.requeue(pending).claim().run("app1").end(history.OutcomeOK).succeed()
		e.effectRow(1, false)
		e.undo().claim().run("app1").end(history.OutcomeOK).compensate()
		e.effectRow(2, true)
	},
	"settled by hand": func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomePermanent).settle(dead, "permanent", failed1)
		e.act(history.ActionSettleByHand, "")
		e.settle(byHand, "person", func(r *history.Image) { r.Epoch++ })
	},
	"purged": func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomeOK).succeed()
		s.wait(purgeAge + 10)
		e.purge()
	},
	"purged, and its key recorded again": func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomeOK).succeed()
		s.wait(purgeAge + 10)
		e.purge()
		again := s.entry("ship")
		again.key = e.key
		x := s.begin()
		again.insert(x)
		x.ask()
		again.appear(false)
		x.answer(history.CommitOK)
		s.run.Types[0].MaxProcessCount = 3
		again.claim().run("app1").end(history.OutcomeOK).succeed()
	},
	"a batch without a verdict runs alone": func(s *story) {
		e := s.committed("mail").claim()
		e.runAs("app1", func(a *history.Attempt) { a.Batch = 5 }).end(history.OutcomeNoVerdict)
		e.runAs("app1", func(a *history.Attempt) { a.Batch = 1 }).end(history.OutcomeFail).fail()
		e.claim().runAs("app1", func(a *history.Attempt) { a.Batch = 2 }).end(history.OutcomeOK).succeed()
	},
	"a batch of one that timed out runs alone": func(s *story) {
		e := s.committed("mail").claim()
		for range 2 {
			e.runAs("app1", func(a *history.Attempt) { a.Batch = 1 }).endAs(history.OutcomeFail, func(a *history.AttemptEnd) { a.Cause = history.CauseTimeout })
		}
		e.fail().claim().runAs("app1", func(a *history.Attempt) { a.Batch = 1 }).end(history.OutcomeOK).succeed()
	},
	"a batch that was told to stop": func(s *story) {
		e := s.committed("mail").claim()
		e.runAs("app1", func(a *history.Attempt) { a.Batch = 5 }).endAs(history.OutcomeNoVerdict, func(a *history.AttemptEnd) { a.Cause = history.CauseLeaseLost })
		e.pause().claim().runAs("app1", func(a *history.Attempt) { a.Batch = 2 }).end(history.OutcomeOK).succeed()
	},
	"of a type that nobody serves": func(s *story) {
		s.committed("nobody")
		e := s.committed("nobody")
		e.act(history.ActionCancel, "")
		e.settle(cancelled, "person", nil)
	},
	"the database's clock jumps ahead, and back under a claim": func(s *story) {
		e := s.committed("ship")
		s.clock()
		s.skew = 600_000_000
		s.clock()
		e.claim().run("app1").end(history.OutcomeFail).fail() // due by the clock that is ahead
		s.clock()
		s.skew = 0
		e.claim() // decided before the jump, written after it
		s.wait(1000)
		s.clock()
		e.run("app1").end(history.OutcomeOK).succeed()
	},
	"the database's clock is set back between a claim's look and its write": func(s *story) {
		e, x := s.entry("ship"), s.begin()
		e.delay = 3000
		e.insert(x)
		x.ask()
		e.appear(false)
		x.answer(history.CommitOK)
		s.clock()
		s.skew = 4_000_000
		s.clock()
		s.skew = 0
		e.claim() // due by the clock that was ahead
		s.wait(1000)
		s.clock()
		e.run("app1").end(history.OutcomeOK).succeed()
	},
	"a duplicate of what is purged right after": func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomeOK).succeed()
		s.wait(purgeAge + 10)
		x := s.begin()
		e.repeat(x, e.id)
		e.purge()
		x.commit(history.CommitOK)
	},
	"a transaction of which nothing is known, and all of it is there": func(s *story) {
		one, two, x := s.entry("ship"), s.entry("ship"), s.begin()
		one.insert(x)
		two.insert(x)
		x.ask()
		one.appear(false)
		two.appear(false)
		for _, e := range []*subject{one, two} {
			e.claim().run("app1").end(history.OutcomeOK).succeed()
		}
	},
	"a batch whose time is up runs alone, its good shares as well": func(s *story) {
		s.run.Types[3].TimeoutMS = 500
		e := s.committed("mail").claim()
		e.runAs("app1", func(a *history.Attempt) { a.Batch = 5 }).end(history.OutcomeOK)
		s.wait(500) // the last of the five hangs
		e.runAs("app1", func(a *history.Attempt) { a.Batch = 1 }).end(history.OutcomeOK).succeed()
	},
	"snoozed for as long as its handler asked for": func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").endAs(history.OutcomeSnooze, func(a *history.AttemptEnd) { a.AfterMS = 700 })
		e.settle(pending, "", func(r *history.Image) { r.NextAt = s.dbMS() + 701 })
		s.wait(701)
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	},
	"tried again by the schedule": func(s *story) {
		s.run.PutOffMS = 4000
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomeFail)
		e.settle(retrying, "", func(r *history.Image) { r.ProcessCount++; r.NextAt = s.dbMS() + 4000 })
		s.wait(4000)
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	},
	"a cancellation that waited for a lock, answered late": func(s *story) {
		e := s.committed("ship")
		n := s.next()
		s.write("producer", &history.Action{At: s.now, Call: n, Action: history.ActionCancel, ID: e.id})
		s.wait(1900)
		e.settle(cancelled, "person", nil)
		s.write("producer", &history.ActionEnd{At: s.now, Call: n})
	},
	"started late, under a fault": func(s *story) {
		e := s.committed("ship")
		s.fault("kill", "redis", 9000, history.TouchesQueue)
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	},
	"a deadlock between the library's own statements": func(s *story) {
		s.write("driver", &history.Deadlock{Statements: []string{
			"UPDATE `common_process_log` SET version=version+1, x WHERE id IN (1,2)", "SELECT id FROM `common_process_log` WHERE id IN (1) FOR UPDATE SKIP LOCKED"}})
		s.write("driver", &history.Deadlock{Statements: []string{
			"UPDATE /* nemesis */ common_process_log SET user_name='' WHERE id=4", "INSERT INTO `common_process_log` (idempotent_id, x) VALUES (1,2)"}})
	},
	"a stale member of the queue": func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomeOK).succeed()
		s.members = append(s.members, history.Member{Type: "ship", ID: e.id, Score: float64(s.now/1000 + 900), Now: s.now + 1_000_000})
	},
}

// alone are those of strange that no other can follow.
var alone = []string{
	"open at the end and not due", "open at the end, beyond the horizon", "the database's clock jumps ahead, and back under a claim",
	"the database's clock is set back between a claim's look and its write",
}

func TestStrangeButLegalHistoriesHold(t *testing.T) {
	for name, tell := range strange {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			tell(s)
			if name != "open at the end, beyond the horizon" {
				s.rest()
			}
			s.holds()
		})
	}
}
