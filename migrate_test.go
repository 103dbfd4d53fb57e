package compensator_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/testservers"
)

func TestMigrateTwiceAndByManyAtOnceIsHarmless(t *testing.T) {
	dsn := testservers.Database(t)
	fingerprints := make([]string, 8)
	var processes sync.WaitGroup
	for i := range fingerprints {
		processes.Go(func() {
			db, err := plain(dsn)()
			if !assert.NoError(t, err) {
				return
			}
			defer db.Close()
			assert.NoError(t, compensator.Migrate(context.Background(), db))
			fingerprints[i] = fingerprint(t, db)
		})
	}
	processes.Wait()
	for _, f := range fingerprints {
		assert.Equal(t, fingerprints[0], f, "all see one log")
	}
	assert.NotEmpty(t, fingerprints[0])

	db, err := plain(dsn)()
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, compensator.Migrate(t.Context(), db))
	assert.Equal(t, fingerprints[0], fingerprint(t, db), "migrating again leaves the log as it was")
}

func fingerprint(t *testing.T, db *sql.DB) (value string) {
	err := db.QueryRowContext(context.Background(), "SELECT value FROM common_process_log_meta WHERE name='fingerprint'").Scan(&value)
	assert.NoError(t, err)
	return value
}

func TestPrintedDDLMakesALogThatRuns(t *testing.T) {
	statements, err := compensator.DDL("mysql", "orders_log")
	require.NoError(t, err)
	w := newWorld(t)
	_, err = w.open(plain(with(t, w.DSN, map[string]string{"multiStatements": "true"}))).Exec(statements)
	require.NoError(t, err)
	cfg := w.quick()
	cfg.Table = "orders_log"
	w.liveThrough(cfg)
}

func TestLogOfAnotherDatabaseRuns(t *testing.T) {
	w := newWorld(t)
	elsewhere, err := mysql.ParseDSN(testservers.Database(t))
	require.NoError(t, err)
	table := elsewhere.DBName + ".orders_log"
	require.NoError(t, compensator.MigrateTable(t.Context(), w.DB, table))
	cfg := w.quick()
	cfg.Table = table
	w.liveThrough(cfg)
	assert.Zero(t, w.count("common_process_log"), "nothing went into the table of the default name")
}

// liveThrough takes entries of a log through everything a service does with them.
func (w *world) liveThrough(cfg compensator.Config) {
	w.t.Helper()
	ctx := w.t.Context()
	c := w.new(cfg)
	failing := compensator.TypeConfig{MaxProcessCount: 2, Retry: compensator.Fixed(0), Compensate: func(context.Context, *compensator.Entry) error { return nil }}
	undone, ran := numbered(w.t, c, "undone", failing, func(*compensator.Entry, int) error { return errors.New("no") })
	given, _ := numbered(w.t, c, "given up", compensator.TypeConfig{}, func(_ *compensator.Entry, call int) error {
		if call == 1 {
			return compensator.Permanent(errors.New("no"))
		}
		return nil
	})
	effects, err := compensator.HandleTx(c, "effect", func(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry, _ order) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO effects (what) VALUES ('once')")
		return err
	}, compensator.TypeConfig{})
	require.NoError(w.t, err)
	w.run(c)

	record := func(kind *compensator.Type[order], opts compensator.Options) compensator.EntryID {
		var receipt *compensator.Receipt
		require.NoError(w.t, c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) (err error) {
			receipt, err = kind.Record(ctx, tx, order{Number: 1}, opts)
			return err
		}))
		return receipt.ID()
	}
	ends := func(id compensator.EntryID, want compensator.State) {
		w.t.Helper()
		w.eventually(func() bool {
			e, err := c.Get(ctx, id)
			return err == nil && e.State == want
		}, "entry %s becomes %s", id, want)
	}
	key := compensator.Options{IdempotentID: "k", BatchID: "b"}
	first := record(effects, key)
	ends(first, compensator.Succeeded)
	assert.Equal(w.t, first, record(effects, key), "a repeated key finds the first entry")
	assert.Equal(w.t, 1, w.count("effects"))

	compensated := record(undone, compensator.Options{})
	ends(compensated, compensator.Compensated)
	assert.Equal(w.t, 2, ran.of(compensated))

	dead := record(given, compensator.Options{})
	ends(dead, compensator.Dead)
	by := compensator.ByHand{Actor: "ann", Reason: "downstream repaired"}
	require.NoError(w.t, c.Requeue(ctx, dead, compensator.RequeueOptions{ByHand: by}))
	ends(dead, compensator.Succeeded)
	history, err := c.History(ctx, dead)
	require.NoError(w.t, err)
	require.Len(w.t, history, 1)
	assert.Equal(w.t, by.Reason, history[0].Reason)

	delayed := record(effects, compensator.Options{Delay: time.Hour})
	require.NoError(w.t, c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		_, err := c.CancelTx(ctx, tx, delayed)
		return err
	}))
	ends(delayed, compensator.Cancelled)
	resolved, err := c.Resolve(ctx, compensator.IdempotentID("k"))
	require.NoError(w.t, err)
	assert.Equal(w.t, first, resolved.ID)

	page, err := c.List(ctx, compensator.Filter{BatchID: "b"})
	require.NoError(w.t, err)
	assert.Len(w.t, page.Entries, 1)
	progress, err := c.BatchProgress(ctx, "b")
	require.NoError(w.t, err)
	assert.True(w.t, progress.Finished())
	assert.NoError(w.t, c.Health(ctx).Database)

	table := cfg.Table
	if table == "" {
		table = compensator.DefaultTable
	}
	w.exec("UPDATE " + table + " SET next_at=next_at-3600000")
	purged, err := c.Purge(ctx, time.Minute)
	require.NoError(w.t, err)
	assert.Equal(w.t, 4, purged)
	assert.Zero(w.t, w.count(table))
}

func TestDDLRefusesWhatItCannotName(t *testing.T) {
	for field, give := range map[string][2]string{
		"database": {"oracle", "log"},
		"Table":    {"sqlite", "other.log"}, // SQLite has no qualified names
	} {
		_, err := compensator.DDL(give[0], give[1])
		requireField(t, err, field)
	}
	for _, table := range []string{"", "a.b.c", "log`; DROP TABLE orders; --", "ä", strings.Repeat("x", 59)} {
		_, err := compensator.DDL("mysql", table)
		requireField(t, err, "Table")
	}
}

// requireField requires that some *FieldError joined in err names a field that holds this text.
func requireField(t *testing.T, err error, field string) {
	t.Helper()
	var refused *compensator.FieldError
	require.Error(t, err)
	for _, one := range flat(err) {
		if errors.As(one, &refused) && strings.Contains(refused.Field, field) {
			return
		}
	}
	require.Failf(t, "the field is not named", "got %v, want one about %q", err, field)
}

// flat lists the errors joined in err.
func flat(err error) (list []error) {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	for _, one := range joined.Unwrap() {
		list = append(list, flat(one)...)
	}
	return list
}

func TestNewNamesWhatIsWrongWithTheTable(t *testing.T) {
	for name, test := range map[string]struct{ change, field string }{
		"no table":          {"DROP TABLE common_process_log", "table `common_process_log`"},
		"no audit table":    {"DROP TABLE common_process_log_audit", "table `common_process_log_audit`"},
		"no meta table":     {"DROP TABLE common_process_log_meta", "table `common_process_log_meta`"},
		"another engine":    {"ALTER TABLE common_process_log ENGINE=MyISAM", "engine"},
		"folding letters":   {"ALTER TABLE common_process_log MODIFY business_type VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL", "column business_type"},
		"content too small": {"ALTER TABLE common_process_log MODIFY content BLOB NOT NULL", "column content"},
		"error too small":   {"ALTER TABLE common_process_log MODIFY last_error VARCHAR(255) NOT NULL DEFAULT ''", "column last_error"},
		"no column":         {"ALTER TABLE common_process_log DROP COLUMN headers", "column headers"},
		"no due index":      {"ALTER TABLE common_process_log DROP INDEX k_due", "index k_due"},
		"renamed index":     {"ALTER TABLE common_process_log DROP INDEX k_due, ADD INDEX by_due (state, business_type, next_at, id)", "index k_due"},
		"no batch index":    {"ALTER TABLE common_process_log DROP INDEX k_batch_id", "index k_batch_id"},
		"keys not unique":   {"ALTER TABLE common_process_log DROP INDEX uk_idempotent_id", "index"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.exec(test.change)
			_, err := compensator.New(t.Context(), w.quick())
			requireField(t, err, test.field)
		})
	}
}

func TestNewReportsEveryFaultOfTableAndSessionAtOnce(t *testing.T) {
	w := newWorld(t)
	w.exec("ALTER TABLE common_process_log DROP COLUMN headers, DROP INDEX k_due, MODIFY content BLOB NOT NULL")
	cfg := w.quick()
	cfg.DB = w.open(plain(with(t, w.DSN, map[string]string{"sql_mode": "''", "autocommit": "0"})))
	_, err := compensator.New(t.Context(), cfg)
	for _, field := range []string{"sql_mode", "autocommit", "column headers", "column content", "index k_due"} {
		requireField(t, err, field)
	}
}

func TestNewRefusesServersThatTakeNoRowWrites(t *testing.T) {
	server := testservers.NewSQL(t, "--log-bin=bin", "--server-id=1", "--binlog-format=STATEMENT")
	w := worldAt(t, server.Database(t))
	_, err := compensator.New(t.Context(), w.quick())
	requireField(t, err, "binlog_format")

	w.exec("SET GLOBAL binlog_format='MIXED'")
	again := w.quick()
	again.DB = w.open(compensatorOn(w.DSN)) // sessions take the setting when they begin
	w.new(again)

	w.exec("SET GLOBAL read_only=1")
	_, err = compensator.New(t.Context(), w.quick())
	requireField(t, err, "read_only")
	w.exec("SET GLOBAL read_only=0")
}

func TestNewRefusesThePrefixOfAnotherDatabase(t *testing.T) {
	production, clone := newWorld(t).withRedis(), newWorld(t)
	production.new(production.quick())
	cfg := clone.quick()
	cfg.Redis, cfg.Prefix = production.Redis, production.Name
	_, err := compensator.New(t.Context(), cfg)
	requireField(t, err, "Prefix")

	cfg.Prefix += ":clone"
	clone.new(cfg)
	production.new(production.quick())
}

// rightsAtRunTime are all that the library needs once the tables exist.
var rightsAtRunTime = []string{
	"SELECT, INSERT, UPDATE, DELETE ON %.common_process_log",
	"SELECT, INSERT ON %.common_process_log_audit",
	"SELECT ON %.common_process_log_meta",
	"INSERT ON %.effects", // the business's own
}

func TestFourRightsSufficeAtRunTime(t *testing.T) {
	for name, pool := range pools {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			db := w.open(pool(w.restricted(rightsAtRunTime...)))
			var refused *mysql.MySQLError
			require.ErrorAs(t, compensator.Migrate(t.Context(), db), &refused, "the user may not create tables")

			cfg := w.quick()
			cfg.DB = db
			w.liveThrough(cfg)
		})
	}
}

// restricted makes a user with these rights only, % standing for the world's database, and returns its DSN.
func (w *world) restricted(rights ...string) string {
	w.t.Helper()
	config, err := mysql.ParseDSN(w.DSN)
	require.NoError(w.t, err)
	user, password := "u"+strings.ToLower(rand.Text()[:12]), rand.Text()
	w.exec("CREATE USER '" + user + "'@'%' IDENTIFIED BY '" + password + "'")
	w.t.Cleanup(func() { w.exec("DROP USER '" + user + "'@'%'") })
	for _, right := range rights {
		w.exec("GRANT " + strings.ReplaceAll(right, "%", "`"+config.DBName+"`") + " TO '" + user + "'@'%'")
	}
	config.User, config.Passwd = user, password
	return config.FormatDSN()
}
