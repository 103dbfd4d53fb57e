package txwatch

import (
	"context"
	"database/sql/driver"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// bare is a connection that does nothing.
type bare struct{ driver.Conn }

func (bare) Close() error { return nil }

type bareConnector struct{ driver.Connector }

func (bareConnector) Connect(context.Context) (driver.Conn, error) { return bare{}, nil }

func TestConnectorKnowsItsOldestConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Wrap(bareConnector{}).(*Connector)
		began := time.Now()
		oldest := func(want time.Duration, open bool) {
			t.Helper()
			opened, any := c.Oldest()
			require.Equal(t, open, any)
			require.Equal(t, began.Add(want), opened)
		}
		var conns []driver.Conn
		for range 3 {
			time.Sleep(time.Second)
			conn, err := c.Connect(t.Context())
			require.NoError(t, err)
			conns = append(conns, conn)
		}
		oldest(time.Second, true)
		require.NoError(t, conns[1].Close())
		oldest(time.Second, true)
		require.NoError(t, conns[0].Close())
		oldest(3*time.Second, true)
		require.NoError(t, conns[0].Close(), "a second time")
		require.NoError(t, conns[2].Close())
		oldest(3*time.Second, false)
	})
}
