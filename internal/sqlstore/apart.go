package sqlstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/compensator-go/compensator/internal/mysqlerr"
	"github.com/compensator-go/compensator/processlog"
)

// splitStatements bounds the statements by which one writeApart looks for refused items. Three refused of 100 cost about 40.
const splitStatements = 64

// refusal is an item that the database refused to write, and why.
type refusal[T any] struct {
	item T
	err  error
}

// writeApart writes items, in one call of write if the database takes them all. Where it refuses some row of them, by a trigger
// or a constraint, writeApart writes the halves, and their halves, so that one refused row holds up no other. Where write waits in
// vain for a lock that a trigger wants, writeApart writes the items a few at a time.
//
//   - refused are the items that the database refused although they stood alone.
//   - left are items that are not written: a trigger waited, or trying them alone would have taken too many statements or too
//     long. The caller offers them again, later and without the refused ones.
//   - err is an error of no row: the server's condition, or a statement that can never succeed. Any item may be written then.
//
// A call of write changes all of its items or none. It is safe to write an item twice.
func writeApart[T any](ctx context.Context, s *Store, items []T, write func(items []T) error) (refused []refusal[T], left []T, err error) {
	if len(items) == 0 {
		return nil, nil, nil
	}
	err = write(items)
	if waited := waitIn(err); waited != nil {
		if len(items) == 1 {
			return nil, items, nil
		}
		p := splitter[T]{ctx: ctx, s: s, write: write, statements: splitStatements, waits: splitWaits, wait: waited.took}
		err = p.piecewise(items)
		return p.refused, p.left, err
	}
	if !s.refusesRow(err) {
		return nil, nil, err
	}
	if len(items) == 1 {
		return []refusal[T]{{items[0], err}}, nil, nil
	}
	p := splitter[T]{ctx: ctx, s: s, write: write, statements: splitStatements, waits: splitWaits}
	err = p.split(items)
	return p.refused, p.left, err
}

// leftOver is what a call has left unwritten, while all else was written.
type leftOver struct {
	busy     bool // some rows are locked, or were not tried
	refusals []processlog.Refusal
}

// take takes the answer of updateRows. It returns an error of no row.
func (l *leftOver) take(busy []processlog.ID, err error) error {
	var refused *processlog.RefusedError
	if errors.As(err, &refused) {
		l.refusals = append(l.refusals, refused.Refusals...)
		err = nil
	}
	l.busy = l.busy || err == nil && len(busy) > 0
	return err
}

// err says what was left; nil: nothing.
func (l *leftOver) err() error {
	var left []error
	if l.busy {
		left = append(left, processlog.ErrBusy)
	}
	if len(l.refusals) > 0 {
		left = append(left, &processlog.RefusedError{Refusals: l.refusals})
	}
	return errors.Join(left...)
}

// splitter looks for the items that the database refuses, or whose trigger waits for a lock.
type splitter[T any] struct {
	ctx        context.Context
	s          *Store
	write      func(items []T) error
	statements int           // that may still be sent
	waits      int           // that may still be in vain
	wait       time.Duration // how long the last one was
	refused    []refusal[T]
	left       []T
}

// split writes the halves of items that were refused together.
func (p *splitter[T]) split(items []T) error {
	first, second := items[:len(items)/2], items[len(items)/2:]
	whole, err := p.half(first)
	if err != nil {
		return err
	}
	if whole && len(second) > 1 {
		return p.split(second) // the refused item is here, so the half need not be tried as it is
	}
	_, err = p.half(second)
	return err
}

// half writes one half, and reports whether all of it was written.
func (p *splitter[T]) half(items []T) (whole bool, err error) {
	if !p.may() {
		p.left = append(p.left, items...)
		return false, nil
	}
	p.statements--
	err = p.write(items)
	switch waited := waitIn(err); {
	case waited != nil:
		p.waits--
		p.wait = waited.took
		p.left = append(p.left, items...)
		return false, nil
	case !p.s.refusesRow(err):
		return err == nil, err
	case len(items) == 1:
		p.refused = append(p.refused, refusal[T]{items[0], err})
		return false, nil
	}
	return false, p.split(items)
}

// may reports whether one more statement may be sent. After a wait there must be time for another one.
func (p *splitter[T]) may() bool {
	return p.statements > 0 && p.waits > 0 && (p.wait == 0 || timeFor(p.ctx, p.wait))
}

// piecewise writes a few items at a time, after all of them together have waited in vain. Each wait makes the pieces smaller,
// and each success makes them larger. They are drawn at random, so that no items stand behind those that wait each time.
func (p *splitter[T]) piecewise(items []T) error {
	order, size := rand.Perm(len(items)), (len(items)+piecesAtFirst-1)/piecesAtFirst
	for len(order) > 0 {
		n, waits := min(size, len(order)), p.waits
		slices.Sort(order[:n]) // as they stand among items
		piece := make([]T, n)
		for i, at := range order[:n] {
			piece[i] = items[at]
		}
		if _, err := p.half(piece); err != nil {
			return err
		}
		if size *= 2; p.waits < waits {
			size = max(1, n/piecesAtFirst)
		}
		order = order[n:]
	}
	return nil
}

const (
	// piecesAtFirst is into how many pieces items are cut that have waited together.
	piecesAtFirst = 16
	// splitWaits bounds the waits of one writeApart beside the first.
	splitWaits = 3
)

// timeFor reports whether ctx leaves time for a wait, and for the rest of the call.
func timeFor(ctx context.Context, wait time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return !ok || time.Until(deadline) > wait+time.Second/2
}

// waitError says that a statement has waited in vain although its transaction held all rows that it was to write. A trigger wants
// a lock that somebody else has.
type waitError struct {
	error
	took time.Duration
}

func (e *waitError) Unwrap() error { return e.error }

// waitIn returns the waitError in err, or nil.
func waitIn(err error) *waitError {
	if err == nil {
		return nil // what follows allocates
	}
	var waited *waitError
	errors.As(err, &waited)
	return waited
}

// writeHeld runs a statement in a transaction that holds all rows which the statement is to write. Its error is a *waitError where the
// statement has waited in vain.
func (s *Store) writeHeld(ctx context.Context, tx processlog.Tx, query string) (changed int64, err error) {
	began := time.Now()
	if changed, err = execCount(ctx, tx, query); err != nil {
		return 0, s.asWait(ctx, err, began)
	}
	return changed, nil
}

// asWait makes a *waitError of the error of a statement that has waited in vain since began. SQLite has one writer, so no trigger
// waits there.
func (s *Store) asWait(ctx context.Context, err error, began time.Time) error {
	if s.d.skipLocked == "" {
		return err
	}
	f := s.d.fault(err)
	inVain := f == faultBusy || f == faultEnded
	if inVain || errors.Is(ctx.Err(), context.DeadlineExceeded) {
		s.boundWaits()
	}
	if inVain && ctx.Err() == nil {
		return &waitError{err, time.Since(began)}
	}
	return err
}

// refusesRow reports whether the database refused a statement of ours because of a row that it was to write. Every error may
// come out of a trigger, so every error of a statement counts, other than the server's condition and an error that names our
// own table as missing or forbidden.
func (s *Store) refusesRow(err error) bool {
	if err == nil || s.ServerFault(err) || s.d.fault(err) == faultUnreachable {
		return false
	}
	if !s.d.answered(err) {
		return false
	}
	switch mysqlerr.Number(err) {
	case mysqlerr.TableDenied, mysqlerr.ColumnDenied, mysqlerr.NoSuchTable, mysqlerr.Syntax:
		return !s.table.isIn(err.Error())
	case 0:
		_, table, missing := strings.Cut(err.Error(), "no such table: ")
		return !missing || !s.table.isIn(table)
	}
	return true
}

// suffixes are those of the log's own tables.
var suffixes = []string{"", "_audit", "_case", "_meta", "_operation", "_setting", "_slots", "_turns"}

// isIn reports whether a text names the log's table, or another table of the log. A user's table, for example the history that a
// trigger writes, may have the log's name as a part of its own.
func (t tableName) isIn(text string) bool {
	words := strings.FieldsFunc(text, func(r rune) bool { return !isNameRune(r) })
	return slices.ContainsFunc(words, func(word string) bool {
		return slices.ContainsFunc(suffixes, func(suffix string) bool { return strings.EqualFold(word, t.base+suffix) })
	})
}

func isNameRune(r rune) bool {
	return r == '_' || r == '$' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r > unicode.MaxASCII
}
