// Package problems is a shop whose work fails in the ways that operators meet. The demo and the tests of the pages use
// it.
package problems

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/ui"
)

// Money is the content of the shop's entries.
type Money struct {
	Order    string `json:"order"`
	Minor    int64  `json:"minor"`
	Currency string `json:"currency"`
	Buyer    string `json:"buyer,omitempty"`
	Card     string `json:"card,omitempty"`
	Address  string `json:"address,omitempty"`
}

// Shop has several types of work. Some of them fail at present.
type Shop struct {
	c *compensator.Compensator

	// PSPWorks makes the payment service answer. ShipperWorks makes parcels go out.
	PSPWorks, ShipperWorks atomic.Bool

	refund, transfer, mail, closeOrder, ship *compensator.Type[Money]
}

// Speed sets the delays of the shop.
type Speed struct {
	Timeout time.Duration // time limit of a transfer
	Again   time.Duration // delay after a failure
}

// Operations returns settings with which the shop's cases have amounts and due times.
func Operations() *compensator.Operations {
	worth := compensator.CaseConfig{Amount: func(e *compensator.Entry) (compensator.Amount, error) {
		var m Money
		err := e.Decode(&m)
		return compensator.Amount{Minor: m.Minor, Currency: m.Currency}, err
	}, Due: 4 * time.Hour}
	return &compensator.Operations{Attempts: true, Statistics: true, Instances: true, InstanceName: "api-1", Types: map[string]compensator.CaseConfig{"refund": worth, "transfer": worth, "ship_parcel": worth}}
}

// Views returns what the pages show of the shop's contents. Cards and addresses stay masked.
func Views() map[string]ui.TypeView {
	show := ui.TypeView{Show: []string{"order", "minor", "currency"}}
	return map[string]ui.TypeView{"refund": show, "transfer": show, "ship_parcel": show, "invoice_mail": show, "close_order": {Show: []string{"."}}}
}

// New registers the shop's types.
func New(c *compensator.Compensator, speed Speed) (*Shop, error) {
	s := &Shop{c: c}
	var errs [5]error
	handle := func(i int, name string, work func(ctx context.Context, e *compensator.Entry, m Money) error, cfg compensator.HandlerConfig[Money]) (t *compensator.Type[Money]) {
		if cfg.Retry == nil {
			cfg.Retry = compensator.Fixed(speed.Again)
		}
		t, errs[i] = compensator.Handle(context.Background(), c, name, work, &cfg)
		return t
	}
	s.refund = handle(0, "refund", s.doRefund, compensator.HandlerConfig[Money]{MaxAttempts: 3})
	s.transfer = handle(1, "transfer", s.doTransfer, compensator.HandlerConfig[Money]{MaxAttempts: 1, Timeout: speed.Timeout})
	s.mail = handle(2, "invoice_mail", s.doMail, compensator.HandlerConfig[Money]{})
	s.closeOrder = handle(3, "close_order", s.doClose, compensator.HandlerConfig[Money]{Retry: compensator.Fixed(time.Hour)})
	s.ship = handle(4, "ship_parcel", s.doShip, compensator.HandlerConfig[Money]{MaxAttempts: 1, MaxCompensateAttempts: 1, Compensate: s.undoShip})
	return s, errors.Join(errs[:]...)
}

// If the payment service fails, the error contains the order's id.
func (s *Shop) doRefund(_ context.Context, e *compensator.Entry, m Money) error {
	if s.PSPWorks.Load() || strings.HasSuffix(m.Order, "ok") {
		return nil
	}
	if strings.HasSuffix(m.Order, "closed") {
		return compensator.Permanent(fmt.Errorf("POST https://psp.example/v2/refund: status 409: account of order %q was closed", m.Order))
	}
	return fmt.Errorf("POST https://psp.example/v2/refund: status 503 Service Unavailable: upstream busy (request %08x, order %s)", e.ID.Row()*2654435761%(1<<32), m.Order)
}

// doTransfer blocks until its timeout, so its outcome is unknown.
func (s *Shop) doTransfer(ctx context.Context, _ *compensator.Entry, m Money) error {
	if strings.HasSuffix(m.Order, "ok") {
		return nil
	}
	<-ctx.Done()
	return fmt.Errorf("POST https://bank.example/transfers: no answer: %w", context.Cause(ctx))
}

func (s *Shop) doMail(_ context.Context, _ *compensator.Entry, m Money) error {
	if strings.Contains(m.Buyer, "@") {
		return nil
	}
	return compensator.Permanent(fmt.Errorf("invoice for order %s: recipient %q is no mail address", m.Order, m.Buyer))
}

func (s *Shop) doClose(_ context.Context, _ *compensator.Entry, m Money) error {
	if strings.HasSuffix(m.Order, "locked") {
		return fmt.Errorf("order %s is locked by the warehouse", m.Order)
	}
	return nil
}

func (s *Shop) doShip(_ context.Context, _ *compensator.Entry, m Money) error {
	if s.ShipperWorks.Load() || strings.HasSuffix(m.Order, "ok") {
		return nil
	}
	return fmt.Errorf("shipper: no route to %q", m.Address)
}

// undoShip fails if the shelf is taken.
func (s *Shop) undoShip(_ context.Context, _ *compensator.Entry, m Money) error {
	if strings.HasSuffix(m.Order, "shelf") {
		return fmt.Errorf("shelf of order %s is taken", m.Order)
	}
	return nil
}

// Sum says how many entries of each kind to record.
type Sum struct{ Refunds, Closed, Transfers, Mails, Locked, Parcels, Shelves, Fine int }

// Record records as many entries of each kind as n says. It returns their ids.
func (s *Shop) Record(ctx context.Context, seed uint64, n Sum) ([]compensator.EntryID, error) {
	r := rand.New(rand.NewPCG(seed, 7))
	var entries []compensator.NewEntry
	add := func(t *compensator.Type[Money], times int, suffix string, change func(m *Money)) {
		for range times {
			id := fmt.Sprintf("o-%d%s", 10_000_000+r.IntN(89_999_999), suffix)
			m := Money{Order: id, Minor: 100 + r.Int64N(60_000), Currency: "CNY", Buyer: "lin@example.com", Card: "4111111111111111", Address: "7 Quay Street"}
			if r.IntN(4) == 0 {
				m.Currency = "USD"
			}
			change(&m)
			entries = append(entries, t.Entry(m, compensator.Options{IdempotencyKey: compensator.IdempotencyKey(t.Name() + "-" + id), BusinessID: id, UserID: "u-" + id[2:6]}))
		}
	}
	same := func(*Money) {}
	add(s.refund, n.Refunds, "", same)
	add(s.refund, n.Closed, "-closed", same)
	add(s.transfer, n.Transfers, "", func(m *Money) { m.Minor *= 40 })
	add(s.mail, n.Mails, "", func(m *Money) { m.Buyer = "lin at example" })
	add(s.closeOrder, n.Locked, "-locked", same)
	add(s.ship, n.Parcels, "", same)
	add(s.ship, n.Shelves, "-shelf", same)
	for _, t := range []*compensator.Type[Money]{s.refund, s.transfer, s.mail, s.closeOrder, s.ship} {
		add(t, n.Fine, "-ok", same)
	}
	var receipt *compensator.Receipt
	err := s.c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) (err error) {
		receipt, err = s.c.Record(ctx, tx, entries...)
		return err
	})
	if err != nil {
		return nil, err
	}
	ids := make([]compensator.EntryID, len(receipt.Entries))
	for i := range receipt.Entries {
		ids[i] = receipt.Entries[i].ID
	}
	return ids, nil
}

// Everything allows every action, for a demo on loopback.
var Everything = admin.AccessFunc(func(context.Context, admin.Actor, admin.Right, admin.Subject) bool { return true })
