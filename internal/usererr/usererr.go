// Package usererr makes errors and panic values of user code safe to look at.
//
// An error's methods are code of its author. Error, Unwrap, Is and As may panic, and a chain of Unwrap may never end. A nil
// pointer that is returned as an error is the usual case. The engine looks at errors in goroutines of its own, where a panic
// ends the process. So it calls Of where user code returns, and looks at the copy from then on.
package usererr

import (
	"fmt"
	"reflect"
)

// mostNodes bounds how many errors of one tree are looked at. A batch's joined errors have at most 500 branches.
const mostNodes = 2000

// copied is an error of user code. It has no Unwrap: errors.Is and errors.As get all their answers from its own methods, which
// are bounded and recover.
type copied struct {
	text  string
	of    error
	sound bool // no method has panicked so far, and the tree ends
}

func (c *copied) Error() string        { return c.text }
func (c *copied) Is(target error) bool { return Is(c.of, target) }
func (c *copied) As(target any) bool   { return As(c.of, target) }

// Of returns a copy of err that is safe to look at, and nil for nil. The text is that of the first call of Error. errors.Is and
// errors.As find in the copy what they find in err.
func Of(err error) error {
	if err == nil {
		return nil
	}
	if c, ok := err.(*copied); ok {
		return c
	}
	c := &copied{of: err, sound: true}
	if c.text, c.sound = read(err); c.sound {
		c.sound = probe(err)
	}
	return c
}

// Original returns the error that a copy was made of. Where a method of that error has panicked, or its tree does not end, it
// returns the copy. An error that is no copy is returned as it is.
func Original(err error) error {
	if c, ok := err.(*copied); ok && c.sound {
		return c.of
	}
	return err
}

// Safe returns err, or the copy of it where a method of it has panicked, or its tree does not end. It is for errors that go back to
// user code, which may look at them in any way.
func Safe(err error) error { return Original(Of(err)) }

// Text returns err.Error(), or what is wrong with that method if it panics.
func Text(err error) string {
	text, _ := read(err)
	return text
}

func read(err error) (text string, sound bool) {
	defer func() {
		if p := recover(); p != nil {
			text, sound = unreadable(err, p), false
		}
	}()
	return err.Error(), true
}

func unreadable(err error, p any) string {
	if v := reflect.ValueOf(err); v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Sprintf("a nil %T was returned as an error, which is not a nil error, and its Error method panics", err)
	}
	return fmt.Sprintf("an error of type %T, whose Error method panicked: %s", err, PanicText(p))
}

// PanicText returns a panic's value as package fmt prints it. Package fmt recovers from a String or Error method that panics,
// unless it panics with a value whose own method panics again.
func PanicText(p any) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("a value of type %T, whose own method panics", p)
		}
	}()
	return fmt.Sprint(p)
}

// Is is errors.Is for an error of user code. A method that panics, or that says yes to any error, finds nothing. A tree that does
// not end is left.
func Is(err, target error) bool {
	if err == nil || target == nil {
		return err == target
	}
	comparable := reflect.TypeOf(target).Comparable()
	w := walk{left: mostNodes, look: func(err error) bool {
		if comparable && err == target {
			return true
		}
		x, ok := err.(interface{ Is(error) bool })
		return ok && x.Is(target) && !x.Is(nobody)
	}}
	return w.visit(err)
}

// As is errors.As for an error of user code. A method that panics, or that says yes and sets nothing, finds nothing. target is a
// pointer that is not nil, to a zero value.
func As(err error, target any) bool {
	if err == nil {
		return false
	}
	to := reflect.ValueOf(target).Elem()
	w := walk{left: mostNodes, look: func(err error) bool {
		if reflect.TypeOf(err).AssignableTo(to.Type()) {
			to.Set(reflect.ValueOf(err))
			return true
		}
		x, ok := err.(interface{ As(any) bool })
		return ok && x.As(target) && !to.IsZero()
	}}
	return w.visit(err)
}

// probed is a type of error that no tree holds.
type probed struct{ error }

// nobody is an error that no error is. An Is method that says otherwise is not believed.
var nobody = error(&probed{})

// probe reports whether a whole tree can be walked, and its methods be asked.
func probe(err error) bool {
	var to *probed
	w := walk{left: mostNodes, look: func(err error) bool {
		if x, ok := err.(interface{ Is(error) bool }); ok {
			x.Is(nobody)
		}
		if x, ok := err.(interface{ As(any) bool }); ok {
			x.As(&to)
		}
		return false
	}}
	w.visit(err)
	return !w.broken
}

// walk goes through a tree of errors as package errors does, in the same order.
type walk struct {
	look   func(error) bool
	left   int  // how many errors it still looks at
	broken bool // a method has panicked, or the tree is larger than that
}

func (w *walk) visit(err error) (found bool) {
	for err != nil {
		if w.left--; w.left < 0 {
			w.broken = true
			return false
		}
		if w.safely(func() { found = w.look(err) }); found {
			return true
		}
		var next error
		var branches []error
		w.safely(func() {
			switch x := err.(type) {
			case interface{ Unwrap() error }:
				next = x.Unwrap()
			case interface{ Unwrap() []error }:
				branches = x.Unwrap()
			}
		})
		for _, branch := range branches {
			if branch != nil && w.visit(branch) {
				return true
			}
		}
		err = next
	}
	return false
}

func (w *walk) safely(ask func()) {
	defer func() {
		if recover() != nil {
			w.broken = true
		}
	}()
	ask()
}
