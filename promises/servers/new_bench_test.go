package servers

import (
	"log/slog"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/internal/testservers"
)

func BenchmarkNew(b *testing.B) {
	servers := map[string]lie{"healthy": {}, "NOWAIT waits": replies(" NOWAIT", "")}
	for name, test := range harmless {
		servers[name] = replies(test.replies...)
	}
	for _, server := range slices.Sorted(maps.Keys(servers)) {
		for pool, watched := range map[string]bool{"connector": true, "plain": false} {
			b.Run(server+"/"+pool, func(b *testing.B) {
				benchmarkNew(b, servers[server], watched)
			})
		}
	}
}

func benchmarkNew(b *testing.B, l lie, watched bool) {
	dsn := testservers.Database(b)
	db, err := harness.WatchedPool(dsn)()
	require.NoError(b, err)
	require.NoError(b, compensator.Migrate(b.Context(), db))
	require.NoError(b, db.Close())
	for b.Loop() {
		db, err := openLying(dsn, l, watched)()
		require.NoError(b, err)
		c, err := compensator.New(b.Context(), compensator.Config{DB: db, Logger: slog.New(slog.DiscardHandler)})
		if err == nil { // If New refuses the server, there is no Compensator to close.
			require.NoError(b, c.Close())
		}
		require.NoError(b, db.Close())
	}
}
