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

// CommitFaults are the ways in which a statement can fail on the network.
var CommitFaults = map[string]faultproxy.Rule{
	"request lost": {Fault: faultproxy.DropRequest, Nth: 1},
	"reply lost":   {Fault: faultproxy.DropReply, Nth: 1},
}

// OpenProxied opens the world's database through a proxy that can inject faults. w.DB still connects without the proxy.
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

// ReadTimeout makes the driver give up on a server that does not answer within d.
func ReadTimeout(d time.Duration) func(*mysql.Config) {
	return func(config *mysql.Config) { config.ReadTimeout = d }
}

// MatchNext returns a match for the second of two requests on the same connection. Once firstMatch is true for a
// request, the result is true for the next request for which secondMatch is true. For example, it finds the COMMIT
// of the transaction that ran a certain statement.
func MatchNext(firstMatch, secondMatch faultproxy.Match) faultproxy.Match {
	var mu sync.Mutex
	seenConnections := make(map[uint64]bool) // ids of the connections that have sent the first request
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

// HooksOnlyConfig returns a configuration in which only the commit notification starts an entry. The reconciler runs only one
// round. waitReady waits for the end of that round.
func (w *World) HooksOnlyConfig(cfg compensator.Config) (_ compensator.Config, waitReady func()) {
	firstRound := make(chan struct{})
	var once sync.Once
	cfg.ReconcileInterval, cfg.PollInterval, cfg.Grace = time.Hour, time.Hour, time.Hour
	cfg.Observer.Reconciled = func(observe.ReconciledEvent) { once.Do(func() { close(firstRound) }) }
	return cfg, func() { w.Wait(firstRound, "the first round of the reconciler") }
}

// Wait waits for event. If the event does not come, the test fails with a message that contains the text in what.
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

// AwaitMoreClaims waits until a process has sent several more claims.
func (w *World) AwaitMoreClaims(proxy *faultproxy.MySQL) {
	w.T.Helper()
	claims := proxy.Arm(faultproxy.Rule{Match: faultproxy.Contains("FOR UPDATE SKIP LOCKED")})
	w.Eventually(func() bool { return claims.Matched() >= 4 }, "the process claims")
	claims.Disarm()
}

// ThroughProxy returns the DSN dsn, changed so that it connects through proxy.
func ThroughProxy(t *testing.T, dsn string, proxy *faultproxy.MySQL) string {
	t.Helper()
	config, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	config.Addr = proxy.Addr()
	return config.FormatDSN()
}

// Elapse waits for d. Tests use it for the length of an outage.
func Elapse(d time.Duration) { <-time.After(d) }
