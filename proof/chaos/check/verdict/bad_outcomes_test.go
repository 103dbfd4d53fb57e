package verdict

import "github.com/compensator-go/compensator/proof/chaos/history"

var wrongOutcomes = []wrongHistory{
	{"a transactional handler returned nil in time, and failed", []string{"lost success", "outcome"}, func(s *story) {
		s.run.Types[1].TimeoutMS = 500
		e := s.committed("pay").claim()
		r := e.run("app1")
		s.wait(300)
		r.end(history.OutcomeOK).fail()
		e.claim().run("app1").end(history.OutcomeOK).succeed()
		e.effectRow(0, false)
	}},
	{"a plain handler returned nil when its time was up, and failed", []string{"lost success", "outcome"}, func(s *story) {
		s.run.Types[0].TimeoutMS = 100
		e := s.committed("ship").claim()
		r := e.run("app1")
		s.wait(200)
		r.end(history.OutcomeOK).fail()
		e.claim().run("app1").end(history.OutcomeOK).succeed()
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
	{"a stale failure is recorded over another's claim", []string{"lost success", "outcome"}, func(s *story) {
		e := s.committed("ship").claim()
		stale := e.run("app1")
		s.fault("pause", "app1", 2500, history.TouchesApp)
		e.claim()
		fresh := e.run("app2")
		stale.end(history.OutcomeFail).fail()
		fresh.end(history.OutcomeOK).succeed()
	}},
	{"a failure of a handler that returned nil", []string{"lost success", "outcome"}, func(s *story) {
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
		e := s.entry("ship")
		e.max = 1
		e.record(false, history.CommitOK)
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
	{"compensated, and only its handler returned nil", []string{"outcome"}, func(s *story) {
		e := s.committed("close")
		stale := e.claim().run("app1")
		s.fault("pause", "app1", 2500, history.TouchesApp)
		e.claim().run("app2").end(history.OutcomePermanent).exhaust()
		stale.end(history.OutcomeOK)
		e.claim().run("app2").end(history.OutcomeFail).compensate()
	}},
	{"a compensation's success of the epoch before is absorbed", []string{"outcome"}, func(s *story) {
		e := s.committed("close").claim()
		e.run("app1").end(history.OutcomePermanent).exhaust()
		stale := e.claim().run("app1")
		s.fault("pause", "app1", 2500, history.TouchesApp)
		e.claim().run("app2").end(history.OutcomePermanent).settle(dead, "permanent", undone1)
		e.undo()
		stale.end(history.OutcomeOK).compensate()
	}},
	{"a stale success of a compensation in a transaction is recorded", []string{"outcome"}, func(s *story) {
		e := s.committed("pay").claim()
		e.run("app1").end(history.OutcomePermanent).exhaust()
		stale := e.claim().run("app1")
		s.fault("pause", "app1", 2500, history.TouchesApp)
		e.claim().run("app2").end(history.OutcomeFail)
		stale.end(history.OutcomeOK).compensate()
		e.effectRow(0, true)
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
	{"quarantined with no lease left to a success that waits", []string{"outcome"}, func(s *story) {
		e := s.committed("ship")
		e.killThree()
		e.claim().crash()
	}},
	{"quarantined by a claim that ran it", []string{"outcome"}, func(s *story) {
		e := s.committed("ship")
		e.killThreeAndClaim().claim().run("app2")
		e.crash()
	}},
	{"a success that is recorded before its handler returned", []string{"outcome"}, func(s *story) {
		e := s.committed("ship").claim()
		r := e.run("app1")
		e.succeed()
		s.wait(700)
		r.end(history.OutcomeOK)
	}},
	{"a failure that is recorded before its handler returned", []string{"outcome"}, func(s *story) {
		e := s.committed("ship").claim()
		r := e.run("app1")
		e.fail()
		s.wait(700)
		r.end(history.OutcomeFail)
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"a success that its entry's run alone took back", []string{"outcome"}, func(s *story) {
		e := s.committed("mail").claim()
		e.runAs("app1", func(a *history.Attempt) { a.Batch = 5 }).endAs(history.OutcomeOK, func(a *history.AttemptEnd) { a.Cause = history.CauseTimeout })
		e.runAs("app1", func(a *history.Attempt) { a.Batch = 1 }).end(history.OutcomeFail).succeed()
	}},
	{"told to stop, and it counts", []string{"outcome"}, func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").endAs(history.OutcomeCanceled, func(a *history.AttemptEnd) { a.Cause = history.CauseStopping }).fail()
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"gave up when its time was up, and it does not count", []string{"outcome"}, func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").endAs(history.OutcomeCanceled, func(a *history.AttemptEnd) { a.Cause = history.CauseTimeout }).pause()
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"a batch's failure while it was told to stop, and it does not count", []string{"outcome"}, func(s *story) {
		e := s.committed("mail").claim()
		e.runAs("app1", func(a *history.Attempt) { a.Batch = 3 }).endAs(history.OutcomeFail, func(a *history.AttemptEnd) { a.Cause = history.CauseStopping }).pause()
		e.claim().runAs("app1", func(a *history.Attempt) { a.Batch = 1 }).end(history.OutcomeOK).succeed()
	}},
	{"a transactional handler returned nil, and its time was up only later", []string{"outcome"}, func(s *story) {
		s.run.Types[1].TimeoutMS = 900
		e := s.committed("pay").claim()
		r := e.run("app1")
		s.stall("app1", 100)
		r.end(history.OutcomeOK).fail()
		e.claim().run("app1").end(history.OutcomeOK).succeed()
		e.effectRow(0, false)
	}},
	{"put off unrun, and nothing kept its transaction from beginning", []string{"outcome"}, func(s *story) {
		e := s.committed("pay").claim().pause()
		e.claim().run("app1").end(history.OutcomeOK).succeed()
		e.effectRow(0, false)
	}},
	{"ran once more after its crashes were used up", []string{"outcome"}, func(s *story) {
		e := s.committed("ship")
		e.killThree()
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
	{"a transactional success in time, and it is put off", []string{"lost success"}, func(s *story) {
		e := s.committed("pay").claim()
		e.run("app1").end(history.OutcomeOK).pause()
		e.claim().run("app1").end(history.OutcomeOK).succeed()
		e.effectRow(0, false)
	}},
	{"a success in time, long after a fault that its attempt outlived", []string{"lost success", "executions"}, func(s *story) {
		e := s.committed("ship").claim()
		r := e.run("app1")
		s.fault("cut", "app1", 100, history.TouchesAppToDB)
		for range 4 {
			s.wait(1500)
			e.renew()
		}
		r.end(history.OutcomeOK)
		s.wait(3000)
		s.write("app1", &history.Mark{At: s.now, What: history.MarkExit})
		e.claim().run("app2").end(history.OutcomeOK).succeed()
	}},

	{"an effect of an entry that was never there", []string{"effects", "phantom"}, func(s *story) { s.entry("pay").effectRow(0, false) }},
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
	{"the effect of another attempt than the one recorded", []string{"effects"}, func(s *story) {
		e := s.committed("pay").claim()
		stale := e.run("app1")
		s.fault("pause", "app1", 2500, history.TouchesApp)
		e.claim().run("app2").end(history.OutcomeOK).succeed()
		e.effectRowAt(0, false, 1)
		stale.end(history.OutcomeOK)
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
		e.undo().claim().run("app1").end(history.OutcomeFail).undoFail()
		e.claim().runAs("app1", func(a *history.Attempt) { a.Epoch = 0 }).end(history.OutcomeSnooze).pause()
		e.claim().run("app1").end(history.OutcomeOK).compensate()
	}},
	{"a type without a compensation is to be compensated", []string{"compensation"}, func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomePermanent).exhaust()
		e.act(history.ActionSettleManually, "")
		e.settle(manual, "person", func(r *history.Image) { r.Epoch++ })
	}},
	{"dead without its compensation", []string{"compensation"}, func(s *story) {
		s.committed("close").claim().run("app1").end(history.OutcomePermanent).settle(dead, "permanent", failed1)
	}},
	{"compensated after crashes that its type would not have compensated", []string{"compensation"}, func(s *story) {
		e := s.committed("close")
		e.killThreeAndClaim().claim().settle(compensating, "", nil)
		e.claim().run("app2").end(history.OutcomeOK).compensate()
	}},
	{"dead after crashes, and its type asks for the compensation", []string{"compensation"}, func(s *story) {
		e := s.committed("bomb")
		e.killThreeAndClaim().claim().crash()
	}},
}
