// Package crowd simulates the buyers of a flash sale, who all come at once.
package crowd

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/compensator-go/compensator/examples/internal/faults"
)

// Crowd is a number of buyers who all come at the same moment.
type Crowd struct {
	Client *Client
	Goods  string
	Name   string // prefix of the buyers' names
	Buyers int
	Span   time.Duration // time during which buyers keep trying
	Seed   uint64

	mu sync.Mutex // guards Answers until Run has returned
	Answers
}

// Answers counts the answers that the crowd received.
type Answers struct {
	Asked, Unanswered        int // purchase requests that were sent, and those that got no answer
	Accepted, SoldOut, Again int
	Busy                     int // answers with a 5xx status
	LeftBusy                 int // buyers who left without any other answer
	Paid                     int
	RefusedOtherwise         int
	Took                     []time.Duration // duration of each answer
	Tickets                  []string        // accepted tickets
}

const (
	stateOpen   = "open"
	statePaid   = "paid"
	stateClosed = "closed"
)

type purchase struct {
	Buyer string `json:"buyer"`
	Goods string `json:"goods"`
}

const (
	oneInPays   = 3
	oneInGreedy = 10
	looksIn     = 4 // maximum number of visits of a buyer
)

// Run simulates all buyers. It returns when the last one has left, at the latest after 2 * c.Span.
func (c *Crowd) Run(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*c.Span)
	defer cancel()
	var group sync.WaitGroup
	for i := range c.Buyers {
		group.Go(func() { c.buyer(ctx, i) })
	}
	group.Wait()
}

func (c *Crowd) buyer(ctx context.Context, i int) {
	p := purchase{Buyer: fmt.Sprintf("%s-%d", c.Name, i), Goods: c.Goods}
	mood := rand.New(rand.NewPCG(c.Seed, uint64(i)))
	closing := time.Now().Add(c.Span)
	for look := 1; ; look++ {
		answer, err := c.buy(ctx, p)
		switch {
		case err != nil:
			c.count(func(h *Answers) { h.LeftBusy++ })
			return
		case answer.Code == "sold_out":
		case !c.hold(ctx, p, mood): // The service did not give the piece back, so the buyer does not try again.
			return
		}
		again := time.Duration(mood.Float64() * float64(c.Span) / 2)
		if look == looksIn || time.Now().Add(again).After(closing) || !faults.Pause(ctx, again) {
			return
		}
	}
}

// hold returns true if the service gave the piece back instead of making an order.
func (c *Crowd) hold(ctx context.Context, p purchase, mood *rand.Rand) bool {
	pays := mood.IntN(oneInPays) == 0
	if mood.IntN(oneInGreedy) == 0 {
		_, _ = c.buy(ctx, p) // The final check shows what this request caused.
	}
	for faults.Pause(ctx, 300*time.Millisecond+time.Duration(mood.IntN(300))*time.Millisecond) {
		answer, err := c.Client.Ask(ctx, http.MethodGet, "/seckill/"+p.Goods+"/"+p.Buyer, nil, func(Answered, time.Duration) {})
		switch {
		case err != nil:
			return false
		case answer.State == stateOpen && pays:
			return c.pay(ctx, answer.Order)
		case answer.State == stateOpen, answer.State == stateClosed, answer.State == statePaid:
			return false
		case answer.State == "given back", answer.Status == http.StatusNotFound:
			return true
		}
	}
	return false
}

func (c *Crowd) pay(ctx context.Context, order uint64) bool {
	answer, err := c.Client.Ask(ctx, http.MethodPost, fmt.Sprintf("/orders/%d/pay", order), nil, func(Answered, time.Duration) {})
	if err == nil && answer.Status == http.StatusOK {
		c.count(func(h *Answers) { h.Paid++ })
	}
	return false
}

func (c *Crowd) buy(ctx context.Context, p purchase) (Answered, error) {
	return c.Client.Ask(ctx, http.MethodPost, "/seckill", p, func(answer Answered, took time.Duration) {
		c.count(func(h *Answers) {
			h.Asked++
			switch {
			case answer.Status == 0:
				h.Unanswered++
				return
			case answer.Status == http.StatusAccepted:
				h.Accepted++
				h.Tickets = append(h.Tickets, answer.Ticket)
			case answer.Code == "sold_out":
				h.SoldOut++
			case answer.Code == "bought_already":
				h.Again++
			case answer.Status >= http.StatusInternalServerError:
				h.Busy++
			default:
				h.RefusedOtherwise++
			}
			h.Took = append(h.Took, took)
		})
	})
}

func (c *Crowd) count(update func(*Answers)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	update(&c.Answers)
}

// Percentile returns the duration that a share p of the times does not exceed.
func Percentile(took []time.Duration, p float64) time.Duration {
	if len(took) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(took))
	return sorted[min(len(sorted)-1, int(p*float64(len(sorted))))].Round(time.Millisecond / 10)
}
