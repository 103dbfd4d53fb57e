package main

import (
	"errors"
	"fmt"

	"github.com/compensator-go/compensator"
)

type books struct {
	placed, rolledBack, committed int
	paid, unpaid                  int // of the committed orders
	parcels, drones               int // of the paid orders
	refusals                      int // refusals of the warehouse, for some of the parcels
}

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
