package bench

import (
	"context"
	"fmt"
	"time"
)

// peer is another library, on a separate pool. Its handler only calls the function that was passed to rival.open.
type peer interface {
	// record runs a business transaction with n jobs that are due after delay. It returns the id of one job and the
	// moment from which its latency counts: the end of Commit, or the due time.
	record(ctx context.Context, n int, delay time.Duration) (id string, from time.Time, err error)

	// backlog writes n due jobs. It is called before run.
	backlog(n int)

	run()

	// finished returns how many jobs have a stored outcome. Until n handlers have run, it may return the number of handlers that
	// have run.
	finished(n int) int

	// close stops everything that run has started.
	close()
}

type rival struct {
	name string
	open func(handler func(id string)) peer // nil if a program that it needs is missing
}

func (c contest) withPeer(r rival, theirs func(peer) float64) contest {
	c.other, c.goal, c.entries, c.theirs = r.name, 0, 0, nil
	if prepare, ours := c.prepare, c.ours; prepare != nil {
		c.prepare, c.ours = nil, func() float64 { // prepare runs for the library's side only, because the peer prepares in its own way.
			prepare()
			return ours()
		}
	}
	if r.open != nil {
		c.theirs = func() float64 {
			p := r.open(func(string) {})
			defer p.close()
			return theirs(p)
		}
	}
	return c
}

func (a *arena) recordsAgainst(r rival, transactions, perTx int) contest {
	return a.records(transactions, perTx).withPeer(r, func(p peer) float64 {
		rate, err := share(transactions, producers, func(int) error {
			_, _, err := p.record(a.Context(), perTx, time.Second)
			return err
		})
		a.must(err)
		return rate * float64(perTx)
	})
}

func (a *arena) sustainedAgainst(r rival, n int) contest {
	return a.sustained(n).withPeer(r, func(p peer) float64 {
		p.run()
		began := time.Now()
		_, err := share(n, producers, func(int) error {
			_, _, err := p.record(a.Context(), 1, 0)
			return err
		})
		a.must(err)
		return a.rate(p, n, began)
	})
}

func (a *arena) drainAgainst(r rival, n int) contest {
	return a.drain(n, 0).withPeer(r, func(p peer) float64 {
		p.backlog(n)
		began := time.Now()
		p.run()
		return a.rate(p, n, began)
	})
}

// rate returns the number of finished jobs a second, up to the last stored outcome, so that missing jobs do not lower
// it. It adds missing jobs to a.lost.
func (a *arena) rate(p peer, n int, began time.Time) float64 {
	a.Helper()
	done, at := progress(n, func() int { return p.finished(n) })
	if done == 0 {
		a.Fatal("the peer ran no job")
	}
	a.lost += n - done
	return float64(done) / at.Sub(began).Seconds()
}

// waitTimeout is how long a peer may make no progress before its missing jobs count as lost. It is more than twice the
// longest poll interval of any peer, which is 5 s.
const waitTimeout = 15 * time.Second

// progress calls count until the result is n, or has not grown for waitTimeout. It returns the last result, and the
// time at which count returned this number for the first time.
func progress(n int, count func() int) (last int, at time.Time) {
	at = time.Now()
	for last < n && time.Since(at) < waitTimeout {
		time.Sleep(200 * time.Microsecond)
		if now := count(); now > last {
			last, at = now, time.Now()
		}
	}
	return last, at
}

func (a *arena) lagOf(r rival, delay time.Duration, seconds int) latency {
	work := "commit → handler, 500/s, " + r.name
	if delay > 0 {
		work = fmt.Sprintf("due → handler, delay %d s, 500/s, %s", delay/time.Second, r.name)
	}
	if r.open == nil {
		return latency{work, func() lags { return lags{Work: work, Absent: true} }}
	}
	return latency{work, func() lags {
		a.empty()
		seen := newStarts()
		p := r.open(seen.note)
		defer p.close()
		p.run()
		time.Sleep(2 * time.Second) // Some peers first elect a leader among their processes. Wait for this election.
		from := atRate(500, 500*seconds, func() (string, time.Time) {
			id, moment, err := p.record(a.Context(), 1, delay)
			a.must(err)
			return id, moment
		})
		if done, _ := progress(len(from), seen.count); done == 0 {
			a.Fatalf("%s ran no job", r.name)
		}
		l := lagsOf(work, 0, seen.latencies(from, delay))
		l.Lost = len(from) - l.N
		return l
	}}
}
