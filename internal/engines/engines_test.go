//go:build engines

// Package engines tests the library on clusters: MySQL Group Replication, Galera and others. The script
// internal/engines/run starts the servers and describes them.
package engines

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest/suite"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/mysqlerr"
	"github.com/compensator-go/compensator/processlog"
)

func nodes(t *testing.T) []string {
	list := strings.Split(os.Getenv("ENGINE_NODES"), " ")
	require.NotEmpty(t, list[0], "ENGINE_NODES names the servers; see internal/engines/run")
	return list
}

func open(t *testing.T, dsn string, watched bool) *sql.DB {
	config, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	connector, err := mysql.NewConnector(config)
	require.NoError(t, err)
	wrapped := driver.Connector(connector)
	if watched {
		wrapped = compensator.Connector(connector)
	}
	db := sql.OpenDB(wrapped)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	return db
}

func table(t *testing.T, db *sql.DB) string {
	name := "log_" + strings.ToLower(rand.Text()[:10])
	require.NoError(t, compensator.MigrateTable(t.Context(), db, name))
	t.Cleanup(func() {
		for _, suffix := range []string{"", "_attempt", "_audit", "_meta", "_fault", "_result", "_limit", "_slots", "_turns", "_case", "_operation", "_setting", "_stat", "_instance"} {
			_, err := db.Exec("DROP TABLE " + name + suffix)
			assert.NoError(t, err)
		}
	})
	return name
}

var pools = map[string]bool{"connector": true, "plain": false}

// Failure: F36
func TestStoreKeepsEveryPromise(t *testing.T) {
	for pool, watched := range pools {
		t.Run(pool, func(t *testing.T) {
			suite.TestStore(t, func(t *testing.T) suite.Harness {
				db, caller := open(t, nodes(t)[0], watched), open(t, nodes(t)[0], false)
				store, err := compensator.OpenStore(t.Context(), db, table(t, db))
				require.NoError(t, err)
				t.Cleanup(func() { assert.NoError(t, store.Close()) })
				require.NoError(t, store.Check(t.Context()))
				return suite.Harness{Store: store, Autocommit: caller, Begin: func(ctx context.Context) (processlog.Transaction, error) {
					return caller.BeginTx(ctx, nil)
				}}
			})
		})
	}
}

// TestEffectsHappenExactlyOnce runs plain and transactional handlers on every node at once. Each effect must happen
// exactly once.
// Failure: F36
func TestEffectsHappenExactlyOnce(t *testing.T) {
	for pool, watched := range pools {
		t.Run(pool, func(t *testing.T) {
			const n = 200
			first := open(t, nodes(t)[0], watched)
			log := table(t, first)
			effects := log + "_effects"
			_, err := first.Exec("CREATE TABLE " + effects + " (id BIGINT AUTO_INCREMENT PRIMARY KEY, entry BIGINT NOT NULL)")
			require.NoError(t, err)
			t.Cleanup(func() { _, _ = first.Exec("DROP TABLE " + effects) })
			var ran atomic.Int32
			ctx, stop := context.WithCancel(context.Background())
			defer stop()
			var all []*compensator.Compensator
			for _, dsn := range nodes(t) {
				c, err := compensator.New(t.Context(), compensator.Config{DB: open(t, dsn, watched), Table: log, ReconcileInterval: time.Second, PollInterval: time.Second})
				require.NoError(t, err)
				t.Cleanup(func() { assert.NoError(t, c.Close()) })
				_, err = compensator.Handle(ctx, c, "plain", func(context.Context, *compensator.Entry, int) error { ran.Add(1); return nil }, nil)
				require.NoError(t, err)
				_, err = compensator.HandleTx(ctx, c, "transactional", func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, _ int) error {
					_, err := tx.ExecContext(ctx, "INSERT INTO "+effects+" (entry) VALUES (?)", e.ID.String())
					return err
				}, nil)
				require.NoError(t, err)
				all = append(all, c)
			}
			done := make(chan error, len(all))
			for _, c := range all {
				go func() { done <- c.Run(ctx) }()
			}
			for i := range n {
				for _, kind := range []string{"plain", "transactional"} {
					require.NoError(t, all[i%len(all)].InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
						_, err := all[i%len(all)].Record(ctx, tx, compensator.NewEntry{BusinessType: kind, Content: []byte("1")})
						return err
					}))
				}
			}
			count := func(where string) (found int) {
				require.NoError(t, first.QueryRow("SELECT COUNT(*) FROM "+where).Scan(&found))
				return found
			}
			require.Eventually(t, func() bool { return count(log+" WHERE state=1") == 2*n }, time.Minute, 50*time.Millisecond)
			stop()
			for range all {
				require.NoError(t, <-done)
			}
			assert.EqualValues(t, n, ran.Load())
			assert.Equal(t, []int{n, n}, []int{count(effects), count("(SELECT DISTINCT entry FROM " + effects + ") AS d")})
		})
	}
}

// Resolve must find a committed entry at once, even if the node that Resolve asks lags behind the node that has
// committed the entry.
// Failure: F36
func TestResolveFindsWhatAnotherNodeHasCommitted(t *testing.T) {
	all := nodes(t)
	for pool, watched := range pools {
		t.Run(pool, func(t *testing.T) {
			db := open(t, all[0], watched)
			log := table(t, db)
			here, err := compensator.New(t.Context(), compensator.Config{DB: db, Table: log})
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, here.Close()) })
			there, err := compensator.New(t.Context(), compensator.Config{DB: open(t, all[len(all)-1], watched), Table: log})
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, there.Close()) })
			for i := range 300 {
				key := fmt.Sprint("key ", i)
				require.NoError(t, here.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
					_, err := here.Record(ctx, tx, compensator.NewEntry{BusinessType: "plain", Options: compensator.Options{IdempotencyKey: compensator.IdempotencyKey(key), Delay: time.Hour}})
					return err
				}))
				_, err := there.Resolve(t.Context(), compensator.IdempotencyKey(key))
				require.NoError(t, err, key)
			}
		})
	}
}

// Connections to the former primary stay open.
func TestEntriesRunAfterASwitchover(t *testing.T) {
	primary, err := mysql.ParseDSN(nodes(t)[0])
	require.NoError(t, err)
	next, err := mysql.ParseDSN(nodes(t)[1])
	require.NoError(t, err)
	proxy, err := faultproxy.NewMySQL(primary.Addr)
	require.NoError(t, err)
	defer proxy.Close()
	admin, member := open(t, nodes(t)[0], false), open(t, nodes(t)[1], false)
	log := table(t, admin)
	_, err = admin.Exec("CREATE USER IF NOT EXISTS service IDENTIFIED BY 'secret'")
	require.NoError(t, err)
	_, err = admin.Exec("GRANT SELECT, INSERT, UPDATE, DELETE ON *.* TO service")
	require.NoError(t, err)
	config := primary.Clone()
	config.Addr, config.User, config.Passwd, config.AllowNativePasswords = proxy.Addr(), "service", "secret", true
	uuid := serverUUID(t, member)
	db := open(t, config.FormatDSN(), true)
	c, err := compensator.New(t.Context(), compensator.Config{DB: db, Table: log, ReconcileInterval: time.Second, PollInterval: time.Second})
	require.NoError(t, err)
	defer c.Close()
	var ran atomic.Int32
	_, err = compensator.Handle(t.Context(), c, "plain", func(context.Context, *compensator.Entry, int) error { ran.Add(1); return nil }, nil)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	record := func() error {
		return c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
			_, err := c.Record(ctx, tx, compensator.NewEntry{BusinessType: "plain", Content: []byte("1"), Options: compensator.Options{Delay: time.Second}})
			return err
		})
	}
	recorded := 0
	for range 300 {
		require.NoError(t, record())
		recorded++
	}
	_, err = admin.Exec("SELECT group_replication_set_as_primary('" + uuid + "')")
	require.NoError(t, err)
	proxy.Retarget(next.Addr)
	for recorded < 600 {
		if record() == nil {
			recorded++
		}
	}
	require.Eventually(t, func() bool {
		var left int
		err := member.QueryRow("SELECT COUNT(*) FROM " + log + " WHERE state<>1").Scan(&left)
		return assert.NoError(t, err) && left == 0
	}, time.Minute, 50*time.Millisecond)
	stop()
	require.NoError(t, <-done)
	assert.EqualValues(t, recorded, ran.Load())
	// Make the first server the primary again, because the cleanup of the test drops the log's tables there.
	_, err = member.Exec("SELECT group_replication_set_as_primary('" + serverUUID(t, admin) + "')")
	require.NoError(t, err)
}

// On Galera, a KILL statement first commits the open transaction, even if the statement then returns an error. So the
// entries that the transaction has recorded are committed. Later statements must fail, because no transaction is open.
// Failure: F36
func TestKillCommits(t *testing.T) {
	for pool, watched := range pools {
		t.Run(pool, func(t *testing.T) {
			db := open(t, nodes(t)[0], watched)
			log := table(t, db)
			effects := log + "_effects"
			_, err := db.Exec("CREATE TABLE " + effects + " (what VARCHAR(20) PRIMARY KEY)")
			require.NoError(t, err)
			t.Cleanup(func() { _, _ = db.Exec("DROP TABLE " + effects) })
			c, err := compensator.New(t.Context(), compensator.Config{DB: db, Table: log})
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, c.Close()) })
			record := func(ctx context.Context, tx compensator.Tx) error {
				_, err := c.Record(ctx, tx, compensator.NewEntry{BusinessType: "plain", Options: compensator.Options{Delay: time.Hour}})
				return err
			}
			rollback := errors.New("roll back")
			kill := func(ctx context.Context, tx compensator.Tx, what string) error {
				assert.NoError(t, record(ctx, tx))
				_, err := tx.ExecContext(ctx, "INSERT INTO "+effects+" VALUES (?)", what)
				assert.NoError(t, err)
				_, err = tx.ExecContext(ctx, "KILL QUERY 0")
				assert.EqualValues(t, 1094, mysqlerr.Number(err))
				assert.ErrorIs(t, record(ctx, tx), compensator.ErrNoTransaction)
				return rollback
			}
			require.ErrorIs(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
				err := kill(ctx, tx, "ours")
				_, after := tx.ExecContext(ctx, "INSERT INTO "+effects+" VALUES ('after')")
				assert.ErrorIs(t, after, compensator.ErrNoTransaction)
				return err
			}), rollback)
			tx, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			require.ErrorIs(t, kill(t.Context(), tx, "the caller's"), rollback)
			_ = tx.Rollback()
			var entries, before, after int
			require.NoError(t, db.QueryRow("SELECT (SELECT COUNT(*) FROM "+log+"), COUNT(*), COALESCE(SUM(what='after'), 0) FROM "+effects).Scan(&entries, &before, &after))
			assert.Equal(t, []int{2, 2, 0}, []int{entries, before, after}, "what came before is committed, although it was rolled back")
		})
	}
}

// On a read-only member, Insert must fail. On a plain pool, the error of Insert must also name the remedy: the DSN
// parameter rejectReadOnly.
// Failure: F36
func TestReadOnlyMemberTellsTransactionsAndTakesNothing(t *testing.T) {
	primary, member := open(t, nodes(t)[0], false), nodes(t)[1]
	log := table(t, primary)
	replicated(t, member, log)
	for pool, watched := range pools {
		t.Run(pool, func(t *testing.T) {
			db := open(t, member, watched)
			store, err := compensator.OpenStore(t.Context(), db, log)
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, store.Close()) })
			conn, err := db.Conn(t.Context())
			require.NoError(t, err)
			defer conn.Close()
			draft := processlog.Draft{BusinessType: "plain", IdempotencyKey: "1"}
			require.ErrorIs(t, store.Probe(t.Context(), conn), processlog.ErrNoTransaction)
			_, err = store.Insert(t.Context(), conn, []processlog.Draft{draft}, false)
			require.ErrorIs(t, err, processlog.ErrNoTransaction)
			tx, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			for range 2 {
				require.NoError(t, store.Probe(t.Context(), tx))
			}
			_, err = store.Insert(t.Context(), tx, []processlog.Draft{draft}, false)
			require.True(t, mysqlerr.IsReadOnly(err), "%v", err)
			assert.Equal(t, !watched, strings.Contains(err.Error(), "rejectReadOnly=true"), "%v: a Connector gives the connection up by itself", err)
			_ = tx.Rollback()
			_, err = compensator.New(t.Context(), compensator.Config{DB: db, Table: log})
			require.ErrorContains(t, err, "read-only replica")
		})
	}
}

func replicated(t *testing.T, dsn, name string) {
	db := open(t, dsn, false)
	require.Eventually(t, func() bool {
		var n int
		return db.QueryRow("SELECT COUNT(*) FROM "+name+"_meta").Scan(&n) == nil && n > 0
	}, time.Minute, 20*time.Millisecond)
}

func serverUUID(t *testing.T, db *sql.DB) (uuid string) {
	require.NoError(t, db.QueryRow("SELECT @@server_uuid").Scan(&uuid))
	return uuid
}
