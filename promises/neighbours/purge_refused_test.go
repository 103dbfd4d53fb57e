package neighbours

import (
	"crypto/rand"
	"errors"
	"github.com/compensator-go/compensator/admin"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/processlog"
)

var refusals = map[string][]string{
	"a foreign key refers to them": {
		"CREATE TABLE refers (entry BIGINT UNSIGNED NOT NULL, FOREIGN KEY (entry) REFERENCES common_process_log (id)) ENGINE=InnoDB",
		"INSERT INTO refers SELECT id FROM common_process_log WHERE idempotent_id IN ('old 007','old 107')",
	},
	"a trigger objects": {
		"CREATE TRIGGER refuses BEFORE DELETE ON common_process_log FOR EACH ROW IF OLD.idempotent_id IN ('old 007','old 107') THEN " +
			"SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT='kept for the auditors'; END IF",
	},
}

// Failure: F106
func TestPurgeTakesTheRestOfEntriesThatTheDatabaseRefusesToDelete(t *testing.T) {
	t.Parallel()
	for name, statements := range refusals {
		for _, watched := range []bool{true, false} {
			t.Run(name+map[bool]string{true: ", connector", false: ", plain"}[watched], func(t *testing.T) {
				t.Parallel()
				w := harness.NewWorld(t)
				insertEnded(w, upTo(250)...)
				for _, statement := range statements {
					w.Exec(statement)
				}
				proxy, db := w.OpenProxied(watched)
				cfg := w.QuickConfig()
				cfg.DB = db
				c := w.New(cfg)
				deletes := proxy.Arm(faultproxy.Rule{Match: faultproxy.Contains("DELETE"), Fault: faultproxy.Count})
				purged, err := admin.Of(c).Purge(t.Context(), time.Minute)
				require.ErrorAs(t, err, new(*processlog.RefusedError))
				for _, id := range refusedIDs(w) {
					assert.ErrorContains(t, err, id)
				}
				assert.Equal(t, 248, purged)
				assert.LessOrEqual(t, deletes.Matched(), 60)

				before := deletes.Matched()
				insertEnded(w, 300) // Purge deletes these without a failing statement.
				w.Exec("UPDATE common_process_log SET next_at=next_at+1 WHERE idempotent_id='old 300'")
				purged, err = admin.Of(c).Purge(t.Context(), time.Minute)
				require.NoError(t, err)
				assert.Equal(t, 1, purged)
				assert.Equal(t, before+3, deletes.Matched(), "one statement each for the entry, for its faults and for its result")
			})
		}
	}
}

func refusedIDs(w *harness.World) (ids []string) {
	w.T.Helper()
	rows, err := w.DB.Query("SELECT id FROM common_process_log WHERE idempotent_id IN ('old 007','old 107')")
	require.NoError(w.T, err)
	defer rows.Close()
	for rows.Next() {
		var id string
		require.NoError(w.T, rows.Scan(&id))
		ids = append(ids, id)
	}
	require.NoError(w.T, rows.Err())
	require.Len(w.T, ids, 2)
	return ids
}

// Failure: F106
func TestPurgeOfEntriesThatAreAllRefusedFailsAFewTimes(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	insertEnded(w, upTo(900)...)
	w.Exec("CREATE TABLE refers (entry BIGINT UNSIGNED NOT NULL, FOREIGN KEY (entry) REFERENCES common_process_log (id)) ENGINE=InnoDB")
	w.Exec("INSERT INTO refers SELECT id FROM common_process_log")
	proxy, db := w.OpenProxied(true)
	cfg := w.QuickConfig()
	cfg.DB = db
	c := w.New(cfg)
	deletes := proxy.Arm(faultproxy.Rule{Match: faultproxy.Contains("DELETE"), Fault: faultproxy.Count})
	for range 3 {
		before := deletes.Matched()
		purged, err := admin.Of(c).Purge(t.Context(), time.Minute)
		require.ErrorAs(t, err, new(*processlog.RefusedError))
		assert.Zero(t, purged)
		assert.LessOrEqual(t, deletes.Matched()-before, 70)
	}
	require.Equal(t, 900, w.Count("common_process_log"))
}

// No single entry causes this error, so Purge must not search for one.
// Failure: F106
func TestPurgeWithoutTheRightToDeleteFailsOnce(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	insertEnded(w, upTo(250)...)
	user := "u" + strings.ToLower(rand.Text()[:12])
	w.Exec("CREATE USER '" + user + "'@'%' IDENTIFIED BY 'secret'")
	w.T.Cleanup(func() { w.Exec("DROP USER '" + user + "'@'%'") })
	proxy, db := w.OpenProxied(true, func(config *mysql.Config) {
		w.Exec("GRANT SELECT, INSERT, UPDATE ON `" + config.DBName + "`.* TO '" + user + "'@'%'")
		config.User, config.Passwd = user, "secret"
	})
	cfg := w.QuickConfig()
	cfg.DB = db
	c := w.New(cfg)
	deletes := proxy.Arm(faultproxy.Rule{Match: faultproxy.Contains("DELETE"), Fault: faultproxy.Count})
	purged, err := admin.Of(c).Purge(t.Context(), time.Minute)
	w.RequireNumber(err, 1142)
	require.False(t, errors.As(err, new(*processlog.RefusedError)))
	assert.Zero(t, purged)
	assert.Equal(t, 1, deletes.Matched())
}
