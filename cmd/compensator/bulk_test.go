package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
)

var bulkID = regexp.MustCompile(`compensator bulk ([0-9]+-[a-z0-9]+) shows`)

func TestOneEntryIsTriedFirstOnTheCommandLine(t *testing.T) {
	t.Parallel()
	b := inSQLite(t).dead(3)
	began := b.do("requeue", "--where", "type=refund,state=dead", reason, "--yes", "--first", "--delay", "1h")
	require.Equal(t, codeDone, began.code, began.stderr)
	id := bulkID.FindStringSubmatch(began.stderr)
	require.NotNil(t, id, began.stderr)
	assert.Equal(t, 1, strings.Count(began.stdout, " done"))
	states := func() (found []compensator.State) {
		for _, key := range []string{"d0", "d1", "d2"} {
			found = append(found, b.entry(key).State)
		}
		return found
	}
	assert.Equal(t, []compensator.State{compensator.Pending, compensator.Dead, compensator.Dead}, states())
	shown := b.do("bulk", id[1], "-o", "json")
	assert.Contains(t, shown.stderr, "1 of 3 changed, 2 left")
	counts := items(t, shown.stdout)
	require.Len(t, counts, 1)
	assert.Equal(t, []any{"waiting", 1.0, false}, []any{counts[0]["outcome"], counts[0]["entries"], counts[0]["skipped"]})
	assert.Len(t, items(t, b.ok("bulk", id[1], "--outcome", "waiting", "-o", "json")), 1)

	assert.Contains(t, b.refused(codeUsage, "bulk", "go-on", id[1]), "add --yes")
	assert.Equal(t, compensator.Dead, b.entry("d1").State)
	for range 2 {
		b.ok("bulk", "go-on", id[1], "--yes")
		assert.Equal(t, []compensator.State{compensator.Pending, compensator.Pending, compensator.Pending}, states())
	}
	for _, key := range []string{"d0", "d1", "d2"} {
		assert.EqualValues(t, 1, b.entry(key).Epoch, "once")
	}
	b.refused(codeNotFound, "bulk", "1-0123456789abcdef")
	b.refused(codeUsage, "bulk", "nosuch")
	b.refused(codeUsage, "bulk", id[1], "--outcome", "nosuch")
}

func TestAnotherEntryIsTriedOnTheCommandLine(t *testing.T) {
	t.Parallel()
	b := inSQLite(t).dead(4)
	began := b.do("requeue", "--where", "type=refund,state=dead", reason, "--yes", "--first", "--delay", "1h")
	id := bulkID.FindStringSubmatch(began.stderr)
	require.NotNil(t, id, began.stderr)
	assert.Contains(t, b.refused(codeUsage, "bulk", "try", id[1]), "add --yes")
	tried := b.do("bulk", "try", id[1], "--yes")
	require.Equal(t, codeDone, tried.code, tried.stderr)
	assert.Equal(t, 2+1, strings.Count(tried.stderr, "was tried first: waiting"), "before and after it")
	assert.Contains(t, tried.stderr, "2 of 4 changed, 2 left")
	assert.Equal(t, []compensator.State{compensator.Pending, compensator.Pending, compensator.Dead, compensator.Dead}, []compensator.State{b.entry("d0").State, b.entry("d1").State, b.entry("d2").State, b.entry("d3").State})
	b.ok("bulk", "go-on", id[1], "--yes")
	assert.Contains(t, b.do("bulk", "try", id[1], "--yes").stderr, "nothing was done")
	assert.EqualValues(t, 1, b.entry("d3").Epoch)
}

func TestAllThatMatchAreChangedOnTheCommandLine(t *testing.T) {
	t.Parallel()
	b := inSQLite(t)
	b.exec(`INSERT INTO common_process_log (idempotent_id, business_type, content, state, next_at, created_at, updated_at)
		WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<2600) SELECT 'many '||i, 'many', '{}', -2, i, 1, 1 FROM n`)
	where := []string{"--where", "type=many,state=dead", "--all", reason}
	state := func(state string) int {
		return len(items(t, b.ok("list", "--where", "type=many,state="+state, "--limit", "3000", "-o", "json")))
	}
	assert.Contains(t, b.refused(codeUsage, append([]string{"cancel"}, where...)...), "would cancel 2600 entries")
	b.refused(codeUsage, "cancel", "--where", "type=many", "--all", reason, "--yes")
	b.refused(codeUsage, "cancel", "1", "--all", reason, "--yes")
	assert.Equal(t, 2600, state("dead"))

	began := b.do(append([]string{"cancel", "--yes", "--first"}, where...)...)
	require.Equal(t, codeDone, began.code, began.stderr)
	id := bulkID.FindStringSubmatch(began.stderr)
	require.NotNil(t, id, began.stderr)
	assert.Equal(t, []int{2599, 1}, []int{state("dead"), state("cancelled")})
	went := b.do("bulk", "go-on", id[1], "--yes")
	require.Equal(t, codeDone, went.code, went.stderr)
	assert.Contains(t, went.stderr, "2001 changed, 599 entries left")
	assert.Contains(t, went.stderr, "2600 of 2600 changed, 0 left")
	assert.Equal(t, 2600, state("cancelled"))

	where[1] = "type=many,state=cancelled"
	left := b.do(append([]string{"requeue", "--yes"}, where...)...)
	require.Equal(t, codeDone, left.code, left.stderr)
	assert.Contains(t, left.stderr, "2600 entries ended already")
	assert.Equal(t, 2600, state("cancelled"))
	tried := b.do(append([]string{"requeue", "--yes", "--again", "--first"}, where...)...)
	id = bulkID.FindStringSubmatch(tried.stderr)
	require.NotNil(t, id, tried.stderr)
	stopped := b.do("bulk", "stop", id[1]).stderr
	assert.Contains(t, stopped, "stopped by")
	assert.Contains(t, stopped, "before it got to 2599 entries")
	b.ok("bulk", "go-on", id[1], "--yes")
	assert.Equal(t, []int{2599, 1}, []int{state("cancelled"), state("pending")})
	assert.Contains(t, b.do(append([]string{"requeue", "--yes"}, append(where, "--where", "business=none")...)...).stderr, "no entry matches")
}
