package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

func end(t *testing.T, records ...history.Record) (int, string) {
	t.Helper()
	dir := t.TempDir()
	lines, err := history.Encode(append([]history.Record{&history.Process{App: "driver", At: 1}}, records...)...)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "driver.history.jsonl"), lines, 0o644))
	var out bytes.Buffer
	return run(dir, &out, &out), out.String()
}

func TestExitTellsTheVerdict(t *testing.T) {
	types := []history.Type{{Name: "ship", Handler: history.HandlerPlain}}
	rest := &history.Mark{At: 9, What: history.MarkQuiescent}

	code, text := end(t)
	require.Equal(t, worthless, code, "no run line")
	require.Contains(t, text, "unreadable")

	code, text = end(t, &history.Run{Types: types}, rest)
	require.Equal(t, worthless, code)
	require.Contains(t, text, "VACUOUS")

	code, text = end(t, &history.Run{Types: types}, rest, &history.Row{ID: 4, Key: "k", Type: "ship"})
	require.Equal(t, violated, code, "a violation outranks unmet demands")
	require.Contains(t, text, "VIOLATED")

	excused := map[string]string{}
	for _, name := range demands(text) {
		excused[name] = "a test"
	}
	code, text = end(t, &history.Run{Types: types, Excused: excused}, rest)
	require.Equal(t, held, code, text)
	require.Contains(t, text, "HELD")
}

func demands(text string) (names []string) {
	_, list, _ := bytes.Cut([]byte(text), []byte("Vacuous"))
	for _, line := range bytes.Split(list, []byte("\n"))[1:] {
		name := bytes.TrimSpace(line)
		if i := bytes.LastIndex(name, []byte(": ")); i > 0 {
			names = append(names, string(name[:i]))
		}
	}
	return append(names, "check: phantom", "check: audit", "check: queue")
}
