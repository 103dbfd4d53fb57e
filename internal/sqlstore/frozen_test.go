package sqlstore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/processlog"
)

// TestServerEndsAClaimThatStandsStill stops a claim while it holds the row of a limit, as a stopped process does.
func TestServerEndsAClaimThatStandsStill(t *testing.T) {
	t.Parallel()
	dsn := testservers.Database(t)
	open := func() processlog.Store {
		return harness.StoreOn(t, dsn, func() (*sql.DB, error) {
			cfg, err := mysql.ParseDSN(dsn)
			if err != nil {
				return nil, err
			}
			cfg.Logger = &mysql.NopLogger{}
			connector, err := mysql.NewConnector(cfg)
			return sql.OpenDB(compensator.Connector(impatient{connector})), err
		}).Store
	}
	stopped, other := open(), open()
	tx, err := other.Begin(t.Context())
	require.NoError(t, err)
	_, err = other.Insert(t.Context(), tx, []processlog.Draft{
		{IdempotencyKey: "a", BusinessType: "ship", Content: []byte("1"), Token: processlog.NewToken()},
		{IdempotencyKey: "b", BusinessType: "ship", Content: []byte("1"), Token: processlog.NewToken()},
	}, true)
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	ids, err := other.IDs(t.Context(), nil, []processlog.IdempotencyKey{"a", "b"})
	require.NoError(t, err)
	limit := processlog.StartLimit{Name: "ship", Concurrent: 1}
	claim := func(s processlog.Store, id processlog.ID, accept func(*processlog.Row) bool) (processlog.Claimed, error) {
		return s.ClaimLimited(t.Context(), []processlog.Wanted{{ID: id}}, processlog.NewToken(), time.Minute, limit, accept)
	}
	goOn, failed, holds := make(chan struct{}), make(chan error, 1), make(chan struct{})
	go func() {
		_, err := claim(stopped, ids["a"], func(*processlog.Row) bool {
			close(holds)
			<-goOn
			return true
		})
		failed <- err
	}()
	<-holds
	for {
		found, err := claim(other, ids["b"], func(*processlog.Row) bool { return true })
		if err == nil {
			require.Len(t, found.Mine, 1)
			break
		}
		require.ErrorIs(t, err, processlog.ErrBusy, "it waits for its turn")
	}
	close(goOn)
	require.Error(t, <-failed, "its permit is gone")
}

// impatient makes the server end its idle sessions after 1 s instead of 60 s.
type impatient struct{ driver.Connector }

func (c impatient) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	return impatientConn{conn}, err
}

type impatientConn struct{ driver.Conn }

func (c impatientConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, strings.ReplaceAll(query, "_timeout=60", "_timeout=1"), args)
}

func (c impatientConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

func (c impatientConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
}

func (c impatientConn) CheckNamedValue(value *driver.NamedValue) error {
	return c.Conn.(driver.NamedValueChecker).CheckNamedValue(value)
}

func (c impatientConn) ResetSession(ctx context.Context) error {
	return c.Conn.(driver.SessionResetter).ResetSession(ctx)
}

func (c impatientConn) IsValid() bool { return c.Conn.(driver.Validator).IsValid() }
