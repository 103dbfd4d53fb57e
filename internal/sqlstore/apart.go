package sqlstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/compensator-go/compensator/processlog"
)

// splitStatements limits the number of statements that one writeApart sends to find the refused items. Three refused
// items of 100 take about 40 statements.
const splitStatements = 64

// refusal is an item that the database refused to write, and the reason.
type refusal[T any] struct {
	item T
	err  error
}

// writeApart writes items. If the database accepts all items, that takes one call of write. If a trigger or a
// constraint refuses a row, writeApart writes the two halves, then their halves, so that all other rows are written. A
// trigger of the user may also need a lock that another transaction holds, so that the statement times out. In this
// case writeApart writes a few items at a time.
//
//   - refusals holds the items that the database refused when they were written alone.
//   - untried holds items that were not written, because a trigger waited, or because writing them alone would have
//     taken too many statements or too long. The caller offers them again later, without the refused ones.
//   - err is an error that no row caused: the server's condition, or a statement that can never succeed. After such an
//     error, any of the items may have been written.
//
// One call of write must change all of its items or none. Writing an item twice must be safe.
func writeApart[T any](ctx context.Context, s *Store, items []T, write func(items []T) error) (refusals []refusal[T], untried []T, err error) {
	if len(items) == 0 {
		return nil, nil, nil
	}
	err = write(items)
	if waitErr := waitIn(err); waitErr != nil {
		if len(items) == 1 {
			return nil, items, nil
		}
		p := splitter[T]{ctx: ctx, s: s, write: write, statementsLeft: splitStatements, waitsLeft: splitWaits, lastWait: waitErr.took}
		err = p.piecewise(items)
		return p.refusals, p.untried, err
	}
	if !s.refusesRow(err) {
		return nil, nil, err
	}
	if len(items) == 1 {
		return []refusal[T]{{items[0], err}}, nil, nil
	}
	p := splitter[T]{ctx: ctx, s: s, write: write, statementsLeft: splitStatements, waitsLeft: splitWaits}
	err = p.split(items)
	return p.refusals, p.untried, err
}

// leftOver collects the rows that an otherwise successful call did not write.
type leftOver struct {
	busy     bool // whether some rows were locked, or were not tried
	refusals []processlog.Refusal
}

// addResult adds the refused and the locked rows of an updateRows call. It returns any other error of the call.
func (l *leftOver) addResult(busy []processlog.ID, err error) error {
	var refusedErr *processlog.RefusedError
	if errors.As(err, &refusedErr) {
		l.refusals = append(l.refusals, refusedErr.Refusals...)
		err = nil
	}
	l.busy = l.busy || err == nil && len(busy) > 0
	return err
}

// err returns ErrBusy, a *RefusedError, or both joined. It returns nil if everything was written.
func (l *leftOver) err() error {
	var errs []error
	if l.busy {
		errs = append(errs, processlog.ErrBusy)
	}
	if len(l.refusals) > 0 {
		errs = append(errs, &processlog.RefusedError{Refusals: l.refusals})
	}
	return errors.Join(errs...)
}

// splitter finds the items that the database refuses, or whose trigger waits for a lock.
type splitter[T any] struct {
	ctx            context.Context
	s              *Store
	write          func(items []T) error
	statementsLeft int           // number of statements that may still be sent
	waitsLeft      int           // number of waits without success that are still allowed
	lastWait       time.Duration // length of the last wait without success
	refusals       []refusal[T]
	untried        []T
}

// split writes the two halves of items that were refused together.
func (p *splitter[T]) split(items []T) error {
	first, second := items[:len(items)/2], items[len(items)/2:]
	written, err := p.writeHalf(first)
	if err != nil {
		return err
	}
	if written && len(second) > 1 {
		return p.split(second) // The refused item is in second, so split second at once.
	}
	_, err = p.writeHalf(second)
	return err
}

// writeHalf writes one half, and reports whether all its items were written.
func (p *splitter[T]) writeHalf(items []T) (written bool, err error) {
	if !p.mayContinue() {
		p.untried = append(p.untried, items...)
		return false, nil
	}
	p.statementsLeft--
	err = p.write(items)
	switch waitErr := waitIn(err); {
	case waitErr != nil:
		p.waitsLeft--
		p.lastWait = waitErr.took
		p.untried = append(p.untried, items...)
		return false, nil
	case !p.s.refusesRow(err):
		return err == nil, err
	case len(items) == 1:
		p.refusals = append(p.refusals, refusal[T]{items[0], err})
		return false, nil
	}
	return false, p.split(items)
}

// mayContinue reports whether one more statement may be sent. After a wait without success, the context must leave time for
// another wait.
func (p *splitter[T]) mayContinue() bool {
	return p.statementsLeft > 0 && p.waitsLeft > 0 && (p.lastWait == 0 || timeFor(p.ctx, p.lastWait))
}

// piecewise writes a few items at a time, after a statement for all of them has waited for a lock that it did not get.
// A wait makes the pieces smaller, and a success makes them larger. Items are drawn at random. Otherwise an item could
// be in the same piece as a waiting item in each call, and would never be written.
func (p *splitter[T]) piecewise(items []T) error {
	order, size := rand.Perm(len(items)), (len(items)+piecesAtFirst-1)/piecesAtFirst
	for len(order) > 0 {
		n, waitsBefore := min(size, len(order)), p.waitsLeft
		slices.Sort(order[:n]) // Keep the order of items within a piece.
		piece := make([]T, n)
		for i, at := range order[:n] {
			piece[i] = items[at]
		}
		if _, err := p.writeHalf(piece); err != nil {
			return err
		}
		if size *= 2; p.waitsLeft < waitsBefore {
			size = max(1, n/piecesAtFirst)
		}
		order = order[n:]
	}
	return nil
}

const (
	// piecesAtFirst is the number of pieces into which piecewise first cuts the items.
	piecesAtFirst = 16
	// splitWaits limits how many statements of one writeApart may wait in vain for a lock. The first statement, which
	// writes all items, does not count.
	splitWaits = 3
)

// timeFor reports whether ctx leaves enough time for a wait of this length and half a second more.
func timeFor(ctx context.Context, wait time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return !ok || time.Until(deadline) > wait+time.Second/2
}

// waitError says that a statement waited for a lock that it did not get, although its transaction had locked all rows
// to write. So a trigger wants a lock that another transaction holds.
type waitError struct {
	error
	took time.Duration
}

func (e *waitError) Unwrap() error { return e.error }

func waitIn(err error) *waitError {
	if err == nil {
		return nil // Return early, because the code below allocates.
	}
	var waitErr *waitError
	errors.As(err, &waitErr)
	return waitErr
}

// writeHeld runs a statement in a transaction that has locked all rows to write. It returns a *waitError if the
// statement waited for a lock that it did not get.
func (s *Store) writeHeld(ctx context.Context, tx processlog.Tx, query string) (changedRows int64, err error) {
	startedAt := time.Now()
	if changedRows, err = execCount(ctx, tx, query); err != nil {
		return 0, s.asWait(ctx, err, startedAt)
	}
	return changedRows, nil
}

// asWait turns the error of a statement into a *waitError if the statement waited for a lock that it did not get. The
// parameter startedAt is the time at which the statement began. SQLite has one writer, so triggers never wait there.
func (s *Store) asWait(ctx context.Context, err error, startedAt time.Time) error {
	if s.d.skipLocked == "" {
		return err
	}
	f := s.d.fault(err)
	inVain := f == faultBusy || f == faultEnded
	if inVain || errors.Is(ctx.Err(), context.DeadlineExceeded) {
		s.boundWaits()
	}
	if inVain && ctx.Err() == nil {
		return &waitError{err, time.Since(startedAt)}
	}
	return err
}

// refusesRow reports whether the database refused a statement of the library because of a row. A trigger may raise any
// error, so refusesRow returns true for every error of a statement, with two exceptions. It returns false for an error
// caused by the server's condition, and for an error about a missing or forbidden table of the log.
func (s *Store) refusesRow(err error) bool {
	if err == nil || s.ServerFault(err) || s.d.fault(err) == faultUnreachable {
		return false
	}
	if !s.d.answered(err) {
		return false
	}
	text, absent := s.d.absent(err)
	return !absent || !s.table.isIn(text)
}

// suffixes lists the suffixes of the log's tables.
var suffixes = []string{"", "_attempt", "_audit", "_case", "_fault", "_instance", "_limit", "_meta", "_operation", "_result", "_setting", "_slots", "_stat", "_turns"}

// isIn reports whether text names a table of the log. A user's table, for example a history table of a trigger, may
// contain the log's name within its own name. isIn ignores such a name.
func (t tableName) isIn(text string) bool {
	words := strings.FieldsFunc(text, func(r rune) bool { return !isNameRune(r) })
	return slices.ContainsFunc(words, func(word string) bool {
		return slices.ContainsFunc(suffixes, func(suffix string) bool { return strings.EqualFold(word, t.base+suffix) })
	})
}

func isNameRune(r rune) bool {
	return r == '_' || r == '$' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r > unicode.MaxASCII
}
