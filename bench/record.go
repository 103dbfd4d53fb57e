package bench

import (
	"time"

	"github.com/compensator-go/compensator"
)

// records is the rate of business transactions with perTx entries each, that nobody runs meanwhile. The
// library's entries are announced to Redis; the floor has no such call.
func (a *arena) records(transactions, perTx int) contest {
	work, goal := "record: business transaction + 1 entry", 0.85
	if perTx > 1 {
		work = "record in batches: transaction of 100 entries"
	}
	return contest{
		work: work, other: "floor: the same statements", unit: "entries/s", goal: goal, entries: transactions * perTx,
		ours: func() float64 {
			l := a.ours(0, nil)
			defer l.close()
			rate, err := share(transactions, producers, func(int) error {
				_, err := l.record(a.Context(), perTx, compensator.Options{Delay: time.Second})
				return err
			})
			a.must(err)
			return rate * float64(perTx)
		},
		theirs: func() float64 {
			db := a.plain(producers)
			defer db.Close()
			rate, err := share(transactions, producers, func(int) error {
				_, err := floorRecord(a.Context(), db, perTx, floorTuple, time.Second)
				return err
			})
			a.must(err)
			return rate * float64(perTx)
		},
	}
}

// withoutEntry shows what the entry costs the business transaction: the library against no entry at all.
func (a *arena) withoutEntry(transactions int) contest {
	c := a.records(transactions, 1)
	c.other, c.goal = "business transaction alone", 0
	c.theirs = func() float64 {
		db := a.plain(producers)
		defer db.Close()
		rate, err := share(transactions, producers, func(int) error {
			_, err := floorRecord(a.Context(), db, 0, "", 0)
			return err
		})
		a.must(err)
		return rate
	}
	return c
}
