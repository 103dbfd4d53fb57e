package verdict

import (
	"fmt"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

var strangeRuns = map[string]func(s *story){
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
		e.record(false, history.CommitOK)
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
		e.claim().pause()
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
	"a stale compensation's success is absorbed over another's claim": func(s *story) {
		e := s.committed("close").claim()
		e.run("app1").end(history.OutcomePermanent).exhaust()
		stale := e.claim().run("app1")
		s.fault("pause", "app1", 2500, history.TouchesApp)
		fresh := e.claim().run("app2")
		stale.end(history.OutcomeOK).compensate()
		fresh.end(history.OutcomeFail)
		s.write("app2", &history.Event{At: s.now, Event: history.EventOutcomeDropped, ID: e.id})
	},
	"a stale compensation's success is absorbed after another's failure": func(s *story) {
		e := s.committed("close").claim()
		e.run("app1").end(history.OutcomePermanent).exhaust()
		stale := e.claim().run("app1")
		s.fault("pause", "app1", 2500, history.TouchesApp)
		e.claim().run("app2").end(history.OutcomeFail).undoFail()
		stale.end(history.OutcomeOK).compensate()
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
		e.killThreeAndClaim().claim().crash()
	},
	"quarantined to its compensation": func(s *story) {
		e := s.committed("bomb")
		e.killThreeAndClaim().claim().settle(compensating, "", nil)
		e.claim().run("app2").end(history.OutcomeOK).compensate()
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
	"the database's clock jumps ahead, and back under a claim": func(s *story) {
		e := s.committed("ship")
		s.clock()
		s.skew = 600_000_000
		s.clock()
		e.claim().run("app1").end(history.OutcomeFail).fail()
		s.clock()
		s.skew = 0
		// This claim selected the entry before the clock was set back, and updated the entry afterwards.
		e.claim()
		s.wait(1000)
		s.clock()
		e.run("app1").end(history.OutcomeOK).succeed()
	},
	"the database's clock is set back between a claim's look and its write": func(s *story) {
		e := s.entry("ship")
		e.delay = 3000
		e.record(false, history.CommitOK)
		s.clock()
		s.skew = 4_000_000
		s.clock()
		s.skew = 0
		e.claim()
		s.wait(1000)
		s.clock()
		e.run("app1").end(history.OutcomeOK).succeed()
	},
	"a batch whose time is up runs alone, its good shares as well": func(s *story) {
		s.run.Types[3].TimeoutMS = 500
		e := s.committed("mail").claim()
		e.runAs("app1", func(a *history.Attempt) { a.Batch = 5 }).end(history.OutcomeOK)
		s.wait(500)
		e.runAs("app1", func(a *history.Attempt) { a.Batch = 1 }).end(history.OutcomeOK).succeed()
	},
	"a batch whose time is up, and its lease is lost before its shares run alone": func(s *story) {
		s.run.Types[3].TimeoutMS = 500
		e := s.committed("mail").claim()
		e.runAs("app1", func(a *history.Attempt) { a.Batch = 5 }).end(history.OutcomeOK)
		s.fault("cut", "app1", 600, history.TouchesAppToDB)
		e.pause().claim().run("app1").end(history.OutcomeOK).succeed()
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
	"started late, under a fault": func(s *story) {
		e := s.committed("ship")
		s.fault("kill", "redis", 9000, history.TouchesQueue)
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	},
}
