package intake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/usererr"
	"github.com/compensator-go/compensator/processlog"
)

// aside is a message as an entry of Config.Type, to be tried again by the log or, with a reason, for a person.
func (in *Intake) aside(m *Message, as kind, reason string) *item {
	it := &item{message: m, kind: as, reason: reason, entry: compensator.NewEntry{BusinessType: in.cfg.Type}}
	it.entry.IdempotencyKey = in.IdempotencyKey(m)
	if as == failed {
		it.entry.Delay = in.firstDelay()
	}
	return it
}

// firstDelay is after how long a message that failed comes due. The schedule is the user's, and may panic.
func (in *Intake) firstDelay() (delay time.Duration) {
	defer func() {
		if recover() != nil {
			delay = longestPause
		}
	}()
	return min(max(0, in.cfg.Aside.Retry(1)), processlog.MaxDelay)
}

// setAside is a message for a person. The log may hold it already: then it is only acknowledged.
func (in *Intake) setAside(m *Message, reason string) *item {
	reason = cmp.Or(processlog.FitError(reason), "no reason given")
	in.cfg.Logger.Warn("intake: message is parked for a person", "source", in.name, "message", m.ID, "reason", reason)
	return in.aside(m, aside, reason)
}

// encode gives an item set aside its content. While the codec fails, as one whose keys are away, the message is held.
func (in *Intake) encode(it *item) (err error) {
	if it.kind == meant || it.entry.Content != nil {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = &compensator.PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	kept := *it.message
	kept.SetAside, kept.dense = it.reason, it.dense
	if it.entry.Content, err = in.cfg.Aside.Codec.Marshal(kept); err != nil {
		return failure("encode message "+kept.ID, usererr.Of(err))
	}
	return nil
}

// again is the handler of Config.Type: what take does, for one message.
func (in *Intake) again(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, m Message) error {
	m.Entry = e
	if m.SetAside != "" && e.Epoch == 0 { // once a person has requeued it, it is worked on
		return compensator.Permanent(errors.New(m.SetAside))
	}
	entry, err := in.entry(&m)
	if err != nil {
		return compensator.Permanent(err)
	}
	entry.IdempotencyKey = idempotencyKey(in.name, m.ID, "again") // its own id is e's
	receipt, err := in.c.Record(ctx, tx, entry)
	if refused(err) {
		return compensator.Permanent(err)
	}
	if err != nil || receipt.Duplicate() {
		return err
	}
	return in.call(ctx, tx, []*Message{&m})
}

// entry calls Config.Entry. Its panic says that the message cannot be decoded.
func (in *Intake) entry(m *Message) (entry compensator.NewEntry, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &compensator.PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	entry, err = in.cfg.Entry(m)
	entry.FailOnDuplicate = false
	return entry, usererr.Of(err)
}

// call calls Config.Work in a goroutine of its own and waits for it. A panic and runtime.Goexit are failures: one message must end neither
// the process nor Run.
func (in *Intake) call(ctx context.Context, tx *compensator.ScopedTx, messages []*Message) error {
	if in.cfg.Work == nil {
		return nil
	}
	ended := make(chan error, 1)
	go func() {
		err := error(new(compensator.PanicError)) // stays after runtime.Goexit
		defer func() {
			if p := recover(); p != nil {
				err = &compensator.PanicError{Value: p, Stack: debug.Stack()}
			}
			ended <- err
		}()
		err = usererr.Of(in.cfg.Work(ctx, tx, messages))
	}()
	return <-ended
}

// work tells an error of Work from one of the database, whose transaction has ended, or which takes no writes.
func (in *Intake) work(ctx context.Context, tx *compensator.ScopedTx, messages []*Message) error {
	if len(messages) == 0 {
		return nil
	}
	err := in.call(ctx, tx, messages)
	if err == nil {
		return nil
	}
	if context.Cause(ctx) == errSlow {
		return &workError{errors.Join(errSlow, err)}
	}
	if _, broken := in.c.Record(ctx, tx, compensator.NewEntry{BusinessType: in.cfg.Type}); broken != nil { // it is rolled back
		return fmt.Errorf("%w; Work: %v", broken, err) // its text alone: what it wraps may be another log's
	}
	return &workError{err}
}
