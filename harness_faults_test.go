package compensator_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/faultproxy"
)

// pools are the two kinds of pool a transaction can come from.
var pools = map[string]func(dsn string) func() (*sql.DB, error){"connector": compensatorOn, "plain": plain}

func inEveryPool(t *testing.T, test func(t *testing.T, w *world, db *sql.DB)) {
	for name, pool := range pools {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			test(t, w, w.open(pool(w.DSN)))
		})
	}
}

// with is a DSN with parameters of the driver, or session variables, changed.
func with(t *testing.T, dsn string, params map[string]string) string {
	t.Helper()
	config, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	if config.Params == nil {
		config.Params = make(map[string]string)
	}
	for name, value := range params {
		config.Params[name] = value
	}
	return config.FormatDSN()
}

// proxied opens the world's database through a proxy that can break it. w.DB stays beside the proxy.
func (w *world) proxied(watched bool, change ...func(*mysql.Config)) (*faultproxy.MySQL, *sql.DB) {
	w.t.Helper()
	config, err := mysql.ParseDSN(w.DSN)
	require.NoError(w.t, err)
	proxy, err := faultproxy.NewMySQL(config.Addr)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { assert.NoError(w.t, proxy.Close()) })
	config.Addr, config.Logger = proxy.Addr(), &mysql.NopLogger{}
	for _, c := range change {
		c(config)
	}
	return proxy, w.open(func() (*sql.DB, error) {
		connector, err := mysql.NewConnector(config)
		if err == nil && watched {
			connector = compensator.Connector(connector)
		}
		return sql.OpenDB(connector), err
	})
}

// readTimeout makes the driver give up on a server that does not answer.
func readTimeout(d time.Duration) func(*mysql.Config) {
	return func(config *mysql.Config) { config.ReadTimeout = d }
}

// following matches a request of kind then that comes after one of kind first on the same connection: the COMMIT of the
// transaction that ran a statement.
func following(first, then faultproxy.Match) faultproxy.Match {
	var mu sync.Mutex
	seen := make(map[uint64]bool) // by connection
	return func(r faultproxy.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case first(r):
			seen[r.Connection] = true
		case seen[r.Connection] && then(r):
			seen[r.Connection] = false
			return true
		}
		return false
	}
}

// numbered registers a type whose handler counts its calls and returns what verdict says; nil: success.
func numbered(t *testing.T, c *compensator.Compensator, name string, cfg compensator.TypeConfig, verdict func(e *compensator.Entry, call int) error) (*compensator.Type[order], *calls) {
	t.Helper()
	ran := new(calls)
	orders, err := compensator.Handle(c, name, func(_ context.Context, e *compensator.Entry, _ order) error {
		call := ran.add(e.ID)
		if verdict == nil {
			return nil
		}
		return verdict(e, call)
	}, cfg)
	require.NoError(t, err)
	return orders, ran
}

// hooksOnly is a configuration in which nothing but the news of a commit makes an entry run: no round of the
// reconciler comes after the first. ready waits for that one.
func (w *world) hooksOnly(cfg compensator.Config) (_ compensator.Config, ready func()) {
	first := make(chan struct{})
	var once sync.Once
	cfg.ReconcileInterval, cfg.PollInterval, cfg.Grace = time.Hour, time.Hour, time.Hour
	cfg.Observer.Reconciled = func(compensator.ReconciledEvent) { once.Do(func() { close(first) }) }
	return cfg, func() { w.wait(first, "the first round of the reconciler") }
}

func (w *world) wait(event <-chan struct{}, what string) {
	w.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-event:
	case <-timer.C:
		require.FailNow(w.t, "did not happen: "+what)
	}
}

// queued is how many entries Redis holds of all types.
func (w *world) queued() (n int64) {
	w.t.Helper()
	keys, err := w.Redis.Keys(w.t.Context(), "{"+w.Name+":*:due").Result()
	require.NoError(w.t, err)
	for _, key := range keys {
		members, err := w.Redis.ZCount(w.t.Context(), key, "-inf", "4e15").Result()
		require.NoError(w.t, err)
		n += members
	}
	return n
}

// statements is any handle that runs them.
type statements interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// deadlock makes the server roll tx back in favour of a heavier transaction, and returns once tx was told.
func (w *world) deadlock(tx statements) {
	w.t.Helper()
	w.deadlockIn(tx, func() error {
		_, err := tx.ExecContext(w.t.Context(), "UPDATE accounts SET n=1 WHERE id=2")
		return err
	})
}

// deadlockIn is deadlock where tx is told by whatever meet does with rows 1 and 2 of accounts.
func (w *world) deadlockIn(tx statements, meet func() error) {
	w.t.Helper()
	w.exec("CREATE TABLE IF NOT EXISTS accounts (id INT PRIMARY KEY, n INT NOT NULL) ENGINE=InnoDB")
	w.exec("REPLACE INTO accounts WITH RECURSIVE s (i) AS (SELECT 1 UNION ALL SELECT i+1 FROM s WHERE i < 100) SELECT i, 0 FROM s")
	_, err := tx.ExecContext(w.t.Context(), "UPDATE accounts SET n=1 WHERE id=1")
	require.NoError(w.t, err)
	rival, err := w.DB.Begin()
	require.NoError(w.t, err)
	_, err = rival.Exec("UPDATE accounts SET n=2 WHERE id>1")
	require.NoError(w.t, err)
	waited := make(chan error, 1)
	go func() {
		_, err := rival.Exec("UPDATE accounts SET n=2 WHERE id=1")
		waited <- err
	}()
	w.requireNumber(meet(), 1213)
	require.NoError(w.t, <-waited, "the wrong transaction was rolled back")
	require.NoError(w.t, rival.Rollback())
}

// requireNumber requires an error of the server.
func (w *world) requireNumber(err error, number uint16) {
	w.t.Helper()
	var answer *mysql.MySQLError
	require.Truef(w.t, errors.As(err, &answer), "got %v, want the server's error %d", err, number)
	require.Equal(w.t, number, answer.Number)
}

// waitLocked waits until n statements on the shared server wait for a row; tests take turns on it.
func (w *world) waitLocked(n int) {
	w.t.Helper()
	w.eventually(func() bool { return w.status("Innodb_row_lock_current_waits") == n }, "%d statements wait for a row", n)
}

// begin begins a transaction that ends with the test at the latest.
func (w *world) begin(db *sql.DB) *sql.Tx {
	w.t.Helper()
	tx, err := db.Begin()
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// effect writes a row of the business table.
func (w *world) effect(tx statements, what string) {
	w.t.Helper()
	_, err := tx.ExecContext(w.t.Context(), "INSERT INTO effects (what) VALUES (?)", what)
	require.NoError(w.t, err)
}
