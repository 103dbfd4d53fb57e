package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
)

const asProgram = "COMPENSATOR_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	silenceDrivers()
	harness.Main(m)
}

type bed struct {
	*testing.T
	dsn string
	db  *sql.DB
	c   *compensator.Compensator
	typ *compensator.Type[harness.Order]
}

// hostile holds a formula, control characters and marks that change the direction of text.
const hostile = "=cmd|' /C calc'!A0 \x1b[31mred\x1b]0;title\x07 \u202egnp.exe\u2066 \u009b2J\x00 \r\nnext\u2028\U000e0041 退款"

// hostileID is a text that an idempotency key may contain.
const hostileID = "=1+\x1b]0;owned\x07\u202e退款"

const failure = "PSP is down"

func inMariaDB(t *testing.T) *bed {
	w := harness.NewWorld(t)
	return newBed(t, w.DSN, w.DB)
}

func inSQLite(t *testing.T) *bed {
	dsn := "file:" + filepath.Join(t.TempDir(), "log.db")
	db, err := sql.Open("sqlite", sqliteDSN(dsn, true))
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	require.NoError(t, compensator.Migrate(t.Context(), db))
	return newBed(t, dsn, db)
}

func newBed(t *testing.T, dsn string, db *sql.DB) *bed {
	b := &bed{T: t, dsn: dsn, db: db}
	worth := func(*compensator.Entry) (compensator.Amount, error) {
		return compensator.Amount{Minor: 12900, Currency: "CNY"}, nil
	}
	var err error
	b.c, err = compensator.New(t.Context(), compensator.Config{DB: db, Logger: slog.New(slog.DiscardHandler), PollInterval: 100 * time.Millisecond,
		Operations: &compensator.Operations{Attempts: true, Types: map[string]compensator.CaseConfig{"refund": {Amount: worth}}}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.c.Close() })
	b.typ, err = compensator.Handle(t.Context(), b.c, "refund", func(_ context.Context, e *compensator.Entry, o harness.Order) error {
		switch {
		case strings.HasPrefix(string(e.IdempotencyKey), "lives"):
			return nil
		case o.Note != "":
			return compensator.Permanent(errors.New(o.Note))
		}
		return compensator.Permanent(errors.New(failure))
	}, nil)
	require.NoError(t, err)
	return b
}

func (b *bed) put(note string, keys ...string) *bed {
	require.NoError(b, b.c.InTx(b.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
		for _, key := range keys {
			_, err := b.typ.Record(ctx, tx, harness.Order{Note: note}, compensator.Options{IdempotencyKey: compensator.IdempotencyKey(key), BatchID: "b77", BusinessID: "o-1", Headers: map[string]string{"by" + note: note}})
			if err != nil {
				return err
			}
		}
		return nil
	}))
	ctx, stop := context.WithCancel(b.Context())
	ran := make(chan error, 1)
	go func() { ran <- b.c.Run(ctx) }()
	for _, key := range keys {
		require.Eventually(b, func() bool { return b.entry(key).State.Terminal() }, harness.Timeout, 5*time.Millisecond)
	}
	stop()
	require.NoError(b, <-ran)
	return b
}

// dead records n entries that die, with the keys d0, d1 and so on.
func (b *bed) dead(n int) *bed {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprint("d", i)
	}
	return b.put("", keys...)
}

func (b *bed) entry(key string) *compensator.Entry {
	e, err := b.c.Get(b.Context(), compensator.IdempotencyKey(key))
	require.NoError(b, err)
	return e
}

func (b *bed) count(from string) (n int) {
	require.NoError(b, b.db.QueryRow("SELECT COUNT(*) FROM "+from).Scan(&n))
	return n
}

func (b *bed) exec(statements ...string) {
	for _, statement := range statements {
		_, err := b.db.Exec(statement)
		require.NoError(b, err, statement)
	}
}

type answer struct {
	stdout, stderr string
	code           int
}

// program does not start the process.
func (b *bed) program(args ...string) *exec.Cmd { return call(b.T, b.dsn, args...) }

func call(t *testing.T, dsn string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1", dsnVariable+"="+dsn, redisVariable+"=", "NO_COLOR=",
		"GORACE=atexit_sleep_ms=0") // Without this setting, each call takes a second longer.
	return cmd
}

func (b *bed) do(args ...string) answer { return b.reading("", args...) }

// reading runs the program in the test's process, because hundreds of processes would take too long.
func (b *bed) reading(stdin string, args ...string) answer {
	b.Helper()
	var files [3]*os.File
	for i := range files {
		file, err := os.CreateTemp(b.TempDir(), "")
		require.NoError(b, err)
		defer file.Close()
		files[i] = file
	}
	in, out, errs := files[0], files[1], files[2]
	_, err := in.WriteString(stdin)
	require.NoError(b, err)
	_, err = in.Seek(0, io.SeekStart)
	require.NoError(b, err)
	env := map[string]string{dsnVariable: b.dsn}
	code := run(args, func(name string) string { return env[name] }, in, out, errs)
	return checked(b.T, answer{read(b.T, out), read(b.T, errs), code})
}

func read(t *testing.T, written *os.File) string {
	text, err := os.ReadFile(written.Name())
	require.NoError(t, err)
	return string(text)
}

func finish(t *testing.T, cmd *exec.Cmd) answer {
	t.Helper()
	return start(t, cmd)()
}

// start returns a function that waits for the answer.
func start(t *testing.T, cmd *exec.Cmd) func() answer {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(t, cmd.Start())
	return func() answer {
		t.Helper()
		_ = cmd.Wait() // The exit code is in cmd.ProcessState.
		return checked(t, answer{out.String(), errs.String(), cmd.ProcessState.ExitCode()})
	}
}

func checked(t *testing.T, a answer) answer {
	t.Helper()
	require.NotContains(t, a.stderr, "goroutine ", "a stack is no answer")
	return a
}

func (b *bed) ok(args ...string) string {
	b.Helper()
	a := b.do(args...)
	require.Equal(b, codeDone, a.code, "%v: %s", args, a.stderr)
	return a.stdout
}

func (b *bed) refused(code int, args ...string) string {
	b.Helper()
	a := b.do(args...)
	require.Equal(b, code, a.code, "%v: %s%s", args, a.stdout, a.stderr)
	return a.stdout + a.stderr
}

func items(t *testing.T, text string) []map[string]any {
	t.Helper()
	var doc struct {
		Schema int
		Items  []map[string]any
	}
	require.NoError(t, json.Unmarshal([]byte(text), &doc), text)
	require.Equal(t, schema, doc.Schema)
	return doc.Items
}
