package verdict

import "github.com/compensator-go/compensator/proof/chaos/history"

var wrongExistence = []wrongHistory{
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
		e := s.entry("ship")
		e.record(false, history.CommitUnknown)
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
	{"a committed entry is lost while the machine was too busy", []string{"lost"}, func(s *story) {
		x := s.begin()
		s.entry("ship").insert(x)
		s.stall("driver", 3000)
		x.commit(history.CommitOK)
		s.stall("driver", 3000)
	}},
	{"a duplicate of another entry", []string{"lost"}, func(s *story) {
		other := s.committed("ship").claim()
		other.run("app1").end(history.OutcomeOK).succeed()
		e, x := s.committed("ship").claim(), s.begin()
		e.repeat(x, other.id)
		x.commit(history.CommitOK)
		e.run("app1").end(history.OutcomeOK).succeed()
	}},
	{"a duplicate of what had been purged", []string{"lost"}, func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomeOK).succeed()
		s.wait(purgeAge + 10)
		e.purge()
		s.wait(1000)
		x := s.begin()
		e.repeat(x, e.id)
		x.commit(history.CommitOK)
	}},
	{"half of a transaction whose commit came out unknown", []string{"lost"}, func(s *story) {
		one, two, x := s.entry("ship"), s.entry("ship"), s.begin()
		one.insert(x)
		two.insert(x)
		x.askCommit()
		one.writeInsert(false)
		x.answer(history.CommitUnknown)
		one.claim().run("app1").end(history.OutcomeOK).succeed()
	}},

	{"a rolled-back entry is there", []string{"phantom"}, func(s *story) {
		e, x := s.entry("ship"), s.begin()
		e.insert(x).writeInsert(false)
		x.rollback()
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"an entry of a failed commit is there", []string{"phantom"}, func(s *story) {
		e, x := s.entry("ship"), s.begin()
		e.insert(x).writeInsert(false)
		x.commit(history.CommitFail)
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"an entry whose commit was never asked for is there", []string{"phantom"}, func(s *story) {
		e := s.entry("ship")
		e.insert(s.begin()).writeInsert(false).claim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"an entry rolled back to a savepoint is there", []string{"phantom"}, func(s *story) {
		e, x := s.entry("ship"), s.begin()
		x.savepoint("sp")
		e.insert(x)
		x.rollbackTo("sp")
		x.askCommit()
		e.writeInsert(false)
		x.answer(history.CommitOK)
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"an entry of a transaction that a deadlock ended is there", []string{"phantom"}, func(s *story) {
		e, x := s.entry("ship"), s.begin()
		other := s.entry("ship")
		s.write("producer", &history.Insert{At: s.now, Tx: x.n, Key: other.key, Type: "ship"})
		s.write("producer", &history.Inserted{At: s.now, Tx: x.n, Key: other.key, Err: history.ErrDeadlock})
		e.insert(x).writeInsert(false)
		x.commit(history.CommitOK)
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"an entry that nobody recorded is there", []string{"phantom"}, func(s *story) {
		s.entry("ship").writeInsert(false).claim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"ran and was never there", []string{"phantom"}, func(s *story) {
		x, e := s.begin(), s.entry("ship")
		e.insert(x)
		e.run("app1").end(history.OutcomeOK)
		x.rollback()
	}},
	{"ran before its commit was asked for", []string{"phantom"}, func(s *story) {
		e, x := s.entry("ship"), s.begin()
		e.insert(x).writeInsert(true)
		e.run("producer")
		x.commit(history.CommitOK)
		s.fault("kill", "producer", 2500, history.TouchesApp)
		e.claim().run("app2").end(history.OutcomeOK).succeed()
	}},
	{"two rows of one key", []string{"phantom"}, func(s *story) {
		s.run.PurgeAgeMS = 0
		e, x := s.entry("ship"), s.begin()
		twin := s.entry("ship")
		twin.key = e.key
		s.write("producer", &history.Insert{At: s.now, Tx: x.n, Key: e.key, Type: e.typ, Hash: e.hash()})
		s.write("producer", &history.Inserted{At: s.now, Tx: x.n, Key: e.key})
		x.askCommit()
		e.writeInsert(false)
		x.answer(history.CommitOK)
		twin.writeInsert(false)
		e.claim().run("app1").end(history.OutcomeOK).succeed()
		twin.claim().runAs("app1", func(a *history.Attempt) { a.Hash = e.hash() }).end(history.OutcomeOK).succeed()
	}},
	{"two rows of one key, in a run that purges", []string{"phantom"}, func(s *story) {
		e, x := s.entry("ship"), s.begin()
		twin := s.entry("ship")
		twin.key = e.key
		e.insert(x)
		twin.insert(x)
		x.askCommit()
		e.writeInsert(false)
		twin.writeInsert(false)
		x.answer(history.CommitOK)
		e.claim().run("app1").end(history.OutcomeOK).succeed()
		twin.claim().run("app1").end(history.OutcomeOK).succeed()
		s.wait(purgeAge + 10)
		e.purge()
	}},
	{"an entry of another type than was recorded", []string{"phantom"}, func(s *story) {
		e, x := s.entry("ship"), s.begin()
		e.insert(x)
		x.askCommit()
		e.typ = "truck"
		e.writeInsert(false)
		x.answer(history.CommitUnknown)
		s.cancelOpen(e)
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
		x.askCommit()
		e.writeInsert(false)
		x.answer(history.CommitUnknown)
		x.resolve(e, 0, history.ErrNotFound)
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"Resolve found another entry", []string{"resolve"}, func(s *story) {
		e, x := s.entry("ship"), s.begin()
		e.insert(x)
		x.askCommit()
		e.writeInsert(false)
		x.answer(history.CommitUnknown)
		x.resolve(e, e.id+1000, "")
		e.claim().run("app1").end(history.OutcomeOK).succeed()
	}},

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
	{"purged while it waits for a person", []string{"purge"}, func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomePermanent).settle(dead, "permanent", failed1)
		s.wait(purgeAge + 100)
		e.purge()
	}},

	{"ran an entry of a type that nobody serves", []string{"unknown types"}, func(s *story) {
		s.run.Types[len(s.run.Types)-1].LeaseMS = storyLease
		s.committed("nobody").claim().run("app1").end(history.OutcomeOK).succeed()
	}},
	{"born claimed, of a type that nobody serves", []string{"unknown types"}, func(s *story) {
		e := s.entry("nobody")
		e.record(true, history.CommitOK)
	}},
	{"claimed an entry of a type that nobody serves", []string{"unknown types"}, func(s *story) { s.committed("nobody").claim().release() }},
}
