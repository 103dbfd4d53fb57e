package compensator

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/groupcommit"
	"github.com/compensator-go/compensator/internal/jitter"
	"github.com/compensator-go/compensator/processlog"
)

const (
	// peekInterval is the longest a scanner sleeps without asking the queue: a lost wake-up costs no more. See peekEvery.
	peekInterval = 5 * time.Second

	// lostPeek is the same while the queue has lost entries of a type.
	lostPeek = time.Second

	// behindPause is how long claims wait while the database is behind with outcomes.
	behindPause = 10 * time.Millisecond
)

// scanner claims entries when they come due. It sleeps until the next due moment it knows of, not for an
// interval: claims and peeks say when that is, and wake-ups make it earlier.
type scanner struct {
	c     *Compensator
	wake  chan struct{}
	names []string // of the types, sorted; as they are when Run begins

	mu    sync.Mutex // guards the fields below
	types map[string]*scan
	peek  time.Time // when to peek next
}

func newScanner(c *Compensator) *scanner {
	return &scanner{c: c, wake: make(chan struct{}, 1), types: make(map[string]*scan)}
}

func (s *scanner) run(ctx context.Context) {
	s.prepare()
	var claims sync.WaitGroup
	defer claims.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-s.wake:
		}
		if ctx.Err() != nil {
			return // both may have come
		}
		timer.Reset(s.step(ctx, &claims))
	}
}

// peekEvery lets no lease of the queue end of which a scanner has not heard. What is announced behind such a one wakes
// nobody: an earlier one is due already.
func (c *Compensator) peekEvery() time.Duration {
	return min(peekInterval, c.types.leaseRange().shortest)
}

func (s *scanner) prepare() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.peek = time.Now()
	s.names = s.c.types.names()
	slices.Sort(s.names)
	for _, name := range s.names {
		s.types[name] = &scan{due: time.Now(), pace: groupcommit.Pace{Most: claimPace}, ahead: newReadAhead()}
	}
}

// step starts every claim that is worth one now and returns how long there is nothing to do.
func (s *scanner) step(ctx context.Context, claims *sync.WaitGroup) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if !now.Before(s.peek) {
		s.peek = now.Add(s.c.peekEvery())
		claims.Go(func() { s.look(ctx) })
	}
	if s.c.witness.stopped() != nil {
		return peekInterval
	}
	if s.c.behind() {
		return behindPause
	}
	next := s.peek
	for _, name := range s.names {
		scan, t := s.types[name], s.c.types.named(name)
		for scan.wants(t, now) {
			n := t.slots.take(processlog.MaxRows)
			if n == 0 {
				break
			}
			scan.claiming++
			scan.due = now.Add(2 * peekInterval)
			fulls := scan.fulls
			claims.Go(func() { s.claim(t, n, fulls) })
		}
		if scan.claiming < claimsInFlight && now.Before(scan.due) && scan.due.Before(next) {
			next = scan.due // what is due already waits for a claim to end, or a slot
		}
	}
	return max(0, time.Until(next))
}

// expect makes the scanner look at a type in at most in.
func (s *scanner) expect(businessType string, in time.Duration) {
	due := time.Now().Add(max(0, in))
	s.mu.Lock()
	scan := s.types[businessType]
	earlier := scan != nil && scan.hear(due)
	s.mu.Unlock()
	if earlier {
		s.poke()
	}
}

// canClaim reports whether a claim of a type could begin now.
func (s *scanner) canClaim(t *handlerType) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	scan := s.types[t.name]
	return scan != nil && scan.claiming < claimsInFlight && !time.Now().Before(scan.closed) && t.slots.free() > 0
}

// freed tells that a slot of a type is free, which matters only while more entries are due.
func (s *scanner) freed(t *handlerType) {
	s.mu.Lock()
	scan := s.types[t.name]
	hungry := scan != nil && scan.wants(t, time.Now())
	s.mu.Unlock()
	if hungry {
		s.poke()
	}
}

// told takes another process's word that an entry is due, which every process hears.
func (s *scanner) told(businessType string) {
	var in time.Duration
	s.mu.Lock()
	if scan := s.types[businessType]; scan != nil {
		in = scan.holdBack()
	}
	s.mu.Unlock()
	s.expect(businessType, in)
}

func (s *scanner) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// overflow tells that the database holds due entries of a type beyond those the queue knows.
func (s *scanner) overflow(businessType string) {
	s.mu.Lock()
	if scan := s.types[businessType]; scan != nil {
		scan.backlog = true
	}
	s.mu.Unlock()
	s.expect(businessType, 0)
}

// look asks the queue when each type's next entry is due, all in one: types at rest cost no call of their own.
func (s *scanner) look(ctx context.Context) {
	if !s.c.health.up() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, queueTimeout)
	defer cancel()
	heard := s.heard()
	waits, lost, err := s.c.queue.Peek(ctx, s.names)
	s.c.health.saw(err)
	if err != nil {
		return
	}
	for i, wait := range waits {
		s.postpone(s.names[i], heard[i], wait)
		s.expect(s.names[i], wait)
	}
	s.lost(lost)
}

// lost tells that the queue may hold a part of some types' entries only: the database is asked as well, now and each
// time the queue is, and that more often.
func (s *scanner) lost(businessTypes []string) {
	if len(businessTypes) == 0 {
		return
	}
	s.c.losses.add(businessTypes...)
	s.mu.Lock()
	s.peek = time.Now().Add(lostPeek)
	s.mu.Unlock()
	for _, businessType := range businessTypes {
		s.overflow(businessType)
	}
	s.poke()
}

// heard is how much was heard of each type, in the order of their names.
func (s *scanner) heard() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	heard := make([]int, len(s.names))
	for i, name := range s.names {
		heard[i] = s.types[name].heard
	}
	return heard
}

// postpone lets a type wait for what the queue has said, unless something was heard of it since the queue was asked.
func (s *scanner) postpone(businessType string, heard int, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	due := time.Now().Add(min(wait, 2*peekInterval))
	if scan := s.types[businessType]; scan.claiming == 0 && scan.heard == heard && !scan.backlog && scan.failures == 0 && due.After(scan.due) {
		scan.due = due
	}
}

// claim claims up to n entries of a type, for which slots are taken, and starts them. Slots that turn out to be too
// many are given back at once: others can use them before the claim is over. fulls is scan.fulls as it was before.
func (s *scanner) claim(t *handlerType, n, fulls int) {
	got := s.claimDue(t, n)
	s.mu.Lock()
	scan := s.types[t.name]
	scan.ended(got, fulls)
	s.mu.Unlock()
	s.poke()
}

// claimDue takes what the queue says is due and, where the queue is silent or holds only a part of the
// backlog, what the database says.
func (s *scanner) claimDue(t *handlerType, n int) claimResult {
	s.mu.Lock()
	backlog := s.types[t.name].backlog
	s.mu.Unlock()
	if !s.c.health.up() {
		return s.claimFromStore(t, n)
	}
	got, ok := s.claimFromQueue(t, n)
	if !ok {
		return s.claimFromStore(t, n)
	}
	if (backlog || got.lost) && got.err == nil && !got.full {
		return s.alsoFromStore(t, n, got)
	}
	return got
}

// alsoFromStore goes on where the queue had less than it was asked for.
func (s *scanner) alsoFromStore(t *handlerType, n int, got claimResult) claimResult {
	s.expect(t.name, got.next)
	if n = t.slots.take(n); n == 0 {
		got.full = true // as soon as a slot is free
		return got
	}
	return s.claimFromStore(t, n)
}

// claimFromQueue returns false, and the slots are the caller's still, when the queue does not answer.
func (s *scanner) claimFromQueue(t *handlerType, n int) (claimResult, bool) {
	c := s.c
	ctx, cancel := c.queueCall()
	leased, err := c.queue.Claim(ctx, t.name, n, t.cfg.Lease)
	cancel()
	c.health.saw(err)
	if err != nil {
		return claimResult{next: Never}, false
	}
	if leased.Lost {
		c.losses.add(t.name)
	}
	c.free(t, n-len(leased.IDs))
	if len(leased.IDs) == 0 {
		return claimResult{nothing: true, lost: leased.Lost, next: leased.Next}, true
	}
	failpoint.Reach(failpoint.QueueClaimed)
	began := time.Now()
	s.began(t, began)
	full := len(leased.IDs) == n
	if !full {
		s.expect(t.name, leased.Next)
	}
	found, err := c.claim(t, unleased(leased.IDs), len(leased.IDs))
	s.ended(t, time.Since(began))
	c.returnToQueue(t, leased, found.Claimed, err)
	t.slots.release(len(leased.IDs) - len(found.Mine))
	if err != nil {
		return claimResult{err: err}, true
	}
	c.startClaimed(t, found.Mine, found.asked, leased.Token)
	return claimResult{full: full, lost: leased.Lost, next: Never}, true
}

// began notes that the transaction of a claim begins.
func (s *scanner) began(t *handlerType, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.types[t.name].pace.Begin(now)
}

// ended notes that it is over.
func (s *scanner) ended(t *handlerType, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.types[t.name].pace.End(took)
}

// returnToQueue settles the queue's leases of entries that were not claimed: gone ones are removed, the
// others come due again.
func (c *Compensator) returnToQueue(t *handlerType, leased Leased, found Claimed, err error) {
	var acks []ack
	add := func(id EntryID, remove bool, in time.Duration) {
		acks = append(acks, ack{t.name, QueueOutcome{ID: id, Token: leased.Token, Remove: remove, In: in}})
	}
	if err != nil {
		for _, id := range leased.IDs {
			add(id, false, processlog.LockedRetry+jitter.N(10*processlog.LockedRetry))
		}
	}
	for _, id := range found.Gone {
		add(id, true, 0)
	}
	for _, w := range found.Waiting {
		add(w.ID, false, w.In)
	}
	for i := range found.Refused {
		add(found.Refused[i].ID, found.Refused[i].BusinessType != t.name, refusedRetry)
	}
	if len(acks) > 0 {
		c.ackLane.Add(acks...)
	}
}

// claimFromStore is the same without the queue's help.
func (s *scanner) claimFromStore(t *handlerType, n int) claimResult {
	c := s.c
	s.mu.Lock()
	ahead := s.types[t.name].ahead
	s.mu.Unlock()
	share, err := ahead.take(n, func(limit int) ([]EntryID, error) {
		ctx, cancel := c.statement()
		defer cancel()
		due, err := c.store.Due(ctx, t.name, limit)
		c.saw(troubleClaim, err)
		return due, err
	})
	c.free(t, max(0, n-len(share.ids)))
	if err != nil || len(share.ids) == 0 {
		return claimResult{next: Never, drained: err == nil, err: err}
	}
	failpoint.Reach(failpoint.DueRead)
	found, err := c.claim(t, unleased(share.ids), n)
	t.slots.release(min(n, len(share.ids)) - len(found.Mine))
	c.startClaimed(t, found.Mine, found.asked, 0)
	ahead.tried(share, found.Claimed, err)
	if err != nil {
		return claimResult{next: Never, err: err}
	}
	// What was just read, and can be claimed in no part, is held by others: asking again at once is no use.
	return claimResult{full: share.more && (len(found.Mine) > 0 || !share.fresh), drained: !share.more, next: Never}
}

// listen wakes the scanner for entries other processes announced.
func (c *Compensator) listen(ctx context.Context) {
	c.queue.Listen(ctx, c.scanner.told)
}
