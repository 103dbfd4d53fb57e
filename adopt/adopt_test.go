package adopt

import (
	"bytes"
	"database/sql"
	"log/slog"
	"math"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
)

func TestEveryOldRowBecomesOneEntryAndIsTakenWithIt(t *testing.T) {
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		w.Exec(oldTable)
		cfg := w.QuickConfig()
		cfg.DB = db
		r := &rig{World: w, c: w.New(cfg)}
		r.add("pay", 55)
		r.add("ship", 20)
		im := r.open(moving())
		report := r.once(im)
		assert.Equal(t, 75, report.Rows)
		assert.Equal(t, map[string]int{"pay": 55, "ship": 20}, report.Recorded)
		r.requireOneEach("pay", 55)
		r.requireOneEach("ship", 20)
		assert.Equal(t, 75, r.Count("old_log WHERE state=?", taken))
		r.add("pay", 1)
		assert.Equal(t, 1, r.once(im).Rows, "the next pass finds what is new")
		r.requireOneEach("pay", 56)
	})
}

// Failure: F109
func TestTableThatStaysUnchangedGivesEachRowOneEntry(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.add("pay", 30)
	im := r.open(copying())
	r.once(im)
	r.add("pay", 3)
	report := r.once(im)
	assert.Equal(t, map[string]int{"pay": 30}, report.Known)
	assert.Equal(t, map[string]int{"pay": 3}, report.Recorded)
	r.requireOneEach("pay", 33)
	assert.Equal(t, 33, r.Count("old_log WHERE state=?", waits))
}

// Failure: F110
func TestDryRunCountsAndChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.add("pay", 25)
	r.add("gone", 3)
	r.add("panic", 1)
	r.add("no such type, its name is "+strings.Repeat("long ", 9), 2) // This name is longer than the maximum of 64 characters.
	im := r.open(moving())
	report, err := im.DryRun(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 0, r.Count("common_process_log"))
	assert.Equal(t, 31, r.Count("old_log WHERE state=?", waits))
	real := r.once(im)
	assert.Equal(t, real.String(), report.String(), "the dry run predicts the result")
	assert.Equal(t, refusals(real), refusals(report))
	assert.Equal(t, "rows            31\nrecorded        25  pay\nskipped          3  a type of long ago\nrefused          1  of no type\n"+
		"refused          2  no such type, its name is "+strings.Repeat("long ", 9), report.String())
}

// Failure: F110
func TestBadRowIsNamedAndHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.add("pay", 5)
	r.Exec("INSERT INTO old_log (kind, content) VALUES ('pay', 'no JSON')") // this is row 6
	r.add("panic", 1)                                                       // this is row 7
	r.add("pay", 20)
	r.add(" pay", 1) // Row 28 is on another page. Record refuses its type's name.
	r.add("pay", 22)
	var log bytes.Buffer
	cfg := moving()
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	im := r.open(cfg)
	report := r.once(im)
	assert.Equal(t, map[string]int{"pay": 47}, report.Recorded)
	assert.Equal(t, map[string]int{"": 2, " pay": 1}, report.Refused)
	require.Len(t, report.Refusals, 3)
	assert.Equal(t, "6", report.Refusals[0].Key)
	var panicked *compensator.PanicError
	assert.ErrorAs(t, report.Refusals[1], &panicked)
	var field *compensator.FieldError
	require.ErrorAs(t, report.Refusals[2], &field)
	assert.Equal(t, "business type", field.Field)
	assert.Equal(t, 3, r.Count("old_log WHERE state=?", waits), "refused rows stay unchanged")
	assert.Contains(t, log.String(), "row=28")
	assert.Equal(t, 3, strings.Count(log.String(), "row is refused"))
	assert.Equal(t, 3, r.once(im).Rows, "the next pass finds refused rows again")
}

// Failure: F110
func TestRefusedRowEndsThePassWithStopAtRefusal(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"panic", " pay"} {
		r := newRig(t)
		r.add("pay", 25)
		r.add(bad, 1)
		r.add("pay", 25)
		cfg := moving()
		cfg.StopAtRefusal = true
		report, err := r.open(cfg).Once(t.Context())
		var refusal *Refusal
		require.ErrorAs(t, err, &refusal)
		assert.Equal(t, "26", refusal.Key)
		assert.Less(t, report.Recorded["pay"], 26)
		assert.Equal(t, report.Recorded["pay"], r.Count("common_process_log"))
		assert.ErrorAs(t, r.open(cfg).Run(t.Context()), &refusal)
	}
}

// Failure: F109
func TestRowsThatShareAnIdempotencyKeyShareAnEntry(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.add("pay", 3)
	r.add("ship", 1)
	cfg := moving()
	cfg.Map = func(row *Row) (compensator.NewEntry, error) {
		entry, err := mapRow(row)
		entry.IdempotencyKey = "one event"
		return entry, err
	}
	report := r.once(r.open(cfg))
	assert.Equal(t, map[string]int{"pay": 1}, report.Recorded)
	assert.Equal(t, map[string]int{"pay": 2}, report.Known)
	assert.Equal(t, map[string]int{"ship": 1}, report.Refused, "an idempotency key belongs to one type")
	assert.Equal(t, 1, r.Count("common_process_log"))
	assert.Equal(t, 3, r.Count("old_log WHERE state=?", taken))
}

// Failure: F109
func TestLockedRowIsSkippedAndTakenLater(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.add("pay", 10)
	tx := r.Begin(r.Open(harness.PlainPool(r.DSN)))
	_, err := tx.Exec("UPDATE old_log SET state=1 WHERE id=4")
	require.NoError(t, err)
	im := r.open(moving())
	report := r.once(im)
	assert.Equal(t, 1, report.Busy)
	assert.Equal(t, map[string]int{"pay": 9}, report.Recorded)
	require.NoError(t, tx.Commit())
	assert.Equal(t, 0, r.once(im).Rows, "the old system has run the row")
	assert.Equal(t, 9, r.Count("common_process_log"))
}

// Row 1 is committed only after a pass has taken row 2.
func TestRowThatIsCommittedLateIsTakenToo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	tx := r.Begin(r.Open(harness.PlainPool(r.DSN)))
	_, err := tx.Exec("INSERT INTO old_log (kind, content) VALUES ('pay', '{}')")
	require.NoError(t, err)
	r.add("pay", 1)
	im := r.open(moving())
	assert.Equal(t, 1, r.once(im).Rows)
	require.NoError(t, tx.Commit())
	assert.Equal(t, 1, r.once(im).Rows)
	r.requireOneEach("pay", 2)
}

// The Take of this test changes nothing.
// Failure: F110
func TestTakeThatLeavesRowsToTheOldSystemIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.add("pay", 5)
	cfg := moving()
	cfg.Take = "kind = kind"
	_, err := r.open(cfg).Once(t.Context())
	var field *compensator.FieldError
	require.ErrorAs(t, err, &field)
	assert.Equal(t, "Take", field.Field)
	assert.Equal(t, 0, r.Count("common_process_log"))
	assert.ErrorAs(t, r.open(cfg).Run(t.Context()), &field, "Run returns the error")
}

// Failure: F109
func TestKeysOfEachKindGiveDistinctIdempotencyKeys(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("k", 180)
	for kind, values := range map[string][]string{
		"BIGINT UNSIGNED": {"1", "9007199254740993", "9007199254740992", "18446744073709551615"},
		"INT":             {"-5", "0", "7"},
		"VARCHAR(190)":    {"'a'", "'B'", "'c:1'", "'c'", "'" + long + "1234567'", "'" + long + "1234568'"},
		"BINARY(4)":       {"X'00000001'", "X'FFFFFFFF'", "X'FFFFFF00'", "'abcd'"},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.Exec("CREATE TABLE other (k " + kind + " NOT NULL PRIMARY KEY, state INT NOT NULL DEFAULT 0) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4")
			r.Exec("INSERT INTO other (k) VALUES (" + strings.Join(values, "),(") + ")")
			cfg := moving()
			cfg.Table, cfg.Key, cfg.Columns, cfg.Page = "other", "k", nil, 2
			cfg.Map = func(row *Row) (compensator.NewEntry, error) {
				return compensator.NewEntry{BusinessType: "pay", Options: compensator.Options{BusinessExtID: row.Key[:min(64, len(row.Key))]}}, nil
			}
			report := r.once(r.open(cfg))
			assert.Equal(t, map[string]int{"pay": len(values)}, report.Recorded)
			assert.Equal(t, len(values), r.Count("common_process_log"))
			assert.Equal(t, 0, r.Count("other WHERE state=0"))
		})
	}
	r := newRig(t)
	r.Exec("CREATE TABLE other (k DATETIME NOT NULL PRIMARY KEY, state INT NOT NULL DEFAULT 0)")
	r.Exec("INSERT INTO other (k) VALUES (NOW())")
	cfg := moving()
	cfg.Table, cfg.Key = "other", "k"
	_, err := r.open(cfg).Once(t.Context())
	var field *compensator.FieldError
	require.ErrorAs(t, err, &field)
	assert.Equal(t, "Key", field.Field)
}

// Failure: F109
func TestKeyThatSeveralRowsShareIsRefused(t *testing.T) {
	t.Parallel()
	for kind, values := range map[string]string{"BIGINT": "(1),(2),(2),(3)", "VARCHAR(20)": "('a'),('b'),('b'),('c')"} {
		// Two rows have the same key. The size of a page decides whether both rows are in one page, or whether a page
		// ends between them.
		for page := 1; page <= 4; page++ {
			for _, take := range []string{"state = 9", ""} {
				r := newRig(t)
				r.Exec("CREATE TABLE other (k " + kind + " NOT NULL, state INT NOT NULL DEFAULT 0) ENGINE=InnoDB")
				r.Exec("INSERT INTO other (k) VALUES " + values)
				cfg := moving()
				cfg.Table, cfg.Key, cfg.Columns, cfg.Page, cfg.Take = "other", "k", nil, page, take
				cfg.Map = func(*Row) (compensator.NewEntry, error) { return compensator.NewEntry{BusinessType: "pay"}, nil }
				_, err := r.open(cfg).Once(t.Context())
				var field *compensator.FieldError
				require.ErrorAs(t, err, &field)
				assert.Equal(t, "Key", field.Field)
				if take != "" {
					assert.Equal(t, r.Count("other WHERE state=9"), r.Count("common_process_log"), "each row taken has an entry")
				}
			}
		}
	}
}

// Failure: F109
func TestRowWithTheKeyOfAnotherIsNotTakenWithIt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Exec("CREATE TABLE other (k BIGINT NOT NULL, name VARCHAR(9) NOT NULL PRIMARY KEY, state INT NOT NULL DEFAULT 0, KEY (k)) ENGINE=InnoDB")
	r.Exec("INSERT INTO other (k, name) VALUES (1,'one'),(1,'other')")
	cfg := moving()
	cfg.Table, cfg.Key, cfg.Columns, cfg.Where = "other", "k", []string{"name"}, "state = 0 AND name = 'one'"
	cfg.Map = func(*Row) (compensator.NewEntry, error) { return compensator.NewEntry{BusinessType: "pay"}, nil }
	_, err := r.open(cfg).Once(t.Context())
	var field *compensator.FieldError
	require.ErrorAs(t, err, &field)
	assert.Equal(t, "Key", field.Field)
	assert.Equal(t, 0, r.Count("other WHERE state=9"))
	assert.Equal(t, 0, r.Count("common_process_log"))
}

// MyISAM ignores a rollback, so Take would stay in effect for a row whose entry was rolled back.
// Failure: F109
func TestTableWithoutTransactionsIsNotTakenFrom(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Exec("ALTER TABLE old_log ENGINE=MyISAM")
	r.add("pay", 5)
	for name, pass := range map[string]func(*Import) (*Report, error){
		"DryRun": func(im *Import) (*Report, error) { return im.DryRun(t.Context()) },
		"Once":   func(im *Import) (*Report, error) { return im.Once(t.Context()) },
	} {
		_, err := pass(r.open(moving()))
		var field *compensator.FieldError
		require.ErrorAs(t, err, &field, name)
		assert.Equal(t, "Table", field.Field, name)
		assert.Contains(t, field.Reason, "MyISAM", name)
		assert.Equal(t, 5, r.Count("old_log WHERE state=?", waits), name)
	}
	qualified := moving()
	config, err := mysql.ParseDSN(r.DSN)
	require.NoError(t, err)
	qualified.Table = config.DBName + ".old_log"
	_, err = r.open(qualified).DryRun(t.Context())
	require.Error(t, err, "a table with the name of its database")
	assert.Equal(t, map[string]int{"pay": 5}, r.once(r.open(copying())).Recorded, "an import that changes no row")
}

func TestEveryFaultOfAConfigIsReportedAtOnce(t *testing.T) {
	t.Parallel()
	_, err := Open(nil, Config{})
	var field *compensator.FieldError
	require.ErrorAs(t, err, &field)
	_, err = Open(new(compensator.Compensator), Config{Name: "a:b", Table: "a b", Key: "`", Take: "x", Page: 501, Rest: -1, Every: -1})
	for _, name := range []string{"Name", "Table", "Key", "Where", "Map", "Page", "Rest", "Every"} {
		assert.ErrorContains(t, err, "compensator: "+name+": ")
	}
}

func TestRunTakesRowsUntilItIsStopped(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	im := r.open(moving())
	stop := r.start(im)
	r.add("pay", 30)
	r.Eventually(func() bool { return r.Count("common_process_log") == 30 }, "every row has an entry")
	assert.ErrorIs(t, im.Run(t.Context()), compensator.ErrRunning)
	r.add("pay", 1)
	r.Eventually(func() bool { return r.Count("common_process_log") == 31 }, "the new row has an entry")
	require.NoError(t, stop())
	r.requireOneEach("pay", 31)
}

// Failure: F109
func TestRunOutlivesProblemsWithTheDatabase(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proxy, _ := r.OpenProxied(false)
	cfg := r.QuickConfig()
	cfg.DB = r.Open(harness.WatchedPool(harness.ThroughProxy(t, r.DSN, proxy)))
	r.c = r.New(cfg)
	r.add("pay", 400)
	stop := r.start(r.open(moving()))
	for done := 40; done <= 400; done += 40 {
		r.Eventually(func() bool { return r.Count("common_process_log") >= done }, "%d are entries", done)
		proxy.Cut()
	}
	r.Eventually(func() bool { return r.Count("old_log WHERE state=?", waits) == 0 }, "every row is taken")
	require.NoError(t, stop())
	r.requireOneEach("pay", 400)
}

func TestRowWhoseValueCannotBeEncodedIsRefusedByName(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	floats, err := compensator.Declare[float64](t.Context(), r.c, "pay", nil)
	require.NoError(t, err)
	r.add("pay", 9)
	cfg := moving()
	cfg.Map = func(row *Row) (compensator.NewEntry, error) {
		entry, err := mapRow(row)
		if row.Key == "5" {
			entry = floats.Entry(math.NaN(), entry.Options)
		}
		return entry, err
	}
	report := r.once(r.open(cfg))
	assert.Equal(t, map[string]int{"pay": 8}, report.Recorded)
	require.Len(t, report.Refusals, 1)
	assert.Equal(t, "5", report.Refusals[0].Key)
	assert.ErrorContains(t, report.Refusals[0], "encode float64")
	assert.Equal(t, 1, r.Count("old_log WHERE state=?", waits), "the row stays unchanged")
}
