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

const splitStatements = 64

type refusal[T any] struct {
	item T
	err  error
}

// writeApart writes items, with one call of the function write if possible. If the database refuses a row, or a trigger
// waits for a lock, writeApart writes the items in smaller parts. So all other rows are written. The result refusals
// lists the refused items, and the result untried lists items that were not written within the permitted statements and
// waits. If err is not nil, no row has caused the error, and any item may have been written.
//
// One call of write must change all of its items or none, and must be safe to repeat.
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

type leftOver struct {
	busy     bool // whether some rows were locked, or were not tried
	refusals []processlog.Refusal
}

func (l *leftOver) addResult(busy []processlog.ID, err error) error {
	var refusedErr *processlog.RefusedError
	if errors.As(err, &refusedErr) {
		l.refusals = append(l.refusals, refusedErr.Refusals...)
		err = nil
	}
	l.busy = l.busy || err == nil && len(busy) > 0
	return err
}

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

func (p *splitter[T]) split(items []T) error {
	first, second := items[:len(items)/2], items[len(items)/2:]
	written, err := p.writeHalf(first)
	if err != nil {
		return err
	}
	if written && len(second) > 1 {
		// The first half was written, so a refused item is in the other half. Split that half without trying it as a
		// whole.
		return p.split(second)
	}
	_, err = p.writeHalf(second)
	return err
}

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

func (p *splitter[T]) mayContinue() bool {
	return p.statementsLeft > 0 && p.waitsLeft > 0 && (p.lastWait == 0 || timeFor(p.ctx, p.lastWait))
}

// piecewise writes the items in small pieces. If the write of one item waits in vain for a lock, no item of its piece
// is written. So piecewise draws the items of each piece at random. In the next call, the other items of this piece are
// probably in other pieces.
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
	piecesAtFirst = 16
	splitWaits    = 3
)

func timeFor(ctx context.Context, wait time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return !ok || time.Until(deadline) > wait+time.Second/2
}

// waitError says that a trigger waited in vain for a lock. The statement itself cannot wait, because its transaction
// has already locked all rows that the statement writes.
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

func (s *Store) writeHeld(ctx context.Context, tx processlog.Tx, query string) (changedRows int64, err error) {
	startedAt := time.Now()
	if changedRows, err = execCount(ctx, tx, query); err != nil {
		return 0, s.asWait(ctx, err, startedAt)
	}
	return changedRows, nil
}

// asWait turns the error of a statement that waited in vain for a lock into a *waitError. On SQLite triggers never wait.
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

// refusesRow reports whether a row caused the error. A trigger may raise any error, so every error counts, except for the
// server's condition and a missing table of the log.
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

var suffixes = []string{"", "_attempt", "_audit", "_case", "_fault", "_instance", "_limit", "_meta", "_operation", "_result", "_setting", "_slots", "_stat", "_turns"}

// isIn reports whether text names a table of the log, not merely a table whose name contains the log's name.
func (t tableName) isIn(text string) bool {
	words := strings.FieldsFunc(text, func(r rune) bool { return !isNameRune(r) })
	return slices.ContainsFunc(words, func(word string) bool {
		return slices.ContainsFunc(suffixes, func(suffix string) bool { return strings.EqualFold(word, t.base+suffix) })
	})
}

func isNameRune(r rune) bool {
	return r == '_' || r == '$' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r > unicode.MaxASCII
}
