package sqlitetest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
)

func TestCheckAcceptsWhatMigrateMakes(t *testing.T) {
	t.Parallel()
	for name, pragmas := range map[string][]string{
		"wal":              wal,
		"rollback journal": {"busy_timeout(1000)"},
		"normal":           {"journal_mode(WAL)", "synchronous(NORMAL)", "busy_timeout(1000)"},
	} {
		_, s := newLog(t, pragmas...)
		assert.NoError(t, s.Check(t.Context()), name)
	}
	db := open(t, "file::memory:?_pragma=busy_timeout(1000)")
	db.SetMaxOpenConns(1)
	require.NoError(t, compensator.Migrate(t.Context(), db))
	assert.NoError(t, openStore(t, db).Check(t.Context()), "in memory")
}

// Failure: F33
func TestCheckRefusesUnsafeConnections(t *testing.T) {
	t.Parallel()
	for problem, pragmas := range map[string][]string{
		"busy_timeout":                 {"journal_mode(WAL)", "busy_timeout(999)"},
		"synchronous":                  {"busy_timeout(1000)", "synchronous(OFF)"},
		"journal_mode: is OFF":         {"busy_timeout(1000)", "journal_mode(OFF)"},
		"journal_mode: is MEMORY":      {"busy_timeout(1000)", "journal_mode(MEMORY)"},
		"read_uncommitted":             {"busy_timeout(1000)", "read_uncommitted(1)"},
		"encoding: is UTF-16le":        {"busy_timeout(1000)", "encoding('UTF-16le')"},
		"at least one connection: wri": {}, // The test sets busy_timeout on one connection, so others lack the setting.
	} {
		db, s := newLog(t, pragmas...)
		if len(pragmas) == 0 {
			_, err := db.ExecContext(t.Context(), "PRAGMA busy_timeout=1000")
			require.NoError(t, err)
		}
		assert.ErrorContains(t, s.Check(t.Context()), problem)
	}
	exclusive := open(t, newFile(t, append([]string{"locking_mode(EXCLUSIVE)"}, wal...)...))
	exclusive.SetMaxOpenConns(1)
	require.NoError(t, compensator.Migrate(t.Context(), exclusive))
	exclusive.SetMaxOpenConns(0)
	assert.ErrorContains(t, openStore(t, exclusive).Check(t.Context()), "locking_mode")
	for _, pragmas := range [][]string{wal, {"busy_timeout(1000)"}} {
		shared := open(t, newFile(t, pragmas...)+"&cache=shared")
		require.NoError(t, compensator.Migrate(t.Context(), shared))
		assert.ErrorContains(t, openStore(t, shared).Check(t.Context()), "cache=shared")
	}
	readOnly := newFile(t, wal...)
	require.NoError(t, compensator.Migrate(t.Context(), open(t, readOnly)))
	assert.ErrorContains(t, openStore(t, open(t, readOnly+"&_pragma=query_only(1)")).Check(t.Context()), "query_only")

	memory := open(t, "file::memory:?_pragma=busy_timeout(1000)")
	require.NoError(t, compensator.Migrate(t.Context(), memory))
	assert.ErrorContains(t, openStore(t, memory).Check(t.Context()), "does not exist, at least on one connection")
}

// sqlitePragmas change what SQLite does on a connection, but nothing on which the library's statements rely.
var sqlitePragmas = map[string]string{
	"foreign_keys(1)":              "references of other tables are checked: Purge fails by name where one is left",
	"defer_foreign_keys(1)":        "the same, at the COMMIT",
	"recursive_triggers(1)":        "triggers of others",
	"ignore_check_constraints(1)":  "no constraint of ours is one",
	"case_sensitive_like(1)":       "our one LIKE is of small letters",
	"reverse_unordered_selects(1)": "whatever needs an order says so",
	"synchronous(NORMAL)":          "with WAL the last commits may be lost with the machine's power",
	"synchronous(EXTRA)":           "the directory is synced, too",
	"temp_store(MEMORY)":           "where temporary tables are",
	"secure_delete(1)":             "what is deleted is overwritten",
	"automatic_index(0)":           "plans",
	"cell_size_check(1)":           "pages are checked",
	"full_column_names(1)":         "names of columns, which nobody reads",
	"short_column_names(0)":        "the same",
	"legacy_alter_table(1)":        "ALTER TABLE",
	"trusted_schema(0)":            "functions in views and triggers",
	"wal_autocheckpoint(1)":        "when the log of SQLite is folded in",
	"cache_size(10)":               "room",
	"mmap_size(1000000)":           "how pages are read",
	"journal_size_limit(0)":        "room",
}

// Failure: F33
func TestEntriesLiveWhateverAConnectionIsSetTo(t *testing.T) {
	t.Parallel()
	for pragma := range sqlitePragmas {
		t.Run(pragma, func(t *testing.T) {
			t.Parallel()
			db := open(t, newFile(t, append([]string{pragma}, wal...)...))
			require.NoError(t, compensator.Migrate(t.Context(), db))
			live(t, db)
		})
	}
}

// Failure: F31
func TestCheckRefusesAnotherTable(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for problem, change := range map[string]string{
		"does not exist":                  "DROP TABLE common_process_log",
		"lacks `common_process_log_audit": "DROP TABLE common_process_log_audit",
		"index common_process_log_due":    "DROP INDEX common_process_log_due",
		"column last_error: missing":      "ALTER TABLE common_process_log DROP COLUMN last_error",
		"column version: is TEXT":         "ALTER TABLE common_process_log DROP COLUMN version; ALTER TABLE common_process_log ADD COLUMN version TEXT",
		"no UNIQUE index":                 rebuilt("idempotent_id TEXT NOT NULL, x TEXT UNIQUE"),
		"duplicates would be recorded":    rebuilt("idempotent_id TEXT COLLATE NOCASE UNIQUE"),
		"not AUTOINCREMENT":               rebuilt("idempotent_id TEXT UNIQUE"),
		"lacks lease_until, epoch":        "DROP TABLE common_process_log; CREATE TABLE common_process_log (id INTEGER PRIMARY KEY, version INTEGER, token TEXT, next_at INTEGER)",
		"is a view":                       "ALTER TABLE common_process_log RENAME TO other; CREATE VIEW common_process_log AS SELECT * FROM other",
		"compensate_count, content, and":  "DROP TABLE common_process_log; CREATE TABLE common_process_log (id INTEGER PRIMARY KEY, next_at INTEGER, lease_until INTEGER, version INTEGER, token BLOB, epoch INTEGER, delivery_count INTEGER)",
		"table `common_process_log_fault`: looks like a table of your own: it lacks compensating": "DROP TABLE common_process_log_fault; CREATE TABLE Common_process_LOG_fault (Entry_ID INTEGER PRIMARY KEY, epoch INTEGER)",
		"package adopt": "DROP TABLE common_process_log; CREATE TABLE common_process_log (id INTEGER PRIMARY KEY, state INTEGER, content TEXT)",
	} {
		db, s := newLog(t, wal...)
		_, err := db.ExecContext(ctx, change)
		require.NoError(t, err, change)
		assert.ErrorContains(t, s.Check(ctx), problem)
	}
}

// Failure: F31
func TestMigrateLeavesATableOfYourOwnAlone(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for create, problem := range map[string]string{
		"CREATE TABLE Common_Process_Log (id INTEGER PRIMARY KEY, state INTEGER, business_type TEXT)": "looks like a table of your own",
		"CREATE VIEW common_process_log AS SELECT 1 AS id":                                            "is a view",
		"CREATE TABLE common_process_log_META (id INTEGER PRIMARY KEY, value TEXT)":                   "looks like a table of your own: it lacks name",
	} {
		db := open(t, newFile(t, wal...))
		_, err := db.ExecContext(ctx, create)
		require.NoError(t, err)
		var field *compensator.FieldError
		require.ErrorAs(t, compensator.Migrate(ctx, db), &field, create)
		assert.Contains(t, field.Reason, problem)
		var names int
		require.NoError(t, db.QueryRowContext(ctx, "SELECT COUNT(*) FROM sqlite_master").Scan(&names))
		assert.Equal(t, 1, names, "nothing was created beside it")
	}
}

func rebuilt(column string) string {
	return "DROP TABLE common_process_log; CREATE TABLE common_process_log (id INTEGER PRIMARY KEY, next_at INTEGER, lease_until INTEGER, version INTEGER, token BLOB, epoch INTEGER, delivery_count INTEGER, " +
		"state INTEGER, business_type TEXT, content BLOB, headers BLOB, last_error TEXT, process_count INTEGER, max_process_count INTEGER, created_at INTEGER, " + column + ")"
}

func TestMigrateTwiceKeepsTheFingerprint(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db := open(t, newFile(t, wal...))
	require.NoError(t, compensator.MigrateTable(ctx, db, "orders_log"))
	s, err := compensator.OpenStore(ctx, db, "orders_log")
	require.NoError(t, err)
	defer func() { assert.NoError(t, s.Close()) }()
	require.NoError(t, s.Check(ctx))
	before, err := s.Fingerprint(ctx)
	require.NoError(t, err)
	require.NotEmpty(t, before)
	require.NoError(t, compensator.MigrateTable(ctx, db, "orders_log"))
	after, err := s.Fingerprint(ctx)
	require.NoError(t, err)
	assert.Equal(t, before, after)
	_, err = s.Heads(ctx) // Heads names the index.
	require.NoError(t, err)
	_, err = compensator.OpenStore(ctx, db, "main.orders_log")
	assert.ErrorAs(t, err, new(*compensator.FieldError))
}
