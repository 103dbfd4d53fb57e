package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/compensator-go/compensator"
)

// purchaseTries bounds how often a purchase meets a counter that has to be filled first.
const purchaseTries = 4

// sellOne is buy, with a counter that may have to be filled.
func (s *sale) sellOne(ctx context.Context, p purchase) (t ticket, err error) {
	for range purchaseTries {
		t, err = s.buy(ctx, p)
		if !errors.Is(err, errStale) {
			return t, err
		}
		if err := s.rebuild(ctx, p.Goods, t.Edition); err != nil {
			return ticket{}, err
		}
	}
	return ticket{}, errors.Join(errBusy, err)
}

// tell has Redis know what became of a ticket. What it does not hear, watch finds.
func (s *sale) tell(ctx context.Context, t ticket, outcome error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), longestTold)
	defer cancel()
	var err error
	switch {
	case outcome == nil:
		err = s.counter.confirm(ctx, t)
	case !errors.Is(outcome, compensator.ErrCommitUnknown):
		err = s.counter.giveBack(ctx, t)
	}
	if err != nil {
		s.logger.Warn("a ticket's end is not told to Redis; watch will", "ticket", t.ID, "err", err)
	}
	if outcome != nil && !errors.Is(outcome, errStale) {
		outcome = fmt.Errorf("%w: %w", errBusy, outcome)
	}
	return outcome
}

// rebuild fills the counter from the database, unless another has since somebody found the given edition wrong.
//
// The goods' row is locked meanwhile, which every purchase and every return has to change: what has committed before is
// counted, what comes later waits until Redis is filled. A purchase whose ticket is of an older edition is then refused,
// and takes another; so nothing is sold that the counter has not counted, whatever was under way when Redis was lost. A
// transaction that does not commit leaves an edition that the database does not know, and is as good as none.
func (s *sale) rebuild(ctx context.Context, goods, wrong string) error {
	s.rebuilding.Lock()
	defer s.rebuilding.Unlock()
	ctx, cancel := context.WithTimeout(ctx, longestFilling)
	defer cancel()
	err := s.log.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		standing, err := lockGoods(ctx, tx, goods)
		if err != nil {
			return err
		}
		if filled, err := s.counter.edition(ctx, goods); err != nil || filled == standing.Edition && filled != wrong {
			return err // somebody was faster, or Redis is away
		}
		living, err := livingTickets(ctx, tx, goods)
		if err != nil {
			return err
		}
		edition := rand.Text()
		if err := setEdition(ctx, tx, goods, edition); err != nil {
			return err
		}
		return s.counter.load(ctx, goods, edition, standing.Stock, living)
	})
	switch {
	case err == nil, errors.Is(err, errNoGoods):
		return err
	}
	return errors.Join(errBusy, err)
}

const (
	longestFilling = 5 * time.Second
	watchEvery     = time.Second
)

// watch keeps the counter right when nobody buys: it fills one that is lost, and decides about tickets whose process has
// died. Every instance does it, and it does no harm when several do.
func (s *sale) watch(ctx context.Context) {
	for pause(ctx, watchEvery) {
		onSale, err := allGoods(ctx, s.db)
		for _, g := range onSale {
			err = errors.Join(err, s.look(ctx, g))
		}
		if err != nil && ctx.Err() == nil {
			s.logger.Warn("the counter is not looked after; again in a moment", "err", err)
		}
	}
}

func (s *sale) look(ctx context.Context, g goods) error {
	ctx, cancel := context.WithTimeout(ctx, longestFilling)
	defer cancel()
	edition, err := s.counter.edition(ctx, g.Goods)
	if err != nil {
		return err
	}
	if edition == "" || edition != g.Edition {
		return s.rebuild(ctx, g.Goods, "")
	}
	tickets, err := s.counter.abandoned(ctx, g.Goods, s.abandon)
	for _, t := range tickets {
		err = errors.Join(err, s.decide(ctx, t))
	}
	return err
}

// decide says whether a ticket was sold whose process has told Redis nothing. Whoever records its entry first has
// decided: here it is cancelled in the same transaction, so that a purchase that comes to it later, by a process that
// was only slow, is refused.
func (s *sale) decide(ctx context.Context, t ticket) error {
	sold := false
	err := s.log.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		options := t.options(t.createKey())
		options.Delay = time.Hour // it never runs
		receipt, err := s.creating.Record(ctx, tx, t, options)
		if err != nil {
			return err
		}
		if first := receipt.Entries[0]; first.Duplicate {
			sold = first.State != compensator.Cancelled
			return nil
		}
		_, err = s.creating.CancelTx(ctx, tx, t.createKey())
		return err
	})
	switch {
	case err != nil:
		return err
	case sold:
		return s.counter.confirm(ctx, t)
	}
	return s.counter.giveBack(ctx, t)
}
