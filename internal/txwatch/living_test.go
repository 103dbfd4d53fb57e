package txwatch

import (
	"context"
	"database/sql/driver"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

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

// A service may keep one connection in use for very long, for example for a lock. The pool cannot close this connection
// at its maximum lifetime. So the method Oldest ignores the connection.
func TestConnectionThatIsHeldTellsNothingOfTheOthersAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Wrap(bareConnector{}).(*Connector)
		began := time.Now()
		oldest := func(want time.Duration, open bool) {
			t.Helper()
			opened, any := c.Oldest()
			require.Equal(t, open, any)
			require.Equal(t, began.Add(want), opened)
		}
		held := mustConnect(t, c)
		time.Sleep(heldAfter)
		oldest(0, true)
		time.Sleep(time.Second)
		other := mustConnect(t, c)
		oldest(heldAfter+time.Second, true)
		require.True(t, other.IsValid(), "it is back in the pool")
		time.Sleep(time.Hour)
		oldest(heldAfter+time.Second, true)
		require.NoError(t, other.Close())
		oldest(heldAfter+time.Second, false)
		require.True(t, held.IsValid(), "it is back in the pool")
		oldest(0, true)
		require.NoError(t, held.ResetSession(t.Context()))
		oldest(0, true)
		time.Sleep(heldAfter + 1)
		oldest(heldAfter+time.Second, false)
		require.NoError(t, held.Close())
	})
}

func mustConnect(t *testing.T, c *Connector) *watchedConn {
	t.Helper()
	conn, err := c.Connect(t.Context())
	require.NoError(t, err)
	return conn.(*watchedConn)
}
