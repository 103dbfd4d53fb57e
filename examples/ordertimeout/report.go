package main

import (
	"context"
	"fmt"

	"github.com/compensator-go/compensator"
)

// report returns errWrong unless every check holds.
func (l *load) report(ctx context.Context, acknowledged int) error {
	b, err := readBooks(ctx, l.db, l.run)
	if err != nil {
		return err
	}
	placed := b.orders[stateOpen] + b.orders[statePaid] + b.orders[stateClosed]
	fmt.Fprintf(l.out, "orders   placed %d, paid %d, closed %d, open %d\n", placed, b.orders[statePaid], b.orders[stateClosed], b.orders[stateOpen])
	fmt.Fprintf(l.out, "service  killed %d times; %d requests tried again\n", l.kills, l.client.retried.Load())
	fmt.Fprintf(l.out, "closed after the deadline by the database's clock, ms\n")
	b.late.print(l.out)
	fmt.Fprintln(l.out, "checks")
	return l.check(b, placed, acknowledged)
}

func (l *load) check(b *books, placed, acknowledged int) error {
	wrong := false
	expect := func(subject string, got, wanted int) {
		verdict := "ok   "
		if got != wanted {
			verdict, wrong = "WRONG", true
		}
		fmt.Fprintf(l.out, "  %s  %s: %d, want %d\n", verdict, subject, got, wanted)
	}
	initial := l.skus * l.stockEach()
	expect("orders placed", placed, l.orders)
	expect("orders still open", b.orders[stateOpen], 0)
	expect("orders closed early", b.late.early(), 0)
	expect("orders with a known lateness", b.late.count(), b.orders[stateClosed])
	expect("payments acknowledged", acknowledged, b.orders[statePaid])
	expect("pieces left and paid", b.stock+b.pieces[statePaid], initial)
	expect("entries succeeded", b.entries[compensator.Succeeded], b.orders[stateClosed])
	expect("entries cancelled", b.entries[compensator.Cancelled], b.orders[statePaid])
	expect("entries left", b.entriesLeft(), 0)
	fmt.Fprintf(l.out, "  wanted, without a kill: p99 of at most 10 ms; got %d\n", b.late.percentile(99))
	if wrong {
		return errWrong
	}
	return nil
}

func (b *books) entriesLeft() (n int) {
	for state, entries := range b.entries {
		if state != compensator.Succeeded && state != compensator.Cancelled {
			n += entries
		}
	}
	return n
}
