package servers

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
)

// Package sql discards a connection whose statement shows that it is dead. For borrowed connections, the library must
// do this itself.
func TestBorrowedConnectionsThatTurnOutDeadDoNotComeBack(t *testing.T) {
	t.Parallel()
	const dead = 6
	w := harness.NewWorld(t)
	cfg := w.QuickConfig()
	cfg.DB = w.Open(openLying(w.DSN, lie{}, false)) // The lying driver implements no driver.Validator.
	cfg.DB.SetMaxIdleConns(dead)
	c := w.New(cfg)
	var conns []*sql.Conn
	for range dead {
		conn, err := cfg.DB.Conn(t.Context())
		require.NoError(t, err)
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		require.NoError(t, conn.Raw(func(driverConn any) error { return driverConn.(driver.Conn).Close() }))
		require.NoError(t, conn.Close())
	}
	require.NoError(t, c.InTx(t.Context(), func(_ context.Context, tx *compensator.ScopedTx) error {
		w.WriteEffect(tx, "closure")
		return nil
	}))
	require.Equal(t, 1, w.Count("effects"))
}
