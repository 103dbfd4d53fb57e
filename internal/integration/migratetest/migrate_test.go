package migratetest

import (
	"database/sql"
	"io/fs"
	"os"
	"testing"

	"github.com/golang-migrate/migrate/v4"
	migratemysql "github.com/golang-migrate/migrate/v4/database/mysql"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/migrations"
)

func TestMain(m *testing.M) { os.Exit(testservers.Main(m)) }

// Each tool has its own version table, as the operations guide recommends.
var tools = map[string]func(t *testing.T, dsn string){
	"goose":          runGoose,
	"golang-migrate": runGolangMigrate,
}

func runGoose(t *testing.T, dsn string) {
	files, err := fs.Sub(migrations.MySQL, "mysql")
	require.NoError(t, err)
	versions, err := database.NewStore(database.DialectMySQL, "compensator_db_version")
	require.NoError(t, err)
	provider, err := goose.NewProvider("", open(t, dsn), files, goose.WithStore(versions))
	require.NoError(t, err)
	_, err = provider.Up(t.Context())
	require.NoError(t, err)
}

func runGolangMigrate(t *testing.T, dsn string) {
	files, err := iofs.New(migrations.MySQL, "mysql")
	require.NoError(t, err)
	target, err := migratemysql.WithInstance(open(t, dsn), &migratemysql.Config{MigrationsTable: "compensator_migrations"})
	require.NoError(t, err)
	m, err := migrate.NewWithInstance("files", files, "mysql", target)
	require.NoError(t, err)
	defer func() {
		sourceErr, targetErr := m.Close()
		assert.NoError(t, sourceErr)
		assert.NoError(t, targetErr)
	}()
	if err := m.Up(); err != migrate.ErrNoChange {
		require.NoError(t, err)
	}
}

func open(t *testing.T, dsn string) *sql.DB {
	db, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() }) // golang-migrate closes it, too
	return db
}

func TestMigrationFilesRunAsTheyAre(t *testing.T) {
	for name, run := range tools {
		t.Run(name, func(t *testing.T) {
			dsn := testservers.Database(t)
			run(t, dsn)
			first := facts(t, dsn)
			run(t, dsn)
			assert.Equal(t, first, facts(t, dsn), "a second run changes nothing")

			c, err := compensator.New(t.Context(), compensator.Config{DB: open(t, dsn)})
			require.NoError(t, err, "New accepts the tables of the tool")
			assert.NoError(t, c.Close())
		})
	}
}

func TestMigrationFilesMakeWhatMigrateMakes(t *testing.T) {
	own := testservers.Database(t)
	require.NoError(t, compensator.Migrate(t.Context(), open(t, own)))
	for name, run := range tools {
		t.Run(name, func(t *testing.T) {
			dsn := testservers.Database(t)
			run(t, dsn)
			assert.Equal(t, definitions(t, own), definitions(t, dsn))

			require.NoError(t, compensator.Migrate(t.Context(), open(t, dsn)), "Migrate has nothing to do")
			assert.Equal(t, definitions(t, own), definitions(t, dsn))
		})
	}
}

func facts(t *testing.T, dsn string) map[string]string {
	rows, err := open(t, dsn).QueryContext(t.Context(), "SELECT name, value FROM common_process_log_meta")
	require.NoError(t, err)
	defer rows.Close()
	found := make(map[string]string)
	for rows.Next() {
		var name, value string
		require.NoError(t, rows.Scan(&name, &value))
		found[name] = value
	}
	require.NoError(t, rows.Err())
	assert.NotEmpty(t, found["fingerprint"])
	assert.Equal(t, "1", found["schema"])
	return found
}

func definitions(t *testing.T, dsn string) map[string]string {
	found := make(map[string]string)
	for _, table := range []string{"common_process_log", "common_process_log_audit", "common_process_log_meta", "common_process_log_fault", "common_process_log_result", "common_process_log_limit", "common_process_log_slots", "common_process_log_turns", "common_process_log_attempt", "common_process_log_stat", "common_process_log_instance"} {
		var name, statement string
		require.NoError(t, open(t, dsn).QueryRowContext(t.Context(), "SHOW CREATE TABLE "+table).Scan(&name, &statement))
		found[table] = statement
	}
	return found
}
