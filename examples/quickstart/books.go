package main

import (
	"errors"
	"fmt"

	"github.com/compensator-go/compensator"
)

// books are what the shop itself has counted. Whatever was killed, the database must agree with them.
type books struct {
	placed, rolledBack, committed int
	paid, unpaid                  int // of the committed ones
	parcels, drones               int // of the paid ones
	refusals                      int // of the warehouse, about some of the parcels
}

// enterPlaced takes the result of placing an order. It returns the errors that nobody expects.
func (b *books) enterPlaced(o Order, err error) error {
	b.placed++
	switch {
	case err == nil:
		b.committed++
		b.unpaid++
	case errors.Is(err, errBlocked):
		b.rolledBack++
	default:
		return fmt.Errorf("place order %d: %w", o.ID, err)
	}
	return nil
}

// enterPaid takes the result of paying one.
func (b *books) enterPaid(o Order, err error) error {
	if tooLate := new(compensator.StateError); errors.As(err, &tooLate) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("pay order %d: %w", o.ID, err)
	}
	b.paid++
	b.unpaid--
	switch {
	case o.Drone:
		b.drones++
	case o.difficult():
		b.refusals += refusals
		fallthrough
	default:
		b.parcels++
	}
	return nil
}
