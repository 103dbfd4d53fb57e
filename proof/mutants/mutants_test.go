package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const root = "../.."

func TestEveryMutantStillFitsTheCode(t *testing.T) {
	seen := make(map[string]bool)
	for _, m := range catalogue() {
		assert.Falsef(t, seen[m.name], "two mutants are called %s", m.name)
		seen[m.name] = true
		assert.NotEmptyf(t, m.what, m.name)
		assert.NotEmptyf(t, len(m.sees)+len(m.survives), "nobody looks at %s", m.name)
		for _, l := range layers {
			if m.sees[l]+m.survives[l] == "" {
				continue
			}
			o, err := newOverlay(root, append(l.settings(), m.edits...))
			if assert.NoErrorf(t, err, m.name) {
				o.remove()
			}
		}
	}
}

// TestEveryModelThatIsNamedIsPlanned: the model is not run from here.
func TestEveryModelThatIsNamedIsPlanned(t *testing.T) {
	plan, err := os.ReadFile(root + "/proof/model/plan")
	require.NoError(t, err)
	for _, m := range catalogue() {
		for _, name := range []string{m.sees[model], m.survives[model]} {
			assert.Truef(t, name == "" || regexp.MustCompile(`(?m)^`+name+` +\|`).Match(plan), "%s: proof/model/plan has no %s", m.name, name)
		}
	}
}

// TestEveryTestThatIsNamedExists: a test that is renamed would never fail a mutant's run as missing, for go test
// is content with a pattern that matches others.
func TestEveryTestThatIsNamedExists(t *testing.T) {
	for _, l := range layers {
		if !l.hasTests() {
			continue
		}
		declared := testsOf(filepath.Join(root, l.dir()))
		for _, m := range catalogue() {
			for name := range strings.SplitSeq(strings.Trim(m.sees[l]+"|"+m.survives[l], "|"), "|") {
				test, _, _ := strings.Cut(name, "/")
				assert.Truef(t, test == "" || len(declared[test]) > 0, "%s: no test is called %s", m.name, test)
			}
		}
	}
}

func TestTextThatDoesNotStandThereExactlyOnceIsRefused(t *testing.T) {
	for _, text := range []string{"", "a", "b b", "a b a b"} {
		_, err := edit{file: "x.go", old: "b", new: "c"}.apply(text)
		require.Error(t, err, text)
	}
	got, err := edit{file: "x.go", old: "b", new: "c"}.apply("a b")
	require.NoError(t, err)
	require.Equal(t, "a c", got)
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
			"ERROR: the tests did not come to an end"},
		"no servers": {`{"Action":"run","Test":"TestA"}` + "\n" + `{"Action":"output","Test":"TestA","Output":"    a_test.go:1: testservers: no way works\n"}` + "\n" + `{"Action":"fail","Test":"TestA"}`, false, broken,
			"ERROR: trouble with the servers: no way works"},
		"leak": {`{"Action":"run","Test":"TestA"}` + "\n" + `{"Action":"output","Output":"found unexpected goroutines:\n"}` + "\n" + `{"Action":"fail"}`, false, red,
			"killed by TestMain: goroutines are left behind"},
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
		got, text := trial{what, red}.accept(unit, seen)
		assert.Equal(t, want, got, text)
	}
	vacuous := verdict{kind: red, failed: []failure{{"TestSeeds", "vacuous: in 2000 seeds there was no crash"}}}
	good, _ := trial{"2000", red}.accept(simulation, vacuous)
	assert.False(t, good)
	good, _ = trial{"2000", red}.accept(simulation, verdict{kind: red, failed: []failure{{"TestSeeds", "seed 7: I10: never"}}})
	assert.True(t, good)
	good, _ = trial{"TestA", red}.accept(unit, verdict{kind: green})
	assert.False(t, good)
	good, _ = trial{"TestA", green}.accept(unit, verdict{kind: green})
	assert.True(t, good)
	good, _ = trial{"TestA", green}.accept(unit, seen)
	assert.False(t, good, "a harmless bug was not")
	good, _ = trial{"TestA", green}.accept(unit, verdict{kind: broken})
	assert.False(t, good)
}

func TestPatternMatchesTheNamedTestsOnly(t *testing.T) {
	require.Equal(t, "^TestA$|^TestB$/^x$", anchored("TestA|TestB/x"))
}
