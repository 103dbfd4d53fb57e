package shop

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/compensator-go/compensator"
)

// purchaseTries bounds how often a purchase meets a counter that has to be filled first.
const purchaseTries = 4

// SellOne calls buy, with a counter that may have to be filled.
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

// Rebuild fills the counter from the database, unless another has since somebody found the given edition wrong.
//
// The goods' row is locked meanwhile, which every purchase and every return has to change: what has committed before is
// counted, what comes later waits until Redis is filled. A purchase whose ticket is of an older edition is then refused,
// and takes another; so nothing is sold that the counter has not counted, whatever was under way when Redis was lost. A
// transaction that does not commit leaves an edition that the database does not know, and is as good as none.
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
			return err // somebody was faster, or Redis is away
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
	clockTick      = 2 * time.Millisecond // ids that Redis makes of its clock are others than before it was emptied
	watchEvery     = time.Second
)

// Watch keeps the counter right when nobody buys: it fills one that is lost, and looks after what a sale has besides.
// Every instance does it, and it does no harm when several do.
func (s *Shop) Watch(ctx context.Context, besides ...func(context.Context, Goods) error) {
	for pause(ctx, watchEvery) {
		onSale, err := s.allGoods(ctx, s.DB)
		for _, g := range onSale {
			err = errors.Join(err, s.look(ctx, g, besides...))
		}
		if err != nil && ctx.Err() == nil {
			s.Logger.Warn("the counter is not looked after; again in a moment", "err", err)
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
