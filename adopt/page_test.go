package adopt_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/adopt"
	"github.com/compensator-go/compensator/internal/harness"
)

type Order struct {
	ID string `json:"id"`
}

// follow is the Go code of docs/how-to/move-from-your-own-table.md. At each step of the page it calls a function of the
// argument steps.
func follow(ctx context.Context, db *sql.DB, rdb *redis.Client, steps followed) error {
	if err := compensator.MigrateTable(ctx, db, "entry_log"); err != nil {
		return err
	}
	c, err := compensator.New(ctx, compensator.Config{DB: db, Redis: rdb, Table: "entry_log"})
	if err != nil {
		return err
	}
	defer c.Close()
	closeOrder, err := compensator.HandleTx(ctx, c, "close_order", steps.close, nil)
	if err != nil {
		return err
	}
	nextTry := make(map[int64]time.Time) // next attempt of each failed row; only the ZSET of the old timer knows it
	scores, err := rdb.ZRangeWithScores(ctx, "WAIT_PROCESS_LOG_KEY", 0, -1).Result()
	if err != nil {
		return err
	}
	for _, score := range scores {
		id, err := strconv.ParseInt(fmt.Sprint(score.Member), 10, 64)
		if err != nil {
			return err
		}
		at := time.UnixMilli(int64(score.Score)) // use time.Unix if your timer writes seconds
		if at.Year() < 2000 || at.Year() > 2100 {
			return fmt.Errorf("row %d has the score %v: not a time in milliseconds", id, score.Score)
		}
		nextTry[id] = at
	}
	mapRow := func(row *adopt.Row) (compensator.NewEntry, error) {
		var kind, batch, business, user, content string
		var id, dueIn int64 // dueIn is in microseconds
		var state, spent, most int
		if err := row.Scan(&id, &state, &kind, &batch, &business, &user, &content, &spent, &most, &dueIn); err != nil {
			return compensator.NewEntry{}, err
		}
		switch kind {
		case "close_order":
		case "sync_report":
			return compensator.NewEntry{}, adopt.Skip("sync_report: the old system finishes these")
		default: // Refuse unknown types instead of closing them.
			return compensator.NewEntry{}, fmt.Errorf("unknown type %q", kind)
		}
		var order Order // Decode as the handler does, so that a row which the handler could not decode is refused here.
		if err := json.Unmarshal([]byte(content), &order); err != nil {
			return compensator.NewEntry{}, err
		}
		switch at, waits := nextTry[id]; {
		case waits:
			dueIn = max(dueIn, time.Until(at).Microseconds())
		case state == -1: // Rows without a score are spread over an hour.
			dueIn = max(dueIn, rand.N(time.Hour).Microseconds())
		}
		return closeOrder.Entry(order, compensator.Options{
			IdempotencyKey: compensator.IdempotencyKey("close-" + order.ID), Delay: max(0, time.Duration(dueIn)*time.Microsecond), MaxAttempts: max(1, most-spent),
			BatchID: batch, BusinessID: business, UserID: user,
		}), nil
	}
	importer, err := adopt.Open(c, adopt.Config{
		Name: "old-process-log", Table: "common_process_log", Key: "id",
		Columns: []string{"id", "state", "business_type", "COALESCE(batch_id, '')", "COALESCE(business_id, '')", "COALESCE(user_id, '')",
			"COALESCE(content, '')", "process_count", "max_process_count",
			"TIMESTAMPDIFF(MICROSECOND, NOW(6), created_at + INTERVAL delay_second SECOND)"},
		Where: "state IN (0, -1)", Take: "state = 9", Map: mapRow,
	})
	if err != nil {
		return err
	}
	report, err := importer.DryRun(ctx)
	fmt.Println(report)
	for _, refusal := range report.Refusals {
		fmt.Println(refusal)
	}
	if err != nil {
		return err
	}
	steps.tried(report)
	report, err = importer.Once(ctx) // one pass
	if err != nil {
		return err
	}
	steps.taken(report)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	running := make(chan error, 1)
	go func() { running <- c.Run(ctx) }()
	go steps.write(stop)
	err = importer.Run(ctx) // repeats passes while old services still write
	if err != nil {
		return err
	}
	return <-running
}

type followed struct {
	close        func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, o Order) error
	tried, taken func(*adopt.Report)
	write        func(stop func())
}

var pageBlock = regexp.MustCompile("(?s)```(\\w*)\n(.*?)```")

// TestPageImportsAnOldTable runs the SQL statements of docs/how-to/move-from-your-own-table.md, and the function
// follow. It checks that this file contains the Go code of the page.
// Failure: F31
func TestPageImportsAnOldTable(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/how-to/move-from-your-own-table.md")
	require.NoError(t, err)
	source, err := os.ReadFile("page_test.go")
	require.NoError(t, err)
	var statements []string
	said := ""
	for _, block := range pageBlock.FindAllStringSubmatch(string(page), -1) {
		switch block[1] {
		case "sql":
			statements = append(statements, strings.TrimSuffix(strings.TrimSpace(block[2]), ";"))
		case "go":
			assert.Contains(t, string(source), "\t"+strings.ReplaceAll(strings.TrimSpace(block[2]), "\n", "\n\t")+"\n")
		default:
			said = strings.TrimSuffix(block[2], "\n")
		}
	}
	require.Len(t, statements, 3)
	oldTable, takeFirst, remaining := statements[0], statements[1], statements[2]

	w := harness.NewWorld(t).WithRedis()
	w.Exec("DROP TABLE common_process_log")
	// At the end of the test, the harness checks the entries in the table common_process_log. In this test, that table
	// is the old one, and its rows are no entries. So drop the table before that check.
	t.Cleanup(func() { w.Exec("DROP TABLE common_process_log") })
	w.Exec(oldTable)
	_, err = compensator.New(t.Context(), compensator.Config{DB: w.DB})
	for _, missing := range []string{"next_at", "lease_until", "version", "epoch"} {
		require.ErrorContains(t, err, missing, "the old table is not a log")
	}
	require.ErrorContains(t, err, "adopt", "the error names the package for a hand-made table")
	require.Equal(t, 1, strings.Count(err.Error(), "\n")+1, "the error is one line")
	add := func(id, kind string, content any, columns string) {
		w.Exec("INSERT INTO common_process_log (idempotent_id, business_type, business_id, content, delay_second, state, process_count) VALUES (?,?,?,?,"+columns+")", id, kind, id, content)
	}
	const long = "3600, 0, 0"
	for i := range 98 {
		add(fmt.Sprint(i), "close_order", `{"id":"`+fmt.Sprint(i)+`"}`, "0, 0, 0")
	}
	add("failed", "close_order", `{"id":"failed"}`, "0, -1, 2")
	add("waiting", "close_order", `{"id":"waiting"}`, "0, -1, 1")
	add("late", "close_order", `{"id":"late"}`, long)
	add("report 1", "sync_report", `{}`, long)
	add("report 2", "sync_report", `{}`, long)
	add("cut", "close_order", `{"id":`, long)
	add("done", "close_order", `{}`, "0, 1, 0")
	add("given up", "close_order", `{}`, "0, -2, 3")
	add("held", "close_order", `{"id":"held"}`, "0, 0, 0")
	add("empty", "close_order", nil, long)
	add("payment", "pay_followup", `{"id":"2"}`, long)
	for _, id := range []string{"failed", "waiting"} {
		var row int64
		require.NoError(t, w.DB.QueryRow("SELECT id FROM common_process_log WHERE idempotent_id=?", id).Scan(&row))
		next := time.Now().Add(map[string]time.Duration{"failed": -time.Second, "waiting": 3 * time.Hour}[id])
		require.NoError(t, w.Redis.ZAdd(t.Context(), "WAIT_PROCESS_LOG_KEY", redis.Z{Score: float64(next.UnixMilli()), Member: row}).Err())
	}
	var held int64
	require.NoError(t, w.DB.QueryRow("SELECT id FROM common_process_log WHERE idempotent_id='held'").Scan(&held))

	closed := func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, o Order) error {
		assert.EqualValues(t, "close-"+o.ID, e.IdempotencyKey)
		_, err := tx.ExecContext(ctx, "INSERT INTO effects (what) VALUES (?)", o.ID)
		return err
	}
	require.NoError(t, follow(t.Context(), w.DB, w.Redis, followed{close: closed,
		tried: func(report *adopt.Report) {
			lines := report.String()
			for _, refusal := range report.Refusals {
				lines += "\n" + refusal.Error()
			}
			assert.Equal(t, said, lines, "as the page shows it")
			assert.Zero(t, w.Count("entry_log"))
			result, err := w.DB.Exec(takeFirst, held) // The old timer takes one row.
			require.NoError(t, err)
			n, _ := result.RowsAffected()
			require.EqualValues(t, 1, n)
		},
		taken: func(report *adopt.Report) {
			assert.Equal(t, map[string]int{"close_order": 101}, report.Recorded)
			assert.Equal(t, 101, w.Count("common_process_log WHERE state=9"))
			assert.Equal(t, 1, w.Count("entry_log WHERE idempotent_id='close-waiting' AND ABS(next_at-"+harness.NowMillis+"-3*3600000) < 600000"), "due when the ZSET says")
			assert.Equal(t, 1, w.Count("entry_log WHERE idempotent_id='close-failed' AND max_process_count=1"))
			assert.Equal(t, 1, w.Count("entry_log WHERE idempotent_id='close-late' AND ABS(next_at-"+harness.NowMillis+"-3600000) < 600000"))
			result, err := w.DB.Exec(takeFirst, 1) // The Import has already taken this row.
			require.NoError(t, err)
			n, _ := result.RowsAffected()
			assert.Zero(t, n)
		},
		write: func(stop func()) {
			defer stop()
			add("new", "close_order", `{"id":"new"}`, "0, 0, 0")
			assert.Eventually(t, func() bool { return w.Count("effects") == 100 }, harness.Timeout, 10*time.Millisecond, "every due entry has run in the new system")
			w.Exec("UPDATE common_process_log SET state=1 WHERE id=? AND state=5", held) // The old system finishes the row that it holds.
		},
	}))
	assert.Equal(t, 100, w.Count("(SELECT DISTINCT what FROM effects) AS d"), "each once")
	rest := 0
	require.NoError(t, w.DB.QueryRow(remaining).Scan(&rest))
	assert.Equal(t, 5, rest, "two reports and the refused rows")
}

func TestOtherExpressionsOfThePageAreRight(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/how-to/move-from-your-own-table.md")
	require.NoError(t, err)
	found := func(pattern string) string {
		match := regexp.MustCompile(pattern).FindSubmatch(page)
		require.Len(t, match, 2, pattern)
		return string(match[1])
	}
	dueIn, notSoon := found("`(TIMESTAMPDIFF[^`]*8 HOUR[^`]*)`"), found("`Where: \"([^\"]*10 MINUTE)\"`")
	w := harness.NewWorld(t)
	w.Exec("CREATE TABLE old_log (id BIGINT AUTO_INCREMENT PRIMARY KEY, state INT NOT NULL DEFAULT 0, delay_second INT NOT NULL, created_at DATETIME NOT NULL)")
	old := w.Open(harness.PlainPool(harness.WithParams(t, w.DSN, map[string]string{"time_zone": "'+08:00'"})))
	for _, delay := range []int{0, 300, 3600} {
		_, err := old.Exec("INSERT INTO old_log (delay_second, created_at) VALUES (?, NOW())", delay)
		require.NoError(t, err)
	}
	db := w.Open(harness.PlainPool(harness.WithParams(t, w.DSN, map[string]string{"time_zone": "'+00:00'"})))
	rows, err := db.Query("SELECT delay_second * 1000000 - " + dueIn + " FROM old_log")
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var passed int64
		require.NoError(t, rows.Scan(&passed))
		assert.True(t, passed > -2_000_000 && passed < 600_000_000, "%d µs since the row was written", passed)
	}
	require.NoError(t, rows.Err())
	var id int
	require.NoError(t, old.QueryRow("SELECT id FROM old_log WHERE "+notSoon).Scan(&id))
	assert.Equal(t, 3, id)
}
