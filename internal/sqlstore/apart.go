package sqlstore

import (
	"errors"
	"slices"
	"strings"
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
// or a constraint, writeApart writes the halves, and their halves, so that one refused row holds up no other.
//
//   - refused are the items that the database refused although they stood alone.
//   - left are items that are not written and were not tried alone, since that would have taken too many statements. The caller
//     offers them again, later and without the refused ones.
//   - err is an error of no row: the server's condition, or a statement that can never succeed. Any item may be written then.
//
// A call of write changes all of its items or none. It is safe to write an item twice.
func writeApart[T any](s *Store, items []T, write func(items []T) error) (refused []refusal[T], left []T, err error) {
	if len(items) == 0 {
		return nil, nil, nil
	}
	err = write(items)
	if !s.refusesRow(err) {
		return nil, nil, err
	}
	if len(items) == 1 {
		return []refusal[T]{{items[0], err}}, nil, nil
	}
	p := splitter[T]{s: s, write: write, statements: splitStatements}
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

// splitter looks for the items that the database refuses.
type splitter[T any] struct {
	s          *Store
	write      func(items []T) error
	statements int // that may still be sent
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
	if p.statements == 0 {
		p.left = append(p.left, items...)
		return false, nil
	}
	p.statements--
	switch err = p.write(items); {
	case !p.s.refusesRow(err):
		return err == nil, err
	case len(items) == 1:
		p.refused = append(p.refused, refusal[T]{items[0], err})
		return false, nil
	}
	return false, p.split(items)
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
