package servers

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
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

func TestMigrateTwiceAndByManyAtOnceIsHarmless(t *testing.T) {
	t.Parallel()
	dsn := testservers.Database(t)
	fingerprints := make([]string, 8)
	var processes sync.WaitGroup
	for i := range fingerprints {
		processes.Go(func() {
			db, err := harness.PlainPool(dsn)()
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

	db, err := harness.PlainPool(dsn)()
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
	t.Parallel()
	statements, err := compensator.DDL("mysql", "orders_log")
	require.NoError(t, err)
	w := harness.NewWorld(t)
	_, err = w.Open(harness.PlainPool(harness.WithParams(t, w.DSN, map[string]string{"multiStatements": "true"}))).Exec(statements)
	require.NoError(t, err)
	cfg := w.QuickConfig()
	cfg.Table = "orders_log"
	tryOut(w, cfg)
}

func TestLogOfAnotherDatabaseRuns(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	elsewhere, err := mysql.ParseDSN(testservers.Database(t))
	require.NoError(t, err)
	table := elsewhere.DBName + ".orders_log"
	require.NoError(t, compensator.MigrateTable(t.Context(), w.DB, table))
	cfg := w.QuickConfig()
	cfg.Table = table
	tryOut(w, cfg)
	assert.Zero(t, w.Count("common_process_log"), "nothing went into the table of the default name")
}

func tryOut(w *harness.World, cfg compensator.Config) {
	w.T.Helper()
	ctx := w.T.Context()
	c := w.New(cfg)
	failing := compensator.HandlerConfig[harness.Order]{MaxAttempts: 2, Retry: compensator.Fixed(0), Compensate: func(context.Context, *compensator.Entry, harness.Order) error { return nil }}
	undone, ran := harness.HandleCounted(w.T, c, "undone", failing, func(*compensator.Entry, int) error { return errors.New("no") })
	given, _ := harness.HandleCounted(w.T, c, "given up", compensator.HandlerConfig[harness.Order]{}, func(_ *compensator.Entry, call int) error {
		if call == 1 {
			return compensator.Permanent(errors.New("no"))
		}
		return nil
	})
	effects, err := compensator.HandleTx(ctx, c, "effect", func(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry, _ harness.Order) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO effects (what) VALUES ('once')")
		return err
	}, nil)
	require.NoError(w.T, err)
	w.Run(c)

	record := func(kind *compensator.Type[harness.Order], opts compensator.Options) compensator.EntryID {
		var receipt *compensator.Receipt
		require.NoError(w.T, c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) (err error) {
			receipt, err = kind.Record(ctx, tx, harness.Order{Number: 1}, opts)
			return err
		}))
		return receipt.ID()
	}
	ends := func(id compensator.EntryID, want compensator.State) {
		w.T.Helper()
		w.Eventually(func() bool {
			e, err := c.Get(ctx, id)
			return err == nil && e.State == want
		}, "entry %s becomes %s", id, want)
	}
	key := compensator.Options{IdempotencyKey: "k", BatchID: "b"}
	first := record(effects, key)
	ends(first, compensator.Succeeded)
	assert.Equal(w.T, first, record(effects, key), "a repeated key finds the first entry")
	assert.Equal(w.T, 1, w.Count("effects"))

	compensated := record(undone, compensator.Options{})
	ends(compensated, compensator.Compensated)
	assert.Equal(w.T, 2, ran.Of(compensated))

	dead := record(given, compensator.Options{})
	ends(dead, compensator.Dead)
	by := admin.AuditInfo{Actor: "ann", Reason: "downstream repaired"}
	require.NoError(w.T, admin.Of(c).Requeue(ctx, dead, admin.RequeueOptions{AuditInfo: by}))
	ends(dead, compensator.Succeeded)
	history, err := admin.Of(c).History(ctx, dead)
	require.NoError(w.T, err)
	require.Len(w.T, history, 1)
	assert.Equal(w.T, by.Reason, history[0].Reason)

	delayed := record(effects, compensator.Options{Delay: time.Hour})
	require.NoError(w.T, c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		_, err := c.CancelTx(ctx, tx, delayed)
		return err
	}))
	ends(delayed, compensator.Cancelled)
	resolved, err := c.Resolve(ctx, compensator.IdempotencyKey("k"))
	require.NoError(w.T, err)
	assert.Equal(w.T, first, resolved.ID)

	page, err := admin.Of(c).List(ctx, admin.Filter{BatchID: "b"})
	require.NoError(w.T, err)
	assert.Len(w.T, page.Entries, 1)
	progress, err := c.Batch("b").Progress(ctx)
	require.NoError(w.T, err)
	assert.True(w.T, progress.Finished())
	assert.NoError(w.T, c.Health(ctx).Database)

	table := cfg.Table
	if table == "" {
		table = compensator.DefaultTable
	}
	w.Exec("UPDATE " + table + " SET next_at=next_at-3600000")
	purged, err := admin.Of(c).Purge(ctx, time.Minute)
	require.NoError(w.T, err)
	assert.Equal(w.T, 4, purged)
	assert.Zero(w.T, w.Count(table))
}

// Failure: F37
func TestDDLRefusesWhatItCannotName(t *testing.T) {
	t.Parallel()
	for field, give := range map[string][2]string{
		"database": {"oracle", "log"},
		"Table":    {"sqlite", "other.log"}, // SQLite has no names that are qualified by a database.
	} {
		_, err := compensator.DDL(give[0], give[1])
		requireField(t, err, field)
	}
	for _, table := range []string{"", "a.b.c", "log`; DROP TABLE orders; --", "ä", strings.Repeat("x", 59)} {
		_, err := compensator.DDL("mysql", table)
		requireField(t, err, "Table")
	}
}

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

// Failure: F31, F34
func TestNewNamesWhatIsWrongWithTheTable(t *testing.T) {
	t.Parallel()
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
			t.Parallel()
			w := harness.NewWorld(t)
			w.Exec(test.change)
			_, err := compensator.New(t.Context(), w.QuickConfig())
			requireField(t, err, test.field)
		})
	}
}

// Failure: F31
func TestTableOfYourOwnIsNamedAndNothingIsCreatedBesideIt(t *testing.T) {
	t.Parallel()
	const own, view = "looks like a table of your own", "is a view"
	w := harness.NewWorld(t)
	for name, test := range map[string]struct{ create, says string }{
		"few_columns":  {"TABLE few_columns (id INT NOT NULL PRIMARY KEY, state INT)", own},
		"no_key":       {"TABLE no_key (state INT) ENGINE=MyISAM", own},
		"other_case":   {"TABLE other_case (ID BIGINT NOT NULL PRIMARY KEY, NEXT_AT DATETIME, VERSION INT, TOKEN TEXT)", own},
		"partitions":   {"TABLE partitions (id INT NOT NULL, k INT NOT NULL, PRIMARY KEY (id, k)) DEFAULT CHARSET=latin1 PARTITION BY HASH (k) PARTITIONS 3", own},
		"our_words":    {"TABLE our_words (id BIGINT NOT NULL PRIMARY KEY, next_at DATETIME, version INT, token TEXT, lease_until DATETIME, epoch INT, delivery_count INT)", own},
		"own_view":     {"VIEW own_view AS SELECT 1 AS id", view},
		"view_of_ours": {"VIEW view_of_ours AS SELECT * FROM common_process_log", view},
	} {
		w.Exec("CREATE " + test.create)
		cfg := w.QuickConfig()
		cfg.Table = name
		_, newErr := compensator.New(t.Context(), cfg)
		for step, err := range map[string]error{"New": newErr, "MigrateTable": compensator.MigrateTable(t.Context(), w.DB, name)} {
			var field *compensator.FieldError
			if assert.ErrorAs(t, err, &field, "%s %s", step, name) {
				assert.Equal(t, "table `"+name+"`", field.Field, step)
				assert.Contains(t, field.Reason, test.says, step)
				assert.NotContains(t, err.Error(), "\n", step)
			}
		}
		assert.Zero(t, w.Count("information_schema.tables WHERE table_schema=DATABASE() AND table_name LIKE '"+name+"\\_%'"), name)
	}
}

// Failure: F31
func TestTableOfYourOwnBesideTheLogIsNamed(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	plain, operated := w.QuickConfig(), w.QuickConfig()
	operated.Operations = &compensator.Operations{Attempts: true, Statistics: true, Instances: true}
	w.New(operated)
	for suffix, always := range map[string]bool{"audit": true, "fault": true, "meta": true, "result": true, "case": false, "operation": false, "setting": false, "slots": false, "attempt": false, "stat": false, "instance": false} {
		table := "common_process_log_" + suffix
		w.Exec("RENAME TABLE " + table + " TO kept")
		w.Exec("CREATE TABLE " + table + " (id INT NOT NULL PRIMARY KEY, value TEXT, at DATETIME)")
		_, err := compensator.New(t.Context(), operated)
		requireField(t, err, table+"`")
		assert.ErrorContains(t, err, "looks like a table of your own", suffix)
		assert.ErrorContains(t, err, "Rename it and run Migrate, or name another table in Config.Table", suffix)
		if always {
			_, err = compensator.New(t.Context(), plain)
			requireField(t, err, table+"`")
		} else {
			c, err := compensator.New(t.Context(), plain)
			require.NoError(t, err, "nothing in use needs %s", suffix)
			require.NoError(t, c.Close())
		}
		w.Exec("DROP TABLE " + table)
		w.Exec("RENAME TABLE kept TO " + table)
	}
}

// Failure: F31
func TestMigrateNamesTablesOfYourOwnAndCreatesNothing(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	for _, suffix := range []string{"_audit", "_fault", "_meta", "_result", "_slots", "_turns", "_case", "_operation", "_setting", "_limit", "_attempt", "_stat", "_instance"} {
		log := "mine" + suffix
		w.Exec("CREATE TABLE " + log + suffix + " (id BIGINT NOT NULL PRIMARY KEY, name VARCHAR(20), text TEXT)")
		var field *compensator.FieldError
		err := compensator.MigrateTable(t.Context(), w.DB, log)
		require.ErrorAs(t, err, &field, suffix)
		assert.Equal(t, "table `"+log+suffix+"`", field.Field)
		assert.Regexp(t, "looks like a table of your own: it lacks [a-z_]+.*Rename it and run Migrate, or name another table in Config.Table", field.Reason)
		assert.Equal(t, 1, w.Count("information_schema.tables WHERE table_schema=DATABASE() AND table_name LIKE '"+log+"%'"), suffix)
	}
	w.Exec("CREATE TABLE two_meta (id INT)")
	w.Exec("CREATE TABLE two_case (id INT)")
	err := compensator.MigrateTable(t.Context(), w.DB, "two")
	require.ErrorContains(t, err, "two_meta")
	require.ErrorContains(t, err, "two_case")
	w.Exec("DROP TABLE two_meta")
	w.Exec("DROP TABLE two_case")
	require.NoError(t, compensator.MigrateTable(t.Context(), w.DB, "two"))
	require.NoError(t, compensator.MigrateTable(t.Context(), w.DB, "two"))
}

// Failure: F31
func TestNewReportsEveryFaultOfTableAndSessionAtOnce(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	w.Exec("ALTER TABLE common_process_log DROP COLUMN headers, DROP INDEX k_due, MODIFY content BLOB NOT NULL")
	cfg := w.QuickConfig()
	cfg.DB = w.Open(harness.PlainPool(harness.WithParams(t, w.DSN, map[string]string{"sql_mode": "''", "autocommit": "0"})))
	_, err := compensator.New(t.Context(), cfg)
	for _, field := range []string{"sql_mode", "autocommit", "column headers", "column content", "index k_due"} {
		requireField(t, err, field)
	}
}

// Failure: F22, F31, F35
func TestNewRefusesServersThatTakeNoRowWrites(t *testing.T) {
	t.Parallel()
	server := testservers.NewSQL(t, "--log-bin=bin", "--server-id=1", "--binlog-format=STATEMENT")
	w := harness.WorldAt(t, server.Database(t))
	_, err := compensator.New(t.Context(), w.QuickConfig())
	requireField(t, err, "binlog_format")

	w.Exec("SET GLOBAL binlog_format='MIXED'")
	again := w.QuickConfig()
	again.DB = w.Open(harness.WatchedPool(w.DSN)) // Open a new pool, because a session reads the setting only when it begins.
	w.New(again)

	w.Exec("SET GLOBAL read_only=1")
	_, err = compensator.New(t.Context(), w.QuickConfig())
	requireField(t, err, "read_only")
	w.Exec("SET GLOBAL read_only=0")
}

// Failure: F25
func TestNewRefusesThePrefixOfAnotherDatabase(t *testing.T) {
	t.Parallel()
	production, clone := harness.NewWorld(t).WithRedis(), harness.NewWorld(t)
	production.New(production.QuickConfig())
	cfg := clone.QuickConfig()
	cfg.Redis, cfg.Prefix = production.Redis, production.Name
	_, err := compensator.New(t.Context(), cfg)
	requireField(t, err, "Prefix")

	cfg.Prefix += ":clone"
	clone.New(cfg)
	production.New(production.QuickConfig())
}

// rightsAtRunTime are all the privileges that the library needs when the tables exist.
var rightsAtRunTime = []string{
	"SELECT, INSERT, UPDATE, DELETE ON %.common_process_log",
	"SELECT, INSERT ON %.common_process_log_audit",
	"SELECT ON %.common_process_log_meta",
	"SELECT, INSERT, UPDATE, DELETE ON %.common_process_log_fault",
	"SELECT, INSERT, UPDATE, DELETE ON %.common_process_log_result",
	"INSERT ON %.effects", // This right is for the business table.
}

// Failure: F37
func TestFourTablesSufficeAtRunTime(t *testing.T) {
	t.Parallel()
	for name, pool := range harness.Pools {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t)
			db := w.Open(pool(restricted(w, rightsAtRunTime...)))
			var refused *mysql.MySQLError
			require.ErrorAs(t, compensator.Migrate(t.Context(), db), &refused, "the user may not create tables")

			cfg := w.QuickConfig()
			cfg.DB = db
			tryOut(w, cfg)
		})
	}
}

// In rights, % stands for the world's database.
func restricted(w *harness.World, rights ...string) string {
	w.T.Helper()
	config, err := mysql.ParseDSN(w.DSN)
	require.NoError(w.T, err)
	user, password := "u"+strings.ToLower(rand.Text()[:12]), rand.Text()
	w.Exec("CREATE USER '" + user + "'@'%' IDENTIFIED BY '" + password + "'")
	w.T.Cleanup(func() { w.Exec("DROP USER '" + user + "'@'%'") })
	for _, right := range rights {
		w.Exec("GRANT " + strings.ReplaceAll(right, "%", "`"+config.DBName+"`") + " TO '" + user + "'@'%'")
	}
	config.User, config.Passwd = user, password
	return config.FormatDSN()
}

// Galera returns the error of this test when it certifies a transaction.
// Failure: F37
func TestMigrateTriesAgainWhatMetAnotherProcess(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	var refused atomic.Int32
	db := w.Open(openLying(w.DSN, lie{fail: func(string) error {
		switch refused.Add(1) % 3 {
		case 1:
			return &mysql.MySQLError{Number: 1213, Message: "Deadlock found when trying to get lock; try restarting transaction"}
		case 2:
			return &mysql.MySQLError{Number: 1205, Message: "Lock wait timeout exceeded; try restarting transaction"}
		}
		return nil
	}}, false))
	require.NoError(t, compensator.MigrateTable(t.Context(), db, "another"))
	assert.Equal(t, 1, w.Count("another_meta WHERE name='fingerprint'"))
	assert.Greater(t, refused.Load(), int32(6))

	down := errors.New("no such right")
	db = w.Open(openLying(w.DSN, lie{fail: func(string) error { refused.Store(0); return down }}, false))
	require.ErrorIs(t, compensator.MigrateTable(context.Background(), db, "another"), down, "at once")
}
