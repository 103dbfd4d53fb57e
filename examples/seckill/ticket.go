package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"

	"github.com/compensator-go/compensator"
)

// purchase is what a buyer asks for: one piece.
type purchase struct {
	Buyer string `json:"buyer"`
	Goods string `json:"goods"`
}

// What a buyer is told. After errBusy nothing has happened, or will be undone: ask again.
var (
	errBad      = errors.New("bad request")
	errNoGoods  = errors.New("no such goods on sale")
	errSoldOut  = errors.New("sold out")
	errAgain    = errors.New("you have bought already: one order a buyer")
	errNotFound = errors.New("no such order")
	errClosed   = errors.New("the order is closed")
	errBusy     = errors.New("try again")
	errCrowded  = errors.New("a crowd is here already")
)

// errStale: Redis and the database do not agree, so the counter has to be filled again.
var errStale = errors.New("the counter is not the database's")

var namePattern = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,40}$`)

func (p purchase) validate() error {
	switch {
	case !namePattern.MatchString(p.Buyer):
		return fmt.Errorf("%w: buyer %q: want 1 to 40 of A-Z a-z 0-9 _ . -", errBad, p.Buyer)
	case !namePattern.MatchString(p.Goods):
		return fmt.Errorf("%w: goods %q: want 1 to 40 of A-Z a-z 0-9 _ . -", errBad, p.Goods)
	}
	return nil
}

// ticket is one piece taken from the stock for a buyer: the same name in Redis, in the database, in its entry and in its
// message. Whoever has given a piece back gets another ticket with the next one.
type ticket struct {
	ID      string `json:"ticket"`
	Goods   string `json:"goods"`
	Buyer   string `json:"buyer"`
	Edition string `json:"-"` // of the counter it was taken from
}

func newTicket(p purchase) ticket { return ticket{ID: rand.Text(), Goods: p.Goods, Buyer: p.Buyer} }

// createKey, closeKey and returnKey are the idempotent ids of a ticket's entries. Whoever records the first of them
// decides whether the ticket was ever sold.
func (t ticket) createKey() compensator.IdempotentID {
	return compensator.IdempotentID("create/" + t.Goods + "/" + t.Buyer + "/" + t.ID)
}

func (t ticket) closeKey() compensator.IdempotentID {
	return compensator.IdempotentID("close/" + t.ID)
}

func (t ticket) returnKey() compensator.IdempotentID {
	return compensator.IdempotentID("return/" + t.ID)
}

func (t ticket) options(key compensator.IdempotentID) compensator.Options {
	return compensator.Options{IdempotentID: string(key), BatchID: t.Goods, BusinessID: t.Buyer, BusinessExtID: t.ID}
}
