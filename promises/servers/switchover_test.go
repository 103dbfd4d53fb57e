package servers

import (
	"context"
	"database/sql"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/observe"
)

// switchover is two servers with the same log, and a proxy to the primary.
type switchover struct {
	former, next *harness.World
	proxy        *faultproxy.MySQL
	dsn          string // DSN through the proxy, for a user to whom read_only applies
}

func newSwitchover(t *testing.T) *switchover {
	former := harness.WorldAt(t, testservers.NewSQL(t).Database(t))
	dsn := asService(former)
	config, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	server := testservers.NewSQL(t)
	admin := former.Open(harness.PlainPool(server.DSN("")))
	_, err = admin.Exec("CREATE DATABASE " + config.DBName)
	require.NoError(t, err)
	next := harness.WorldAt(t, server.DSN(config.DBName))
	asService(next)
	var fingerprint string
	require.NoError(t, former.DB.QueryRow("SELECT value FROM common_process_log_meta WHERE name='fingerprint'").Scan(&fingerprint))
	next.Exec("UPDATE common_process_log_meta SET value=? WHERE name='fingerprint'", fingerprint)
	proxy, err := faultproxy.NewMySQL(config.Addr)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, proxy.Close()) })
	config.Addr = proxy.Addr()
	return &switchover{former, next, proxy, config.FormatDSN()}
}

// Nothing may change on the former primary during replicate.
func (s *switchover) replicate(t *testing.T) {
	rows, err := s.former.DB.Query("SELECT * FROM common_process_log")
	require.NoError(t, err)
	defer rows.Close()
	columns, err := rows.Columns()
	require.NoError(t, err)
	row, into := make([]sql.RawBytes, len(columns)), make([]any, len(columns))
	for i := range row {
		into[i] = &row[i]
	}
	for rows.Next() {
		require.NoError(t, rows.Scan(into...))
		values := make([]any, len(row))
		for i := range row {
			values[i] = append([]byte{}, row[i]...)
		}
		s.next.Exec("INSERT INTO common_process_log ("+strings.Join(columns, ",")+") VALUES ("+strings.TrimSuffix(strings.Repeat("?,", len(row)), ",")+")", values...)
	}
	require.NoError(t, rows.Err())
}

// switchOver leaves the connections to the former primary open.
func (s *switchover) switchOver(t *testing.T) {
	s.former.Exec("SET GLOBAL read_only=1")
	config, err := mysql.ParseDSN(s.next.DSN)
	require.NoError(t, err)
	s.proxy.Retarget(config.Addr)
}

// Failure: F35
func TestEntriesRunOnTheNewPrimaryAfterASwitchover(t *testing.T) {
	t.Parallel()
	for pool, open := range map[string]func(dsn string) func() (*sql.DB, error){
		"connector": harness.WatchedPool,
		"plain, rejecting read-only": func(dsn string) func() (*sql.DB, error) {
			return harness.PlainPool(harness.WithParams(t, dsn, map[string]string{"rejectReadOnly": "true"}))
		},
	} {
		t.Run(pool, func(t *testing.T) {
			t.Parallel()
			s := newSwitchover(t)
			cfg := s.former.QuickConfig()
			cfg.DB = s.former.Open(open(s.dsn))
			c := s.former.New(cfg)
			_, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, func(*compensator.Entry, int) error { return nil })
			s.former.Run(c)
			first := s.former.InsertDue("close_order", 1, 50) // So many entries use all connections of the library.
			s.former.WaitAllEnded()
			require.NoError(t, c.InTx(t.Context(), func(context.Context, *compensator.ScopedTx) error { return nil }), "the pool holds a connection")
			s.replicate(t)
			s.switchOver(t)
			second := s.next.InsertDue("close_order", 1001, 50)
			s.former.InsertDue("close_order", 1001, 50) // These entries were replicated before the switchover.
			s.next.WaitAllEnded()
			for _, id := range append(first, second...) {
				assert.Equal(t, 1, ran.Of(id))
			}
			assert.Equal(t, 50, s.former.Count("common_process_log WHERE state=0"), "nothing moves on the former primary")
			s.next.Eventually(func() bool {
				return c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
					_, err := c.Record(ctx, tx, harness.NewUntyped(1)...)
					return err
				}) == nil
			}, "the pool leads to the new primary")
			assert.Equal(t, 101, s.next.Count("common_process_log"))
		})
	}
}

// Failure: F35
func TestNewWarnsOfAPoolThatStaysOnAFormerPrimary(t *testing.T) {
	t.Parallel()
	w := harness.WorldAt(t, testservers.NewSQL(t, "--log-bin", "--server-id=1").Database(t))
	for name, test := range map[string]struct {
		open func() (*sql.DB, error)
		want bool
	}{
		"plain":                      {harness.PlainPool(w.DSN), true},
		"plain, rejecting read-only": {harness.PlainPool(harness.WithParams(t, w.DSN, map[string]string{"rejectReadOnly": "true"})), false},
		"connector":                  {harness.WatchedPool(w.DSN), false},
	} {
		var log strings.Builder
		cfg := w.QuickConfig()
		cfg.DB, cfg.Logger = w.Open(test.open), slog.New(slog.NewTextHandler(&log, nil))
		w.New(cfg)
		assert.Equal(t, test.want, strings.Contains(log.String(), "rejectReadOnly"), name)
	}
}

// A plain pool without RejectReadOnly keeps its connections to a server that has become read-only.
// Failure: F35
func TestPoolThatStaysOnAFormerPrimarySaysWhatWouldHelp(t *testing.T) {
	t.Parallel()
	w := harness.WorldAt(t, testservers.NewSQL(t).Database(t))
	cfg := w.QuickConfig()
	log := harness.CaptureLog(&cfg)
	cfg.DB = w.Open(harness.PlainPool(asService(w)))
	c := w.New(cfg)
	harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
	w.Run(c)
	w.Backlog("close_order", 10)
	w.WaitAllEnded()
	w.Exec("SET GLOBAL read_only=1")
	w.InsertDue("close_order", 1001, 10)
	const remedy = "rejectReadOnly=true"
	w.Eventually(func() bool {
		return slices.ContainsFunc(c.Health(t.Context()).Problems, func(problem observe.Problem) bool { return strings.Contains(problem.Error, remedy) })
	}, "Health says what would help")
	log.Contains(w, "WARN", remedy)
	err := c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
		_, err := c.Record(ctx, tx, harness.NewUntyped(1)...)
		return err
	})
	require.ErrorContains(t, err, remedy)
	w.Exec("SET GLOBAL read_only=0")
	w.WaitAllEnded()
}

// In one case the service holds one of its connections for a lock, and this connection stays on the former server.
// Failure: F35
func TestOwnConnectionsFollowTheUsersToAnotherServer(t *testing.T) {
	t.Parallel()
	for name, holds := range map[string]bool{"all are put back": false, "one is held": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSwitchover(t)
			cfg := s.former.QuickConfig()
			cfg.DB = s.former.Open(harness.WatchedPool(s.dsn))
			cfg.DB.SetConnMaxLifetime(time.Second)
			if holds {
				held, err := cfg.DB.Conn(t.Context())
				require.NoError(t, err)
				defer held.Close()
			}
			c := s.former.New(cfg)
			orders, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
			s.former.Run(c)
			s.former.InsertDue("close_order", 1, 50) // So many entries use all connections of the library.
			s.former.WaitAllEnded()
			s.replicate(t)
			config, err := mysql.ParseDSN(s.next.DSN)
			require.NoError(t, err)
			s.proxy.Retarget(config.Addr)
			s.next.Eventually(func() bool {
				var port string
				return cfg.DB.QueryRow("SELECT @@port").Scan(&port) == nil && strings.HasSuffix(config.Addr, ":"+port)
			}, "the user's pool leads to the other server")
			var ids []compensator.EntryID
			for n := range 5 {
				ids = append(ids, s.next.RecordThrough(cfg.DB, orders, n, compensator.Options{}))
			}
			require.Equal(t, 55, s.next.Count("common_process_log"))
			s.next.WaitAllEnded()
			for _, id := range ids {
				assert.Equal(t, 1, ran.Of(id))
			}
			assert.NoError(t, c.Health(t.Context()).Ready())
		})
	}
}
