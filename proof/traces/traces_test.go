package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTracesDifferAtTheirFirstDifferentStep(t *testing.T) {
	for name, c := range map[string]struct{ before, after, shows string }{
		"same":                    {"== run\n1 BEGIN\n1 UPDATE 1\n", "== run\n1 BEGIN\n1 UPDATE 1\n", ""},
		"statement changed":       {"== run\n1 BEGIN\n1 UPDATE 1\n", "== run\n1 BEGIN\n1 UPDATE 2\n", "  - 1 UPDATE 1\n  + 1 UPDATE 2\n"},
		"statement lost":          {"== run\n1 BEGIN\n1 UPDATE 1\n", "== run\n1 BEGIN\n", "  - 1 UPDATE 1\n  + (the end)\n"},
		"connection changed":      {"== run\n1 BEGIN\n1 UPDATE 1\n", "== run\n1 BEGIN\n2 UPDATE 1\n", "  - 1 UPDATE 1\n  + 2 UPDATE 1\n"},
		"random connection":       {"== run\n1 A\n2 B\n== run\n2 A\n1 B\n", "== run\n1 A\n1 B\n== run\n1 A\n1 B\n", ""},
		"random order":            {"== run\n1 A\n1 B\n== run\n1 B\n1 A\n", "== run\n1 A\n1 B\n", ""},
		"random order, one lost":  {"== run\n1 A\n1 B\n1 B\n== run\n1 B\n1 A\n1 B\n", "== run\n1 B\n1 A\n", "  - 1 times: B\n"},
		"random number":           {"== run\n1 IN (1,2,3)\n== run\n1 IN (1,2)\n", "== run\n1 IN (7)\n", ""},
		"random count":            {"== run\n1 A\n== run\n1 A\n1 A\n", "== run\n1 A\n1 A\n1 A\n", ""},
		"random count, one added": {"== run\n1 A\n== run\n1 A\n1 A\n", "== run\n1 A\n1 C\n", "  + 1 times: C\n"},
		"random statements":       {"== run\n1 A\n== run\n1 B\n", "== run\n1 B\n", "  - 1 times: A\n"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := compareScenarios(c.before, c.after)
			require.NoError(t, err)
			if c.shows == "" {
				assert.Empty(t, got)
			} else {
				assert.Contains(t, got, c.shows)
			}
		})
	}
	for _, text := range []string{"", "1 A\n", "x== run\n"} {
		_, err := compareScenarios(text, "== run\n1 A\n")
		assert.Error(t, err, text)
	}
}

func TestDirectoriesOfTracesAreCompared(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	for _, dir := range []string{"before", "after"} {
		write(dir+"/decisions/1.txt", "1s 1 insert 1\n2s 1 claim 1\n")
		write(dir+"/sql/A.txt", "== run\n1 SELECT 1\n")
		write(dir+"/redis/B.txt", "== run\n1 GET\n")
	}
	compared := func(args ...string) (string, error) {
		var out bytes.Buffer
		err := work(append(args, filepath.Join(root, "before"), filepath.Join(root, "after")), &out)
		return out.String(), err
	}
	_, err := compared()
	require.NoError(t, err)

	write("after/decisions/1.txt", "1s 1 insert 1\n2s 1 lease 1\n")
	out, err := compared()
	require.EqualError(t, err, "1 traces differ")
	require.Contains(t, out, "decisions/1.txt differs:\n    1s 1 insert 1\n  - 2s 1 claim 1\n  + 2s 1 lease 1\n  step 2 of 3 and 3\n")
	write("words.txt", "claim -> lease\n")
	_, err = compared("-renamed", filepath.Join(root, "words.txt"))
	require.NoError(t, err)

	write("after/sql/A.txt", "== run\n1 SELECT 2\n")
	write("after/redis/C.txt", "== run\n1 GET\n")
	out, err = compared("-renamed", filepath.Join(root, "words.txt"))
	require.EqualError(t, err, "2 traces differ")
	require.Contains(t, out, "- 1 SELECT 1\n  + 1 SELECT 2\n")
	require.Contains(t, out, "C.txt is only in ")
	write("words.txt", "claim -> lease\nB.txt -> C.txt\n")
	require.NoError(t, os.Remove(filepath.Join(root, "after", "redis", "B.txt")))
	out, err = compared("-renamed", filepath.Join(root, "words.txt"))
	require.EqualError(t, err, "1 traces differ", out)
	require.NoError(t, os.RemoveAll(filepath.Join(root, "after", "redis")))
	_, err = compared()
	require.Error(t, err)
}

func TestWhatIsRandomStandsInNoTrace(t *testing.T) {
	for text, want := range map[string]string{
		"UPDATE `compensator_abcdefghijkl`.log\n\tSET token=x'00ff', state=-1":          "UPDATE `DATABASE`.log SET token=BYTES, state=-1",
		"lease_until=1764190000123 AND id IN (1,2)":                                     "lease_until=TIME AND id IN (1,2)",
		`"evalsha" "0123456789abcdef0123456789abcdef01234567" "{testabcdefghijkl:due}"`: `"evalsha" "SHA" "{PREFIX:due}"`,
		`"SET" "lead" "HGKWQAFBQB5PRTXGQMYDX7S2BZ" "PX" "TOTAL"`:                        `"SET" "lead" "RANDOM" "PX" "TOTAL"`,
	} {
		assert.Equal(t, want, normal(text))
	}
}
