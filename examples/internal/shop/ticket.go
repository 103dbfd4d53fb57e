// Package shop is what flash sales share, whatever carries a ticket from Redis to the order: goods, tickets and orders in
// the database, the counter in Redis, and what a buyer and a visitor see of it.
package shop

import (
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"

	"github.com/compensator-go/compensator"
)

// Purchase is what a buyer asks for: one piece.
type Purchase struct {
	Buyer string `json:"buyer"`
	Goods string `json:"goods"`
}

// What a buyer is told. After ErrBusy nothing has happened, or will be undone: ask again.
var (
	ErrBad      = errors.New("bad request")
	ErrNoGoods  = errors.New("no such goods on sale")
	ErrSoldOut  = errors.New("sold out")
	ErrAgain    = errors.New("you have bought already: one order a buyer")
	ErrNotFound = errors.New("no such order")
	ErrClosed   = errors.New("the order is closed")
	ErrBusy     = errors.New("try again")
	ErrCrowded  = errors.New("a crowd is here already")
)

// ErrStale: Redis and the database do not agree, so the counter has to be filled again.
var ErrStale = errors.New("the counter is not the database's")

var namePattern = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,40}$`)

// Validate says what is wrong with it: ErrBad.
func (p Purchase) Validate() error {
	switch {
	case !namePattern.MatchString(p.Buyer):
		return fmt.Errorf("%w: buyer %q: want 1 to 40 of A-Z a-z 0-9 _ . -", ErrBad, p.Buyer)
	case !namePattern.MatchString(p.Goods):
		return fmt.Errorf("%w: goods %q: want 1 to 40 of A-Z a-z 0-9 _ . -", ErrBad, p.Goods)
	}
	return nil
}

// Ticket is one piece taken from the stock for a buyer: the same name in Redis, in the database, in its entry and in its
// message. Whoever has given a piece back gets another ticket with the next one.
type Ticket struct {
	ID      string `json:"ticket"`
	Goods   string `json:"goods"`
	Buyer   string `json:"buyer"`
	Edition string `json:"-"` // of the counter it was taken from
}

// NewTicket is for a purchase that begins.
func NewTicket(p Purchase) Ticket { return Ticket{ID: rand.Text(), Goods: p.Goods, Buyer: p.Buyer} }

// CloseKey and ReturnKey are the idempotency keys of entries that both sales have.
func (t Ticket) CloseKey() compensator.IdempotencyKey {
	return compensator.IdempotencyKey("close/" + t.ID)
}

func (t Ticket) ReturnKey() compensator.IdempotencyKey {
	return compensator.IdempotencyKey("return/" + t.ID)
}

// Options make an entry of the ticket findable.
func (t Ticket) Options(key compensator.IdempotencyKey) compensator.Options {
	return compensator.Options{IdempotencyKey: key, BatchID: t.Goods, BusinessID: t.Buyer, BusinessExtID: t.ID}
}
