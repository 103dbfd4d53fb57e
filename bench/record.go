package bench

import (
	"time"

	"github.com/compensator-go/compensator"
)

// records compares the library with a floor, a hand-written program that sends the same statements. The library also
// adds the entries to Redis. The floor does not use Redis.
func (a *arena) records(transactions, perTx int) contest {
	work, goal := "record: business transaction + 1 entry", 0.93
	if perTx > 1 {
		work, goal = "record in batches: transaction of 100 entries", 0.95
	}
	return contest{
		work: work, other: "floor: the same statements", unit: "entries/s", goal: goal, entries: transactions * perTx,
		ours: func() float64 { return a.recordRate(a.newLibrary(0, nil), transactions, perTx) },
		theirs: func() float64 {
			db := a.openPlain(producers)
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

func (a *arena) recordRate(l *library, transactions, perTx int) float64 {
	defer l.close()
	rate, err := share(transactions, producers, func(int) error {
		receipt, err := l.record(a.Context(), perTx, compensator.Options{Delay: time.Second})
		if err == nil {
			receipt.Committed()
		}
		return err
	})
	a.must(err)
	return rate * float64(perTx)
}

// On a plain pool the library must ask MySQL whether a transaction is open.
func (a *arena) withoutConnector(transactions int) contest {
	c := a.records(transactions, 1)
	c.work, c.goal = "record without the Connector: business transaction + 1 entry", 0
	c.ours = func() float64 {
		return a.recordRate(a.oursOn(a.openPlain(producers+4), compensator.HandlerConfig[raw]{}, nil), transactions, 1)
	}
	return c
}

// withoutEntry compares the library with a business transaction that has no entry.
func (a *arena) withoutEntry(transactions int) contest {
	c := a.records(transactions, 1)
	c.other, c.goal = "business transaction alone", 0
	c.theirs = func() float64 {
		db := a.openPlain(producers)
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
