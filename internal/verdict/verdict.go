// Package verdict reads what an error of a handler asks for: another attempt, an end, or a wait that costs no attempt.
package verdict

import (
	"errors"
	"fmt"
	"time"

	"github.com/compensator-go/compensator/internal/jitter"
	"github.com/compensator-go/compensator/internal/usererr"
	"github.com/compensator-go/compensator/observe"
)

// A verdict of RetrySoon waits for at least minSoonDelay, and for at most twice as long.
const minSoonDelay = 100 * time.Millisecond

// Kind says how the engine treats the error of an attempt. The zero value KindFailure is the kind of an error without a
// verdict.
type Kind int

const (
	KindFailure Kind = iota
	KindPermanent
	KindRetryAfter
	KindSnooze
	KindUnavailable
	KindServerFault // a condition of the handler's database, which the handler itself may have caused
	KindServerDown  // a condition of the whole database server, which no handler causes
)

// Verdict is a handler's error, with what the error asks for.
type Verdict struct {
	Kind      Kind
	After     time.Duration // time until the next attempt; ≤ 0: the type's schedule decides
	ByLibrary bool
	NoMaxWait bool

	Undecodable bool
	NotCalled   bool

	err error
}

// HandlerCalled reports whether the handler was called with a decoded content.
func (v *Verdict) HandlerCalled() bool { return !v.NotCalled && !v.NoMaxWait && !v.Undecodable }

// Error returns the text of the error.
func (v *Verdict) Error() string { return v.err.Error() }

// Unwrap returns the error to which Permanent, RetryAfter or another function has added the verdict.
func (v *Verdict) Unwrap() error { return v.err }

// NoReason replaces an empty error text. An empty LastError means that no attempt has failed.
const NoReason = "compensator: no reason given"

func orNoReason(err error) error {
	if err == nil {
		return errors.New(NoReason)
	}
	return err
}

// Permanent, RetryAfter, Snooze and Unavailable do the same as the functions of these names in the root package.
func Permanent(err error) error { return &Verdict{Kind: KindPermanent, err: orNoReason(err)} }

func RetryAfter(d time.Duration, err error) error {
	return &Verdict{Kind: KindRetryAfter, After: d, err: orNoReason(err)}
}

func Snooze(d time.Duration) error {
	return &Verdict{Kind: KindSnooze, After: d, err: fmt.Errorf("compensator: snoozed for %v", d)}
}

func Unavailable(err error) error { return &Verdict{Kind: KindUnavailable, err: orNoReason(err)} }

// LibraryUnavailable returns the verdict Unavailable for an error of the library, which no handler has returned.
func LibraryUnavailable(err error) error {
	return &Verdict{Kind: KindUnavailable, ByLibrary: true, err: orNoReason(err)}
}

// NotCalled returns the verdict Unavailable for an attempt that ended before its handler was called. The error comes
// from the library.
func NotCalled(err error) error {
	return &Verdict{Kind: KindUnavailable, ByLibrary: true, NotCalled: true, err: orNoReason(err)}
}

// RetrySoon returns a verdict of the library for an entry that has no fault. The entry is soon due again, here or in
// another process.
func RetrySoon(err error) error {
	return &Verdict{Kind: KindSnooze, After: minSoonDelay + jitter.N(minSoonDelay), ByLibrary: true, err: err}
}

// LibraryWait returns a verdict with which the library, and not the handler, asks to wait. MaxWait does not limit such
// a wait.
func LibraryWait(err error) error {
	v := *Of(err)
	v.NoMaxWait, v.err = true, err
	return &v
}

// Undecodable costs no attempt until MaxWait is over, because another process may run a newer version of the code. A
// breaker does not count it, because no call was made.
func Undecodable(err error) error {
	return &Verdict{Kind: KindUnavailable, Undecodable: true, err: orNoReason(err)}
}

// ForObserver does the same as VerdictOf in the root package.
func ForObserver(err error) observe.Verdict {
	if err == nil {
		return observe.Success
	}
	switch v := Of(err); v.Kind {
	case KindPermanent:
		return observe.Permanent
	case KindSnooze:
		if v.ByLibrary {
			return observe.Unavailable
		}
		return observe.Snooze
	case KindUnavailable, KindServerFault, KindServerDown:
		return observe.Unavailable
	}
	return observe.Failure
}

type unknown struct{ error }

func (unknown) OutcomeUnknown() bool { return true }
func (u unknown) Unwrap() error      { return u.error }

// OutcomeUnknown wraps err, so that IsOutcomeUnknown reports true. The text and the verdict of err stay the same.
// OutcomeUnknown(nil) is nil.
func OutcomeUnknown(err error) error {
	if err == nil {
		return nil
	}
	return unknown{err}
}

// IsOutcomeUnknown reports whether an error in the tree of err has a method OutcomeUnknown that returns true. Errors of
// package httpcall and of user code may have this method.
func IsOutcomeUnknown(err error) bool {
	return usererr.Any(err, func(err error) bool {
		u, ok := err.(interface{ OutcomeUnknown() bool })
		return ok && u.OutcomeUnknown()
	})
}

// Of returns the verdict in err. An error without a verdict is a plain failure, and its verdict is the zero value. If
// RetryAfter wraps an Unavailable, the verdict is Unavailable with the time of RetryAfter. The parameter err may come
// directly from user code, because Of recovers from panics of its methods.
func Of(err error) *Verdict {
	if err == nil {
		return &noVerdict
	}
	v := verdictIn(err)
	if v == nil {
		return &noVerdict
	}
	if v.Kind != KindRetryAfter {
		return v
	}
	if inner := verdictIn(v.err); inner != nil && inner.Kind == KindUnavailable {
		unavailable := *inner
		unavailable.After, unavailable.err = v.After, v.err
		return &unavailable
	}
	return v
}

func verdictIn(err error) *Verdict {
	if v, ok := err.(*Verdict); ok {
		return v
	}
	var v *Verdict
	if !usererr.As(err, &v) {
		return nil
	}
	return v
}

var noVerdict Verdict

// ServerCaused marks an error that comes from a condition of the database. The parameter whole says whether the whole
// server has the condition. If err already has a verdict, ServerCaused returns err unchanged.
//
// A condition of the whole server never costs an attempt. Any other condition may be caused by the handler itself, in
// each attempt. So the engine counts how many attempts of an entry ended in a row with this kind of condition. As
// long as this number is at most the entry's maximum number of failures, the condition costs no attempt. After that,
// each further condition costs one attempt, so that in the end a person sees the entry.
func ServerCaused(err error, whole bool) error {
	if verdictIn(err) != nil {
		return err
	}
	if whole {
		return &Verdict{Kind: KindServerDown, err: err}
	}
	return &Verdict{Kind: KindServerFault, err: err}
}

// Judgement is what the error of an attempt says.
type Judgement struct {
	Verdict  observe.Verdict
	Library  bool // the library or its database has failed, and the error says nothing about the handler
	Uncalled bool
}

// JudgementOf reads the error of an attempt.
func JudgementOf(err error) Judgement {
	v := Of(err)
	return Judgement{
		Verdict:  ForObserver(err),
		Library:  v.ByLibrary || v.Kind == KindServerFault || v.Kind == KindServerDown,
		Uncalled: v.NoMaxWait || v.Undecodable,
	}
}
