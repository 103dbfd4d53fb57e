package wrappertest

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/XSAM/otelsql"
	"github.com/go-sql-driver/mysql"
	"github.com/ngrok/sqlmw"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/testservers"
)

func TestMain(m *testing.M) { os.Exit(testservers.Main(m)) }

const waitTimeout = time.Minute

type opened func(t *testing.T, dsn string) *sql.DB

// seeing lists ways to put wrappers around the driver or the Connector. With each of these ways, the library sees
// commits.
var seeing = map[string]opened{
	"otelsql inside": func(t *testing.T, dsn string) *sql.DB {
		db, err := openTraced(dsn)
		require.NoError(t, err)
		return db
	},
	"otelsql outside": func(t *testing.T, dsn string) *sql.DB {
		return otelsql.OpenDB(compensator.Connector(bare(t, dsn)))
	},
	"otelsql outside, with comments": func(t *testing.T, dsn string) *sql.DB {
		return otelsql.OpenDB(compensator.Connector(bare(t, dsn)), otelsql.WithSQLCommenter(true))
	},
	"sqlmw inside": func(t *testing.T, dsn string) *sql.DB {
		return sql.OpenDB(compensator.Connector(byName{sqlmw.Driver(mysql.MySQLDriver{}, sqlmw.NullInterceptor{}), dsn}))
	},
	"sqlmw outside": func(t *testing.T, dsn string) *sql.DB {
		watched := compensator.Connector(bare(t, dsn)).Driver()
		return sql.OpenDB(byName{sqlmw.Driver(watched, sqlmw.NullInterceptor{}), dsn})
	},
	"both outside": func(t *testing.T, dsn string) *sql.DB {
		watched := otelsql.WrapDriver(compensator.Connector(bare(t, dsn)).Driver())
		return sql.OpenDB(byName{sqlmw.Driver(watched, sqlmw.NullInterceptor{}), dsn})
	},
}

func bare(t *testing.T, dsn string) driver.Connector {
	cfg, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	connector, err := mysql.NewConnector(cfg)
	require.NoError(t, err)
	return connector
}

type byName struct {
	driver driver.Driver
	dsn    string
}

func (c byName) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }
func (c byName) Driver() driver.Driver                        { return c.driver }

// deaf is a connector whose connections do not pass a context on.
type deaf struct{ driver.Connector }

func (c deaf) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	return deafConn{conn}, err
}

func (c deaf) Driver() driver.Driver { return deafDriver{c.Connector.Driver()} }

type deafDriver struct{ driver.Driver }

// deafConn prepares each statement, as drivers did before contexts existed.
type deafConn struct{ driver.Conn }

func (c deafConn) BeginTx(_ context.Context, opts driver.TxOptions) (driver.Tx, error) {
	return c.Conn.(driver.ConnBeginTx).BeginTx(context.Background(), opts)
}

func (c deafConn) Prepare(query string) (driver.Stmt, error) {
	stmt, err := c.Conn.Prepare(query)
	return deafStmt{stmt}, err
}

type deafStmt struct{ driver.Stmt }

// world is a log whose reconciler never runs during a test.
type world struct {
	*compensator.Compensator
	db  *sql.DB
	log *safeBuffer
	run *compensator.Type[string]
	ran chan string
}

func newWorld(t *testing.T, open opened) *world {
	w := &world{log: new(safeBuffer), ran: make(chan string, 10)}
	w.db = open(t, testservers.Database(t))
	t.Cleanup(func() { assert.NoError(t, w.db.Close()) })
	require.NoError(t, compensator.Migrate(t.Context(), w.db))
	_, err := w.db.Exec("CREATE TABLE orders (id INT PRIMARY KEY, n INT NOT NULL)")
	require.NoError(t, err)
	_, err = w.db.Exec("INSERT INTO orders VALUES (1,0),(2,0),(3,0),(4,0),(5,0)")
	require.NoError(t, err)
	w.Compensator, err = compensator.New(t.Context(), compensator.Config{
		DB: w.db, PollInterval: time.Hour, ReconcileInterval: time.Hour, Logger: slog.New(slog.NewTextHandler(w.log, nil)),
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, w.Close()) })
	w.run, err = compensator.Handle(t.Context(), w.Compensator, "run", func(_ context.Context, _ *compensator.Entry, what string) error {
		w.ran <- what
		return nil
	}, nil)
	require.NoError(t, err)
	return w
}

func (w *world) begin(t *testing.T) *sql.Tx {
	t.Helper()
	tx, err := w.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func (w *world) record(t *testing.T, tx compensator.Tx, what string) *compensator.Receipt {
	t.Helper()
	receipt, err := w.run.Record(t.Context(), tx, what, compensator.Options{})
	require.NoError(t, err)
	return receipt
}

func (w *world) next(t *testing.T) string {
	t.Helper()
	select {
	case what := <-w.ran:
		return what
	case <-time.After(waitTimeout):
		require.FailNow(t, "the entry did not run", w.log.String())
	}
	return ""
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
