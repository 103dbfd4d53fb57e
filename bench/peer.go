package bench

import (
	"context"
	"fmt"
	"time"
)

// peer is another library at work on a pool of its own, as library is ours. Its handler does nothing but call the
// function that it was opened with.
type peer interface {
	// record is a business transaction with n jobs, due after delay. It returns the name of one of them and the
	// moment from which its lag counts: the end of Commit, or the due moment.
	record(ctx context.Context, n int, delay time.Duration) (id string, from time.Time, err error)

	// backlog writes n due jobs, before run.
	backlog(n int)

	// run begins to run handlers.
	run()

	// finished returns how many jobs have an outcome that stays. Until the handlers of n jobs have run, it may
	// return how many have run.
	finished(n int) int

	// close ends everything that the peer has begun.
	close()
}

// rival opens a peer, as often as there are runs of it.
type rival struct {
	name string
	open func(handler func(id string)) peer // nil: a program that it needs is not here
}

// against is the same work of ours beside a peer's.
func (c contest) against(r rival, theirs func(peer) float64) contest {
	c.other, c.goal, c.entries, c.theirs = r.name, 0, 0, nil
	if prepare, ours := c.prepare, c.ours; prepare != nil {
		c.prepare, c.ours = nil, func() float64 { // the peer prepares in its own way
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
	return a.records(transactions, perTx).against(r, func(p peer) float64 {
		rate, err := share(transactions, producers, func(int) error {
			_, _, err := p.record(a.Context(), perTx, time.Second)
			return err
		})
		a.must(err)
		return rate * float64(perTx)
	})
}

func (a *arena) sustainedAgainst(r rival, n int) contest {
	return a.sustained(n).against(r, func(p peer) float64 {
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
	return a.drain(n, 0).against(r, func(p peer) float64 {
		p.backlog(n)
		began := time.Now()
		p.run()
		return a.rate(p, n, began)
	})
}

// rate waits until n jobs have their outcomes. What a peer has lost it does not pay for: its clock stops with the
// last outcome.
func (a *arena) rate(p peer, n int, began time.Time) float64 {
	a.Helper()
	done, at := progress(n, func() int { return p.finished(n) })
	if done == 0 {
		a.Fatal("the peer has run nothing")
	}
	a.lost += n - done
	return float64(done) / at.Sub(began).Seconds()
}

// waitTimeout is for how long a peer may stand still before what is missing counts as lost: more than twice the
// longest interval of any of them, 5 s.
const waitTimeout = 15 * time.Second

// progress waits until count returns n, or stands still; it returns the last count, and since when it stood.
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

// lagOf asks a peer what lag asks of ours.
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
		time.Sleep(2 * time.Second) // whoever elects a leader has one
		from := atRate(500, 500*seconds, func() (string, time.Time) {
			id, moment, err := p.record(a.Context(), 1, delay)
			a.must(err)
			return id, moment
		})
		if done, _ := progress(len(from), seen.count); done == 0 {
			a.Fatalf("%s has run nothing", r.name)
		}
		l := lagsOf(work, 0, seen.since(from, delay))
		l.Lost = len(from) - l.N
		return l
	}}
}
