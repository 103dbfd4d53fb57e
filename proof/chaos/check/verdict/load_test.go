package verdict

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

func (s *story) save(dir string) {
	s.t.Helper()
	for i, file := range s.order {
		records := s.records[file]
		if i == 0 && s.run.Types != nil {
			records = slices.Insert(slices.Clone(records), 1, history.Record(&s.run))
		}
		lines, err := history.Encode(records...)
		require.NoError(s.t, err)
		name := fmt.Sprintf("%03d %s.history.jsonl", i, file)
		require.NoError(s.t, os.WriteFile(filepath.Join(dir, name), lines, 0o644))
	}
}

func TestRunIsReadFromItsFiles(t *testing.T) {
	s := fullRun(t)
	dir := t.TempDir()
	s.save(dir)
	got, err := Load(dir)
	require.NoError(t, err)
	want := s.judge()
	require.Equal(t, want, Judge(got))
	require.False(t, want.Violated())
}

func TestUnreliableHistoryIsNotJudged(t *testing.T) {
	for name, spoil := range map[string]func(s *story){
		"no run":                         func(s *story) { s.run.Types = nil },
		"two runs":                       func(s *story) { s.write("driver", &s.run) },
		"two processes in a file":        func(s *story) { s.write("app1", &history.Process{App: "app1"}) },
		"an answer to no insert":         func(s *story) { s.write("producer", &history.Inserted{Tx: 1, Key: "no"}) },
		"an answer to no commit":         func(s *story) { s.write("producer", &history.Committed{Tx: 999, Outcome: history.CommitOK}) },
		"a commit that came out somehow": func(s *story) { x := s.begin(); x.commit("somehow") },
		"the end of no attempt":          func(s *story) { s.write("app1", &history.AttemptEnd{Run: 999, Outcome: history.OutcomeOK}) },
		"an attempt that came out somehow": func(s *story) {
			s.committed("ship").claim().run("app1").end("somehow").succeed()
		},
		"a run that begins twice": func(s *story) {
			e := s.committed("ship").claim()
			s.write("app1", e.attemptLine(5000))
			s.write("app1", e.attemptLine(5000))
		},
		"an effect of no attempt":       func(s *story) { s.write("app1", &history.Effect{Run: 999, Phase: history.EffectAfter}) },
		"the end of no call":            func(s *story) { s.write("producer", &history.ActionEnd{Call: 999}) },
		"the end of no fault":           func(s *story) { s.write("driver", &history.FaultEnd{N: 999}) },
		"an unset savepoint":            func(s *story) { s.begin().rollbackTo("never set") },
		"an audit out of order":         func(s *story) { e := s.committed("ship"); s.seq--; e.claim() },
		"an insert with an old image":   func(s *story) { e := s.committed("ship"); s.audit(history.OpInsert, e, &e.row, &e.row) },
		"an update with no new image":   func(s *story) { e := s.committed("ship"); s.audit(history.OpUpdate, e, &e.row, nil) },
		"an entry that changes its key": func(s *story) { e := s.committed("ship"); e.key = "another"; e.claim() },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			spoil(s)
			s.rest()
			dir := t.TempDir()
			s.save(dir)
			_, err := Load(dir)
			require.Error(t, err)
		})
	}
	_, err := Load(t.TempDir())
	require.ErrorContains(t, err, "no history")
}

func TestViolationIsPrintedWithTheLinesThatProveItAndItsEntrysLife(t *testing.T) {
	s := newStory(t)
	e := s.entry("ship")
	e.delay = 3000
	e.record(false, history.CommitOK)
	s.wait(2900)
	e.claim().run("app1").end(history.OutcomeOK).succeed()
	s.rest()
	dir := t.TempDir()
	s.save(dir)
	l, err := Load(dir)
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, Print(&out, l, Judge(l)))
	for _, want := range []string{
		`entry 1 (ship, "key-1"): claimed before it was due`,
		`: {"kind":"audit","seq":2,"op":"update"`,
		"app1 runs v1 e0",
		"app1 returns from v1: ok",
		"fault", "VIOLATED",
	} {
		require.Contains(t, out.String(), want)
	}
}
