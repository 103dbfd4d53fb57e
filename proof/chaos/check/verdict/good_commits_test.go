package verdict

import "github.com/compensator-go/compensator/proof/chaos/history"

var strangeCommits = map[string]func(s *story){
	"an entry runs and succeeds": func(s *story) {
		s.committed("ship").claim().run("app1").end(history.OutcomeOK).succeed()
	},
	"born claimed": func(s *story) {
		e := s.entry("ship")
		e.record(true, history.CommitOK)
		e.run("producer").end(history.OutcomeOK).succeed()
	},
	"born claimed, committed late, and claimed again by its own process": func(s *story) {
		s.insertedWithLease(1500).ownClaim().run("producer").end(history.OutcomeOK).succeed()
	},
	"born claimed, committed after its lease, and claimed again by its own process": func(s *story) {
		s.insertedWithLease(2500).ownClaim().run("producer").end(history.OutcomeOK).succeed()
	},
	"born claimed, claimed again by its own process, which is killed": func(s *story) {
		e := s.insertedWithLease(1500).ownClaim()
		s.fault("kill", "producer", 3000, history.TouchesApp)
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	},
	"born claimed, claimed again by its own process, and given back": func(s *story) {
		s.insertedWithLease(1500).ownClaim().release().claim().run("app1").end(history.OutcomeOK).succeed()
	},
	"born claimed, and its process was killed": func(s *story) {
		e := s.entry("ship")
		e.record(true, history.CommitOK)
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
		e := s.entry("ship")
		e.record(false, history.CommitUnknown)
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
		x.askCommit()
		e.writeInsert(false)
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
		x.askCommit()
		e.writeInsert(false)
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
		s.wait(1000)
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
		x.askCommit()
		e.writeInsert(false)
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
		x.askCommit()
		e.writeInsert(false).claim().run("app1").end(history.OutcomeOK).succeed()
	},
	"rolled back to a savepoint": func(s *story) {
		x := s.begin()
		kept, gone := s.entry("ship"), s.entry("ship")
		kept.insert(x)
		x.savepoint("sp")
		gone.insert(x)
		x.rollbackTo("sp")
		x.askCommit()
		kept.writeInsert(false)
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
		x.askCommit()
		e.writeInsert(false)
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
		y.askCommit()
		e.writeInsert(false)
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
		e.record(false, history.CommitOK)
		s.wait(3000)
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	},
	"open at the end and not due": func(s *story) {
		e := s.entry("ship")
		e.delay = 30_000
		e.record(false, history.CommitOK)
	},
	"open at the end, beyond the horizon": func(s *story) {
		e := s.entry("ship")
		e.delay = 90_000
		e.record(false, history.CommitOK)
		s.rest()
		s.members = nil
		for i, r := range s.records["driver"] {
			if _, ok := r.(*history.Member); ok {
				s.records["driver"] = s.records["driver"][:i]
				return
			}
		}
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
		x.askCommit()
		again.writeInsert(false)
		x.answer(history.CommitOK)
		s.run.Types[0].MaxAttempts = 3
		again.claim().run("app1").end(history.OutcomeOK).succeed()
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
		x.askCommit()
		one.writeInsert(false)
		two.writeInsert(false)
		for _, e := range []*subject{one, two} {
			e.claim().run("app1").end(history.OutcomeOK).succeed()
		}
	},
	"a stale member of the queue": func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomeOK).succeed()
		s.members = append(s.members, history.Member{Type: "ship", ID: e.id, Score: float64(s.now/1000 + 900), Now: s.now + 1_000_000})
	},
}
