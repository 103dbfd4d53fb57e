package chaos

import (
	"context"
	"database/sql"
	"time"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

const (
	canaryEvery = 100 * time.Millisecond
	canaryLimit = 100 * time.Millisecond // a few ms are usual; renewing a lease takes several statements
)

// watchForStalls commits a small change to the canary table every 100 ms, on its own connection past all proxies. It
// writes a Stall each time that takes far too long. The checker then knows that a lease may be lost because the machine
// was overloaded, not because of the library.
func watchForStalls(ctx context.Context, db *sql.DB, canary string, write func(...history.Record)) {
	for last := time.Now(); ctx.Err() == nil; {
		wait(ctx, canaryEvery)
		limited, cancel := context.WithTimeout(ctx, 30*time.Second)
		_, _ = db.ExecContext(limited, "UPDATE /* nemesis */ canary SET n=n+1 WHERE name=?", canary) // an error is the effect of a fault
		cancel()
		now := time.Now()
		if now.Sub(last) > canaryEvery+canaryLimit {
			write(&history.Stall{At: last.UnixMicro(), Until: now.UnixMicro()})
		}
		last = now
	}
}
