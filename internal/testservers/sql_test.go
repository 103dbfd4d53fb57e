package testservers

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestKilledSQLServerKeepsWhatItAcknowledged(t *testing.T) {
	t.Parallel()
	server := NewSQL(t)
	db := open(t, server.Database(t))
	address := server.Addr()
	mustExec(t, db, "CREATE TABLE kept (id INT PRIMARY KEY)")

	rows := 0
	for range 3 {
		for range 50 {
			rows++
			mustExec(t, db, "INSERT INTO kept VALUES (?)", rows)
		}
		server.Kill()
		server.Kill()
		require.Error(t, db.Ping(), "a killed server answers")
		server.Restart(t)
		assert.Equal(t, address, server.Addr())
		assert.Equal(t, rows, queryInt(t, db, "SELECT COUNT(*) FROM kept"))
	}
}

func TestStoppedAndRunningSQLServersRestart(t *testing.T) {
	t.Parallel()
	server := NewSQL(t)
	db := open(t, server.Database(t))
	mustExec(t, db, "CREATE TABLE kept (id INT PRIMARY KEY)")
	server.Stop()
	require.Error(t, db.Ping(), "a stopped server answers")
	assert.Contains(t, server.ErrorLog(), "Shutdown complete")
	server.Restart(t)
	mustExec(t, db, "INSERT INTO kept VALUES (1)")
	server.Restart(t)
	assert.Equal(t, 1, queryInt(t, db, "SELECT COUNT(*) FROM kept"))
	assert.Contains(t, server.ErrorLog(), "ready for connections")
}

func TestPausedSQLServerAnswersNothingUntilResumed(t *testing.T) {
	t.Parallel()
	server := NewSQL(t)
	db := open(t, server.DSN(""))
	assert.Equal(t, 1, queryInt(t, db, "SELECT 1"))
	server.Pause()
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, db.QueryRowContext(ctx, "SELECT 1").Err(), context.DeadlineExceeded)
	server.Resume()
	assert.Equal(t, 1, queryInt(t, db, "SELECT 1"))
	server.Pause()
	server.Kill()
	server.Restart(t)
	assert.Equal(t, 1, queryInt(t, db, "SELECT 1"))
}

func TestFlagsOfTheTestWinOverTheUsualOnes(t *testing.T) {
	t.Parallel()
	server := NewSQL(t, "--max-connections=20")
	db := open(t, server.DSN(""))
	assert.Equal(t, 20, queryInt(t, db, "SELECT @@max_connections"))
	assert.Equal(t, 1, queryInt(t, db, "SELECT @@innodb_flush_log_at_trx_commit"))
}

// When a database server starts, it deletes files in its temporary directory that look like its own old files. So two
// servers must not share a temporary directory.
func TestAServerThatStartsSparesTheTemporaryFilesOfOthers(t *testing.T) {
	t.Parallel()
	db := open(t, NewSQL(t).DSN(""))
	var dir string
	require.NoError(t, db.QueryRow("SELECT @@tmpdir").Scan(&dir))
	temporary := filepath.Join(dir, "#sql-temptable-of-a-neighbour.MAI")
	require.NoError(t, os.WriteFile(temporary, nil, 0o600))
	t.Cleanup(func() { _ = os.Remove(temporary) })
	NewSQL(t)
	assert.FileExists(t, temporary)
}

func TestDatabasesOfTheSharedServerAreApartAndDropped(t *testing.T) {
	var name string
	t.Run("two databases", func(t *testing.T) {
		one, two := open(t, Database(t)), open(t, Database(t))
		mustExec(t, one, "CREATE TABLE mine (id INT)")
		mustExec(t, two, "CREATE TABLE mine (id INT)")
		mustExec(t, one, "INSERT INTO mine VALUES (1)")
		assert.Equal(t, 0, queryInt(t, two, "SELECT COUNT(*) FROM mine"))
		require.NoError(t, one.QueryRow("SELECT DATABASE()").Scan(&name))
	})
	left := open(t, SharedSQL(t).DSN(""))
	assert.Equal(t, 0, queryInt(t, left, "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = ?", name))
}

func TestSharedServersCannotBeKilled(t *testing.T) {
	assert.Panics(t, SharedSQL(t).Kill)
	assert.Panics(t, SharedRedis(t).Pause)
	assert.Panics(t, func() { SharedRedis(t).Restart(t) })
}

func TestDSNCarriesItsParameters(t *testing.T) {
	server := SharedSQL(t)
	db := open(t, server.DSN("", "parseTime=true", "time_zone=%27%2B03%3A00%27"))
	var now time.Time
	require.NoError(t, db.QueryRow("SELECT NOW()").Scan(&now))
	var zone string
	require.NoError(t, db.QueryRow("SELECT @@time_zone").Scan(&zone))
	assert.Equal(t, "+03:00", zone)
}

func TestGivenDSNServesAsTheSharedServer(t *testing.T) {
	own := NewSQL(t)
	server, err := givenSQL(own.DSN("", "parseTime=true"))
	require.NoError(t, err)
	assert.Equal(t, own.Addr(), server.Addr())
	assert.Equal(t, own.Flavor, server.Flavor)
	assert.Contains(t, []string{"mariadb", "mysql"}, server.Flavor)
	db := open(t, server.Database(t, "loc=UTC"))
	var now time.Time
	require.NoError(t, db.QueryRow("SELECT NOW()").Scan(&now))
	assert.Panics(t, server.Kill)
}

func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func mustExec(t *testing.T, db *sql.DB, query string, args ...any) {
	t.Helper()
	_, err := db.Exec(query, args...)
	require.NoError(t, err)
}

func queryInt(t *testing.T, db *sql.DB, query string, args ...any) int {
	t.Helper()
	var n int
	require.NoError(t, db.QueryRow(query, args...).Scan(&n))
	return n
}

func TestReplicaHasWhatItsPrimaryHadWhenItBeganToLag(t *testing.T) {
	t.Parallel()
	primary, replica := NewSQLPair(t)
	config, err := mysql.ParseDSN(primary.Database(t))
	require.NoError(t, err)
	db := open(t, primary.DSN(config.DBName))
	mustExec(t, db, "CREATE TABLE kept (id INT PRIMARY KEY)")
	mustExec(t, db, "INSERT INTO kept VALUES (1)")
	replica.Lag(t, primary)
	mustExec(t, db, "INSERT INTO kept VALUES (2)")
	primary.Kill()
	replica.Promote(t)
	assert.Equal(t, 1, queryInt(t, open(t, replica.DSN(config.DBName)), "SELECT COUNT(*) FROM kept"))
}
