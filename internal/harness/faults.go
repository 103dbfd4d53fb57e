package harness

import (
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/observe"
)

var CommitFaults = map[string]faultproxy.Rule{
	"request lost": {Fault: faultproxy.DropRequest, Nth: 1},
	"reply lost":   {Fault: faultproxy.DropReply, Nth: 1},
}

func (w *World) OpenProxied(isWatched bool, options ...func(*mysql.Config)) (*faultproxy.MySQL, *sql.DB) {
	w.T.Helper()
	config, err := mysql.ParseDSN(w.DSN)
	require.NoError(w.T, err)
	proxy, err := faultproxy.NewMySQL(config.Addr)
	require.NoError(w.T, err)
	w.T.Cleanup(func() { assert.NoError(w.T, proxy.Close()) })
	config.Addr, config.Logger = proxy.Addr(), &mysql.NopLogger{}
	for _, c := range options {
		c(config)
	}
	return proxy, w.Open(func() (*sql.DB, error) {
		connector, err := mysql.NewConnector(config)
		if err == nil && isWatched {
			connector = compensator.Connector(connector)
		}
		return sql.OpenDB(connector), err
	})
}

func ReadTimeout(d time.Duration) func(*mysql.Config) {
	return func(config *mysql.Config) { config.ReadTimeout = d }
}

// MatchNext returns a Match that looks at each connection separately. After a request that firstMatch accepts, the
// Match accepts the next request on the same connection that secondMatch accepts.
func MatchNext(firstMatch, secondMatch faultproxy.Match) faultproxy.Match {
	var mu sync.Mutex
	seenConnections := make(map[uint64]bool)
	return func(r faultproxy.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case firstMatch(r):
			seenConnections[r.Connection] = true
		case seenConnections[r.Connection] && secondMatch(r):
			seenConnections[r.Connection] = false
			return true
		}
		return false
	}
}

// HooksOnlyConfig returns a configuration in which only the commit notification starts an entry. The reconciler runs
// only one round. waitReady waits for the end of that round.
func (w *World) HooksOnlyConfig(cfg compensator.Config) (_ compensator.Config, waitReady func()) {
	firstRound := make(chan struct{})
	var once sync.Once
	cfg.ReconcileInterval, cfg.PollInterval, cfg.Grace = time.Hour, time.Hour, time.Hour
	cfg.Observer.Reconciled = func(observe.ReconciledEvent) { once.Do(func() { close(firstRound) }) }
	return cfg, func() { w.Wait(firstRound, "the first round of the reconciler") }
}

func (w *World) Wait(event <-chan struct{}, what string) {
	w.T.Helper()
	timer := time.NewTimer(Timeout)
	defer timer.Stop()
	select {
	case <-event:
	case <-timer.C:
		require.FailNow(w.T, "did not happen: "+what)
	}
}

// WithholdOutcomes makes the proxy drop outcomes and lease renewals. Claims still reach the server.
func WithholdOutcomes(proxy *faultproxy.MySQL) {
	proxy.Arm(faultproxy.Rule{Match: faultproxy.Contains("delivery_count=0, lease_until=0"), Fault: faultproxy.DropRequest})
	proxy.Arm(faultproxy.Rule{Match: faultproxy.Contains("SET lease_until="), Fault: faultproxy.DropRequest})
}

func (w *World) AwaitMoreClaims(proxy *faultproxy.MySQL) {
	w.T.Helper()
	claims := proxy.Arm(faultproxy.Rule{Match: faultproxy.Contains("FOR UPDATE SKIP LOCKED")})
	w.Eventually(func() bool { return claims.Matched() >= 4 }, "the process claims")
	claims.Disarm()
}

func ThroughProxy(t *testing.T, dsn string, proxy *faultproxy.MySQL) string {
	t.Helper()
	config, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	config.Addr = proxy.Addr()
	return config.FormatDSN()
}

func Elapse(d time.Duration) { <-time.After(d) }
