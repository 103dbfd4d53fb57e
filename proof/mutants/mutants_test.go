package main

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func readTheTree(t *testing.T) *tree {
	tree, err := theTree()
	require.NoError(t, err)
	return tree
}

func TestEveryMutantStillFitsTheCode(t *testing.T) {
	tree := readTheTree(t)
	seen := make(map[string]bool)
	for _, m := range catalogue() {
		assert.Falsef(t, seen[m.name], "two mutants are called %s", m.name)
		seen[m.name] = true
		assert.NotEmptyf(t, m.what, m.name)
		assert.NotEmptyf(t, m.sees, "no layer claims to see %s", m.name)
		for _, l := range layers {
			if m.sees[l] != "" {
				_, err := tree.changed(append(l.settings(), m.edits...))
				assert.NoErrorf(t, err, m.name)
			}
		}
	}
}

func TestEachGuaranteeHasAMutant(t *testing.T) {
	page, err := os.ReadFile(root(t) + "/docs/reference/guarantees.md")
	require.NoError(t, err)
	var promised []string
	for _, found := range regexp.MustCompile(`(?m)^### (G\d+)\. `).FindAllStringSubmatch(string(page), -1) {
		promised = append(promised, found[1])
	}
	require.NotEmpty(t, promised)
	broken := make(map[string]bool)
	for _, m := range catalogue() {
		assert.Containsf(t, promised, m.breaks, "%s breaks no guarantee of docs/reference/guarantees.md", m.name)
		broken[m.breaks] = true
	}
	for _, g := range promised {
		assert.Truef(t, broken[g], "no mutant breaks %s", g)
	}
}

func TestEveryModelThatIsNamedIsPlanned(t *testing.T) {
	plan, err := os.ReadFile(root(t) + "/proof/model/plan")
	require.NoError(t, err)
	for _, m := range catalogue() {
		assert.Truef(t, m.inModel == "" || regexp.MustCompile(`(?m)^`+m.inModel+` +\|`).Match(plan), "mutant %s: proof/model/plan has no %s", m.name, m.inModel)
	}
}

// The go command reports no error for a test name that matches nothing, if another name in the same call matches.
func TestEveryTestThatIsNamedExists(t *testing.T) {
	tree := readTheTree(t)
	for _, m := range catalogue() {
		for l, what := range m.sees {
			commands, err := l.commands(tree, what)
			assert.NoErrorf(t, err, m.name)
			assert.NotEmptyf(t, commands, m.name)
		}
	}
}

func root(t *testing.T) string {
	dir, err := moduleRoot()
	require.NoError(t, err)
	return dir
}

func TestVerdictTellsAFailedTestFromARunThatProvesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		events string
		passed bool
		kind   kind
		says   string
	}{
		"passed": {`{"Action":"run","Test":"TestA"}` + "\n" + `{"Action":"pass","Test":"TestA"}`, true, green, "green"},
		"no tests": {`{"Action":"output","Output":"testing: warning: no tests to run\n"}` + "\n" + `{"Action":"pass"}`, true, broken,
			"ERROR: no test ran"},
		"failed": {`{"Action":"run","Test":"TestA/x"}` + "\n" + `{"Action":"output","Test":"TestA/x","Output":"    a_test.go:1: got 1, want 2\n"}` + "\n" +
			`{"Action":"fail","Test":"TestA/x"}` + "\n" + `{"Action":"fail","Test":"TestA"}` + "\n" + `{"Action":"fail"}`, false, red,
			"killed by TestA/x: got 1, want 2"},
		"seeds": {`{"Action":"run","Test":"TestSeeds"}` + "\n" + `{"Action":"output","Test":"TestSeeds","Output":"    a_test.go:1: seed 7, 300 steps\n    a_test.go:2: seed 7: I10: never\n"}` + "\n" +
			`{"Action":"output","Test":"TestSeeds","Output":"    a_test.go:2: seed 9: I1: lost\n"}` + "\n" + `{"Action":"fail","Test":"TestSeeds"}`, false, red,
			"killed by TestSeeds: seed 7: I10: never (2 seeds in all)"},
		"checks": {`{"Action":"run","Test":"TestChaos"}` + "\n" + `{"Action":"output","Test":"TestChaos","Output":"held      lost            7 looked at  0 violations   \n"}` + "\n" +
			`{"Action":"output","Test":"TestChaos","Output":"VIOLATED  linear history  9 looked at  2 violations  \n"}` + "\n" + `{"Action":"fail","Test":"TestChaos"}`, false, red,
			"killed by TestChaos: violated: linear history"},
		"does not build": {`{"Action":"build-output","Output":"x.go:1: undefined: y\n"}` + "\n" + `{"Action":"build-fail"}` + "\n" + `{"Action":"fail","FailedBuild":"p"}`, false, broken,
			"ERROR: does not build: x.go:1: undefined: y"},
		"hangs": {`{"Action":"run","Test":"TestA"}` + "\n" + `{"Action":"output","Test":"TestA","Output":"panic: test timed out after 1s\n"}` + "\n" + `{"Action":"fail","Test":"TestA"}`, false, broken,
			"ERROR: the tests timed out"},
		"no servers": {`{"Action":"run","Test":"TestA"}` + "\n" + `{"Action":"output","Test":"TestA","Output":"    a_test.go:1: testservers: no way works\n"}` + "\n" + `{"Action":"fail","Test":"TestA"}`, false, broken,
			"ERROR: the test servers failed: no way works"},
		"leak": {`{"Action":"run","Test":"TestA"}` + "\n" + `{"Action":"output","Output":"found unexpected goroutines:\n"}` + "\n" + `{"Action":"fail"}`, false, red,
			"killed by TestMain: leaked goroutines"},
	} {
		t.Run(name, func(t *testing.T) {
			v := judge([]byte(c.events), c.passed)
			assert.Equal(t, c.kind, v.kind)
			assert.Equal(t, c.says, describe(v))
		})
	}
}

func TestMutantThatOneOfItsTestsDoesNotSeeHasSurvived(t *testing.T) {
	seen := verdict{kind: red, failed: []failure{{"TestA/x", ""}}}
	for what, want := range map[string]bool{"TestA": true, "TestA/x": true, "TestA|TestB": false, "TestA/y": false} {
		got, text := accept(unit, what, seen)
		assert.Equal(t, want, got, text)
	}
	vacuous := verdict{kind: red, failed: []failure{{"TestSeeds", "vacuous: in 2000 seeds there was no crash"}}}
	good, _ := accept(simulation, "2000", vacuous)
	assert.False(t, good)
	good, _ = accept(simulation, "2000", verdict{kind: red, failed: []failure{{"TestSeeds", "seed 7: I10: never"}}})
	assert.True(t, good)
	good, _ = accept(unit, "TestA", verdict{kind: green})
	assert.False(t, good)
	good, _ = accept(unit, "TestA", verdict{kind: broken})
	assert.False(t, good)
}

func TestPatternMatchesTheNamedTestsOnly(t *testing.T) {
	require.Equal(t, "^TestA$|^TestB$/^x$", anchored("TestA|TestB/x"))
}
