package testservers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"
)

// Replicating servers run as local programs, because 127.0.0.1 in a container would be the container itself.
var replicatedSQL = source{
	kind:     "replicated SQL",
	variable: "MYSQL_DSN",
	docker: func([]string) (machine, string, error) {
		return nil, "", errors.New("a container does not reach the other one")
	},
	local:    startLocalSQL,
	packages: []string{"mariadb-server"},
}

// NewSQLPair starts two servers for this test alone. The second server replicates from the first one, with a short
// delay. A call of Lag stops the replication.
func NewSQLPair(tb testing.TB) (primary, replica *SQLServer) {
	tb.Helper()
	var pair [2]*SQLServer
	for i := range pair {
		started, err := startSQL(&replicatedSQL, []string{"--log-bin=binlog", "--sync-binlog=1", "--binlog-format=ROW", fmt.Sprintf("--server-id=%d", i+1)})
		if err != nil {
			tb.Fatalf("testservers: %v", err)
		}
		started.owner = tb
		started.discardAtEnd()
		pair[i] = started
	}
	primary, replica = pair[0], pair[1]
	host, port, err := net.SplitHostPort(primary.Addr())
	if err == nil {
		err = replica.exec(replica.chooseWords(
			fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='%s', MASTER_PORT=%s, MASTER_USER='root', MASTER_CONNECT_RETRY=1", host, port),
			fmt.Sprintf("CHANGE REPLICATION SOURCE TO SOURCE_HOST='%s', SOURCE_PORT=%s, SOURCE_USER='root', SOURCE_CONNECT_RETRY=1, GET_SOURCE_PUBLIC_KEY=1", host, port)),
			replica.chooseWords("START SLAVE", "START REPLICA"))
	}
	if err != nil {
		tb.Fatalf("testservers: follow %s: %v", primary.Addr(), err)
	}
	return primary, replica
}

func (s *SQLServer) chooseWords(mariadb, mysql string) string {
	if s.Flavor == "mariadb" {
		return mariadb
	}
	return mysql
}

// Lag waits until the replica has all data of its primary, and then stops the replication.
func (s *SQLServer) Lag(tb testing.TB, primary *SQLServer) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	var file string
	var position int64
	if err := primary.position(ctx, &file, &position); err != nil {
		tb.Fatalf("testservers: position of the primary: %v", err)
	}
	var result sql.NullInt64
	err := withRoot(s.config, func(db *sql.DB) error {
		return db.QueryRowContext(ctx, fmt.Sprintf("SELECT %s('%s', %d, %d)", s.chooseWords("MASTER_POS_WAIT", "SOURCE_POS_WAIT"), file, position,
			int(startLimit/time.Second))).Scan(&result)
	})
	if err == nil && (!result.Valid || result.Int64 < 0) {
		err = errors.New("it does not catch up")
	}
	if err == nil {
		err = s.exec(s.chooseWords("STOP SLAVE SQL_THREAD", "STOP REPLICA SQL_THREAD"))
	}
	if err != nil {
		tb.Fatalf("testservers: stop the replica where it stands: %v", err)
	}
}

func (s *SQLServer) position(ctx context.Context, file *string, position *int64) error {
	return withRoot(s.config, func(db *sql.DB) error {
		rows, err := db.QueryContext(ctx, s.chooseWords("SHOW MASTER STATUS", "SHOW BINARY LOG STATUS"))
		if err != nil {
			return err
		}
		defer rows.Close()
		columns, err := rows.Columns()
		if err != nil || !rows.Next() {
			return errors.Join(err, rows.Err(), errors.New("no binary log"))
		}
		targets := []any{file, position}
		for range columns[2:] {
			targets = append(targets, new(sql.RawBytes))
		}
		return rows.Scan(targets...)
	})
}

// Promote makes the replica an independent server. Changes that it has not applied are lost.
func (s *SQLServer) Promote(tb testing.TB) {
	tb.Helper()
	if err := s.exec(s.chooseWords("STOP SLAVE", "STOP REPLICA"), s.chooseWords("RESET SLAVE ALL", "RESET REPLICA ALL")); err != nil {
		tb.Fatalf("testservers: promote %s: %v", s.Addr(), err)
	}
}
