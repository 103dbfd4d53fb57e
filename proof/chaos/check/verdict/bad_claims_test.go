package verdict

import "github.com/compensator-go/compensator/proof/chaos/history"

var wrongClaims = []wrongHistory{
	{"a change from an image that was not there", []string{"linear history"}, func(s *story) {
		e := s.committed("ship")
		e.row.NextAt -= 5
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"out of a terminal state without a person", []string{"linear history"}, func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomeOK).succeed()
		e.settle(pending, "", nil)
		s.cancelOpen(e)
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
		s.cancelOpen(e)
	}},
	{"a requeue that keeps its counts", []string{"linear history"}, func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomePermanent).settle(dead, "permanent", failed1)
		e.settle(pending, "", func(r *history.Image) { r.Epoch++ })
		s.cancelOpen(e)
	}},
	{"a failure that counts twice", []string{"linear history"}, func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomeFail).settle(retrying, "", func(r *history.Image) { r.ProcessCount += 2 })
		s.cancelOpen(e)
	}},
	{"an outcome that keeps the delivery count", []string{"linear history"}, func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomeFail).settle(retrying, "", func(r *history.Image) { r.ProcessCount++; r.DeliveryCount = 1 })
		s.cancelOpen(e)
	}},
	{"a claim that is not counted", []string{"linear history"}, func(s *story) {
		e := s.committed("ship")
		e.update(func(r *history.Image) { r.LeaseUntil = s.dbMS() + storyLease })
		s.cancelOpen(e)
	}},
	{"a claim under the token of before", []string{"linear history"}, func(s *story) {
		e := s.committed("ship")
		token := e.row.Token
		e.update(func(r *history.Image) { r.DeliveryCount++; r.LeaseUntil = s.dbMS() + storyLease; r.Token = token })
		s.cancelOpen(e)
	}},
	{"a claim that moves the due moment", []string{"linear history"}, func(s *story) {
		e := s.committed("ship")
		e.update(func(r *history.Image) { r.DeliveryCount++; r.LeaseUntil = s.dbMS() + storyLease; r.NextAt++ })
		s.cancelOpen(e)
	}},
	{"a lease longer than its type's", []string{"linear history"}, func(s *story) {
		e := s.committed("ship")
		e.update(func(r *history.Image) { r.DeliveryCount++; r.LeaseUntil = s.dbMS() + 2*storyLease })
		e.run("app1").end(history.OutcomeOK).succeed()
	}},
	{"a delayed entry that is born claimed", []string{"linear history"}, func(s *story) {
		e := s.entry("ship")
		e.delay = 3000
		e.record(true, history.CommitOK)
		s.cancelOpen(e)
	}},
	{"compensated straight from pending", []string{"linear history"}, func(s *story) {
		s.committed("close").claim().run("app1").end(history.OutcomeOK).compensate()
	}},
	{"a cancellation of what is compensating", []string{"linear history"}, func(s *story) {
		e := s.committed("close").claim()
		e.run("app1").end(history.OutcomePermanent).exhaust()
		e.act(history.ActionCancel, history.ErrState)
		e.settle(cancelled, "cancel", nil)
	}},
	{"a delivery to another process is not counted", []string{"linear history"}, func(s *story) {
		s.insertedWithLease(2500).ownClaim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"a delivery after one that ran is not counted", []string{"linear history"}, func(s *story) {
		e := s.insertedWithLease(100)
		e.run("producer")
		s.fault("kill", "producer", 3000, history.TouchesApp)
		e.ownClaim().run("producer").end(history.OutcomeOK).succeed()
	}},
	{"a later delivery is not counted", []string{"linear history", "attempts"}, func(s *story) {
		e := s.insertedWithLease(1500).ownClaim()
		s.fault("kill", "producer", 3000, history.TouchesApp)
		e.ownClaim().run("producer").end(history.OutcomeOK).succeed()
	}},
	{"the delivery of an entry that was not born claimed is not counted", []string{"linear history", "attempts"}, func(s *story) {
		s.committed("ship").ownClaim().run("producer").end(history.OutcomeOK).succeed()
	}},
	{"a claim that is given back after it ran", []string{"linear history"}, func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomeFail).release().claim().run("app1").end(history.OutcomeOK).succeed()
	}},

	{"a version is skipped", []string{"attempts", "linear history"}, func(s *story) {
		e := s.committed("ship")
		e.update(func(r *history.Image) { r.Version++; r.DeliveryCount++; r.LeaseUntil = s.dbMS() + storyLease })
		e.run("app1").end(history.OutcomeOK).succeed()
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
	{"ran in another process what was born claimed", []string{"attempts"}, func(s *story) {
		s.insertedWithLease(1).run("app1").end(history.OutcomeOK).succeed()
	}},
	{"ran before its claim was made", []string{"attempts"}, func(s *story) {
		e := s.committed("ship")
		s.wait(500)
		e.claim().runAs("app1", func(a *history.Attempt) { a.At -= 300_000 }).end(history.OutcomeOK).succeed()
	}},

	{"a key twice in one call, and the second is what ran", []string{"content"}, func(s *story) {
		e, x := s.entry("ship"), s.begin()
		for _, hash := range []uint64{5, e.hash()} {
			s.write("producer", &history.Insert{At: s.now, Tx: x.n, Key: e.key, Type: e.typ, Hash: hash})
		}
		for _, dup := range []bool{false, true} {
			s.write("producer", &history.Inserted{At: s.now, Tx: x.n, Key: e.key, ID: e.id, Duplicate: dup})
		}
		x.askCommit()
		e.writeInsert(false)
		x.answer(history.CommitOK)
		e.claim().run("app1").end(history.OutcomeOK).succeed()
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

	{"claimed before it was due", []string{"early"}, func(s *story) {
		e := s.entry("ship")
		e.delay = 3000
		e.record(false, history.CommitOK)
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
		s.insertedWithLease(1500).claim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"due sooner than was asked for", []string{"due"}, func(s *story) {
		e, x := s.entry("ship"), s.begin()
		e.delay = 3000
		e.insert(x)
		x.askCommit()
		e.delay = 2000
		e.writeInsert(false)
		x.answer(history.CommitOK)
		s.wait(2000)
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"to run again sooner than its handler asked for", []string{"due"}, func(s *story) {
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
		e := s.entry("ship")
		e.delay = 3000
		e.record(false, history.CommitOK)
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
	{"claimed while it was leased, and the machine was too busy", []string{"early"}, func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1")
		s.stall("driver", 1900)
		e.claim().run("app2").end(history.OutcomeOK).succeed()
	}},
	{"claimed early by more than the clock was set back", []string{"early"}, func(s *story) {
		e := s.entry("ship")
		e.delay = 3000
		e.record(false, history.CommitOK)
		s.clock()
		s.skew = 1_000_000
		s.clock()
		s.skew = 0
		e.claim()
		s.wait(1000)
		s.clock()
		e.run("app1").end(history.OutcomeOK).succeed()
	}},
	{"claimed early as the clock was set ahead", []string{"early"}, func(s *story) {
		e := s.entry("ship")
		e.delay = 9000
		e.record(false, history.CommitOK)
		s.clock()
		s.skew = 4_000_000
		e.claim()
		s.wait(1000)
		s.clock()
		e.run("app1").end(history.OutcomeOK).succeed()
	}},

	{"due later than was asked for", []string{"due"}, func(s *story) {
		e, x := s.entry("ship"), s.begin()
		e.insert(x)
		x.askCommit()
		e.delay = 3000
		e.writeInsert(false)
		x.answer(history.CommitOK)
		s.wait(3000)
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"to run again later than its handler asked for", []string{"due"}, func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").endAs(history.OutcomeSnooze, func(a *history.AttemptEnd) { a.AfterMS = 700 })
		e.settle(pending, "", func(r *history.Image) { r.NextAt = s.dbMS() + 7000 })
		s.wait(7000)
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"put off for longer than any schedule", []string{"due"}, func(s *story) {
		s.run.PutOffMS = 4000
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomeFail)
		e.settle(retrying, "", func(r *history.Image) { r.ProcessCount++; r.NextAt = s.dbMS() + 86_400_000 })
		s.cancelOpen(e)
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
	{"a claim that nobody ran is lost for no reason", []string{"executions"}, func(s *story) {
		e := s.committed("ship").claim()
		s.wait(5000)
		s.write("app1", &history.Mark{At: s.now, What: history.MarkExit})
		e.claim().run("app2").end(history.OutcomeOK).succeed()
	}},
	{"a batch's share runs again, and the batch had its verdict in time", []string{"executions"}, func(s *story) {
		s.run.Types[3].TimeoutMS = 1000
		e := s.committed("mail").claim()
		for range 2 {
			e.runAs("app1", func(a *history.Attempt) { a.Batch = 5 }).end(history.OutcomeOK)
		}
		e.succeed()
	}},
	{"a lease is lost long after the fault that it outlived", []string{"executions"}, func(s *story) {
		e := s.committed("ship").claim()
		r := e.run("app1")
		s.fault("cut", "app1", 100, history.TouchesAppToDB)
		for range 4 {
			s.wait(1500)
			e.renew()
		}
		s.wait(3000)
		e.claim().run("app2").end(history.OutcomeOK).succeed()
		r.end(history.OutcomeOK)
	}},

	{"begun much too late, and nothing was in its way", []string{"late"}, func(s *story) {
		e := s.committed("ship")
		s.wait(10_000)
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	}},
}
