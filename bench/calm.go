package bench

import "time"

// calm measures how much the library slows producers down while it runs handlers. A contest has two sides: ours and
// theirs. On both sides, producers commit 500 business transactions a second. Only on our side, the library also runs
// 1,000 other entries a second. The p99 is the 99th percentile of the durations of the producers' transactions. The
// goal is that our p99 is at most 1.5 times their p99.
//
// A contest compares rates, of which the larger is better. So each side returns 1/p99.
func (a *arena) calm(seconds int) contest {
	return contest{
		work: calmWork, other: "the same, idle", unit: "/s", goal: 1 / 1.5,
		ours:   func() float64 { return a.calmRate(seconds, true) },
		theirs: func() float64 { return a.calmRate(seconds, false) },
	}
}

const calmWork = "1/p99 of a business transaction at 500/s, busy"

// calmByHand compares the library with a hand-written program that sends the same statements. In this contest, both
// sides run handlers while the producers commit. In the contest of the method calm, only our side runs handlers.
func (a *arena) calmByHand(seconds int) contest {
	return contest{
		work: calmWork, other: "floor: the same statements, busy", unit: "/s", goal: 1 / 1.1,
		ours: func() float64 { return a.calmRate(seconds, true) },
		theirs: func() float64 {
			// calmLease empties the table of lease rows. formToday needs no lease rows, but the table must exist.
			a.exec(leaseTable)
			return 1 / a.calmLease(formToday, seconds, true).P99.Seconds()
		},
	}
}

func (a *arena) calmRate(seconds int, busy bool) float64 {
	a.writeBack() // Flush the dirty pages of earlier runs first.
	begins := time.Now().Add(time.Second)
	if busy {
		begins = a.fillCalm(seconds)
	}
	worker := a.newLibrary(100, nothing)
	defer worker.close()
	worker.run()
	if time.Now().After(begins) {
		a.Fatal("filling the table took too long: entries are already overdue")
	}
	time.Sleep(time.Until(begins))
	return 1 / lagsOf("", 0, a.timedRecords(worker, seconds)).P99.Seconds()
}

// By the returned time, the server has finished the writes that filling the table causes. If these writes take too
// long, fillCalm postpones the entries, up to four times.
func (a *arena) fillCalm(seconds int) (begins time.Time) {
	a.Helper()
	a.insert(1000 * seconds)
	allowance := 3*time.Second + time.Duration(seconds)*time.Second/2
	for range 5 {
		begins = time.Now().Add(allowance)
		a.exec("UPDATE common_process_log SET next_at=?+MOD(id,?)", begins.UnixMilli(), 1000*seconds) // Spread the due times evenly over the run.
		a.enqueue(0)
		a.awaitPurge()
		a.writeBack()
		if time.Until(begins) > time.Second { // The library needs some of this time to start.
			return begins
		}
		allowance *= 2
	}
	return begins
}
