package servers

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/internal/testservers"
)

// Failure: F14, F15, F31
func TestServerSettingsThatLoseOrCutEntriesAreRefusedAtStart(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		params map[string]string
		alter  string
		want   string
	}{
		"autocommit off":             {params: map[string]string{"autocommit": "0"}, want: "autocommit"},
		"chained transactions":       {params: map[string]string{"completion_type": "1"}, want: "completion_type"},
		"lenient sql_mode":           {params: map[string]string{"sql_mode": "''"}, want: "sql_mode"},
		"key of equal letters":       {alter: "MODIFY idempotent_id VARCHAR(191) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL", want: "idempotent_id"},
		"key too short":              {alter: "MODIFY idempotent_id VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL", want: "idempotent_id"},
		"key without four-byte text": {alter: "MODIFY idempotent_id VARCHAR(191) CHARACTER SET utf8mb3 COLLATE utf8mb3_bin NOT NULL", want: "idempotent_id"},
		"key of Latin letters":       {alter: "MODIFY idempotent_id VARCHAR(191) CHARACTER SET latin1 COLLATE latin1_bin NOT NULL", want: "idempotent_id"},
		"key in two bytes":           {alter: "MODIFY idempotent_id VARCHAR(191) CHARACTER SET utf16 COLLATE utf16_bin NOT NULL", want: "idempotent_id"},
		"type of Latin letters":      {alter: "MODIFY business_type VARCHAR(64) CHARACTER SET latin1 COLLATE latin1_bin NOT NULL", want: "business_type"},
		"errors of Latin letters":    {alter: "MODIFY last_error VARCHAR(1000) CHARACTER SET latin1 NOT NULL DEFAULT ''", want: "last_error"},
		"latin1 session":             {params: map[string]string{"charset": "latin1"}, want: "character_set_client"},
		"gbk session":                {params: map[string]string{"charset": "gbk"}, want: "charset=utf8mb4"},
		"texts read as latin1":       {params: map[string]string{"character_set_results": "latin1"}, want: "character_set_results"},
		"id too small":               {alter: "MODIFY id INT UNSIGNED NOT NULL AUTO_INCREMENT", want: "column id"},
		"key not unique":             {alter: "DROP INDEX uk_idempotent_id", want: "UNIQUE"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t)
			if test.alter != "" {
				w.Exec("ALTER TABLE common_process_log " + test.alter)
			}
			for _, pool := range harness.Pools {
				cfg := w.QuickConfig()
				cfg.DB = w.Open(pool(harness.WithParams(t, w.DSN, test.params)))
				_, err := compensator.New(t.Context(), cfg)
				require.ErrorContains(t, err, test.want)
			}
		})
	}
}

// MySQL cannot run this test, because the smallest value of its innodb_lock_wait_timeout is 1.
func TestPoolThatNeverWaitsForLocksIsRefusedOnMariaDB(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	cfg := w.QuickConfig()
	never := harness.WithParams(t, w.DSN, map[string]string{"innodb_lock_wait_timeout": "0"})
	cfg.DB = w.Open(harness.PlainPool(never))
	c, err := compensator.New(t.Context(), cfg)
	if testservers.SharedSQL(t).Flavor == "mariadb" {
		require.ErrorContains(t, err, "innodb_lock_wait_timeout")
	} else {
		require.NoError(t, err)
		require.NoError(t, c.Close())
	}
	cfg.DB = w.Open(harness.WatchedPool(never))
	w.New(cfg) // With a Connector the library opens connections of its own. Those wait for locks, so New accepts the pool.
}

func TestSessionsThatCarryUTF8AreTaken(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	for name, test := range map[string]struct {
		params map[string]string
		warns  bool
	}{
		"none":        {},
		"utf8mb4":     {params: map[string]string{"charset": "utf8mb4"}},
		"utf8":        {params: map[string]string{"charset": "utf8"}, warns: true},
		"utf8mb3":     {params: map[string]string{"charset": "utf8mb3"}, warns: true},
		"as it is":    {params: map[string]string{"character_set_results": "NULL"}},
		"bytes of it": {params: map[string]string{"character_set_results": "binary"}},
	} {
		for _, pool := range harness.Pools {
			cfg := w.QuickConfig()
			lines := harness.CaptureLog(&cfg)
			cfg.DB = w.Open(pool(harness.WithParams(t, w.DSN, test.params)))
			w.New(cfg)
			if test.warns {
				lines.Contains(w, "level=WARN", "charset=utf8mb4")
			} else {
				require.Empty(t, lines, name)
			}
		}
	}
}

// Only MariaDB has this sql_mode. MySQL refuses to set it.
func TestServerThatTakesEmptyTextsForNullIsRefusedAtStart(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	for _, pool := range harness.Pools {
		cfg := w.QuickConfig()
		cfg.DB = w.Open(pool(harness.WithParams(t, w.DSN, map[string]string{"sql_mode": "'STRICT_ALL_TABLES,EMPTY_STRING_IS_NULL'"})))
		_, err := compensator.New(t.Context(), cfg)
		require.ErrorContains(t, err, "EMPTY_STRING_IS_NULL")
		require.NotContains(t, err.Error(), "Scan")
	}
}
