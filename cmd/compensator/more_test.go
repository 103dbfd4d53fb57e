package main

import (
	"database/sql"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/internal/testservers"
)

// Failure: F120
func TestOfTwoOperatorsAtOnceOneGetsHisWay(t *testing.T) {
	t.Parallel()
	b := inMariaDB(t).dead(6)
	for i := range 6 {
		e := b.entry(fmt.Sprint("d", i))
		name := fmt.Sprintf("%s:%d", e.ID, e.Version)
		var answers [2]answer
		var waits [2]func() answer
		for n, verb := range []string{"requeue", "settle"} {
			waits[n] = start(t, b.program(verb, name, reason, "--yes"))
		}
		for n, wait := range waits {
			answers[n] = wait()
		}
		codes := []int{answers[0].code, answers[1].code}
		slices.Sort(codes)
		assert.Equal(t, []int{codeDone, codeChanged}, codes, "%v", answers)
	}
	assert.Equal(t, 6, b.count("common_process_log_audit"), "each was done once")
}

// Failure: F123
func TestALogWithoutOperations(t *testing.T) {
	t.Parallel()
	for name, open := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t).dead(2)
			require.NoError(t, admin.Of(b.c).Requeue(t.Context(), compensator.IdempotencyKey("d1"), admin.RequeueOptions{AuditInfo: harness.ByMei, Delay: 3600e9}))
			b.exec("DROP TABLE common_process_log_case", "DROP TABLE common_process_log_operation", "DROP TABLE common_process_log_setting")
			id := b.entry("d0").ID.String()
			for _, args := range [][]string{{"overview"}, {"types"}, {"list"}, {"get", id}, {"batch", "b77"}, {"health"}, {"check"}} {
				assert.NotEmpty(t, b.ok(args...))
			}
			assert.Contains(t, b.ok("history", "key:d1"), "mei")
			for _, args := range [][]string{{"cases", "list"}, {"cases", "take", id, reason}, {"trail"}, {"get", id, "--content", reason}, {"list", "--where", "failure=0123456789abcdef"},
				{"requeue", id, reason, "--yes"}, {"pause", "refund", reason, "--yes"}, {"purge", "--older", "1h", reason, "--yes"}} {
				said := b.refused(codeDatabase, args...)
				assert.Contains(t, said, `create them with "compensator migrate". Then set Config.Operations`, "%v", args)
			}
			b.ok("migrate")
			assert.Contains(t, b.do("cases", "list").stderr, "dead without a case")
			b.ok("requeue", id, reason, "--yes", "--delay", "1h")
			assert.Equal(t, compensator.Pending, b.entry("d0").State)
			if name == "SQLite" {
				reader := &bed{T: t, dsn: b.dsn + "?mode=ro"}
				reader.ok("list")
				reader.refused(codeNotAllowed, "cases", "note", id, reason)
			}
		})
	}
}

// Failure: F134
func TestGrantsThatCheckPrintsSuffice(t *testing.T) {
	t.Parallel()
	b := inMariaDB(t).dead(3)
	cfg, err := mysql.ParseDSN(b.dsn)
	require.NoError(t, err)
	as := make(map[string]*bed)
	printed := b.ok("check", "--grants")
	user := func(who string) string { return who[:1] + cfg.DBName[max(0, len(cfg.DBName)-30):] }
	give := func(who, right string) { // runs the printed grants of one role
		for _, grant := range regexp.MustCompile("GRANT [A-Z, ]*"+right+"[A-Z, ]* ON .* TO 'compensator_"+who+"'@'%';").FindAllString(printed, -1) {
			grant = strings.Replace(grant, "compensator_"+who, user(who), 1)
			b.exec(grant, strings.Replace(grant, "'%'", "'localhost'", 1))
		}
	}
	for _, who := range []string{"reader", "operator"} {
		user := user(who)
		b.exec("CREATE USER '"+user+"'@'%' IDENTIFIED BY 'se:cr@t'", "CREATE USER '"+user+"'@'localhost' IDENTIFIED BY 'se:cr@t'")
		t.Cleanup(func() { b.exec("DROP USER '"+user+"'@'%'", "DROP USER '"+user+"'@'localhost'") })
		give(who, "SELECT")
		theirs := *cfg
		theirs.User, theirs.Passwd = user, "se:cr@t"
		as[who] = &bed{T: t, dsn: theirs.FormatDSN()}
	}
	id := b.entry("d0").ID.String()
	b.exec("INSERT INTO common_process_log_limit (limit_name, limit_key, tat, granted_at, holders, business_types) VALUES ('psp', X'', 0, 0, X'', 'refund')")
	for _, args := range [][]string{{"overview"}, {"types"}, {"list"}, {"get", id}, {"explain", id}, {"timeline", id}, {"history", id}, {"batch", "b77"}, {"health"}, {"limits"}, {"trail"}, {"stats"}, {"instances"}, {"periodic"}, {"cases", "list"}, {"cases", "list", "--groups"}} {
		as["reader"].ok(args...)
	}
	for _, args := range [][]string{{"requeue", id, reason, "--yes"}, {"cases", "take", id, reason}, {"pause", "refund", reason, "--yes"}, {"get", id, "--content", reason}, {"migrate", "--table", "other"}} {
		assert.Contains(t, as["reader"].refused(codeNotAllowed, args...), "denied")
	}
	for _, args := range [][]string{{"cases", "take", id, reason}, {"cases", "note", id, reason}, {"get", id, "--content", reason}, {"requeue", id, reason, "--yes", "--delay", "1h"},
		{"reschedule", id, reason, "--yes", "--delay", "2h"}, {"settle", b.entry("d1").ID.String(), reason, "--yes"}, {"pause", "refund", reason, "--yes"}, {"resume", "refund", reason, "--yes"}, {"limit", "psp", reason, "--yes", "--burst", "7"}, {"check"}} {
		as["operator"].ok(args...)
	}
	as["operator"].refused(codeNotAllowed, "migrate", "--table", "other")
	b.exec(`UPDATE common_process_log SET headers='"erased"' WHERE idempotent_id='d2'`)
	as["operator"].ok("cancel", b.entry("d2").ID.String(), reason, "--yes")
	b.exec("UPDATE common_process_log SET next_at=1 WHERE idempotent_id='d2'")
	as["operator"].refused(codeNotAllowed, "purge", "--older", "2h", reason, "--yes")
	give("operator", "DELETE")
	assert.Contains(t, as["operator"].ok("purge", "--older", "2h", reason, "--yes"), "1")
	other := *cfg
	other.Passwd = "wrong"
	other.User = "nobody"
	assert.Equal(t, codeNotAllowed, finish(t, call(t, other.FormatDSN(), "list")).code)
	a := finish(t, call(t, "", "overview", "--dsn", as["reader"].dsn))
	assert.Equal(t, codeDone, a.code)
	assert.Contains(t, a.stderr, "is visible in ps")
	assert.NotContains(t, a.stderr, "se:cr@t")
	file := t.TempDir() + "/dsn"
	require.NoError(t, os.WriteFile(file, []byte(as["reader"].dsn+"\n"), 0o600))
	a = finish(t, call(t, "", "overview", "--dsn-file", file))
	assert.Equal(t, codeDone, a.code)
	assert.NotContains(t, a.stderr, "ps")
}

// A server does not answer. The program must end on an interrupt.
// Failure: F134
func TestInterrupted(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	cmd := call(t, fmt.Sprintf("root@tcp(%s)/shop", silent.Addr()), "list")
	wait := start(t, cmd)
	conn, err := silent.Accept()
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	a := wait()
	assert.Equal(t, codeInterrupted, a.code, a.stderr)
}

// Failure: F134
func TestACommandWaitsForASlowDatabase(t *testing.T) {
	t.Parallel()
	b := inMariaDB(t).dead(1)
	said, code := onTerminal(t, b.program("requeue", "--where", "type=refund,state=dead", reason, "--delay", "1h"), "type 1 to requeue", func(type_ func(string)) {
		beside, err := b.db.Conn(t.Context())
		require.NoError(t, err)
		defer beside.Close()
		_, err = beside.ExecContext(t.Context(), "LOCK TABLES common_process_log WRITE")
		require.NoError(t, err)
		type_("1\n")
		for deadline := time.Now().Add(harness.Timeout / 4); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
			if b.count("information_schema.processlist WHERE time>2 AND state LIKE '%lock%' AND db=DATABASE()") > 0 {
				break
			}
		}
		_, err = beside.ExecContext(t.Context(), "UNLOCK TABLES")
		require.NoError(t, err)
	})
	assert.Equal(t, codeDone, code, said)
}

// Failure: F134
func TestNothingIsDoneUntilTheNumberIsTyped(t *testing.T) {
	t.Parallel()
	b := inMariaDB(t).dead(3)
	b.exec("UPDATE common_process_log_case SET kind=2 WHERE entry_id=" + b.entry("d1").ID.String())
	ask := func(question string, answer func(cmd *exec.Cmd, type_ func(string)), args ...string) (string, int) {
		cmd := b.program(args...)
		return onTerminal(t, cmd, question, func(type_ func(string)) { answer(cmd, type_) })
	}
	types := func(text string) func(*exec.Cmd, func(string)) {
		return func(_ *exec.Cmd, type_ func(string)) { type_(text + "\n") }
	}
	requeue := []string{"requeue", "--where", "type=refund,state=dead", reason, "--delay", "1h"}
	assert.Contains(t, b.refused(codeUsage, requeue...), "the outcome of 1 entry is unknown", "before anybody is asked for the number")
	requeue = append(requeue, "--checked")
	said, code := ask("type 3 to requeue", types("y"), requeue...)
	assert.Equal(t, codeUsage, code)
	for _, has := range []string{"would requeue 3, worth 387.00 CNY", actor().ID, "the outcome of 1 entry is unknown, and you have checked: " + b.entry("d1").ID.String(), failure} {
		assert.Contains(t, said, has)
	}
	_, code = ask("type 3 to requeue", func(cmd *exec.Cmd, _ func(string)) { assert.NoError(t, cmd.Process.Signal(syscall.SIGINT)) }, requeue...)
	assert.Equal(t, codeInterrupted, code)
	_, code = ask("type refund to pause", types("no"), "pause", "refund", reason)
	assert.Equal(t, codeUsage, code)
	_, code = ask("type 1h0m0s to purge", types("yes"), "purge", "--older", "1h", reason)
	assert.Equal(t, codeUsage, code)
	assert.Equal(t, 3, b.count("common_process_log WHERE state=-2"))
	assert.Zero(t, b.count("common_process_log_operation"))
	said, code = ask("type 3 to requeue", types("3"), requeue...)
	assert.Equal(t, codeDone, code)
	assert.Contains(t, said, "\x1b[32mdone", "in colour, on a terminal")
	assert.Equal(t, 3, b.count("common_process_log WHERE state=0"))
}

func TestShellsCompleteTypesAndStates(t *testing.T) {
	t.Parallel()
	b := inMariaDB(t).dead(1)
	b.exec("INSERT INTO common_process_log (idempotent_id, business_type, content, next_at, created_at, updated_at) VALUES ('e', 'bad\x1b[31m', '{}', 1, NOW(), NOW())")
	for input, want := range map[string]string{
		"list --where |type=re":                 "type=refund",
		"requeue --where |state=dead,type=":     "state=dead,type=refund",
		"requeue --where |type=refund,state=de": "type=refund,state=dead",
		"list --where |t":                       "type=",
		"pause |r":                              "refund",
		"resume |":                              "refund",
		"cases list --type |":                   "refund",
		"list -o |js":                           "json",
		"ddl |":                                 "mysql",
	} {
		args, last, _ := strings.Cut(input, "|")
		out := b.ok(append(append([]string{"__complete"}, strings.Fields(args)...), last)...)
		assert.Contains(t, strings.Split(out, "\n"), want, input)
		assert.NotContains(t, out, "bad")
	}
	assert.Contains(t, b.ok("completion", "bash"), "compensator")
	assert.Equal(t, codeDone, finish(t, call(t, "", "__complete", "pause", "")).code, "no database is no error for a shell")
}

// Failure: F135
func TestRequeuedEntriesAreEnqueuedThroughRedis(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	b := newBed(t, w.DSN, w.DB).dead(2)
	queued := func(key string) bool {
		return w.Redis.ZScore(t.Context(), w.DueKey("refund"), b.entry(key).ID.String()).Err() == nil
	}
	redis := []string{"--redis", w.Redis.Options().Addr, "--prefix", w.Name}
	a := b.do(append([]string{"requeue", "key:d0", reason, "--yes"}, redis...)...)
	require.Equal(t, codeDone, a.code, a.stderr)
	assert.NotContains(t, a.stderr, "wait")
	assert.True(t, queued("d0"))
	a = b.do("requeue", "key:d1", reason, "--yes")
	assert.Contains(t, a.stderr, "without --redis the entries wait")
	assert.False(t, queued("d1"))
	a = b.do("requeue", "key:d1", reason, "--yes", "--delay", "1h")
	assert.Equal(t, codeChanged, a.code, "it is pending")
	assert.NotContains(t, a.stderr, "wait")
	for _, key := range []string{"d0", "d1"} {
		assert.Zero(t, b.entry(key).DeliveryCount, "nothing was claimed")
	}
	assert.Contains(t, b.do("overview").stderr, "queue not checked")
	assert.Contains(t, b.do(append([]string{"overview"}, redis...)...).stderr, "queue ok")
}

// A cluster has the keys of different types on different nodes.
func TestRequeuedEntriesAreEnqueuedThroughACluster(t *testing.T) {
	t.Parallel()
	cluster := testservers.NewRedisCluster(t)
	w := harness.NewWorld(t)
	b := newBed(t, w.DSN, w.DB).dead(2)
	for key, where := range map[string]string{"d0": strings.Join(cluster.Addrs(), ","), "d1": "redis://" + cluster.Addrs()[0] + "?addr=" + cluster.Addrs()[1]} {
		a := b.do("requeue", "key:"+key, reason, "--yes", "--redis", where, "--prefix", cluster.Prefix(t))
		require.Equal(t, codeDone, a.code, a.stderr)
		assert.NotContains(t, a.stderr, "wait")
	}
	assert.NotContains(t, b.refused(codeUsage, "requeue", "key:d0", reason, "--yes", "--redis", "http://:secret@a:1?addr=b:1"), "secret")
}

// People send error texts to each other.
func TestNoPasswordIsRepeated(t *testing.T) {
	t.Parallel()
	b := inSQLite(t).dead(1)
	for _, where := range []string{"user:hunter2@127.0.0.1:1", ":hunter2@127.0.0.1:1,127.0.0.1:2", "http://:hunter2@127.0.0.1:1", "redis://user:hunter2@127.0.0.1:x"} {
		for _, args := range [][]string{{"overview"}, {"health"}, {"requeue", "key:d0", reason, "--yes"}} {
			said := b.refused(codeUsage, append(args, "--redis", where)...)
			assert.NotContains(t, said, "hunter2", where)
			assert.NotContains(t, said, "127.0.0.1", where)
			assert.Contains(t, said, "redis://user:password@host")
		}
	}
	assert.Equal(t, compensator.Dead, b.entry("d0").State)
	for _, dsn := range []string{"root:hunter2/x@tcp(db:3306)", "root:hunt/hunter2@tcp(db:3306)", "root:hunter2@db:3306/shop", "mysql://root:hunter2@db:3306/shop"} {
		_, _, err := openDB(dsn, false)
		require.Error(t, err, dsn)
		assert.NotContains(t, err.Error(), "hunt", dsn)
		assert.Contains(t, err.Error(), "user:password@tcp(host:3306)/shop")
	}
}

// Failure: F134
func TestNothingIsWrittenByLooking(t *testing.T) {
	t.Parallel()
	b := inMariaDB(t).dead(1)
	b.exec("DELETE FROM common_process_log_slots")
	before := checksums(t, b.db)
	for _, args := range [][]string{{"overview"}, {"types"}, {"list"}, {"get", "key:d0"}, {"explain", "key:d0"}, {"timeline", "key:d0"}, {"history", "key:d0"}, {"batch", "b77"}, {"health"}, {"trail"}, {"cases", "list"}, {"cases", "list", "--groups"}} {
		b.ok(args...)
	}
	assert.Equal(t, before, checksums(t, b.db))
}

func checksums(t *testing.T, db *sql.DB) (sums []string) {
	for _, suffix := range []string{"", "_audit", "_meta", "_fault", "_result", "_slots", "_attempt", "_stat", "_instance", "_case", "_operation", "_setting"} {
		var name, sum string
		require.NoError(t, db.QueryRow("CHECKSUM TABLE common_process_log"+suffix).Scan(&name, &sum))
		sums = append(sums, name+" "+sum)
	}
	return sums
}
