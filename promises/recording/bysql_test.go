package recording

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

var sqlBlock = regexp.MustCompile("(?s)```sql\n(.*?)```")

// bySQL returns the SQL blocks of docs/how-to/record-by-sql.md, in the order of the page.
func bySQL(t *testing.T) (record, ask, cancel, procedure, call string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/how-to/record-by-sql.md")
	require.NoError(t, err)
	found := sqlBlock.FindAllStringSubmatch(string(text), -1)
	require.Len(t, found, 6, "the last is SQLite's, tested where SQLite is")
	return found[0][1], found[1][1], found[2][1], found[3][1], found[4][1]
}

func change(t *testing.T, block string, pairs ...string) string {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		require.Contains(t, block, pairs[i])
	}
	return strings.NewReplacer(pairs...).Replace(block)
}

// clients run a script in a separate session without this library, and return its output.
var clients = map[string]func(w *harness.World, script string) (string, error){
	"command line": func(w *harness.World, script string) (string, error) {
		path, err := exec.LookPath("mariadb")
		if err != nil {
			path, err = exec.LookPath("mysql")
		}
		require.NoError(w.T, err, "a server's client is needed")
		cfg, err := mysql.ParseDSN(w.DSN)
		require.NoError(w.T, err)
		args := []string{"--no-defaults", "--batch", "--skip-column-names", "--default-character-set=utf8mb4", "--user=" + cfg.User, "--database=" + cfg.DBName}
		if cfg.Net == "unix" {
			args = append(args, "--socket="+cfg.Addr)
		} else {
			host, port, _ := strings.Cut(cfg.Addr, ":")
			args = append(args, "--protocol=tcp", "--host="+host, "--port="+port)
		}
		client := exec.CommandContext(w.T.Context(), path, args...)
		client.Env = append(os.Environ(), "MYSQL_PWD="+cfg.Passwd)
		client.Stdin = strings.NewReader(script)
		out, err := client.CombinedOutput()
		return string(out), err
	},
	"plain connection": func(w *harness.World, script string) (said string, err error) {
		conn, err := w.Open(harness.PlainPool(w.DSN)).Conn(w.T.Context())
		require.NoError(w.T, err)
		defer conn.Close()
		for _, statement := range statements(script) {
			rows, err := conn.QueryContext(w.T.Context(), statement)
			if err != nil {
				return said, err
			}
			columns, _ := rows.Columns()
			for rows.Next() {
				fields, into := make([]string, len(columns)), make([]any, len(columns))
				for i := range fields {
					into[i] = &fields[i]
				}
				require.NoError(w.T, rows.Scan(into...))
				said += strings.Join(fields, "\t") + "\n"
			}
			if err := rows.Close(); err != nil {
				return said, err
			}
		}
		return said, nil
	},
}

func statements(script string) (list []string) {
	delimiter := ";"
	statement := ""
	for line := range strings.Lines(script) {
		if word, found := strings.CutPrefix(line, "DELIMITER "); found {
			delimiter = strings.TrimSpace(word)
			continue
		}
		statement += line
		if whole, ends := strings.CutSuffix(strings.TrimSpace(statement), delimiter); ends {
			list, statement = append(list, whole), ""
		}
	}
	return list
}

func byEveryClient(t *testing.T, test func(t *testing.T, w *harness.World, run func(script string) (string, error))) {
	for name, client := range clients {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t)
			test(t, w, func(script string) (string, error) { return client(w, script) })
		})
	}
}

func closing(t *testing.T, w *harness.World, c *compensator.Compensator) *sync.Map {
	closed := new(sync.Map)
	_, err := compensator.Handle(t.Context(), c, "close_order", func(_ context.Context, e *compensator.Entry, o struct{ ID string }) error {
		closed.Store(string(e.IdempotencyKey), o.ID)
		assert.Equal(t, map[string]string{"tenant": "acme"}, e.Headers)
		assert.Zero(t, w.Count("common_process_log WHERE id=? AND next_at > "+harness.NowMillis, e.ID.Row()), "early")
		return nil
	}, nil)
	require.NoError(t, err)
	return closed
}

// Failure: F111
func TestEntryRecordedByPlainSQLRuns(t *testing.T) {
	byEveryClient(t, func(t *testing.T, w *harness.World, run func(string) (string, error)) {
		record, ask, _, _, _ := bySQL(t)
		c := w.New(w.QuickConfig())
		closed := closing(t, w, c)
		w.Run(c)
		_, err := run("BEGIN;\n" + change(t, record, "'close-42'", "'close-0'", "1800000 + 1", "0") + "ROLLBACK;\n")
		require.NoError(t, err)
		for i, zone := range []string{"+00:00", "+08:00", "-09:30"} {
			id := fmt.Sprintf("'close-42 %d'", i)
			_, err = run("SET time_zone='" + zone + "';\nBEGIN;\n" + change(t, record, "'close-42'", id) + "COMMIT;\n")
			require.NoError(t, err)
			assert.Equal(t, 1, w.Count("common_process_log WHERE idempotent_id="+id+" AND state=0 AND version=0 AND "+
				"next_at - TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',created_at) DIV 1000 = 1800001 AND "+
				"ABS(created_at - UTC_TIMESTAMP(3)) < 300"), "half an hour, in zone %s", zone)
			_, err = run(change(t, record, "'close-42'", strings.Replace(id, "42", "now", 1), "1800000 + 1", "200 + 1"))
			require.NoError(t, err)
		}
		w.Eventually(func() bool { return w.CountEnded(compensator.Succeeded, 0) == 3 }, "what is due has run")
		_, ran := closed.Load("close-0")
		assert.False(t, ran, "rolled back")
		content, _ := closed.Load("close-now 1")
		assert.Equal(t, "42", content)

		said, err := run(change(t, record, "close-42", "close-42 1"))
		assert.ErrorContains(t, errorOf(said, err), "1062")
		said, err = run(change(t, ask, "close-42", "close-now 1"))
		require.NoError(t, err)
		assert.Contains(t, said, "close_order\t1\n")
		w.InTx(w.DB, func(tx *sql.Tx) { // Record the same event as a Go service does.
			receipt, err := c.Record(t.Context(), tx, compensator.NewEntry{BusinessType: "close_order", Content: []byte(`{"ID":"42"}`),
				Options: compensator.Options{IdempotencyKey: "close-42 1"}})
			require.NoError(t, err)
			assert.True(t, receipt.Duplicate() && receipt.Entries[0].ContentMatches)
		})
	})
}

func errorOf(said string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %s", err, said)
}

// Failure: F111
func TestEntryTakenBackByPlainSQLDoesNotRun(t *testing.T) {
	byEveryClient(t, func(t *testing.T, w *harness.World, run func(string) (string, error)) {
		record, _, cancel, _, _ := bySQL(t)
		cfg := w.QuickConfig()
		dropped := make(chan struct{}, 10)
		cfg.Observer.OutcomeDropped = func(observe.SettledEvent) { dropped <- struct{}{} }
		c := w.New(cfg)
		begun, goOn := make(chan struct{}), make(chan struct{})
		_, err := compensator.HandleTx(t.Context(), c, "close_order", func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, _ struct{}) error {
			begun <- struct{}{}
			<-goOn
			_, err := tx.ExecContext(ctx, "INSERT INTO effects (what) VALUES ('closed')")
			return err
		}, nil)
		require.NoError(t, err)
		w.Run(c)
		_, err = run("BEGIN;\n" + record + "COMMIT;\nBEGIN;\n" + cancel + "COMMIT;\n")
		require.NoError(t, err)
		result, err := c.Cancel(t.Context(), compensator.IdempotencyKey("close-42"))
		require.NoError(t, err)
		assert.True(t, result.WasAlready)

		_, err = run(change(t, record, "close-42", "close-43") + change(t, cancel, "close-42", "close-43", "state = 3, ended_by = 'cancel'", "state = 1, ended_by = 'complete'"))
		require.NoError(t, err)
		_, err = c.Complete(t.Context(), compensator.IdempotencyKey("close-43"))
		assert.ErrorIs(t, err, compensator.ErrAlreadySucceeded)

		_, err = run(change(t, record, "'close-42'", "'close-44'", "1800000 + 1", "0"))
		require.NoError(t, err)
		harness.Receive(t, begun)
		said, err := run(change(t, cancel, "'close-42'", "'close-44'") + "SELECT ROW_COUNT();\n")
		require.NoError(t, err)
		assert.Equal(t, "1\n", said)
		close(goOn)
		harness.Receive(t, dropped)
		assert.Zero(t, w.Count("effects"), "it is rolled back")

		_, err = run(change(t, record, "'close-42'", "'close-45'", "1800000 + 1", "0"))
		require.NoError(t, err)
		harness.Receive(t, begun)
		w.Eventually(func() bool { return w.Count("effects") == 1 }, "the next one is closed")
		said, err = run(change(t, cancel, "'close-42'", "'close-45'") + "SELECT ROW_COUNT();\n")
		require.NoError(t, err)
		assert.Equal(t, "0\n", said, "too late")
		assert.Equal(t, 2, w.CountEnded(compensator.Cancelled, 0))
		assert.Equal(t, 2, w.Count("common_process_log WHERE ended_by='cancel'"))
	})
}

// Failure: F111
func TestProcedureRecordsAndRefusesWhatIsWrong(t *testing.T) {
	byEveryClient(t, func(t *testing.T, w *harness.World, run func(string) (string, error)) {
		_, _, _, procedure, call := bySQL(t)
		_, err := run(procedure)
		require.NoError(t, err)
		for _, wrong := range []string{
			`CALL record_entry('', 't', '{}', 0);`, `CALL record_entry('a ', 't', '{}', 0);`, `CALL record_entry(NULL, 't', '{}', 0);`,
			`CALL record_entry(REPEAT('i', 192), 't', '{}', 0);`, `CALL record_entry('a', '', '{}', 0);`, `CALL record_entry('a', ' t', '{}', 0);`,
			`CALL record_entry('a', 't ', '{}', 0);`, `CALL record_entry('a', REPEAT('t', 65), '{}', 0);`, `CALL record_entry('a', 't', '{', 0);`,
			`CALL record_entry('a', 't', NULL, 0);`, `CALL record_entry('a', 't', CONCAT('"', REPEAT('x', 262144), '"'), 0);`,
			`CALL record_entry('a', 't', '{}', -1);`, `CALL record_entry('a', 't', '{}', 3153600000001);`, `CALL record_entry('a', 't', '{}', NULL);`,
		} {
			_, err := run("SET SESSION sql_mode='';\n" + wrong + "\n") // The procedure must use its own sql_mode.
			assert.Error(t, err, wrong)
		}
		assert.Zero(t, w.Count("common_process_log"))
		c := w.New(w.QuickConfig())
		_, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
		w.Run(c)
		_, err = run(call)
		require.NoError(t, err)
		w.Eventually(func() bool { return w.CountEnded(compensator.Succeeded, 0) == 1 }, "it runs")
		assert.Equal(t, 1, ran.Total())
		_, err = run(call)
		assert.Error(t, err, "the same event")
	})
}

// oddRows are column values that the library never writes, but other programs may write. The field ends says whether
// the process must end an entry with this value.
var oddRows = []struct {
	column, value string
	ends          bool
}{
	{"version", "5", true}, {"version", "9223372036854775807", true}, {"version", "18446744073709551615", true},
	{"delivery_count", "2", true}, {"delivery_count", "4294967295", true},
	{"process_count", "4294967295", true}, {"compensate_count", "4294967295", true}, {"max_process_count", "4294967295", true},
	{"epoch", "7", true}, {"epoch", "4294967295", true}, {"token", "'0123456789abcdef'", true}, {"token", "'x'", true},
	{"next_at", "1700000000", true}, {"next_at", "0", true}, {"next_at", "-9223372036854775808", true},
	{"next_at", "1700000000000000", false}, {"next_at", "9223372036854775807", false},
	{"lease_until", "-9223372036854775808", true}, {"lease_until", "1700000000000000", false}, {"lease_until", "9223372036854775807", false},
	{"state", "-1", true}, {"state", "7", false}, {"state", "127", false}, {"state", "-128", false},
	{"headers", "'no JSON'", true}, {"headers", "'[1]'", true}, {"headers", `'{"a":1,"b":"x"}'`, true}, {"headers", "X'FFFE'", true},
	{"content", "'no JSON'", false}, {"content", "X'FFFE00'", false}, {"created_at", "'0000-00-00'", true}, {"updated_at", "'0000-00-00'", true},
	{"ended_by", "'nobody'", true}, {"last_error", "'of long ago'", true}, {"delay_second", "-9223372036854775808", true},
	{"idempotent_id", "''", true}, {"idempotent_id", "'ends with a space '", true}, {"business_type", "' '", false}, {"business_type", "''", false},
	{"business_type", "'{x}:y\\n'", false},
}

// Rows with odd column values must not keep the library from running valid rows. The odd rows are due before the valid
// rows, so a process reads the odd rows first.
// Failure: F111
func TestRowOfAnyShapeStopsNoOther(t *testing.T) {
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		conn, err := w.Open(harness.PlainPool(w.DSN)).Conn(t.Context())
		require.NoError(t, err)
		defer conn.Close()
		_, err = conn.ExecContext(t.Context(), "SET SESSION sql_mode=''") // A session without a strict sql_mode writes values that a strict session rejects.
		require.NoError(t, err)
		good := 0
		for round := range 2 {
			for i, odd := range oddRows {
				columns := map[string]string{"idempotent_id": fmt.Sprintf("'odd-%d-%d'", round, i), "business_type": "'close_order'", "content": "'{}'",
					"next_at": "1000", "created_at": "UTC_TIMESTAMP(3)", "updated_at": "UTC_TIMESTAMP(3)"}
				if columns[odd.column] = odd.value; odd.column == "idempotent_id" && round > 0 {
					continue
				}
				var names, values []string
				for name, value := range columns {
					names, values = append(names, name), append(values, value)
				}
				_, err := conn.ExecContext(t.Context(), "INSERT INTO common_process_log ("+strings.Join(names, ",")+") VALUES ("+strings.Join(values, ",")+")")
				require.NoError(t, err, "%s %s", odd.column, odd.value)
			}
			for range 20 {
				good++
				_, err := conn.ExecContext(t.Context(), "INSERT INTO common_process_log (idempotent_id, business_type, content, next_at, created_at, updated_at) "+
					"VALUES (?, 'close_order', '{}', 2000, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3))", fmt.Sprint("good-", good))
				require.NoError(t, err)
			}
		}
		t.Cleanup(func() { w.Exec("DELETE FROM common_process_log") }) // Delete the rows, because they break invariants that the harness checks at the end.

		var log lockedBuffer
		cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		c := w.New(cfg)
		_, _ = harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{Concurrency: 1, Retry: compensator.Fixed(time.Millisecond)}, func(e *compensator.Entry, call int) error {
			if e.ProcessCount > 0 {
				return harness.ErrSoldOut
			}
			return nil
		})
		stop := w.Run(c)
		w.Eventually(func() bool {
			return w.Count("common_process_log WHERE idempotent_id LIKE 'good-%' AND state=1") == good
		}, "every good entry runs")
		for i, odd := range oddRows {
			if !odd.ends || odd.column == "idempotent_id" {
				continue
			}
			w.Eventually(func() bool {
				return w.Count("common_process_log WHERE idempotent_id=? AND state IN (1,-2)", fmt.Sprintf("odd-0-%d", i)) == 1
			}, "%s %s ends", odd.column, odd.value)
		}
		w.Eventually(func() bool { return strings.Contains(log.String(), "do not run as they stand") }, "the log names what does not")
		health := c.Health(t.Context())
		require.NoError(t, health.Ready())
		text := fmt.Sprint(health.Problems)
		for _, why := range []string{"next_at is more than a hundred years away", "lease_until is set, but no process has a lease", "state does not exist"} {
			assert.Contains(t, text, why)
		}
		require.NoError(t, stop()) // An entry that changes its state between two pages would be on both of them, or on none.
		seen := 0
		for _, state := range processlog.States {
			page, err := admin.Of(c).List(t.Context(), admin.Filter{States: []compensator.State{state}, Limit: 500})
			require.NoError(t, err)
			seen += len(page.Entries)
		}
		assert.Equal(t, w.Count("common_process_log WHERE state BETWEEN -3 AND 4"), seen)
	})
}

type lockedBuffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
