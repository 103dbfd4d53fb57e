package gormtx_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"os"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"gorm.io/driver/mysql"
	"gorm.io/driver/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/compensatortest/sqlitetest"
	"github.com/compensator-go/compensator/internal/testservers"
)

func TestMain(m *testing.M) {
	code := testservers.Main(m)
	if code == 0 {
		// The goroutine of GORM's statement cache never ends.
		if err := goleak.Find(goleak.IgnoreAnyFunction("gorm.io/gorm/internal/lru.NewLRU[...].func1")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

var databases = map[string]func(t *testing.T) (*compensator.Compensator, *sql.DB, gorm.Dialector){
	"SQLite": func(t *testing.T) (*compensator.Compensator, *sql.DB, gorm.Dialector) {
		c, db := sqlitetest.New(t, func(cfg *compensator.Config) { cfg.PollInterval = time.Hour })
		return c, db, sqlite.New(sqlite.Config{Conn: db})
	},
	"SQL server, plain": func(t *testing.T) (*compensator.Compensator, *sql.DB, gorm.Dialector) {
		return onServer(t, func(c driver.Connector) driver.Connector { return c })
	},
	"SQL server, Connector": func(t *testing.T) (*compensator.Compensator, *sql.DB, gorm.Dialector) {
		return onServer(t, compensator.Connector)
	},
}

func onServer(t *testing.T, wrap func(driver.Connector) driver.Connector) (*compensator.Compensator, *sql.DB, gorm.Dialector) {
	cfg, err := mysqldriver.ParseDSN(testservers.Database(t))
	require.NoError(t, err)
	connector, err := mysqldriver.NewConnector(cfg)
	require.NoError(t, err)
	db := sql.OpenDB(wrap(connector))
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	require.NoError(t, compensator.Migrate(t.Context(), db))
	c, err := compensator.New(t.Context(), compensator.Config{DB: db, PollInterval: time.Hour})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c, db, mysql.New(mysql.Config{Conn: db})
}

type order struct {
	ID   int64
	Note string `gorm:"size:191;unique"`
}

type world struct {
	*compensator.Compensator
	t     *testing.T
	db    *gorm.DB
	write *compensator.Type[string]
	work  func(ctx context.Context, tx *compensator.ScopedTx) error
}

// Every database is tested with and without a cache of prepared statements.
func each(t *testing.T, test func(t *testing.T, w *world)) {
	for name, open := range databases {
		for cache, prepare := range map[string]bool{"": false, ", statements cached": true} {
			t.Run(name+cache, func(t *testing.T) {
				t.Parallel()
				c, _, dialector := open(t)
				db, err := gorm.Open(dialector, &gorm.Config{PrepareStmt: prepare, Logger: logger.Discard})
				require.NoError(t, err)
				require.NoError(t, db.AutoMigrate(&order{}))
				w := &world{Compensator: c, t: t, db: db}
				w.write, err = compensator.HandleTx(t.Context(), c, "write", func(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry, _ string) error {
					return w.work(ctx, tx)
				}, nil)
				require.NoError(t, err)
				test(t, w)
			})
		}
	}
}

func (w *world) handle(work func(ctx context.Context, tx *compensator.ScopedTx) error) compensator.Entry {
	w.t.Helper()
	w.work = work
	return compensatortest.Call(w.t, w.Compensator, w.write, "", compensator.Options{})
}

func (w *world) notes() (list []string) {
	w.t.Helper()
	require.NoError(w.t, w.db.Model(&order{}).Order("note").Pluck("note", &list).Error)
	return list
}
