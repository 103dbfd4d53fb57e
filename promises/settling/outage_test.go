package settling

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/harness"
)

type logLines struct{ n atomic.Int64 }

func (l *logLines) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (l *logLines) Handle(context.Context, slog.Record) error { l.n.Add(1); return nil }

func (l *logLines) WithAttrs([]slog.Attr) slog.Handler { return l }

func (l *logLines) WithGroup(string) slog.Handler { return l }

func counted(calls *atomic.Int64) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		calls.Add(1)
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
}

// Failure: F82
func TestDatabaseAwayForSecondsWithABacklogIsCaughtUpWith(t *testing.T) {
	t.Parallel()
	for name, watched := range map[string]bool{"connector": true, "plain": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t).WithRedis()
			proxy, db := w.OpenProxied(watched)
			cfg := w.QuickConfig()
			cfg.DB = db
			c := w.New(cfg)
			orders, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{Concurrency: 10}, nil)
			away, back := harness.HandleGated(t, c, "slow", compensator.HandlerConfig[harness.Order]{}, nil)
			w.Run(c)
			inFlight := w.Record(away, 1, compensator.Options{})
			back.Await(t)
			for i := range 300 {
				w.Record(orders, i, compensator.Options{Delay: 300 * time.Millisecond})
			}
			proxy.Refuse()
			back.Open() // Let the handler return. The outcome cannot be stored while the proxy refuses connections.
			health := c.Health(t.Context())
			require.Error(t, health.Database)
			w.Eventually(func() bool {
				return w.Count("common_process_log WHERE business_type='close_order' AND state=0 AND next_at<(UNIX_TIMESTAMP()-1)*1000") > 0
			}, "entries come due meanwhile")
			require.Equal(t, compensator.Pending, w.State(inFlight))
			proxy.Heal()
			w.WaitAllEnded()
			require.Equal(t, 301, w.CountEnded(compensator.Succeeded, 0), "an outage of the database is no failure of the entries'")
			require.GreaterOrEqual(t, ran.Total(), 300)
		})
	}
}

// Failure: F82
func TestEverythingAwayIsNeitherHammeredNorShoutedAbout(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	var sqlDials, redisDials atomic.Int64
	sqlProxy, db := w.OpenProxied(true, func(config *mysql.Config) {
		config.Net = "counted-" + config.DBName
		dial := counted(&sqlDials)
		mysql.RegisterDialContext(config.Net, func(ctx context.Context, addr string) (net.Conn, error) { return dial(ctx, "tcp", addr) })
	})
	redisProxy, err := faultproxy.NewTCP(w.Redis.Options().Addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = redisProxy.Close() })
	client := redis.NewClient(&redis.Options{Addr: redisProxy.Addr(), Dialer: counted(&redisDials)})
	t.Cleanup(func() { _ = client.Close() })
	lines := new(logLines)
	cfg := w.QuickConfig()
	cfg.DB, cfg.Redis, cfg.Logger = db, client, slog.New(lines)
	cfg.PollInterval = time.Second // This is the default.
	c := w.New(cfg)
	names := []string{"one", "two", "three", "four", "five"}
	for _, name := range names {
		_, _ = harness.HandleCounted(t, c, name, compensator.HandlerConfig[harness.Order]{}, nil)
		w.Backlog(name, 20)
	}
	_, g := harness.HandleGated(t, c, "slow", compensator.HandlerConfig[harness.Order]{}, nil)
	w.Backlog("slow", 3)
	w.Run(c)
	for range 3 {
		g.Await(t)
	}
	w.Eventually(func() bool { return w.Count("common_process_log WHERE state=0") == 3 }, "it works")

	seen, asked, askedToo := lines.n.Load(), sqlDials.Load(), redisDials.Load()
	sqlProxy.Refuse()
	redisProxy.Refuse()
	g.Open() // Let three handlers return. The outcomes cannot be stored while the proxy refuses connections.
	for _, name := range names {
		w.Exec("UPDATE common_process_log SET state=0, ended_by='', next_at=1, epoch=epoch+1, version=version+1 WHERE business_type=?", name)
	}
	harness.Elapse(4 * time.Second)
	assert.LessOrEqual(t, lines.n.Load()-seen, int64(10), "lines of log in four seconds")
	for server, dials := range map[string]int64{"database": sqlDials.Load() - asked, "redis": redisDials.Load() - askedToo} {
		assert.Positive(t, dials, "connections to the %s tried", server)
		assert.Less(t, dials, int64(400), "connections to the %s tried; a hot loop makes many thousand", server)
	}
	sqlProxy.Heal()
	redisProxy.Heal()
	w.WaitAllEnded()
}
