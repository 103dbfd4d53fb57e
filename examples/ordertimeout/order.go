package main

import (
	"errors"
	"fmt"
	"regexp"
	"time"
)

// States of an order. Only an open one changes.
const (
	stateOpen   = "open"
	statePaid   = "paid"
	stateClosed = "closed"
)

// What a client is told.
var (
	errBadOrder = errors.New("bad order")
	errNotFound = errors.New("no such order")
	errSoldOut  = errors.New("sold out")
	errClosed   = errors.New("order is closed")
)

// order is an order as stored.
type order struct {
	ID       uint64     `json:"id"`
	Key      string     `json:"key"`
	SKU      string     `json:"sku"`
	Quantity int        `json:"quantity"`
	State    string     `json:"state"`
	DueAt    time.Time  `json:"due_at"`
	PaidAt   *time.Time `json:"paid_at,omitempty"`
	ClosedAt *time.Time `json:"closed_at,omitempty"`
}

// newOrder is what a client asks for. A client that does not know whether it was heard asks again with the
// same Key, and gets the same order.
type newOrder struct {
	Key        string `json:"key"` // drawn by the service when empty
	SKU        string `json:"sku"`
	Quantity   int    `json:"quantity"`
	DeadlineMS int64  `json:"deadline_ms"` // from now
}

const longestDeadline = 30 * 24 * time.Hour

var namePattern = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

func (o newOrder) validate() error {
	switch {
	case !namePattern.MatchString(o.Key):
		return fmt.Errorf("%w: key %q", errBadOrder, o.Key)
	case !namePattern.MatchString(o.SKU):
		return fmt.Errorf("%w: sku %q", errBadOrder, o.SKU)
	case o.Quantity < 1 || o.Quantity > 1000:
		return fmt.Errorf("%w: quantity %d: want 1 to 1000", errBadOrder, o.Quantity)
	case o.DeadlineMS < 1 || o.DeadlineMS > longestDeadline.Milliseconds():
		return fmt.Errorf("%w: deadline_ms %d: want 1 to %d", errBadOrder, o.DeadlineMS, longestDeadline.Milliseconds())
	}
	return nil
}

func (o newOrder) deadline() time.Duration { return time.Duration(o.DeadlineMS) * time.Millisecond }
