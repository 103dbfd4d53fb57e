package bench

import (
	"fmt"
	"time"

	"github.com/compensator-go/compensator"
)

// keeping is sustained while a backlog of old entries is purged by Keep, beside the same with the same backlog left alone: what
// producers feel of it.
func (a *arena) keeping(n int) contest {
	rate := func(keep time.Duration) float64 {
		l := a.oursWith(compensator.TypeConfig{Concurrency: 1000, Keep: keep}, nothing)
		defer l.close()
		l.run()
		began := time.Now()
		_, err := share(n, producers, func(int) error {
			_, err := l.record(a.Context(), 1, compensator.Options{})
			return err
		})
		a.must(err)
		a.until(func() bool { return l.settled.Load() >= int64(n) })
		return float64(n) / time.Since(began).Seconds()
	}
	return contest{
		work: "sustained, while Keep purges", other: "the same, and nothing is purged", unit: "entries/s", entries: n,
		prepare: func() { a.old(4 * n) },
		ours: func() float64 {
			found := rate(time.Hour)
			purged := 4*n - a.oldLeft()
			if a.Logf("%d entries purged meanwhile", purged); purged == 0 {
				a.Fatal("nothing was purged meanwhile")
			}
			return found
		},
		theirs: func() float64 { return rate(0) },
	}
}

// old adds rows that were settled three days ago, and has a round of purging be due.
func (a *arena) old(n int) {
	a.Helper()
	a.exec(fmt.Sprintf("INSERT INTO common_process_log (idempotent_id, business_type, user_id, content, state, version, next_at, created_at, updated_at) "+
		"SELECT CONCAT('old ', seq), '%s', 'old', ?, 1, 2, %s-3*86400000, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3) FROM seq_1_to_%d", benchType, floorNow, n), content)
	a.exec("REPLACE INTO common_process_log_slots (business_type, slot) VALUES (' keep', " + floorNow + "-120000)")
}

// oldLeft counts them.
func (a *arena) oldLeft() (n int) {
	a.Helper()
	a.must(a.admin.QueryRowContext(a.Context(), "SELECT COUNT(*) FROM common_process_log WHERE user_id='old'").Scan(&n))
	return n
}
