package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"
)

// crowd are buyers who all come in the same moment. Who finds the goods sold out looks in again, for pieces come back;
// who has got one waits for the order, and pays every third, or asks for a second piece.
type crowd struct {
	client *client
	goods  string
	name   string // starts the buyers' names
	buyers int
	span   time.Duration // how long they keep coming
	seed   uint64

	mu      sync.Mutex // guards what follows
	tally   tally
	took    []time.Duration
	tickets []string // that were accepted
}

// tally counts what the crowd was told.
type tally struct {
	asked, unheard           int // requests to buy; those that no instance answered
	accepted, soldOut, again int
	busy                     int // answers of 5xx
	leftBusy                 int // buyers who were told nothing else
	paid                     int
	refusedOtherwise         int
}

const (
	oneInPays   = 3
	oneInGreedy = 10
	looksIn     = 4 // times, before a buyer gives up
)

// run returns when the last buyer has gone: everybody has after twice the span.
func (c *crowd) run(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*c.span)
	defer cancel()
	var all sync.WaitGroup
	for i := range c.buyers {
		all.Go(func() { c.buyer(ctx, i) })
	}
	all.Wait()
}

func (c *crowd) buyer(ctx context.Context, i int) {
	p := purchase{Buyer: fmt.Sprintf("%s-%d", c.name, i), Goods: c.goods}
	mood := rand.New(rand.NewPCG(c.seed, uint64(i)))
	closing := time.Now().Add(c.span)
	for look := 1; ; look++ {
		got, err := c.buy(ctx, p)
		switch {
		case err != nil:
			c.count(func(t *tally) { t.leftBusy++ })
			return
		case got.Code == "sold_out":
		case !c.hold(ctx, p, mood): // paid, or closed unpaid on purpose
			return
		}
		again := time.Duration(mood.Float64() * float64(c.span) / 2)
		if look == looksIn || time.Now().Add(again).After(closing) || !pause(ctx, again) {
			return
		}
	}
}

// hold waits for the order, and pays or does not. It reports whether the buyer may want another: when no order came of it.
func (c *crowd) hold(ctx context.Context, p purchase, mood *rand.Rand) bool {
	pays := mood.IntN(oneInPays) == 0
	if mood.IntN(oneInGreedy) == 0 {
		_, _ = c.buy(ctx, p) // the books see what comes of it
	}
	for pause(ctx, 300*time.Millisecond+time.Duration(mood.IntN(300))*time.Millisecond) {
		got, err := c.client.ask(ctx, http.MethodGet, "/seckill/"+p.Goods+"/"+p.Buyer, nil, func(answered, time.Duration) {})
		switch {
		case err != nil:
			return false
		case got.State == stateOpen && pays:
			return c.pay(ctx, got.Order)
		case got.State == stateOpen, got.State == stateClosed, got.State == statePaid:
			return false
		case got.State == "given back", got.Status == http.StatusNotFound:
			return true
		}
	}
	return false
}

func (c *crowd) pay(ctx context.Context, order uint64) bool {
	got, err := c.client.ask(ctx, http.MethodPost, fmt.Sprintf("/orders/%d/pay", order), nil, func(answered, time.Duration) {})
	if err == nil && got.Status == http.StatusOK {
		c.count(func(t *tally) { t.paid++ })
	}
	return false
}

// buy asks until it is answered, and counts every answer.
func (c *crowd) buy(ctx context.Context, p purchase) (answered, error) {
	return c.client.ask(ctx, http.MethodPost, "/seckill", p, func(got answered, took time.Duration) {
		c.count(func(t *tally) {
			t.asked++
			switch {
			case got.Status == 0:
				t.unheard++
				return
			case got.Status == http.StatusAccepted:
				t.accepted++
				c.tickets = append(c.tickets, got.Ticket)
			case got.Code == "sold_out":
				t.soldOut++
			case got.Code == "bought_already":
				t.again++
			case got.Status >= http.StatusInternalServerError:
				t.busy++
			default:
				t.refusedOtherwise++
			}
			c.took = append(c.took, took)
		})
	})
}

func (c *crowd) count(how func(*tally)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	how(&c.tally)
}

// percentile is of the answers' times.
func percentile(took []time.Duration, p float64) time.Duration {
	if len(took) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(took))
	return sorted[min(len(sorted)-1, int(p*float64(len(sorted))))].Round(time.Millisecond / 10)
}
