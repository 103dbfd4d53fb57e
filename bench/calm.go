package bench

import "time"

// calm asks what producers pay for handlers: the 99th percentile of a business transaction with an entry, at a
// fixed 500 a second, while the library claims, runs and settles 1,000 other entries a second beside it,
// against the same with nothing to run. The figure is transactions a second at that percentile, 1/p99, so that
// a ratio of 1/1.2 is the goal.
func (a *arena) calm(seconds int) contest {
	side := func(busy bool) func() float64 {
		return func() float64 {
			a.writeBack() // what others have left
			begins := time.Now().Add(time.Second)
			if busy {
				// By then the server has paid for filling the table.
				begins = time.Now().Add(3*time.Second + time.Duration(seconds)*time.Second/2)
				a.insert(1000 * seconds)
				a.exec("UPDATE common_process_log SET next_at=?+MOD(id,?)", begins.UnixMilli(), 1000*seconds) // evenly over the time
				a.enqueue(0)
				a.awaitPurge()
				a.writeBack()
			}
			worker := a.ours(100, nothing)
			defer worker.close()
			worker.run()
			if time.Now().After(begins) {
				a.Fatal("the backlog came too late: its entries are overdue")
			}
			time.Sleep(time.Until(begins))
			return 1 / lagsOf("", 0, a.timedRecords(worker, seconds)).P99.Seconds()
		}
	}
	return contest{
		work: "1/p99 of a business transaction at 500/s, busy", other: "the same, idle", unit: "/s", goal: 1 / 1.2,
		ours: side(true), theirs: side(false),
	}
}
