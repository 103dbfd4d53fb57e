package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/examples/internal/faults"
	"github.com/compensator-go/compensator/examples/internal/instance"
	"github.com/compensator-go/compensator/examples/internal/servers"
)

// scene is one run of one algorithm: three instances, a crowd, faults, and the books at the end.
type scene struct {
	servers.Servers
	settings
	byHand bool
	buyers int
	span   time.Duration // in which the crowd comes and the faults strike
	kills  int
	blows  []faults.Blow        // on servers, beside the kills
	out    io.Writer            // told of what happens
	watch  func(address string) // called while the crowd is there, with an instance's

	db        *sql.DB
	counter   *counter
	instances []*instance.Instance
}

const (
	instances  = 3
	restAtMost = 3 * time.Minute // from the last buyer until nothing moves any more
)

// run returns the books, right or wrong. It begins and ends without tables, queue and keys.
func (s *scene) run(ctx context.Context) (b *books, err error) {
	if s.db, err = s.OpenDB(8); err != nil {
		return nil, err
	}
	defer s.db.Close()
	s.counter = &counter{redis: s.OpenRedis(), name: s.Name}
	defer s.counter.redis.Close()
	if err := s.clear(ctx); err != nil {
		return nil, err
	}
	if err := errors.Join(createTables(ctx, s.db), putOnSale(ctx, s.db, s.goods, s.stock)); err != nil {
		return nil, err
	}
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	b, err = s.day(ctx)
	if err = errors.Join(err, s.stop()); err != nil {
		return nil, err
	}
	if err := s.read(ctx, b); err != nil {
		return nil, err
	}
	return b, s.clear(ctx)
}

func (s *scene) clear(ctx context.Context) error {
	return errors.Join(dropTables(ctx, s.db), s.Forget(ctx), s.OnBroker(servers.Delete(s.Queue(orderQueue))))
}

func (s *scene) start(ctx context.Context) error {
	arguments := append(s.settings.arguments(), "-name", s.Name)
	if s.byHand {
		arguments = append(arguments, "-by-hand")
	}
	for range instances {
		one := &instance.Instance{Arguments: arguments, Environment: s.Environment()}
		if err := one.Start(ctx); err != nil {
			return errors.Join(err, s.stop())
		}
		s.instances = append(s.instances, one)
	}
	return nil
}

// stop ends all instances in order. One that cannot is an error.
func (s *scene) stop() (err error) {
	for _, one := range s.instances {
		err = errors.Join(err, one.Stop())
	}
	s.instances = nil
	return err
}

// day lets the crowd in while faults strike and somebody looks at the stock all the time, and waits until nothing moves.
func (s *scene) day(ctx context.Context) (*books, error) {
	longest := 3*s.span + restAtMost
	ctx, cancel := context.WithTimeoutCause(ctx, longest, fmt.Errorf("not at rest after %v", longest))
	defer cancel()
	addresses := make([]func() string, len(s.instances))
	for i, one := range s.instances {
		addresses[i] = one.Address
	}
	c := &crowd{client: newClient(addresses...), goods: s.goods, name: "b", buyers: s.buyers, span: s.span, seed: s.seed}
	defer c.client.close()
	b := &books{settings: s.settings, byHand: s.byHand}
	looking, stopLooking := context.WithCancel(ctx)
	var striking error
	var beside sync.WaitGroup
	beside.Go(func() { striking = faults.Strike(ctx, s.plan(), s.span, s.tell) })
	beside.Go(func() { c.run(ctx) })
	var looks sync.WaitGroup
	looks.Go(func() { b.moments = s.lookAtMoments(looking) })
	if s.watch != nil {
		s.watch(addresses[len(addresses)-1]()) // the last to be killed
	}
	beside.Wait()
	resting := s.awaitRest(ctx)
	stopLooking()
	looks.Wait()
	b.tally, b.took, b.accepted = c.tally, c.took, c.tickets
	return b, errors.Join(striking, resting)
}

// plan has the blows in their order: kills, with the servers' blows between them.
func (s *scene) plan() (blows []faults.Blow) {
	others := s.blows
	for i := range s.kills {
		n := i % len(s.instances)
		blows = append(blows, faults.Kill(fmt.Sprintf("instance %d", n+1), s.instances[n]))
		if len(others) > 0 {
			blows, others = append(blows, others[0]), others[1:]
		}
	}
	return append(blows, others...)
}

// tell writes a blow down for the page. It falls when there is something to buy, or soon.
func (s *scene) tell(ctx context.Context, what string) error {
	soon := time.Now().Add(s.span / 10)
	for left := 0; left < s.stock/50 && time.Now().Before(soon) && pause(ctx, 5*time.Millisecond); {
		if err := s.db.QueryRowContext(ctx, `SELECT stock FROM seckill_goods WHERE goods = ?`, s.goods).Scan(&left); err != nil {
			return err
		}
	}
	fmt.Fprintf(s.out, "  %s\n", what)
	_, err := s.db.ExecContext(ctx, `INSERT INTO seckill_faults (what, struck_at) VALUES (?, UTC_TIMESTAMP(3))`, what)
	return err
}

// awaitRest returns when nothing moves for a while: no entry is to be run, no message waits, no order is open, and all
// that is counted stays as it is.
func (s *scene) awaitRest(ctx context.Context) error {
	var before moving
	since := time.Now()
	for pause(ctx, 200*time.Millisecond) {
		now, err := s.moving(ctx)
		if err != nil {
			continue // the broker is coming back, for one
		}
		if now.left > 0 || now != before {
			before, since = now, time.Now()
		}
		if time.Since(since) > s.abandon+2*time.Second {
			return nil
		}
	}
	return context.Cause(ctx)
}

// moving is what is under way, and figures that change when something happens.
type moving struct{ left, tickets, orders int }

func (s *scene) moving(ctx context.Context) (m moving, err error) {
	left := `SELECT COUNT(*) FROM seckill_log WHERE state IN (?, ?, ?)`
	under := []any{compensator.Pending, compensator.Retrying, compensator.Compensating}
	if s.byHand {
		left, under = `SELECT COUNT(*) FROM seckill_hand_log WHERE status = 0`, nil
	}
	waiting, err := s.Waiting(s.Queue(orderQueue))
	if err != nil {
		return m, err
	}
	var open int
	err = errors.Join(
		s.db.QueryRowContext(ctx, left, under...).Scan(&m.left),
		s.db.QueryRowContext(ctx, `SELECT COUNT(*) FROM seckill_orders WHERE state = 'open'`).Scan(&open),
		s.db.QueryRowContext(ctx, `SELECT COUNT(*) FROM seckill_tickets`).Scan(&m.tickets),
		s.db.QueryRowContext(ctx, `SELECT COUNT(*) FROM seckill_orders`).Scan(&m.orders))
	m.left += waiting + open
	return m, err
}
