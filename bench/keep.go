package bench

import (
	"fmt"
	"time"

	"github.com/compensator-go/compensator"
)

func (a *arena) keeping(n int) contest {
	rate := func(l *library) float64 {
		began := time.Now()
		_, err := share(n, producers, func(int) error {
			_, err := l.record(a.Context(), 1, compensator.Options{})
			return err
		})
		a.must(err)
		a.waitUntil(func() bool { return l.settled.Load() >= int64(n) })
		return float64(n) / time.Since(began).Seconds()
	}
	library := func(keep time.Duration) *library {
		l := a.newLibraryWith(compensator.HandlerConfig[raw]{Concurrency: 1000, TypeConfig: compensator.TypeConfig{Keep: keep}}, nothing)
		l.run()
		return l
	}
	return contest{
		work: "sustained, while Keep purges", other: "the same, and nothing is purged", unit: "entries/s", entries: n,
		prepare: func() {
			a.insertOldRows(4 * n)
			a.awaitRound()
		},
		ours: func() float64 {
			l := library(time.Hour)
			defer l.close()
			before := 4 * n
			a.waitUntil(func() bool {
				time.Sleep(20 * time.Millisecond) // A count has a cost too, so count only every 20 ms.
				before = a.oldRowsLeft()
				return before < 4*n
			})
			found := rate(l)
			purged := before - a.oldRowsLeft()
			if a.Logf("%d entries were purged during this run", purged); purged == 0 {
				a.Errorf("nothing was purged during this pair, so the pair is void")
			}
			return found
		},
		theirs: func() float64 {
			l := library(0)
			defer l.close()
			return rate(l)
		},
	}
}

// awaitRound waits until at least 25 s of a purge round are left. A round deletes entries that are older than
// TypeConfig.Keep. Each round starts at the beginning of a minute and ends 45 s after that, even if it starts late.
func (a *arena) awaitRound() {
	a.Helper()
	a.waitUntil(func() bool {
		var second int
		a.must(a.admin.QueryRowContext(a.Context(), "SELECT SECOND(UTC_TIMESTAMP())").Scan(&second))
		return second < 20
	})
}

// insertOldRows inserts n rows that were settled three days ago and makes a purge round due.
func (a *arena) insertOldRows(n int) {
	a.Helper()
	a.exec(fmt.Sprintf("INSERT INTO common_process_log (idempotent_id, business_type, user_id, content, state, version, next_at, created_at, updated_at) "+
		"SELECT CONCAT('old ', seq), '%s', 'old', ?, 1, 2, %s-3*86400000, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3) FROM %s", benchType, floorNow, numbers(1, n)), content)
	a.exec("REPLACE INTO common_process_log_slots (business_type, slot) VALUES (' keep', " + floorNow + "-120000)")
}

func (a *arena) oldRowsLeft() (n int) {
	a.Helper()
	a.must(a.admin.QueryRowContext(a.Context(), "SELECT COUNT(*) FROM common_process_log WHERE user_id='old'").Scan(&n))
	return n
}
