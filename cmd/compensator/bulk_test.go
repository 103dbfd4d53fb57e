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

// TestOneEntryIsTriedFirstOnTheCommandLine requeues three dead entries, and tries the oldest first. The others must stay
// dead until the person goes on.
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
