// Package usererr makes errors and panic values of user code safe to inspect.
//
// The methods of an error are user code. Error, Unwrap, Is and As may panic, and a chain of Unwrap may never end. The
// engine inspects errors in its own goroutines, where a panic would end the process. So the engine passes each error of
// user code to the function Of, which returns a copy. After that, the engine inspects only the copy.
package usererr

import (
	"fmt"
	"reflect"
)

// mostNodes limits how many errors of one tree are inspected. A batch joins at most 500 errors.
const mostNodes = 2000

// copied is the copy of an error of user code. It has no Unwrap method, so errors.Is and errors.As use only the methods
// of copied. These methods end in limited time and recover from panics.
type copied struct {
	text  string
	of    error
	sound bool // no method has panicked so far, and the tree of the error is finite
}

func (c *copied) Error() string        { return c.text }
func (c *copied) Is(target error) bool { return Is(c.of, target) }
func (c *copied) As(target any) bool   { return As(c.of, target) }

// Of returns a copy of err that is safe to inspect, or nil for nil. The text is the result of one call of Error.
// errors.Is and errors.As find the same errors in the copy as in err.
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

// Original returns the user's error behind a copy. If err is not a copy, Original returns err. Original also returns
// err, the copy, if the user's error is not safe to inspect: one of its methods has panicked, or its tree of wrapped
// errors has no end.
func Original(err error) error {
	if c, ok := err.(*copied); ok && c.sound {
		return c.of
	}
	return err
}

// Safe returns err if err is safe to inspect. If a method of err panics, or if the chain of Unwrap never ends, Safe
// returns a copy of err. Use Safe for errors that return to user code, which may inspect them in any way.
func Safe(err error) error { return Original(Of(err)) }

// Text returns err.Error(). If that method panics, Text returns a description of the problem.
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

// Contain calls code of a user in a separate goroutine, so that the code cannot end the caller's goroutine. If the code
// panics or ends its goroutine, the result problem says so.
func Contain(call func()) (problem string) {
	ended := make(chan string, 1)
	go func() {
		problem := "it has ended its goroutine with runtime.Goexit"
		defer func() {
			if p := recover(); p != nil {
				problem = "it panicked: " + PanicText(p)
			}
			ended <- problem
		}()
		call()
		problem = ""
	}()
	return <-ended
}

// PanicText returns the value of a panic as package fmt prints the value. If a method of the value panics, package fmt
// prints the value of the new panic. If package fmt cannot print the new panic either, package fmt itself panics.
// PanicText recovers from that, and returns a text with the type of p.
func PanicText(p any) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("a value of type %T, whose own method panics", p)
		}
	}()
	return fmt.Sprint(p)
}

// Is works like errors.Is for an error of user code, whose methods may be wrong. If its Is method panics, or reports a
// match with every error, the error does not match. A tree of errors may have no end, so Is visits only the first
// mostNodes errors.
func Is(err, target error) bool {
	if err == nil || target == nil {
		return err == target
	}
	comparable := reflect.TypeOf(target).Comparable()
	w := walk{stepsLeft: mostNodes, look: func(err error) bool {
		if comparable && err == target {
			return true
		}
		x, ok := err.(interface{ Is(error) bool })
		return ok && x.Is(target) && !x.Is(nobody)
	}}
	return w.visit(err)
}

// As works like errors.As for an error of user code, whose methods may be wrong. If its As method panics, or returns
// true without setting target, the error does not match. The pointer target must not be nil, and must point to a zero
// value.
func As(err error, target any) bool {
	if err == nil {
		return false
	}
	to := reflect.ValueOf(target).Elem()
	w := walk{stepsLeft: mostNodes, look: func(err error) bool {
		if reflect.TypeOf(err).AssignableTo(to.Type()) {
			to.Set(reflect.ValueOf(err))
			return true
		}
		x, ok := err.(interface{ As(any) bool })
		return ok && x.As(target) && !to.IsZero()
	}}
	return w.visit(err)
}

// Any reports whether match returns true for an error in the tree of err. match may call the methods of the error. If
// such a method panics, the error counts as no match.
func Any(err error, match func(error) bool) bool {
	w := walk{stepsLeft: mostNodes}
	w.look = func(err error) bool {
		if c, ok := err.(*copied); ok {
			return Any(c.of, match)
		}
		return match(err)
	}
	return w.visit(err)
}

type probed struct{ error }

// The variable nobody is an error of which no user code knows. If an Is method reports that its error matches nobody,
// that method returns true for every error. So the function Is ignores the results of that method.
var nobody = error(&probed{})

func probe(err error) bool {
	var to *probed
	w := walk{stepsLeft: mostNodes, look: func(err error) bool {
		if x, ok := err.(interface{ Is(error) bool }); ok {
			x.Is(nobody)
		}
		if x, ok := err.(interface{ As(any) bool }); ok {
			x.As(&to)
		}
		return false
	}}
	w.visit(err)
	return !w.incomplete
}

type walk struct {
	look       func(error) bool
	stepsLeft  int
	incomplete bool
}

func (w *walk) visit(err error) (found bool) {
	for err != nil {
		if w.stepsLeft--; w.stepsLeft < 0 {
			w.incomplete = true
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
			w.incomplete = true
		}
	}()
	ask()
}
