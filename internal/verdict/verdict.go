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

// soon is the shortest wait of Soon. The longest is twice as long.
const soon = 100 * time.Millisecond

// Kind is what a handler asks for.
type Kind int

const (
	KindFailure Kind = iota
	KindPermanent
	KindRetryAfter
	KindSnooze
	KindUnavailable
	KindServerFault // of the database a transactional handler works in, or of the handler
	KindServerDown  // of that database alone
)

// Verdict is a handler's error with what it asks for.
type Verdict struct {
	Kind  Kind
	After time.Duration // until the next attempt; ≤ 0: the type's schedule
	Ours  bool          // the database's failure, or this process's, not the handler's word
	Free  bool          // see Free

	Undecodable bool // see Undecodable

	err error
}

// Error returns the text of the error.
func (v *Verdict) Error() string { return v.err.Error() }

// Unwrap returns the error that the handler has judged.
func (v *Verdict) Unwrap() error { return v.err }

// NoReason is the text of an error that has none. A LastError is empty only where no attempt has failed.
const NoReason = "compensator: no reason given"

func orUnnamed(err error) error {
	if err == nil {
		return errors.New(NoReason)
	}
	return err
}

// Permanent, RetryAfter, Snooze and Unavailable are what a handler's error can ask for; see the root's.
func Permanent(err error) error { return &Verdict{Kind: KindPermanent, err: orUnnamed(err)} }

func RetryAfter(d time.Duration, err error) error {
	return &Verdict{Kind: KindRetryAfter, After: d, err: orUnnamed(err)}
}

func Snooze(d time.Duration) error {
	return &Verdict{Kind: KindSnooze, After: d, err: fmt.Errorf("compensator: snoozed for %v", d)}
}

func Unavailable(err error) error { return &Verdict{Kind: KindUnavailable, err: orUnnamed(err)} }

// Ours is Unavailable where no handler has said so.
func Ours(err error) error { return &Verdict{Kind: KindUnavailable, Ours: true, err: orUnnamed(err)} }

// Soon is Ours, for an entry that nothing is wrong with: it is due again soon, here or elsewhere.
func Soon(err error) error {
	return &Verdict{Kind: KindSnooze, After: soon + jitter.N(soon), Ours: true, err: err}
}

// Free is err where it is the library that asks to wait, and not the handler: MaxWait does not bound that.
func Free(err error) error {
	v := *Of(err)
	v.Free, v.err = true, err
	return &v
}

// Undecodable is Unavailable for content that this process cannot decode. A newer version of the code may run beside it, so it
// costs no attempt until MaxWait is over. A breaker does not count it, since no call was made.
func Undecodable(err error) error {
	return &Verdict{Kind: KindUnavailable, Undecodable: true, err: orUnnamed(err)}
}

// Observed is what err asks for; see the root's.
func Observed(err error) observe.Verdict {
	if err == nil {
		return observe.Success
	}
	switch v := Of(err); v.Kind {
	case KindPermanent:
		return observe.Permanent
	case KindSnooze:
		if v.Ours {
			return observe.Unavailable
		}
		return observe.Snooze
	case KindUnavailable, KindServerFault, KindServerDown:
		return observe.Unavailable
	}
	return observe.Failure
}

// Of returns what err asks for. A failure asks for nothing. RetryAfter around Unavailable is Unavailable with a time of its
// own. err may be an error of user code that has not been copied.
func Of(err error) *Verdict {
	if err == nil {
		return &plain // each success passes here
	}
	v := verdictIn(err)
	if v == nil {
		return &plain
	}
	if v.Kind != KindRetryAfter {
		return v
	}
	if within := verdictIn(v.err); within != nil && within.Kind == KindUnavailable {
		return &Verdict{Kind: KindUnavailable, After: v.After, Ours: within.Ours, Undecodable: within.Undecodable, err: v.err}
	}
	return v
}

// verdictIn finds the outermost verdict in an error's tree, or returns nil.
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

// plain is the verdict of an error that is none.
var plain Verdict

// ServersOwn marks an error that is a condition of the database, as whole says: of the whole server, or perhaps of it.
//
// A condition of the whole server never spends an attempt. Any other spends none as many times in a row as the entry has attempts,
// and counts from then on: a handler that always brings the server into it must reach a person.
func ServersOwn(err error, whole bool) error {
	if verdictIn(err) != nil {
		return err // the handler has said what it asks for
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
	Uncalled bool // the handler was not called, or could not decode the content
}

// JudgementOf reads the error of an attempt.
func JudgementOf(err error) Judgement {
	v := Of(err)
	return Judgement{
		Verdict:  Observed(err),
		Library:  v.Ours || v.Kind == KindServerFault || v.Kind == KindServerDown,
		Uncalled: v.Free || v.Undecodable,
	}
}
