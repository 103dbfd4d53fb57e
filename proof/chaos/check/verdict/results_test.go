package verdict

import "github.com/compensator-go/compensator/proof/chaos/history"

func (s *story) quoted() *subject {
	e := s.committed("quote").claim()
	return e.run("app1").end(history.OutcomeOK).succeed()
}

func (e *subject) resultRow(epoch uint32, version uint64) {
	e.s.write("driver", &history.ResultRow{ID: e.id, Epoch: epoch, Result: history.Result{ID: e.id, Version: version}})
}

// waited writes an answer of Wait that describes the current row. change may modify the answer before it is written.
func (e *subject) waited(change func(w *history.Waited)) {
	w := &history.Waited{At: e.s.now, Asked: e.key, ID: e.id, Key: e.key, Version: e.row.Version, Epoch: e.row.Epoch, State: e.row.State}
	change(w)
	e.s.write("producer", w)
}

func (e *subject) answered() {
	e.waited(func(w *history.Waited) { w.Result = &history.Result{ID: e.id, Version: e.ran} })
}

var wrongResults = []wrongHistory{
	{"a success without its result", []string{"results"}, func(s *story) { s.quoted() }},
	{"a result of an attempt that failed", []string{"results"}, func(s *story) {
		e := s.committed("quote").claim()
		e.run("app1").end(history.OutcomeFail).fail()
		effectDespiteError := e.ran
		e.claim().run("app1").end(history.OutcomeOK).succeed()
		e.resultRow(0, effectDespiteError)
	}},
	{"a result of another entry", []string{"results"}, func(s *story) {
		e := s.quoted()
		s.write("driver", &history.ResultRow{ID: e.id, Result: history.Result{ID: e.id + 1, Version: e.ran}})
	}},
	{"a result without a success", []string{"results"}, func(s *story) {
		e := s.committed("quote").claim()
		e.run("app1").end(history.OutcomeOK)
		s.cancelOpen(e)
		e.resultRow(0, e.ran)
	}},
	{"a result of a type that returns none", []string{"results"}, func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomeOK).succeed()
		e.resultRow(0, e.ran)
	}},
	{"a result that outlives its entry", []string{"results"}, func(s *story) {
		e := s.quoted()
		s.wait(2 * purgeAge)
		e.purge()
		e.resultRow(0, e.ran)
	}},
	{"a result of an attempt whose transaction did not commit", []string{"results"}, func(s *story) {
		e := s.committed("book").claim()
		lost := e.run("app1")
		s.fault("pause", "app1", 2500, history.TouchesApp)
		lost.end(history.OutcomeOK)
		before := e.ran
		e.claim().run("app2").end(history.OutcomeOK).succeed()
		e.effectRow(0, false)
		e.resultRow(0, before)
	}},
	{"a wait that answers with another entry", []string{"results"}, func(s *story) {
		e := s.quoted()
		e.resultRow(0, e.ran)
		e.waited(func(w *history.Waited) { w.Asked = "key-99" })
	}},
	{"a wait that answers before the end", []string{"results"}, func(s *story) {
		e := s.committed("quote").claim()
		e.waited(func(w *history.Waited) { w.Err = history.ErrState })
		e.run("app1").end(history.OutcomeOK).succeed()
		e.resultRow(0, e.ran)
	}},
	{"a wait that answers with a version that never was", []string{"results"}, func(s *story) {
		e := s.quoted()
		e.resultRow(0, e.ran)
		e.waited(func(w *history.Waited) { w.Version = 99 })
	}},
	{"a wait that reports a success as an error", []string{"results"}, func(s *story) {
		e := s.quoted()
		e.resultRow(0, e.ran)
		e.waited(func(w *history.Waited) { w.Err = history.ErrState })
	}},
	{"a wait that answers with a result that nobody returned", []string{"results"}, func(s *story) {
		e := s.quoted()
		e.resultRow(0, e.ran)
		e.waited(func(w *history.Waited) { w.Result = &history.Result{ID: e.id, Version: 99} })
	}},
}

var strangeResults = map[string]func(s *story){
	"a success with its result": func(s *story) {
		e := s.quoted()
		e.resultRow(0, e.ran)
		e.answered()
	},
	"a result of an earlier epoch, which does not count": func(s *story) {
		e := s.quoted()
		e.answered()
		first := e.ran
		e.act(history.ActionRequeue, "")
		e.requeue(pending)
		s.cancelOpen(e)
		e.waited(func(w *history.Waited) { w.Err = history.ErrState })
		e.resultRow(0, first)
	},
	"a service completed the entry, so it has no result": func(s *story) {
		e := s.committed("quote")
		e.act(history.ActionComplete, "")
		e.settle(succeeded, "complete", nil)
		e.waited(func(*history.Waited) {})
	},
	"a call that was lost, and the next one": func(s *story) {
		e := s.committed("book").claim()
		e.run("app1")
		s.fault("kill", "app1", 2500, history.TouchesApp)
		e.claim().run("app2").end(history.OutcomeOK).succeed()
		e.effectRow(0, false)
		e.resultRow(0, e.ran)
		e.answered()
	},
	"purged with its result": func(s *story) {
		e := s.quoted()
		e.answered()
		s.wait(2 * purgeAge)
		e.purge()
	},
}
