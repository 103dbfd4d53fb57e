package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/examples/internal/shop"
)

// A failure of storeOutcome is no loss, because Watch finds the ticket later.
func (s *sale) storeOutcome(ctx context.Context, t shop.Ticket, outcome error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), redisTimeout)
	defer cancel()
	var err error
	switch {
	case outcome == nil:
		err = s.counter.confirm(ctx, t)
	case !errors.Is(outcome, compensator.ErrCommitUnknown):
		err = s.counter.GiveBack(ctx, t)
	}
	if err != nil {
		s.Logger.Warn("Redis was not updated with a ticket's outcome; Watch will do it", "ticket", t.ID, "err", err)
	}
	if outcome != nil && !errors.Is(outcome, shop.ErrStale) {
		outcome = fmt.Errorf("%w: %w", shop.ErrBusy, outcome)
	}
	return outcome
}

// lookAfter calls the method decide for each open ticket that is so old that its process must have died.
func (s *sale) lookAfter(ctx context.Context, g shop.Goods) error {
	tickets, err := s.counter.abandoned(ctx, g.Goods, s.abandon)
	for _, t := range tickets {
		err = errors.Join(err, s.decide(ctx, t))
	}
	return err
}

// decide records the entry of the ticket. An existing entry that is not cancelled means that the ticket was sold. A new
// entry is cancelled in the same transaction, so that a slow process cannot sell the ticket later.
func (s *sale) decide(ctx context.Context, t shop.Ticket) error {
	sold := false
	err := s.Log.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		options := t.Options(createKey(t))
		options.Delay = time.Hour // It never runs, because it is cancelled below.
		receipt, err := s.creating.Record(ctx, tx, t, options)
		if err != nil {
			return err
		}
		if first := receipt.Entries[0]; first.Duplicate {
			sold = first.State != compensator.Cancelled
			return nil
		}
		_, err = s.creating.CancelTx(ctx, tx, createKey(t))
		return err
	})
	switch {
	case err != nil:
		return err
	case sold:
		return s.counter.confirm(ctx, t)
	}
	return s.counter.GiveBack(ctx, t)
}
