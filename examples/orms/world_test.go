package orms

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/testservers"
)

func TestMain(m *testing.M) {
	code := testservers.Main(m)
	if code == 0 {
		// The goroutine of GORM's statement cache never ends, so ignore it.
		if err := goleak.Find(goleak.IgnoreAnyFunction("gorm.io/gorm/internal/lru.NewLRU[...].func1")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

type world struct {
	*compensator.Compensator
	t      *testing.T
	db     *sql.DB
	notes  *compensator.Type[string] // its handler remembers the notes
	writes *compensator.Type[string] // its handler writes the notes and succeeds at the second attempt

	mu    sync.Mutex // guards calls
	calls []string
}

func newWorld(t *testing.T, db *sql.DB, o orm) *world {
	t.Helper()
	w := &world{t: t, db: db}
	require.NoError(t, compensator.Migrate(t.Context(), db))
	id := map[bool]string{false: "BIGINT AUTO_INCREMENT PRIMARY KEY", true: "INTEGER PRIMARY KEY AUTOINCREMENT"}[isSQLite(db)]
	_, err := db.Exec("CREATE TABLE orders (id " + id + ", note VARCHAR(191) NOT NULL)")
	require.NoError(t, err)
	w.Compensator, err = compensator.New(t.Context(), compensator.Config{
		DB: db, Grace: 100 * time.Millisecond, PollInterval: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	w.notes, err = compensator.Handle(t.Context(), w.Compensator, "note", w.remember, nil)
	require.NoError(t, err)
	w.writes, err = compensator.HandleTx(t.Context(), w.Compensator, "write", o.writeAtTheSecondAttempt, &compensator.HandlerConfig[string]{Retry: compensator.Fixed(0)})
	require.NoError(t, err)
	w.run()
	return w
}

func openPlain(t *testing.T) *sql.DB {
	return openDB(t, unwatched)
}

func unwatched(c driver.Connector) driver.Connector { return c }

func openWatched(t *testing.T) *sql.DB { return openDB(t, compensator.Connector) }

func openSQLite(t *testing.T) *sql.DB {
	t.Helper()
	file := filepath.Join(t.TempDir(), "shop.db")
	db, err := compensator.Open("sqlite", "file:"+file+"?_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func isSQLite(db *sql.DB) bool {
	_, err := db.Exec("SELECT sqlite_version()")
	return err == nil
}

func openDB(t *testing.T, wrap func(driver.Connector) driver.Connector, change ...func(*mysql.Config)) *sql.DB {
	t.Helper()
	cfg, err := mysql.ParseDSN(testservers.Database(t))
	require.NoError(t, err)
	for _, c := range change {
		c(cfg)
	}
	connector, err := mysql.NewConnector(cfg)
	require.NoError(t, err)
	db := sql.OpenDB(wrap(connector))
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func (w *world) run() {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	w.t.Cleanup(func() {
		stop()
		require.NoError(w.t, <-ended)
		require.NoError(w.t, w.Close())
	})
}

func (w *world) remember(_ context.Context, _ *compensator.Entry, note string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, note)
	return nil
}

func (o orm) writeAtTheSecondAttempt(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, note string) error {
	if err := o.write(ctx, tx, note); err != nil {
		return compensator.Permanent(err)
	}
	if e.Attempt() == 1 {
		return errRollback
	}
	return nil
}

func (w *world) ran() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.calls)
}

// The note is also the idempotency key.
func (w *world) record(tx compensator.Tx, note string) error {
	_, err := w.notes.Record(w.t.Context(), tx, note, compensator.Options{IdempotencyKey: compensator.IdempotencyKey(note)})
	return err
}

// Call waitRun for the last note recorded, so that earlier notes have had their chance to run.
func (w *world) waitRun(note string) {
	w.t.Helper()
	w.eventually(func() bool { return slices.Contains(w.ran(), note) })
}

func (w *world) eventually(check func() bool) {
	w.t.Helper()
	require.Eventually(w.t, check, time.Minute, 5*time.Millisecond)
}

func (w *world) count(from string) (n int) {
	w.t.Helper()
	require.NoError(w.t, w.db.QueryRow("SELECT COUNT(*) FROM "+from).Scan(&n))
	return n
}

func savepoint(ctx context.Context, tx compensator.Tx, work func(tx compensator.Tx) error) error {
	if _, err := tx.ExecContext(ctx, "SAVEPOINT inner_work"); err != nil {
		return err
	}
	if err := work(tx); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT inner_work")
	return err
}
