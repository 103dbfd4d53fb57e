package main

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/processlog"
)

type counting struct {
	processlog.Store
	wholes int
}

func (c *counting) Load(ctx context.Context, ids []processlog.ID) ([]processlog.Row, error) {
	c.wholes++
	return c.Store.Load(ctx, ids)
}

type outlining struct {
	processlog.Operations
	outlines, cases int
}

func (o *outlining) Outlines(ctx context.Context, ids []processlog.ID) ([]processlog.Row, error) {
	o.outlines++
	return o.Operations.Outlines(ctx, ids)
}

func (o *outlining) CasesOf(ctx context.Context, ids []processlog.ID) ([]processlog.Case, error) {
	o.cases++
	return o.Operations.CasesOf(ctx, ids)
}

// A slow database must not get one query per entry.
func TestManyEntriesAreReadTogether(t *testing.T) {
	t.Parallel()
	b := inSQLite(t).dead(4)
	nobody, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	require.NoError(t, err)
	defer nobody.Close()
	p := &program{env: func(name string) string { return map[string]string{dsnVariable: b.dsn}[name] }, stdin: nobody, stdout: nobody, stderr: nobody}
	p.newRootCommand() // newRootCommand sets the defaults of the flags.
	s, err := p.openSession(t.Context(), changeAccess)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	whole, many := &counting{Store: s.store.Store}, &outlining{Operations: s.store.Operations}
	s.store.Store, s.store.Operations = whole, many
	asked := func() (n [2]int) {
		n = [2]int{whole.wholes, many.outlines}
		whole.wholes, many.outlines = 0, 0
		return n
	}

	groups, _, err := s.Groups(t.Context(), s.actor)
	require.NoError(t, err)
	matches, hasMore, err := s.readChosen(t.Context(), conditions{failure: groups[0].Fingerprint}, admin.MaxEntries)
	require.NoError(t, err)
	assert.False(t, hasMore)
	require.Len(t, matches, 4)
	other := matches[3]
	assert.Equal(t, [2]int{0, 1}, asked(), "of a failure")
	matches, hasMore, err = s.readChosen(t.Context(), conditions{failure: groups[0].Fingerprint}, 3)
	require.NoError(t, err)
	assert.True(t, hasMore)
	require.Len(t, matches, 3)
	require.NotContains(t, matches, other)
	asked()

	var names []string
	var unread []pickedEntry
	for _, e := range matches {
		names = append(names, e.ID.String())
		unread = append(unread, pickedEntry{id: e.ID, version: e.Version})
	}
	named, answers, err := s.findEntries(t.Context(), append(names, "999999", "key:"+string(other.IdempotencyKey), "key:nobody"))
	require.NoError(t, err)
	require.Len(t, named, 4)
	require.Len(t, answers, 2)
	assert.Equal(t, []string{"999999", "key:nobody"}, []string{answers[0].name, answers[1].name})
	require.EqualError(t, answers[0].err, "999999: compensator: no such entry")
	assert.Equal(t, [2]int{1, 1}, asked(), "by their ids; one by its key is looked for")
	many.cases = 0
	worths, err := s.worthsOf(t.Context(), slices.Repeat(matches, pageSize/len(matches)))
	require.NoError(t, err)
	assert.Len(t, worths, 3)
	assert.Equal(t, 1, many.cases, "the worths of a page")
	require.Error(t, p.preview(t.Context(), s, "requeue", unread, admin.Change{Action: admin.Requeue}, false), "nobody can be asked")
	assert.Equal(t, [2]int{0, 1}, asked(), "as a preview")
}

func TestMoreCasesAreTakenThanAdminTakesAtOnce(t *testing.T) {
	t.Parallel()
	b := inSQLite(t)
	b.exec(`INSERT INTO common_process_log_case (entry_id, epoch, kind, business_type, business_id, fingerprint, ended_by, error, currency, opened_at, due_at)
		WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<501)
		SELECT 1000+i, 0, 1, 'many', '', CAST('00000001' AS BLOB), 'permanent', '', '', 1, i FROM n`)
	ids := b.ok("cases", "list", "-o", "ids", "--limit", "501")
	lines := strings.Fields(ids)
	require.Len(t, lines, 501)
	take := []string{"cases", "take", "-", reason}
	owned := "common_process_log_case WHERE owner<>''"

	twice := b.reading(ids+lines[500], take...)
	assert.Equal(t, codeUsage, twice.code)
	assert.Contains(t, twice.stderr, lines[500]+" is named twice")
	assert.Zero(t, b.count(owned))
	b.setPolicy(policyFor(`{"rights": ["*"], "entries": 500}`))
	assert.Equal(t, codeNotAllowed, b.reading(ids, take...).code, "501 are more than 500, whatever is done at once")
	assert.Zero(t, b.count(owned))
	b.exec("DELETE FROM common_process_log_setting", `CREATE TRIGGER full BEFORE UPDATE ON common_process_log_case WHEN OLD.entry_id=1501 BEGIN SELECT RAISE(ABORT, 'the disk is full'); END`)
	part := b.reading(ids, take...)
	assert.Equal(t, codeSomeRefused, part.code, part.stderr)
	assert.Equal(t, 500, strings.Count(part.stdout, " done"))
	assert.Regexp(t, lines[500]+` +refused +.*the disk is full`, part.stdout)
	assert.Equal(t, 500, b.count(owned))
	b.exec("UPDATE common_process_log_case SET owner='' WHERE owner<>''")
	assert.Equal(t, codeDatabase, b.reading(lines[500], take...).code, "nothing was taken")
	b.exec("DROP TRIGGER full")
	assert.Equal(t, codeDone, b.reading(b.ok("cases", "list", "-o", "ids", "--limit", "501"), take...).code)
}

func TestFailureIsThereWithoutTheEntriesThatHaveGone(t *testing.T) {
	t.Parallel()
	b := inSQLite(t).dead(3)
	failure := items(t, b.ok("cases", "list", "--groups", "-o", "json"))[0]["failure"].(string)
	of := []string{"--where", "failure=" + failure, "-o"}
	for _, as := range []string{"json", "csv", "ids", "table"} {
		assert.Equal(t, b.ok("list", "--where", "state=dead", "-o", as), b.ok(append([]string{"list"}, append(of, as)...)...), "the same as of any other listing")
	}
	b.exec("DELETE FROM common_process_log WHERE idempotent_id='d1'")
	assert.Len(t, items(t, b.ok(append([]string{"list"}, append(of, "json")...)...)), 2)
	b.ok("requeue", "--where", "failure="+failure+",state=dead", reason, "--yes", "--delay", "1h")
	assert.Equal(t, compensator.Pending, b.entry("d2").State)
}

func TestFailuresBeyondTheFirstThousandAreSaidToBeThere(t *testing.T) {
	t.Parallel()
	b := inSQLite(t).dead(1)
	b.exec(`INSERT INTO common_process_log_case (entry_id, epoch, kind, business_type, business_id, fingerprint, ended_by, error, currency, opened_at, due_at)
		WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<2000)
		SELECT 1000+i, 0, 1, 'many', '', CAST(printf('%08d',(i+1)/2) AS BLOB), 'permanent', '', '', 1, 1 FROM n`)
	groups := []string{"cases", "list", "--groups"}
	a := b.do(groups...)
	assert.Equal(t, codeDone, a.code)
	assert.Contains(t, a.stderr, "There may be more")
	assert.NotContains(t, a.stdout, "--limit", "which is none of --groups")
	all := b.ok(append(groups, "-o", "json")...)
	assert.Contains(t, all, `"more":true`)
	assert.Len(t, items(t, all), 1000)
	of := b.do(append(groups, "-o", "json", "--type", "refund")...)
	assert.Len(t, items(t, of.stdout), 1, "of a type it has those that are not among the first")
	assert.NotContains(t, of.stdout+of.stderr, "more")
}

// Without any group, the CSV output still has its header line. Programs find a column by its name in this line.
func TestGroupsHaveTheSameHeadWithoutRows(t *testing.T) {
	t.Parallel()
	b := inSQLite(t)
	groups := []string{"cases", "list", "--groups", "-o", "csv"}
	none := b.ok(groups...)
	head, _, _ := strings.Cut(b.dead(1).ok(groups...), "\n")
	assert.Equal(t, head+"\n", none)
	assert.NotContains(t, head, "sums")
}
