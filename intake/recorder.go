package intake

import (
	"context"
	"errors"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/operating"
	"github.com/compensator-go/compensator/internal/usererr"
	"github.com/compensator-go/compensator/processlog"
)

// Recorder records the failed messages of a consumer of your own, each in a transaction of its own. It distinguishes
// two failures: the log will never accept this message, or the log accepts nothing at the moment. Its methods may be
// called concurrently.
type Recorder[M any] struct {
	c       *compensator.Compensator
	entries *compensator.Type[M]
	cfg     RecorderConfig[M]
}

// RecorderConfig configures a Recorder. Every field is optional.
type RecorderConfig[M any] struct {
	Codec   compensator.Codec // the codec of the messages' type. Default compensator.JSON
	Timeout time.Duration     // time limit of each transaction. Default 20 s, at least 1 ms

	// Empty is a message that a working Codec can encode. When Codec fails for a message, the Recorder encodes Empty to
	// find the fault. If Codec fails for Empty too, Codec is broken. Otherwise the message is at fault. Default: the zero
	// value.
	Empty M
}

// NewRecorder returns a Recorder of entries of one type of c. It asks no server. An invalid field is a
// *compensator.FieldError.
func NewRecorder[M any](c *compensator.Compensator, entries *compensator.Type[M], cfg RecorderConfig[M]) (*Recorder[M], error) {
	setDefault(&cfg.Timeout, 20*time.Second)
	if cfg.Codec == nil {
		cfg.Codec = compensator.JSON
	}
	var p problems
	p.refuse(c == nil, "c", "is nil")
	p.refuse(entries == nil, "entries", "is nil")
	p.atLeast("Timeout", cfg.Timeout, time.Millisecond)
	if err := errors.Join(p...); err != nil {
		return nil, err
	}
	return &Recorder[M]{c: c, entries: entries, cfg: cfg}, nil
}

// Record commits an entry for a message. If the message already has an entry, Record changes nothing and returns nil. A
// message is recognised by Options.IdempotencyKey. Record does not tell whether a later call may succeed: see Attempts.
func (r *Recorder[M]) Record(ctx context.Context, message M, options compensator.Options) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	return r.c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		if _, err := r.entries.Record(ctx, tx, message, options); err != nil {
			return &insertError{err}
		}
		return nil
	})
}

// insertError is an error of Record inside the transaction. An error of BEGIN or COMMIT is not wrapped in it.
type insertError struct{ err error }

func (e *insertError) Error() string { return e.err.Error() }
func (e *insertError) Unwrap() error { return e.err }

// Trial returns nil if the log accepts entries at the moment. Call it before you take messages whose deliveries a broker
// counts. Trial records an entry without content and rolls the transaction back.
func (r *Recorder[M]) Trial(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	return try(ctx, r.c, r.entries.Name())
}

var errTrial = errors.New("intake: rollback of a trial")

// try records an entry and rolls the transaction back.
func try(ctx context.Context, c *compensator.Compensator, businessType string) error {
	err := c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		if _, err := c.Record(ctx, tx, compensator.NewEntry{BusinessType: businessType}); err != nil {
			return err
		}
		return errTrial
	})
	if errors.Is(err, errTrial) {
		return nil
	}
	return err
}

// Attempts makes the attempts to record one message. The method Record must not be called concurrently.
type Attempts[M any] struct {
	recorder *Recorder[M]
	message  M
	refusals int // consecutive attempts in which the log refused this message and took another entry
}

// Attempts returns the attempts to record a message.
func (r *Recorder[M]) Attempts(message M) *Attempts[M] {
	return &Attempts[M]{recorder: r, message: message}
}

// enoughRefusals is the number of consecutive refusals after which Attempts.Record returns ErrRefused. A refusal counts
// only if the log takes another entry right after it.
const enoughRefusals = 3

// ErrRefused says that the log will never accept a message. Attempts.Record returns an error that matches ErrRefused
// with errors.Is. The text of the returned error is the reason.
var ErrRefused = errors.New("intake: the log will never accept the message")

type refusal struct{ reason error }

func (r *refusal) Error() string        { return r.reason.Error() }
func (r *refusal) Unwrap() error        { return r.reason }
func (r *refusal) Is(target error) bool { return target == ErrRefused }

// Record makes one attempt. If the message already has an entry, Record changes nothing and returns nil. It returns
// ErrRefused if no entry can hold the message, or if three attempts in a row were refused while the log took another
// entry. After any other error, keep the message, wait, and call Record again.
func (a *Attempts[M]) Record(ctx context.Context, options compensator.Options) error {
	err := a.recorder.Record(ctx, a.message, options)
	if err == nil {
		return nil
	}
	if a.refusals++; !a.recorder.refusesOnly(ctx, err) {
		a.refusals = 0
	}
	if a.refusals == enoughRefusals || a.recorder.cannotHold(a.message, err) {
		return &refusal{err}
	}
	return err
}

// cannotHold reports whether no entry can hold the message. The reason is that the log refuses a field, or that an
// entry of another type already has the idempotency key. If the log refuses only the database session, cannotHold
// returns false, because the log accepts the message in another session.
func (r *Recorder[M]) cannotHold(message M, err error) bool {
	var field *compensator.FieldError
	var otherType *compensator.OtherTypeError
	return !processlog.IsSessionError(err) && (errors.As(err, &field) || errors.As(err, &otherType)) && r.encodes(message)
}

// refusesOnly reports whether the log refuses this message but accepts other entries. For that, it makes a trial: it
// records an empty entry and rolls the transaction back.
//
// If err has one of these causes, refusesOnly returns false, because the log may accept the same message later:
//
//   - The transaction did not reach the INSERT.
//   - The COMMIT failed. The trial is rolled back, so it shows nothing about a COMMIT.
//   - The server accepts no writes, or its disk is full. A full disk may still take the small entry of the trial.
//   - The log refuses the database session.
//   - The INSERT took too long, waited for a lock, or met a deadlock.
//   - The codec cannot encode any message, for example because its keys are unavailable.
func (r *Recorder[M]) refusesOnly(ctx context.Context, err error) bool {
	var refused *insertError
	if !errors.As(err, &refused) || operating.ServerDown(err) || processlog.IsSessionError(err) || compensator.Retryable(err) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	return r.encodes(r.cfg.Empty) && r.Trial(ctx) == nil
}

// encodes calls the codec, which is user code and may panic.
func (r *Recorder[M]) encodes(message M) bool {
	var err error
	problem := usererr.Contain(func() { _, err = r.cfg.Codec.Marshal(message) })
	return problem == "" && err == nil
}
