package shop

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/compensator-go/compensator"
)

const purchaseTries = 4

// SellOne calls buy. If buy returns ErrStale, SellOne fills the counter and tries again.
func (s *Shop) SellOne(ctx context.Context, p Purchase, buy func(context.Context, Purchase) (Ticket, error)) (t Ticket, err error) {
	for range purchaseTries {
		t, err = buy(ctx, p)
		if !errors.Is(err, ErrStale) {
			return t, err
		}
		if err := s.Rebuild(ctx, p.Goods, t.Edition); err != nil {
			return Ticket{}, err
		}
	}
	return Ticket{}, errors.Join(ErrBusy, err)
}

// Rebuild fills the counter from the database. The parameter wrong is the edition of the counter that the caller found
// to be wrong. If another caller has already replaced this edition, Rebuild does nothing.
//
// Rebuild locks the row of the goods, which every purchase and every return must update. So Rebuild counts every
// committed purchase, and later transactions wait until Redis is filled.
func (s *Shop) Rebuild(ctx context.Context, goods, wrong string) error {
	s.rebuilding.Lock()
	defer s.rebuilding.Unlock()
	ctx, cancel := context.WithTimeout(ctx, longestFilling)
	defer cancel()
	err := s.Log.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		standing, err := s.LockGoods(ctx, tx, goods)
		if err != nil {
			return err
		}
		if filled, err := s.Counter.Edition(ctx, goods); err != nil || filled == standing.Edition && filled != wrong {
			return err // Either another process has filled the counter, or Redis does not answer.
		}
		living, err := s.livingTickets(ctx, tx, goods)
		if err != nil {
			return err
		}
		edition := rand.Text()
		if err := s.SetEdition(ctx, tx, goods, edition); err != nil {
			return err
		}
		pause(ctx, clockTick)
		return s.Counter.load(ctx, goods, edition, standing.Stock, living)
	})
	switch {
	case err == nil, errors.Is(err, ErrNoGoods):
		return err
	}
	return errors.Join(ErrBusy, err)
}

const (
	longestFilling = 5 * time.Second
	// Redis derives the ids of messages from its clock in milliseconds. After Redis has lost its data, it could give an
	// old id again in the same millisecond. So Rebuild waits until the clock has moved on.
	clockTick  = 2 * time.Millisecond
	watchEvery = time.Second
)

// Watch fills a lost counter even if nobody buys. Several processes may run Watch at the same time.
func (s *Shop) Watch(ctx context.Context, besides ...func(context.Context, Goods) error) {
	for pause(ctx, watchEvery) {
		onSale, err := s.allGoods(ctx, s.DB)
		for _, g := range onSale {
			err = errors.Join(err, s.look(ctx, g, besides...))
		}
		if err != nil && ctx.Err() == nil {
			s.Logger.Warn("the counter could not be checked; trying again", "err", err)
		}
	}
}

func (s *Shop) look(ctx context.Context, g Goods, besides ...func(context.Context, Goods) error) error {
	ctx, cancel := context.WithTimeout(ctx, longestFilling)
	defer cancel()
	edition, err := s.Counter.Edition(ctx, g.Goods)
	if err != nil {
		return err
	}
	if edition == "" || edition != g.Edition {
		return s.Rebuild(ctx, g.Goods, "")
	}
	for _, also := range besides {
		err = errors.Join(err, also(ctx, g))
	}
	return err
}
