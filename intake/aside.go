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

// The method aside returns an item that records the message m as an entry of Config.Type. With the kind failed, the log
// tries the entry again after a delay. With the kind aside, the entry waits for a person, and the parameter reason says
// why.
func (in *Intake) aside(m *Message, k kind, reason string) *item {
	it := &item{message: m, kind: k, reason: reason, entry: compensator.NewEntry{BusinessType: in.cfg.Type}}
	it.entry.IdempotencyKey = in.IdempotencyKey(m)
	if k == failed {
		it.entry.Delay = in.firstDelay()
	}
	return it
}

// firstDelay recovers from a panic of Aside.Retry, which is user code.
func (in *Intake) firstDelay() (delay time.Duration) {
	defer func() {
		if recover() != nil {
			delay = longestPause
		}
	}()
	return min(max(0, in.cfg.Aside.Retry(1)), processlog.MaxDelay)
}

// setAside logs a warning, and returns an item of kind aside. If the log already has an entry of the message, the
// Intake does not record this item, and only acknowledges the message.
func (in *Intake) setAside(m *Message, reason string) *item {
	reason = cmp.Or(processlog.FitError(reason), "no reason given")
	in.cfg.Logger.Warn("intake: message is set aside for a person", "source", in.name, "message", m.ID, "reason", reason)
	return in.aside(m, aside, reason)
}

// encode may succeed later, because the codec may lack its keys for a while.
func (in *Intake) encode(it *item) (err error) {
	if it.kind == meant || it.entry.Content != nil {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = &compensator.PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	copied := *it.message
	copied.SetAside, copied.dense = it.reason, it.dense
	if it.entry.Content, err = in.cfg.Aside.Codec.Marshal(copied); err != nil {
		return failure("encode message "+copied.ID, usererr.Of(err))
	}
	return nil
}

// The method retry is the handler of Config.Type. It processes a message again that failed, or whose entry a person has
// requeued.
func (in *Intake) retry(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, m Message) error {
	m.Entry = e
	// A message that was set aside waits until a person requeues its entry. Epoch 0 means that nobody has requeued the
	// entry yet, so do not process the message.
	if m.SetAside != "" && e.Epoch == 0 {
		return compensator.Permanent(errors.New(m.SetAside))
	}
	entry, err := in.entry(&m)
	if err != nil {
		return compensator.Permanent(err)
	}
	entry.IdempotencyKey = idempotencyKey(in.name, m.ID, "again") // Entry e has the key of the message itself.
	receipt, err := in.c.Record(ctx, tx, entry)
	if isRefusal(err) {
		return compensator.Permanent(err)
	}
	if err != nil || receipt.Duplicate() {
		return err
	}
	return in.callHandler(ctx, tx, []*Message{&m})
}

// entry returns a panic of Config.Entry as an error, so the message is set aside.
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

// callHandler runs Work in a goroutine of its own, so that its panic or runtime.Goexit stops neither the process nor
// Run.
func (in *Intake) callHandler(ctx context.Context, tx *compensator.ScopedTx, messages []*Message) error {
	if in.cfg.Work == nil {
		return nil
	}
	result := make(chan error, 1)
	go func() {
		err := error(new(compensator.PanicError)) // This error stays if Work calls runtime.Goexit.
		defer func() {
			if p := recover(); p != nil {
				err = &compensator.PanicError{Value: p, Stack: debug.Stack()}
			}
			result <- err
		}()
		err = usererr.Of(in.cfg.Work(ctx, tx, messages))
	}()
	return <-result
}

// work returns a *workError if Work failed while the transaction still accepts writes, or if the transaction took too
// long.
func (in *Intake) work(ctx context.Context, tx *compensator.ScopedTx, messages []*Message) error {
	if len(messages) == 0 {
		return nil
	}
	err := in.callHandler(ctx, tx, messages)
	if err == nil {
		return nil
	}
	if context.Cause(ctx) == errSlow {
		return &workError{errors.Join(errSlow, err)}
	}
	if _, broken := in.c.Record(ctx, tx, compensator.NewEntry{BusinessType: in.cfg.Type}); broken != nil { // This Record only tests whether the transaction accepts writes. It is rolled back.
		return fmt.Errorf("%w; Work: %v", broken, err) // Work's error may wrap an error of another log, so use only its text.
	}
	return &workError{err}
}
