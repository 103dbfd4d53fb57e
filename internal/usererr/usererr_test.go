package usererr

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type odd struct {
	error  func() string
	unwrap func() error
	is     func(error) bool
	as     func(any) bool
}

func (o *odd) Error() string { return o.error() }

func (o *odd) Unwrap() error {
	if o.unwrap == nil {
		return io.EOF
	}
	return o.unwrap()
}

func (o *odd) Is(target error) bool { return o.is != nil && o.is(target) }

func (o *odd) As(target any) bool { return o.as != nil && o.as(target) }

func text() string { return "odd" }

func TestCopyAnswersAsItsErrorDoes(t *testing.T) {
	deep := &odd{error: text}
	for _, err := range []error{
		io.EOF, deep, fmt.Errorf("read: %w", io.EOF), errors.Join(context.Canceled, nil, fmt.Errorf("%w, %w", io.ErrNoProgress, deep)),
	} {
		c := Of(err)
		require.Equal(t, err.Error(), c.Error())
		for _, target := range []error{io.EOF, context.Canceled, io.ErrNoProgress, io.ErrShortWrite, nil} {
			assert.Equal(t, errors.Is(err, target), errors.Is(c, target), "%v is %v", err, target)
		}
		var want, got *odd
		assert.Equal(t, errors.As(err, &want), errors.As(c, &got))
		assert.Same(t, want, got)
		var wantTimeout, gotTimeout interface{ Timeout() bool }
		assert.Equal(t, errors.As(err, &wantTimeout), errors.As(c, &gotTimeout))
		assert.Equal(t, err, Original(c), "Original returns the error itself")
		assert.Equal(t, c, Of(c))
		assert.True(t, errors.Is(fmt.Errorf("commit: %w", c), c))
	}
	require.NoError(t, Of(nil))
	require.NoError(t, Original(nil))
}

// Failure: F63
func TestCopyOfAnErrorWhoseMethodsPanic(t *testing.T) {
	loop := &odd{error: text}
	loop.unwrap = func() error { return loop }
	var none *odd
	for name, c := range map[string]struct {
		err  error
		text string
	}{
		"a nil pointer":         {none, "a nil *usererr.odd was returned as an error, which is not a nil error, and its Error method panics"},
		"its text":              {&odd{error: func() string { panic(io.EOF) }}, "an error of type *usererr.odd, whose Error method panicked: EOF"},
		"what it wraps":         {&odd{error: text, unwrap: func() error { panic(1) }}, "odd"},
		"what it is":            {&odd{error: text, is: func(error) bool { panic(1) }, unwrap: func() error { return nil }}, "odd"},
		"what it is as":         {&odd{error: text, as: func(any) bool { panic(1) }, unwrap: func() error { return nil }}, "odd"},
		"a loop":                {loop, "odd"},
		"a join with a nil one": {errors.Join(io.ErrShortBuffer, &odd{error: text, is: func(error) bool { panic(1) }}), "short buffer\nodd"},
	} {
		t.Run(name, func(t *testing.T) {
			copied := Of(c.err)
			require.Equal(t, c.text, copied.Error())
			require.False(t, errors.Is(copied, context.Canceled))
			var path interface{ Path() string }
			require.False(t, errors.As(copied, &path))
			require.Same(t, copied, Original(copied), "Original returns the copy")
			require.Equal(t, c.text, Text(c.err))
		})
	}
	require.ErrorIs(t, Of(&odd{error: text, is: func(error) bool { panic(1) }}), io.EOF, "the wrapped error is found")
}

// Failure: F63
func TestErrorThatSaysYesToAllIsNotBelieved(t *testing.T) {
	liar := Of(&odd{error: text, is: func(error) bool { return true }, as: func(any) bool { return true }})
	require.NotErrorIs(t, liar, context.Canceled)
	require.ErrorIs(t, liar, io.EOF)
	var found *probed
	require.False(t, As(liar, &found))
}

type bomb struct{}

func (bomb) String() string { panic(bomb{}) }

func TestPanicTextIsMadeOfAnything(t *testing.T) {
	require.Equal(t, "7", PanicText(7))
	require.Equal(t, "EOF", PanicText(io.EOF))
	require.Equal(t, "a value of type usererr.bomb, whose own method panics", PanicText(bomb{}))
}

type loud struct{}

func (loud) Enabled(context.Context, slog.Level) bool  { panic("loud") }
func (loud) Handle(context.Context, slog.Record) error { panic("loud") }
func (loud) WithAttrs([]slog.Attr) slog.Handler        { panic("loud") }
func (loud) WithGroup(string) slog.Handler             { panic("loud") }

type ready struct{ loud }

func (ready) Enabled(context.Context, slog.Level) bool { return true }

// Failure: F63
func TestLoggerSurvivesItsHandler(t *testing.T) {
	for _, h := range []slog.Handler{loud{}, ready{}} {
		require.NotPanics(t, func() {
			l := Logger(slog.New(h)).With("a", 1).WithGroup("b")
			l.Warn("told", "c", 2)
		})
	}
	var lines bytes.Buffer
	l := Logger(slog.New(slog.NewTextHandler(&lines, nil)))
	require.Equal(t, l, Logger(l))
	l.With("a", 1).WithGroup("b").Warn("told", "c", bomb{})
	require.Contains(t, lines.String(), "told a=1 b.attributes_lost=")
}
