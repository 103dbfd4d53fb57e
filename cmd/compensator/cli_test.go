package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
)

const reason = "--reason=PSP is back"

var databases = map[string]func(t *testing.T) *bed{"MariaDB": inMariaDB, "SQLite": inSQLite}

func TestANight(t *testing.T) {
	t.Parallel()
	for name, open := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t).dead(8).put("", "lives0", "lives1")
			id := func(key string) string { return b.entry(key).ID.String() }

			assert.Regexp(t, `(?m)^refund +8 *$`, b.ok("overview"))
			assert.Equal(t, "8", items(t, b.ok("overview", "-o", "json"))[0]["dead"])
			assert.Regexp(t, `refund +8 +2`, b.ok("types"))
			groups := items(t, b.ok("cases", "list", "--groups", "-o", "json"))
			require.Len(t, groups, 1)
			assert.EqualValues(t, 8, groups[0]["cases"])
			assert.Equal(t, "1032.00 CNY", groups[0]["worth"])
			assert.Equal(t, "103200", groups[0]["sums"].([]any)[0].(map[string]any)["amount_minor"])

			assert.Regexp(t, `(?m)^ID .* ERROR +WORTH *$`, b.ok("list"))
			for _, where := range []string{"state=dead", "failure=" + groups[0]["failure"].(string)} {
				dead := items(t, b.ok("list", "--where", where, "-o", "json"))
				require.Len(t, dead, 8, where)
				for _, e := range dead {
					assert.Equal(t, []any{"12900", "CNY", "129.00 CNY"}, []any{e["amount_minor"], e["currency"], e["worth"]}, where)
				}
			}
			for _, e := range items(t, b.ok("list", "--where", "state=succeeded", "-o", "json")) {
				assert.NotContains(t, e, "worth", "an entry without a case has no known worth")
			}

			assert.Contains(t, b.ok("cases", "take", id("d0"), reason), "done")
			assert.Len(t, items(t, b.ok("cases", "list", "--mine", "-o", "json")), 1)
			assert.Len(t, items(t, b.ok("cases", "list", "--unowned", "--type", "refund", "-o", "json")), 7)
			b.ok("cases", "note", id("d0"), "--reason", "asked the bank", "--ticket", "OPS-988")

			got := b.ok("get", id("d0"))
			for _, has := range []string{failure, "12900", "[OPS-988] asked the bank", actor().ID, "sibling"} {
				assert.Contains(t, got, has)
			}
			assert.NotContains(t, got, `{"number"`)
			assert.Contains(t, b.ok("get", "key:d0", "--content", reason), `{"number"`)
			assert.Equal(t, 1, b.count("common_process_log_operation WHERE action='see content'"))

			failed := groups[0]["failure"].(string)
			assert.Len(t, items(t, b.ok("list", "--where", "type=refund,state=dead,error="+failure, "-o", "json")), 8)
			assert.Contains(t, b.ok("requeue", id("d0"), "key:d1", reason, "--yes", "--delay", "1h"), "done")
			b.ok("requeue", "--where", "state=dead,failure="+failed+",type=mail", reason, "--yes")
			b.ok("settle", id("d2"), reason, "--yes")
			b.ok("cancel", id("d3"), reason, "--yes")
			b.ok("complete", id("d4"), reason, "--yes")
			b.ok("compensate", id("d5"), reason, "--yes")
			b.ok("reschedule", id("d0"), reason, "--yes", "--delay", "2h")
			for key, state := range map[string]compensator.State{"d0": compensator.Pending, "d1": compensator.Pending, "d2": compensator.SettledManually,
				"d3": compensator.Cancelled, "d4": compensator.Succeeded, "d5": compensator.Compensating, "d6": compensator.Dead} {
				assert.Equal(t, state, b.entry(key).State, key)
			}
			assert.Equal(t, 2, b.count("common_process_log_case WHERE closed_at=0"))
			assert.Equal(t, 7, b.count("common_process_log_audit WHERE reason='PSP is back' AND entry_id>0"))
			assert.Equal(t, 1, b.count("common_process_log_audit WHERE reason='PSP is back' AND entry_id=0"), "the action on two entries")

			history := b.ok("history", id("d0"))
			assert.Less(t, strings.Index(history, "take case"), strings.Index(history, "reschedule"), "oldest first")
			assert.Regexp(t, `requeue +\d+ +refund +dead +pending`, history)
			assert.Len(t, items(t, b.ok("trail", "--action", "cancel", "--actor", actor().ID, "--since", "1h", "-o", "json")), 1)
			assert.Regexp(t, `total +10\n`, b.ok("batch", "b77"))

			b.ok("pause", "refund", reason, "--yes")
			assert.Contains(t, b.ok("overview"), "PSP is back")
			health := b.ok("health")
			assert.Regexp(t, `healthy +yes\n`, health, "a paused type is not late")
			assert.Regexp(t, `paused +refund\n`, health)
			assert.Regexp(t, `queue +not asked: if the services use Redis, give --redis\n`, health)
			assert.Contains(t, b.ok("health", "-o", "json"), `"queue":"not asked`)
			b.ok("resume", "refund", reason, "--yes")
			b.refused(codeUsage, "pause", "refund", reason, "--yes", "--for", "1ms")
			b.refused(codeUsage, "pause", "refund", reason, "--yes", "--until", "2020-01-31T10:00:00Z")
			b.refused(codeUsage, "pause", "refund", reason, "--yes", "--until", "tomorrow")
			b.refused(codeUsage, "pause", "refund", reason, "--yes", "--until", "2020-01-31T10:00:00Z", "--for", "2h")
			for _, end := range [][]string{{"--for", "2h"}, {"--until", time.Now().Add(2 * time.Hour).Format(time.RFC3339)}} {
				b.ok(append([]string{"pause", "refund", reason, "--yes"}, end...)...)
				until := items(t, b.ok("overview", "-o", "json"))
				at := slices.IndexFunc(until, func(row map[string]any) bool { return row["type"] == "refund" })
				ends, err := time.Parse(time.RFC3339, until[at]["paused_until"].(string))
				require.NoError(t, err)
				assert.WithinDuration(t, time.Now().Add(2*time.Hour), ends, 10*time.Minute)
				assert.Regexp(t, `paused +refund until \d+-`, b.ok("health"))
				again := b.do("pause", "refund", reason, "--yes", "--again", "--for", "30m")
				assert.Equal(t, codeDone, again.code, again.stderr)
				assert.Contains(t, again.stderr, " until ", "the pause that it replaces")
				assert.Contains(t, b.ok("trail", "--action", "change pause"), "for 30m0s")
				assert.Contains(t, b.do("resume", "refund", reason, "--yes").stderr, " until ")
				b.refused(codeNotFound, "pause", "refund", reason, "--yes", "--again")
			}

			b.exec("UPDATE common_process_log SET next_at=1 WHERE idempotent_id='lives0'")
			assert.Regexp(t, `deleted +1\n`, b.ok("purge", "--older", "720h", reason, "--yes"))
			assert.Equal(t, 1, b.count("common_process_log_operation WHERE action='purge' AND subject='older than 720h0m0s' AND refused=0"))

			assert.Regexp(t, `operations +yes`, b.ok("check"))
			b.ok("migrate")
			assert.Contains(t, b.ok("version", "-o", "json"), `"schema_version":1`)
			assert.Regexp(t, `^compensator version \S+, commit \S+\n$`, b.ok("--version"))
		})
	}
}

// docs/reference/command-line.md documents the exit codes. TestInterrupted checks 130.
// Failure: F134
func TestExitCodes(t *testing.T) {
	t.Parallel()
	b := inMariaDB(t).dead(3)
	id := b.entry("d0").ID.String()
	b.ok("settle", b.entry("d2").ID.String(), reason, "--yes")

	assert.Contains(t, b.refused(codeSomeRefused, "cancel", id, "999999", reason, "--yes"), "no such entry")
	assert.Equal(t, compensator.Cancelled, b.entry("d0").State, "what is not refused is done")
	mistyped := b.refused(codeUsage, "requeu")
	assert.Contains(t, mistyped, `Did you mean this? requeue`)
	assert.NotContains(t, mistyped, `\n`)
	for where, says := range map[string]string{"error=x": "error, ended_by and user want", "prefix=yes": "prefix wants an id", "ended_from=2h,state=pending": "ended_from and ended_to want states", "running=yes,user=u": "error, ended_by and user want"} {
		text := b.refused(codeUsage, "list", "--where", where)
		assert.Contains(t, text, says)
		for _, name := range []string{"LastError", "EndedBy", "UserID", "EndedFrom", "Leased", "Prefix"} {
			assert.NotContains(t, text, name, "a name of the Go API")
		}
	}
	help := b.ok("help")
	for _, part := range []string{"Look:", "Change entries:", "Pause and limit types:", "The log and this program:"} {
		assert.Contains(t, help, part)
	}
	assert.NotContains(t, help, "Additional Commands")
	for _, name := range []string{"list", "requeue", "settle", "cancel", "compensate", "complete", "reschedule", "bulk", "cases", "explain", "pause", "limit", "trail", "purge", "ui"} {
		assert.Regexp(t, `Examples:\n  compensator `+name+`\b`, b.ok(name, "--help"), name)
	}
	assert.Regexp(t, `(?m)^ID .* USER `, b.ok("list"))
	assert.Contains(t, b.refused(codeNotFound, "resume", "nosuch", reason, "--yes"), "nosuch")
	for _, wrong := range [][]string{{"frobnicate"}, {"list", "--where", "colour=red"}, {"list", "--where", "state=tired"}, {"list", "--limit", "0"}, {"list", "--frob"},
		{"get", "x"}, {"get"}, {"overview", "-o", "xml"}, {"overview", "-o", "ids"}, {"requeue", id, "--yes"}, {"requeue", reason, "--yes"},
		{"requeue", id, reason}, {"requeue", id, "--where", "state=dead", reason, "--yes"}, {"requeue", id, id, reason, "--yes"}, {"requeue", id + ":x", reason, "--yes"},
		{"requeue", id, "--delay", "-1s", reason, "--yes"}, {"cancel", id, "--delay", "1s", reason, "--yes"},
		{"pause", "refund", "--yes"}, {"pause", "refund", reason}, {"purge", reason, "--yes"}, {"ddl", "oracle"}, {"cases", "list", "--groups", "--mine"}, {"cases", "list", "--mine", "--unowned"}, {"cases", "list", "--owner", "x", "--mine"}, {"list", "--table", "a b"}, {"list", "--dsn", "x", "--dsn-file", "y"}} {
		b.refused(codeUsage, wrong...)
	}
	b.put("", "lives0")
	for _, done := range []string{"lives0", "d2"} {
		assert.Contains(t, b.refused(codeNotAllowed, "requeue", "key:"+done, reason, "--yes"), "--again")
	}
	assert.Equal(t, 2, b.count("common_process_log_operation WHERE refused=1"))
	b.ok("requeue", "key:lives0", reason, "--yes", "--again", "--delay", "1000h")
	assert.Contains(t, b.refused(codeNotFound, "get", "999999"), "no such entry")
	b.refused(codeNotFound, "resume", "refund", reason, "--yes")
	b.refused(codeNotFound, "cases", "take", "999999", reason)
	b.refused(codeNotFound, "batch", "none")
	b.refused(codeNotFound, "cancel", "999998", "999999", reason, "--yes")
	d1 := b.entry("d1")
	assert.Contains(t, b.refused(codeChanged, "requeue", fmt.Sprintf("%s:%d", d1.ID, d1.Version+1), reason, "--yes"), "has changed")
	b.refused(codeChanged, "reschedule", d1.ID.String(), reason, "--yes", "--delay", "1s")
	b.ok("pause", "refund", reason, "--yes")
	b.refused(codeChanged, "pause", "refund", reason, "--yes")
	b.ok("resume", "refund", reason, "--yes")
	assert.Contains(t, b.refused(codeUsage, "requeue", id, reason, "--yes"), "--again", "it was cancelled")
	b.ok("requeue", id, reason, "--yes", "--again")
	b.exec("UPDATE common_process_log SET next_at=1 WHERE id=" + id)
	assert.Contains(t, b.refused(codeUnhealthy, "health"), "refund: due for ")
	b.ok("health", "--patience", "1000000h")
	b.ok("pause", "refund", reason, "--yes")
	b.ok("health")
	b.ok("resume", "refund", reason, "--yes")
	b.refused(codeUnhealthy, "health", "--patience", "1000000h", "--redis", "127.0.0.1:1")

	for _, command := range []string{"list", "health"} {
		assert.Equal(t, codeDatabase, finish(t, call(t, "root@tcp(127.0.0.1:1)/shop", command)).code, command)
	}
	assert.Contains(t, b.refused(codeDatabase, "list", "--table", "nowhere"), `create one with "compensator migrate"`)
	missing := finish(t, call(t, "file:"+t.TempDir()+"/none.db", "list"))
	assert.Equal(t, codeDatabase, missing.code, "and no file is made")
	assert.Contains(t, missing.stderr, `the file of the database does not exist or cannot be opened`)
	assert.NotContains(t, missing.stderr, "out of memory")
	assert.Equal(t, codeUsage, finish(t, call(t, "", "list")).code)
}

// Failure: F132
func TestWhatIsPrintedIsHarmless(t *testing.T) {
	t.Parallel()
	b := inMariaDB(t).put(hostile, "d0", hostileID)
	stored := b.entry("d0").LastError
	require.Contains(t, stored, "\x1b[31m", "the log keeps it as it was")
	id := b.entry("d0").ID.String()
	for _, args := range [][]string{{"list"}, {"get", id}, {"get", "key:" + hostileID}, {"cases", "list"}, {"cases", "list", "--groups"}, {"get", id, "--content", reason}} {
		for _, as := range []string{"table", "json", "jsonl", "csv"} {
			out := b.ok(append(args, "-o", as)...)
			require.True(t, utf8.ValidString(out))
			for _, r := range out {
				assert.True(t, r == '\n' || unicode.IsGraphic(r), "%v -o %s: %q", args, as, r)
			}
			if as != "table" { // Only a table shortens long texts, so all other formats contain the whole text.
				assert.Contains(t, out, "退款")
			}
		}
	}
	assert.Equal(t, stored, items(t, b.ok("list", "-o", "json"))[0]["last_error"], "other programs get it whole")
	rows, err := csv.NewReader(strings.NewReader(b.ok("list", "-o", "csv"))).ReadAll()
	require.NoError(t, err)
	for i, name := range rows[0] {
		switch name {
		case "last_error":
			assert.True(t, strings.HasPrefix(rows[1][i], "'=cmd"), rows[1][i])
		case "idempotent_id":
			assert.True(t, strings.HasPrefix(rows[2][i], "'=1+"), rows[2][i])
		}
	}
	a := b.do("pause", "\x1b[31mno such", "--yes", reason)
	assert.NotContains(t, a.stdout+a.stderr, "\x1b")
}

// Failure: F120
func TestOnlyWhatWasSeenIsChanged(t *testing.T) {
	t.Parallel()
	b := inMariaDB(t).dead(3)
	ids := b.ok("list", "--where", "state=dead", "-o", "ids")
	require.Equal(t, 3, strings.Count(ids, "\n"))
	moved := b.entry("d1").ID.String()
	b.ok("requeue", moved, reason, "--yes", "--delay", "1h")
	assert.Equal(t, codeUsage, b.reading(ids, "cancel", "-", reason).code, "nobody can be asked")
	assert.Equal(t, compensator.Dead, b.entry("d0").State)
	a := b.reading(ids, "cancel", "-", reason, "--yes", "-o", "jsonl")
	require.Equal(t, codeSomeRefused, a.code, a.stderr)
	for line := range strings.Lines(a.stdout) {
		var said struct {
			Schema       int
			Name, Result string
		}
		require.NoError(t, json.Unmarshal([]byte(line), &said))
		assert.Equal(t, strings.HasPrefix(said.Name, moved+":"), said.Result == "refused", line)
	}
	assert.Equal(t, compensator.Pending, b.entry("d1").State)
	for _, unseen := range []string{"17\n", "key:d0\n"} {
		assert.Equal(t, codeUsage, b.reading(unseen, "cancel", "-", reason, "--yes").code, unseen)
	}
	cases := b.ok("cases", "list", "-o", "ids")
	assert.Equal(t, codeDone, b.reading(cases, "cases", "take", "-", reason).code)
	b.put("", "d7")
	assert.Equal(t, codeUsage, b.reading(b.ok("cases", "list", "-o", "ids"), "requeue", "-", reason, "--yes").code, "a case's version is not its entry's")
}

// Failure: F134
func TestMoreThan500EntriesAreRefused(t *testing.T) {
	t.Parallel()
	b := inSQLite(t)
	b.exec(`INSERT INTO common_process_log (idempotent_id, business_type, content, state, next_at, created_at, updated_at)
		WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<501) SELECT 'x'||i, 'many', '{}', -2, 1, 1, 1 FROM n`)
	assert.Contains(t, b.refused(codeUsage, "requeue", "--where", "type=many,state=dead", reason, "--yes"), "narrow --where")
	ids := b.ok("list", "--where", "type=many,state=dead", "-o", "ids", "--limit", "501")
	assert.Equal(t, codeUsage, b.reading(ids, "requeue", "-", reason, "--yes").code)
	assert.Equal(t, 501, b.count("common_process_log WHERE state=-2"))
	_, rest, _ := strings.Cut(ids, "\n")
	a := b.reading(rest, "requeue", "-", reason, "--yes")
	assert.Equal(t, codeDone, a.code, a.stderr)
	assert.Equal(t, 1, b.count("common_process_log WHERE state=-2"))
	assert.Contains(t, b.ok("list", "--where", "type=many", "--limit", "2"), "… and more")
}

// If the output did not say that further rows exist, a reader would think that the listed rows are all rows.
func TestThatThereAreMoreIsSaidInEveryFormat(t *testing.T) {
	t.Parallel()
	b := inSQLite(t).dead(3)
	for i := range 3 {
		b.ok("cases", "note", b.entry(fmt.Sprint("d", i)).ID.String(), reason)
	}
	for _, args := range [][]string{{"list"}, {"cases", "list"}, {"trail"}} {
		for _, as := range []string{"jsonl", "csv", "ids", "json", "table"} {
			if as == "ids" && args[0] == "trail" {
				continue
			}
			some := b.do(append(args, "--limit", "2", "-o", as)...)
			assert.Equal(t, codeDone, some.code, some.stderr)
			assert.Contains(t, some.stdout+some.stderr, "more", "%v -o %s", args, as)
			assert.Equal(t, as != "json" && as != "table", some.stderr == "compensator: there are more than 2: raise --limit\n", "%v -o %s: %s", args, as, some.stderr)
			assert.Empty(t, b.do(append(args, "--limit", "3", "-o", as)...).stderr)
		}
	}
}

// A service without Config.Operations opens no case for the crashed entry.
func TestPreviewTellsOfACrashWithoutACase(t *testing.T) {
	t.Parallel()
	b := inSQLite(t).dead(2)
	b.exec("DELETE FROM common_process_log_case", "UPDATE common_process_log SET ended_by='crash' WHERE idempotent_id='d1'")
	said := b.refused(codeUsage, "requeue", b.entry("d0").ID.String(), b.entry("d1").ID.String(), reason)
	assert.Contains(t, said, "the outcome of 1 entry is unknown")
}
