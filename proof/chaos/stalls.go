package chaos

import (
	"context"
	"database/sql"
	"time"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

const (
	canaryEvery = 100 * time.Millisecond
	canaryLimit = 100 * time.Millisecond // A few ms are usual. The limit is higher, because a renewal of a lease takes several statements.
)

// A commit that takes far too long shows the checker that the machine was overloaded and may have caused a lost lease.
func watchForStalls(ctx context.Context, db *sql.DB, canary string, write func(...history.Record)) {
	for last := time.Now(); ctx.Err() == nil; {
		wait(ctx, canaryEvery)
		limited, cancel := context.WithTimeout(ctx, 30*time.Second)
		_, _ = db.ExecContext(limited, "UPDATE /* nemesis */ canary SET n=n+1 WHERE name=?", canary) // Ignore the error, because faults cause errors here.
		cancel()
		now := time.Now()
		if now.Sub(last) > canaryEvery+canaryLimit {
			write(&history.Stall{At: last.UnixMicro(), Until: now.UnixMicro()})
		}
		last = now
	}
}
