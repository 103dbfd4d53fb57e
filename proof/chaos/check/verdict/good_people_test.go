package verdict

import "github.com/compensator-go/compensator/proof/chaos/history"

var strangePeople = map[string]func(s *story){
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
		e.settle(cancelled, "cancel", nil)
		r.end(history.OutcomeOK)
	},
	"cancelled in a transaction that commits": func(s *story) {
		e, x := s.committed("ship"), s.begin()
		n := s.next()
		s.write("producer", &history.Action{At: s.now, Call: n, Action: history.ActionCancel, Key: e.key, Tx: x.n})
		s.write("producer", &history.ActionEnd{At: s.now, Call: n})
		x.askCommit()
		e.settle(cancelled, "cancel", nil)
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
		e.settle(cancelled, "cancel", nil)
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
		e.act(history.ActionSettleManually, "")
		e.settle(manual, "person", func(r *history.Image) { r.Epoch++ })
	},
	"dead, and cancelled by a service": func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomePermanent).settle(dead, "permanent", failed1)
		e.act(history.ActionCancel, "")
		e.settle(cancelled, "cancel", nil)
	},
	"dead, and completed by a service": func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomePermanent).settle(dead, "permanent", failed1)
		e.act(history.ActionComplete, "")
		e.settle(succeeded, "complete", nil)
	},
	"dead after crashes of its handler, and cancelled by a service": func(s *story) {
		e := s.committed("close")
		e.killThreeAndClaim().claim().crash()
		e.act(history.ActionCancel, "")
		e.settle(cancelled, "cancel", nil)
	},
	"dead after crashes of its compensation": func(s *story) {
		e := s.committed("close").claim()
		e.run("app1").end(history.OutcomePermanent).exhaust()
		e.killThreeAndClaim().claim().undoCrash()
		e.act(history.ActionCancel, history.ErrState)
	},
	"requeued, dead again, and cancelled": func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomePermanent).settle(dead, "permanent", failed1)
		e.act(history.ActionRequeue, "")
		e.requeue(pending).claim().run("app1").end(history.OutcomePermanent).settle(dead, "permanent", failed1)
		e.act(history.ActionCancel, "")
		e.settle(cancelled, "cancel", nil)
	},
	"cancelled again and again": func(s *story) {
		e := s.committed("ship")
		e.act(history.ActionCancel, "")
		e.settle(cancelled, "cancel", nil)
		e.cancelAgain()
		e.cancelAgain()
	},
	"of a type that nobody serves": func(s *story) {
		s.committed("nobody")
		e := s.committed("nobody")
		e.act(history.ActionCancel, "")
		e.settle(cancelled, "cancel", nil)
	},
	"a cancellation that waited for a lock, answered late": func(s *story) {
		e := s.committed("ship")
		n := s.next()
		s.write("producer", &history.Action{At: s.now, Call: n, Action: history.ActionCancel, ID: e.id})
		s.wait(1900)
		e.settle(cancelled, "cancel", nil)
		s.write("producer", &history.ActionEnd{At: s.now, Call: n})
	},
	"a deadlock between the library's own statements": func(s *story) {
		s.write("driver", &history.Deadlock{Statements: []string{
			"UPDATE `common_process_log` SET version=version+1, x WHERE id IN (1,2)", "SELECT id FROM `common_process_log` WHERE id IN (1) FOR UPDATE SKIP LOCKED"}})
		s.write("driver", &history.Deadlock{Statements: []string{
			"UPDATE /* nemesis */ common_process_log SET user_name='' WHERE id=4", "INSERT INTO `common_process_log` (idempotent_id, x) VALUES (1,2)"}})
	},
}
