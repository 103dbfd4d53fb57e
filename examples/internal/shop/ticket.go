// Package shop holds what flash sales share, independent of how a ticket gets from Redis to the order.
package shop

import (
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"

	"github.com/compensator-go/compensator"
)

// Purchase is a buyer's request for one piece.
type Purchase struct {
	Buyer string `json:"buyer"`
	Goods string `json:"goods"`
}

// After ErrBusy, the purchase has had no effect, or its effect will be undone, so the buyer may try again.
var (
	ErrBad      = errors.New("bad request")
	ErrNoGoods  = errors.New("no such goods on sale")
	ErrSoldOut  = errors.New("sold out")
	ErrAgain    = errors.New("you have already bought: one order per buyer")
	ErrNotFound = errors.New("no such order")
	ErrClosed   = errors.New("the order is closed")
	ErrBusy     = errors.New("try again")
	ErrCrowded  = errors.New("a crowd is already here")
)

// ErrStale means that Redis and the database disagree. The counter must be filled again.
var ErrStale = errors.New("the counter does not match the database")

var namePattern = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,40}$`)

// Validate returns an error that wraps ErrBad if a field is wrong.
func (p Purchase) Validate() error {
	switch {
	case !namePattern.MatchString(p.Buyer):
		return fmt.Errorf("%w: buyer %q: want 1 to 40 of A-Z a-z 0-9 _ . -", ErrBad, p.Buyer)
	case !namePattern.MatchString(p.Goods):
		return fmt.Errorf("%w: goods %q: want 1 to 40 of A-Z a-z 0-9 _ . -", ErrBad, p.Goods)
	}
	return nil
}

// Ticket is one piece taken from the stock for a buyer. It has the same id in Redis, in the database, in its entry and
// in its message.
type Ticket struct {
	ID      string `json:"ticket"`
	Goods   string `json:"goods"`
	Buyer   string `json:"buyer"`
	Edition string `json:"-"` // edition of the counter that it was taken from
}

// NewTicket returns a ticket for a new purchase.
func NewTicket(p Purchase) Ticket { return Ticket{ID: rand.Text(), Goods: p.Goods, Buyer: p.Buyer} }

// CloseKey returns the idempotency key of the entry that closes the ticket's order.
func (t Ticket) CloseKey() compensator.IdempotencyKey {
	return compensator.IdempotencyKey("close/" + t.ID)
}

// ReturnKey returns the idempotency key of the entry that returns the ticket's piece to Redis.
func (t Ticket) ReturnKey() compensator.IdempotencyKey {
	return compensator.IdempotencyKey("return/" + t.ID)
}

// Options returns the options for an entry of this ticket, so that the entry can be found by goods, buyer or ticket.
func (t Ticket) Options(key compensator.IdempotencyKey) compensator.Options {
	return compensator.Options{IdempotencyKey: key, BatchID: t.Goods, BusinessID: t.Buyer, BusinessExtID: t.ID}
}
