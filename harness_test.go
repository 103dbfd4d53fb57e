package compensator_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/testservers"
)

// patience is how long a test waits for something that must happen. It is never a measure of speed.
const patience = 60 * time.Second

// world is a database with the process log and a business table, and whatever a test puts on it.
type world struct {
	t     *testing.T
	DSN   string
	DB    *sql.DB // opened on Connector unless the test says otherwise
	Redis *redis.Client
	Name  string // the Redis prefix
}

// newWorld makes a database of the test's own on the shared servers. After the test it checks that no entry
// broke the table's rules.
func newWorld(t *testing.T) *world {
	t.Helper()
	return worldAt(t, testservers.Database(t))
}

func worldAt(t *testing.T, dsn string) *world {
	t.Helper()
	w := &world{t: t, DSN: dsn}
	w.DB = w.open(compensatorOn(dsn))
	require.NoError(t, compensator.Migrate(t.Context(), w.DB))
	_, err := w.DB.Exec("CREATE TABLE effects (id BIGINT AUTO_INCREMENT PRIMARY KEY, what VARCHAR(191) NOT NULL) ENGINE=InnoDB")
	require.NoError(t, err)
	t.Cleanup(w.checkInvariants)
	return w
}

// withRedis gives the world a key prefix on the shared Redis.
func (w *world) withRedis() *world {
	server := testservers.SharedRedis(w.t)
	w.Redis = redis.NewClient(&redis.Options{Addr: server.Addr()})
	w.Name = server.Prefix(w.t)
	w.t.Cleanup(func() { _ = w.Redis.Close() })
	return w
}

// compensatorOn returns a function that opens dsn through the Connector.
func compensatorOn(dsn string) func() (*sql.DB, error) {
	return func() (*sql.DB, error) {
		cfg, err := mysql.ParseDSN(dsn)
		if err != nil {
			return nil, err
		}
		inner, err := mysql.NewConnector(cfg)
		if err != nil {
			return nil, err
		}
		return sql.OpenDB(compensator.Connector(inner)), nil
	}
}

// plain opens dsn without the Connector.
func plain(dsn string) func() (*sql.DB, error) {
	return func() (*sql.DB, error) { return sql.Open("mysql", dsn) }
}

func (w *world) open(open func() (*sql.DB, error)) *sql.DB {
	w.t.Helper()
	db, err := open()
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = db.Close() })
	return db
}

// quick is a configuration for tests: short leases and intervals.
func (w *world) quick() compensator.Config {
	cfg := compensator.Config{
		DB: w.DB, Prefix: w.Name, Lease: 2 * time.Second, Grace: 200 * time.Millisecond,
		ReconcileInterval: 300 * time.Millisecond, PollInterval: 200 * time.Millisecond,
		StopTimeout: 20 * time.Second, Logger: slog.New(slog.DiscardHandler),
	}
	if w.Redis != nil {
		cfg.Redis = w.Redis
	}
	return cfg
}

func (w *world) new(cfg compensator.Config) *compensator.Compensator {
	w.t.Helper()
	c, err := compensator.New(w.t.Context(), cfg)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = c.Close() })
	return c
}

// run runs c until the test ends, or until the returned function is called, which waits and returns Run's
// error.
func (w *world) run(c *compensator.Compensator) (stop func() error) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- c.Run(ctx) }()
	var once sync.Once
	var err error
	stop = func() error {
		once.Do(func() {
			cancel()
			err = <-result
		})
		return err
	}
	w.t.Cleanup(func() { _ = stop() })
	return stop
}

// inTx runs work in a plain transaction and commits it.
func (w *world) inTx(db *sql.DB, work func(tx *sql.Tx)) {
	w.t.Helper()
	tx, err := db.Begin()
	require.NoError(w.t, err)
	work(tx)
	require.NoError(w.t, tx.Commit())
}

// eventually waits until check holds.
func (w *world) eventually(check func() bool, what string, args ...any) {
	w.t.Helper()
	require.Eventually(w.t, check, patience, 5*time.Millisecond, fmt.Sprintf(what, args...))
}

// state reads an entry's state straight from the table.
func (w *world) state(id compensator.EntryID) compensator.State {
	w.t.Helper()
	var s compensator.State
	require.NoError(w.t, w.DB.QueryRow("SELECT state FROM common_process_log WHERE id=?", id.Row()).Scan(&s))
	return s
}

func (w *world) waitState(id compensator.EntryID, want compensator.State) {
	w.t.Helper()
	w.eventually(func() bool { return w.state(id) == want }, "entry %s becomes %s", id, want)
}

// count runs a SELECT COUNT(*) on the rest of a query.
func (w *world) count(from string, args ...any) (n int) {
	w.t.Helper()
	require.NoError(w.t, w.DB.QueryRow("SELECT COUNT(*) FROM "+from, args...).Scan(&n))
	return n
}

func (w *world) exec(query string, args ...any) {
	w.t.Helper()
	_, err := w.DB.Exec(query, args...)
	require.NoError(w.t, err)
}

// waitAllEnded waits until no entry is on its way.
func (w *world) waitAllEnded() {
	w.t.Helper()
	w.eventually(func() bool { return w.count("common_process_log WHERE state IN (0,-1,-3)") == 0 }, "every entry ends")
}

// checkInvariants looks for rows that no history of the protocol leaves behind.
func (w *world) checkInvariants() {
	for what, where := range map[string]string{
		"a terminal entry under a lease":               "state IN (1,2,3,4,-2) AND lease_until>0",
		"a terminal entry with uncounted deliveries":   "state IN (1,2,3,4,-2) AND delivery_count>0",
		"an entry on its way that has ended":           "state IN (0,-1) AND ended_by<>''",
		"an ended entry that does not say by what":     "state IN (1,2,3,4,-2) AND ended_by=''",
		"a pending entry with failures":                "state=0 AND process_count>0",
		"a retrying entry without failures":            "state=-1 AND process_count=0",
		"an entry with more failures than it may have": "max_process_count>0 AND process_count>max_process_count",
		"an entry leased for ever":                     fmt.Sprintf("lease_until > %d", time.Now().Add(24*time.Hour).UnixMilli()),
	} {
		var n int
		if err := w.DB.QueryRow("SELECT COUNT(*) FROM common_process_log WHERE " + where).Scan(&n); err != nil {
			return // the test has taken its server away
		}
		if n > 0 {
			w.t.Errorf("%d times: %s", n, what)
		}
	}
}

// order is the content of most tests' entries.
type order struct {
	Number int    `json:"number"`
	Note   string `json:"note,omitempty"`
}

// calls counts handler runs by entry.
type calls struct {
	mu sync.Mutex
	n  map[compensator.EntryID]int
}

func (c *calls) add(id compensator.EntryID) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = make(map[compensator.EntryID]int)
	}
	c.n[id]++
	return c.n[id]
}

func (c *calls) of(id compensator.EntryID) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[id]
}

func (c *calls) total() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.n {
		n += k
	}
	return n
}
