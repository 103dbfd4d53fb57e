package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func parse(t *testing.T, text string) record {
	r, err := parseRecord(text)
	require.NoError(t, err)
	return r
}

func TestMissingNameNeedsASuccessorOrAReason(t *testing.T) {
	before := parse(t, "TestA\tp\nTestA/x\tp\nTestA/x/deep\tp\nTestB\tp\nTestC/old\tp\n")
	for name, c := range map[string]struct {
		after, rules string
		problems     []string
	}{
		"same":              {"TestA\tp\nTestA/x\tp\nTestA/x/deep\tp\nTestB\tp\nTestC/old\tp\n", "", nil},
		"moved":             {"TestA\tq\nTestA/x\tq\nTestA/x/deep\tq\nTestB\tr\nTestC/old\tp\nTestNew\tp\n", "", nil},
		"missing":           {"TestA\tp\nTestA/x\tp\nTestA/x/deep\tp\nTestC/old\tp\n", "", []string{"TestB: is missing"}},
		"renamed":           {"TestN\tp\nTestN/x\tp\nTestN/x/deep\tp\nTestB\tp\nTestC/old\tp\n", "TestA -> TestN", nil},
		"subtest lost":      {"TestN\tp\nTestN/x\tp\nTestB\tp\nTestC/old\tp\n", "TestA -> TestN", []string{"TestA/x/deep: its successor TestN/x/deep is missing"}},
		"subtest renamed":   {"TestA\tp\nTestA/y\tp\nTestA/y/deep\tp\nTestB\tp\nTestC/old\tp\n", "TestA/x -> TestA/y", nil},
		"segment":           {"TestA\tp\nTestA/x\tp\nTestA/x/deep\tp\nTestB\tp\nTestC/new\tp\n", "*/old -> */new", nil},
		"one after another": {"TestN\tp\nTestN/x\tp\nTestN/x/deep\tp\nTestB\tp\nTestD/new\tp\n", "TestA -> TestN\nTestC -> TestD\n*/old -> */new", nil},
		"reason":            {"TestA\tp\nTestA/x\tp\nTestA/x/deep\tp\nTestC/old\tp\n", "# a comment\n\nTestB: TestA shows the same", nil},
		"not that name":     {"TestA\tp\nTestA/x\tp\nTestA/x/deep\tp\nTestC/old\tp\n", "Test: all", []string{"TestB: is missing", "Test: no missing test has this name; remove the line"}},
		"rule of nothing":   {"TestA\tp\nTestA/x\tp\nTestA/x/deep\tp\nTestB\tp\nTestC/old\tp\n", "TestB -> TestN", []string{"TestB: no missing test has this name; remove the line"}},
		"skipped now":       {"TestA\tp\nTestA/x\tp\tskipped\nTestA/x/deep\tp\nTestB\tp\nTestC/old\tp\n", "", []string{"TestA/x: ran before, and is skipped now"}},
	} {
		t.Run(name, func(t *testing.T) {
			rules, err := parseRules(c.rules)
			require.NoError(t, err)
			problems, _ := compare(before, parse(t, c.after), rules)
			assert.Equal(t, c.problems, problems)
		})
	}
}

func TestNameOfTwoPackagesMayNotLoseOne(t *testing.T) {
	problems, _ := compare(parse(t, "TestA\tp\nTestA\tq\n"), parse(t, "TestA\tr\n"), nil)
	require.Equal(t, []string{"TestA: is missing: was in 2 packages, and is in 1"}, problems)
}

func TestRuleWithoutAReasonIsRefused(t *testing.T) {
	for _, text := range []string{"TestA", "TestA:", "TestA ->", "*/a -> b", "*/ -> */b"} {
		_, err := parseRules(text)
		assert.Error(t, err, text)
	}
}

func TestRecordHasWhatIsDeclaredAndWhatRan(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	write("a/a_test.go", "//go:build engines\npackage a\nfunc TestA(t *testing.T) {}\nfunc FuzzB(f *testing.F) {}\nfunc TestMain(m *testing.M) {}\nfunc help() {}\n")
	write("mod/go.mod", "module mod")
	write("mod/x_test.go", "package x\nfunc ExampleC() {}\nfunc BenchmarkD(b *testing.B) {}\n")
	write("testdata/y_test.go", "package y\nfunc TestNot(t *testing.T) {}\n")
	run := write("build/run.json", `{"Action":"run","Package":"m/a","Test":"TestA/x"}
{"Action":"pass","Package":"m/a","Test":"TestA/x"}
{"Action":"pass","Package":"m/a","Test":"TestA"}
{"Action":"skip","Package":"m/a","Test":"TestA/y"}
go: downloading
`)
	file := filepath.Join(root, "build", "record.txt")
	var out bytes.Buffer
	require.NoError(t, work([]string{"-record", file, "-tree", root, run}, &out))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "BenchmarkD\tmod\nExampleC\tmod\nFuzzB\ta\nTestA\ta\nTestA/x\tm/a\nTestA/y\tm/a\tskipped\n", string(text))
	require.Contains(t, out.String(), "4 tests, 2 subtests")

	successors := write("successors.txt", "")
	require.NoError(t, work([]string{"-compare", "-successors", successors, file, file}, &out))
	less := write("less.txt", "TestA\ta\n")
	require.ErrorContains(t, work([]string{"-compare", "-successors", successors, file, less}, &out), "FuzzB: is missing")
	require.Error(t, work([]string{"-record", file, "-tree", root, filepath.Join(root, "none*.json")}, &out))
	require.Error(t, work([]string{"-record", file, "-tree", root, less}, &out), "a file without events")
	require.Error(t, work([]string{"-compare", file}, &out))
}
