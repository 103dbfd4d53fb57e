package main

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/proof/traces/sqlpage"
)

func TestPageHasTheStatementsAsSent(t *testing.T) {
	t.Parallel()
	server := testservers.SharedSQL(t)
	var params []string
	if server.Flavor == "mariadb" {
		params = append(params, "innodb_snapshot_isolation=0") // With 1, the default from 11.6, Record reads an existing key without a lock.
	}
	dsn := server.Database(t, params...)
	config, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	h, sent := openTraced(t, dsn)
	_, err = h.Store.Fingerprint(t.Context()) // It opens a connection of the store's own pool.
	require.NoError(t, err)
	_, err = h.Autocommit.ExecContext(t.Context(), "ALTER TABLE common_process_log AUTO_INCREMENT=101") // Servers differ in the ids that Check has used up.
	require.NoError(t, err)
	names := strings.NewReplacer(config.DBName, "shop", hex.EncodeToString([]byte(config.DBName)), hex.EncodeToString([]byte("shop")))
	database := map[string]string{"mariadb": "MariaDB", "mysql": "MySQL"}[server.Flavor]
	sqlpage.Run(t, database, h.Store, func() []string {
		texts := sent.take()
		for i, text := range texts {
			texts[i] = names.Replace(text)
		}
		return texts
	})
}
