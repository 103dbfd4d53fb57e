package verdict

import "github.com/compensator-go/compensator/proof/chaos/history"

var wrongPeople = []wrongHistory{
	{"a cancellation that was answered is not there", []string{"actions"}, func(s *story) {
		e := s.committed("ship")
		e.act(history.ActionCancel, "")
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"a cancellation that nobody made", []string{"actions"}, func(s *story) { s.committed("ship").settle(cancelled, "cancel", nil) }},
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
		e.settle(cancelled, "cancel", nil)
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
	{"rescheduled to another moment than was asked for", []string{"actions"}, func(s *story) {
		e := s.committed("ship")
		e.act(history.ActionReschedule, "")
		e.update(func(i *history.Image) { i.NextAt = s.dbMS() + 3000 })
		s.wait(3001)
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"requeued, and what comes is the compensation", []string{"actions"}, func(s *story) {
		e := s.committed("close").claim()
		e.run("app1").end(history.OutcomeOK).succeed()
		e.act(history.ActionRequeue, "")
		e.requeue(compensating).claim().run("app1").end(history.OutcomeOK).compensate()
	}},
	{"a cancellation before anybody asked for it", []string{"actions"}, func(s *story) {
		e := s.committed("ship")
		e.settle(cancelled, "cancel", nil)
		s.wait(1000)
		e.act(history.ActionCancel, history.ErrConnection)
	}},
	{"dead after its compensation failed, and cancelled by a service", []string{"actions", "linear history"}, func(s *story) {
		e := s.committed("close").claim()
		e.run("app1").end(history.OutcomePermanent).exhaust().claim()
		e.run("app1").end(history.OutcomePermanent).settle(dead, "permanent", undone1)
		e.act(history.ActionCancel, "")
		e.settle(cancelled, "cancel", nil)
	}},
	{"dead after its compensation failed, and completed by a service", []string{"actions", "linear history"}, func(s *story) {
		e := s.committed("close").claim()
		e.run("app1").end(history.OutcomePermanent).exhaust().claim()
		e.run("app1").end(history.OutcomePermanent).settle(dead, "permanent", undone1)
		e.act(history.ActionComplete, "")
		e.settle(succeeded, "complete", nil)
	}},
	{"a compensation that crashed, and does not count", []string{"linear history"}, func(s *story) {
		e := s.committed("close").claim()
		e.run("app1").end(history.OutcomePermanent).exhaust()
		e.killThreeAndClaim().claim().crash()
	}},
	{"compensated, and cancelled by a service", []string{"actions", "linear history"}, func(s *story) {
		e := s.committed("close").claim()
		e.run("app1").end(history.OutcomePermanent).exhaust().claim()
		e.run("app1").end(history.OutcomeOK).compensate()
		e.act(history.ActionCancel, "")
		e.settle(cancelled, "cancel", nil)
	}},
	{"cancelled by a service, and a person is said to have done it", []string{"actions", "linear history"}, func(s *story) {
		e := s.committed("ship")
		e.act(history.ActionCancel, "")
		e.settle(cancelled, "person", nil)
	}},
	{"cancelled, and cancelled again", []string{"actions", "linear history"}, func(s *story) {
		e := s.committed("ship")
		e.act(history.ActionCancel, "")
		e.settle(cancelled, "cancel", nil)
		e.act(history.ActionCancel, "")
		e.settle(cancelled, "cancel", nil)
	}},
	{"a cancellation that found nothing cancelled", []string{"actions"}, func(s *story) {
		e := s.committed("ship")
		e.cancelAgain()
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"a dead entry was cancelled, and nobody told", []string{"actions"}, func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomePermanent).settle(dead, "permanent", failed1)
		n := s.next()
		s.write("producer", &history.Action{At: s.now, Call: n, Action: history.ActionCancel, ID: e.id})
		s.write("producer", &history.ActionEnd{At: s.now, Call: n})
		e.settle(cancelled, "cancel", nil)
	}},
	{"a cancellation that comes long after its answer", []string{"actions"}, func(s *story) {
		e := s.committed("ship")
		e.act(history.ActionCancel, "")
		s.wait(1000)
		e.settle(cancelled, "cancel", nil)
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
	{"a producer deadlocks with the library over what it does beside", []string{"producers"}, func(s *story) {
		s.write("driver", &history.Deadlock{Statements: []string{
			"UPDATE /* producer */ accounts SET n=n+1 WHERE id=7",
			"UPDATE `common_process_log` SET state=1, version=version+1, delivery_count=0 WHERE id IN (1,2)"}})
	}},
}
