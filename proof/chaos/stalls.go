package chaos

import (
	"context"
	"database/sql"
	"time"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

const (
	canaryEvery = 100 * time.Millisecond
	canaryLimit = 100 * time.Millisecond // a few ms are usual; to renew a lease takes several statements
)

// watchForStalls commits a small change of the canary's, on a connection of its own past all proxies, again and
// again, and writes down each time that this took far too long: so that the checker does not take a lease lost to a
// machine with too much to do for one lost to the library.
func watchForStalls(ctx context.Context, db *sql.DB, canary string, write func(...history.Record)) {
	for last := time.Now(); ctx.Err() == nil; {
		wait(ctx, canaryEvery)
		limited, cancel := context.WithTimeout(ctx, 30*time.Second)
		_, _ = db.ExecContext(limited, "UPDATE /* nemesis */ canary SET n=n+1 WHERE name=?", canary) // when it cannot, that is a fault's doing
		cancel()
		now := time.Now()
		if now.Sub(last) > canaryEvery+canaryLimit {
			write(&history.Stall{At: last.UnixMicro(), Until: now.UnixMicro()})
		}
		last = now
	}
}
