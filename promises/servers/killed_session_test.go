package servers

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
)

// killer is a Connector that calls kill before one of the statements of its connections.
type killer struct {
	driver.Connector
	statements atomic.Int64
	killBefore int64 // number of the statement
	kill       func(c killedConn)
}

func (k *killer) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := k.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	c := killedConn{conn, k, 0}
	rows, err := conn.(driver.QueryerContext).QueryContext(ctx, "SELECT CONNECTION_ID()", nil)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	values := make([]driver.Value, 1)
	if err := rows.Next(values); err != nil {
		return nil, err
	}
	for rows.Next(make([]driver.Value, 1)) != io.EOF {
	}
	c.id, _ = values[0].(int64)
	return c, nil
}

type killedConn struct {
	driver.Conn
	killer *killer
	id     int64
}

func (c killedConn) count() {
	if c.killer.statements.Add(1) == c.killer.killBefore {
		c.killer.kill(c)
	}
}

func (c killedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	c.count()
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
}

func (c killedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.count()
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (c killedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.count()
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

func (c killedConn) CheckNamedValue(value *driver.NamedValue) error {
	return c.Conn.(driver.NamedValueChecker).CheckNamedValue(value)
}

// Failure: F32
func TestNewNamesALostConnectionAndNoOtherCause(t *testing.T) {
	t.Parallel()
	for name, others := range map[string]bool{"the session of the statement": false, "all other sessions": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t)
			for n := int64(1); ; n++ {
				if !newWithKill(t, w, n, others) {
					require.Greater(t, n, int64(20), "New sends many statements")
					return
				}
			}
		})
	}
}

// newWithKill returns false if New sent fewer than n statements.
func newWithKill(t *testing.T, w *harness.World, n int64, others bool) (killed bool) {
	config, err := mysql.ParseDSN(w.DSN)
	require.NoError(t, err)
	config.InterpolateParams, config.Logger = true, &mysql.NopLogger{}
	inner, err := mysql.NewConnector(config)
	require.NoError(t, err)
	k := &killer{Connector: inner, killBefore: n}
	k.kill = func(c killedConn) {
		own := "id=?"
		if others {
			own = "id<>?"
		}
		const sessions = "SELECT GROUP_CONCAT(id) FROM information_schema.processlist WHERE db=? AND id<>CONNECTION_ID() AND "
		open := func() string {
			var ids sql.NullString
			assert.NoError(t, w.DB.QueryRow(sessions+own, config.DBName, c.id).Scan(&ids))
			return ids.String
		}
		for id := range strings.SplitSeq(open(), ",") {
			if id != "" {
				_, _ = w.DB.Exec("KILL " + id)
			}
		}
		w.Eventually(func() bool { return open() == "" }, "the sessions end")
	}
	cfg := w.QuickConfig()
	cfg.DB = w.Open(func() (*sql.DB, error) { return sql.OpenDB(compensator.Connector(k)), nil })
	lines := harness.CaptureLog(&cfg)
	c, err := compensator.New(t.Context(), cfg)
	if err == nil {
		assert.NoError(t, c.Close())
	}
	var field *compensator.FieldError
	assert.False(t, errors.As(err, &field), "statement %d: %v", n, err)
	for len(lines) > 0 {
		assert.NotContains(t, <-lines, "level=WARN", "statement %d", n)
	}
	return k.statements.Load() >= n
}
