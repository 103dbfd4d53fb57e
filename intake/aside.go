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

// aside returns an item that records a message as an entry of Config.Type. The log tries a failed message again. A
// message with a reason waits for a person.
func (in *Intake) aside(m *Message, as kind, reason string) *item {
	it := &item{message: m, kind: as, reason: reason, entry: compensator.NewEntry{BusinessType: in.cfg.Type}}
	it.entry.IdempotencyKey = in.IdempotencyKey(m)
	if as == failed {
		it.entry.Delay = in.firstDelay()
	}
	return it
}

// firstDelay returns the delay before the first attempt of a failed message. Aside.Retry is user code and may panic.
func (in *Intake) firstDelay() (delay time.Duration) {
	defer func() {
		if recover() != nil {
			delay = longestPause
		}
	}()
	return min(max(0, in.cfg.Aside.Retry(1)), processlog.MaxDelay)
}

// setAside returns an item for a message that waits for a person. If the log holds the message already, the message is
// only acknowledged.
func (in *Intake) setAside(m *Message, reason string) *item {
	reason = cmp.Or(processlog.FitError(reason), "no reason given")
	in.cfg.Logger.Warn("intake: message is set aside for a person", "source", in.name, "message", m.ID, "reason", reason)
	return in.aside(m, aside, reason)
}

// encode sets the content of an item that is set aside. If the codec fails, for example because its keys are
// unavailable, the message is held.
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

// again handles entries of Config.Type. It does the work of take for one message.
func (in *Intake) again(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, m Message) error {
	m.Entry = e
	if m.SetAside != "" && e.Epoch == 0 { // after a requeue by a person the functions run
		return compensator.Permanent(errors.New(m.SetAside))
	}
	entry, err := in.entry(&m)
	if err != nil {
		return compensator.Permanent(err)
	}
	entry.IdempotencyKey = idempotencyKey(in.name, m.ID, "again") // e already has the message's own key
	receipt, err := in.c.Record(ctx, tx, entry)
	if refused(err) {
		return compensator.Permanent(err)
	}
	if err != nil || receipt.Duplicate() {
		return err
	}
	return in.call(ctx, tx, []*Message{&m})
}

// entry calls Config.Entry. A panic counts as an error, so the message is set aside.
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

// call runs Config.Work in a separate goroutine and waits for it. A panic and runtime.Goexit are failures. So one
// message can end neither the process nor Run.
func (in *Intake) call(ctx context.Context, tx *compensator.ScopedTx, messages []*Message) error {
	if in.cfg.Work == nil {
		return nil
	}
	ended := make(chan error, 1)
	go func() {
		err := error(new(compensator.PanicError)) // the result after runtime.Goexit
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

// work calls Config.Work. It returns a *workError if Work failed while the transaction still takes writes, and the
// database's error otherwise. If the transaction took too long, work also returns a *workError.
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
	if _, broken := in.c.Record(ctx, tx, compensator.NewEntry{BusinessType: in.cfg.Type}); broken != nil { // the transaction will be rolled back
		return fmt.Errorf("%w; Work: %v", broken, err) // the text only, because Work's error may wrap an error of another log
	}
	return &workError{err}
}
