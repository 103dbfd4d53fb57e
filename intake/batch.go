package intake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/usererr"
	"github.com/compensator-go/compensator/observe"
)

type item struct {
	message   *Message
	entry     compensator.NewEntry
	kind      kind
	reason    string // why the message is set aside
	dense     bool
	isSettled bool
}

// condense makes the next encode produce fewer bytes.
func (it *item) condense() { it.dense, it.entry.Content = true, nil }

type kind int

const (
	meant  kind = iota // the entry that Config.Entry returned
	failed             // an entry of Config.Type that the log tries again
	aside              // an entry of Config.Type that waits for a person
)

// batch is the result of one call of Next while it is being settled.
type batch struct {
	*Intake
	event SettledEvent
	fatal error
}

// processBatch returns an error only if Run must end.
func (in *Intake) processBatch(works context.Context, messages []Message) error {
	b := &batch{Intake: in, event: SettledEvent{Source: in.name, Messages: len(messages)}}
	startedAt := time.Now()
	items := make([]*item, len(messages))
	for i := range messages {
		items[i] = in.prepare(&messages[i])
	}
	b.settle(works, items)
	var settledMessages, unsettled []Message
	for i, it := range items {
		if it.isSettled {
			settledMessages = append(settledMessages, messages[i])
		} else {
			unsettled = append(unsettled, messages[i])
		}
	}
	b.event.Took = time.Since(startedAt)
	in.counts.add(&b.event)
	notify(in, in.cfg.Observer.Settled, b.event)
	failpoint.Reach(failpoint.MessagesSettled)
	in.acknowledge(works, settledMessages)
	if len(unsettled) > b.event.Refused {
		in.release(works, unsettled)
	}
	return b.fatal
}

// prepare sends nothing to the database.
func (in *Intake) prepare(m *Message) *item {
	switch {
	case m.Lost:
		return in.setAside(m, "deleted from its source before it was recorded")
	case m.Deliveries > in.cfg.MaxDeliveries:
		return in.setAside(m, fmt.Sprintf("delivered %d times without success: it may have killed the processes that had it", m.Deliveries-1))
	}
	entry, err := in.entry(m)
	if err != nil {
		return in.setAside(m, "cannot be decoded: "+err.Error())
	}
	entry.IdempotencyKey = in.IdempotencyKey(m)
	return &item{message: m, entry: entry}
}

// settle retries until all items are in the log, or ctx ends.
func (b *batch) settle(ctx context.Context, items []*item) {
	for failures := 0; len(items) > 0 && ctx.Err() == nil && b.fatal == nil; {
		err := b.recordItems(ctx, items)
		var work *workError
		switch {
		case err == nil, ctx.Err() != nil:
			return
		case serverDown(err), sessionRefused(err):
			failures++
			b.waitAfter(len(items), err)
			pause(ctx, failures)
			continue
		case errors.As(err, &work), isRefusal(err): // This case must come before the check for ErrClosed, because Work may return the ErrClosed of another log.
			b.blame(ctx, items, err)
			return
		case errors.Is(err, compensator.ErrClosed):
			b.fatal = err
			return
		}
		unsettled := b.without(items, knownElsewhere(err))
		if len(unsettled) == len(items) {
			failures++
			b.waitAfter(len(items), err)
			if failures >= failuresUntilSuspect && b.suspect(ctx, items) {
				return
			}
			pause(ctx, failures)
		}
		items = unsettled
	}
}

// failuresUntilSuspect is needed because a statement that is too large for the server looks like an outage: it breaks
// the connection.
const failuresUntilSuspect = 4

// The method suspect looks for a message that the log cannot store. For that, it records parts of the batch in separate
// transactions. It returns true if it has handled all items. It returns false if it cannot tell whether the message or
// the database causes the error. The caller must then try the items again.
func (b *batch) suspect(ctx context.Context, items []*item) bool {
	it := items[0]
	if len(items) > 1 {
		b.halve(ctx, items)
		return true
	}
	err, proved := b.failsAlone(ctx, it)
	switch {
	case err == nil:
		return true
	case !proved:
		return false
	case it.kind != meant:
		b.condemn(ctx, it, err)
		return true
	}
	set := b.aside(it.message, failed, "")
	err, proved = b.failsAlone(ctx, set)
	if err != nil && proved {
		set.condense()
		err, proved = b.failsAlone(ctx, set)
	}
	switch {
	case err != nil && proved:
		b.condemn(ctx, set, err)
		return true
	case err != nil:
		return false
	}
	*it = *set
	b.cfg.Logger.Warn("intake: message is set aside, because the log refuses its entry", "source", b.name, "message", it.message.ID)
	return true
}

// failsAlone tests before and after the item whether the log accepts other entries. If only the item fails, proved is
// true: the message is the cause, and not the database.
func (b *batch) failsAlone(ctx context.Context, it *item) (err error, proved bool) {
	if err := b.trial(ctx); err != nil {
		return err, false
	}
	if err = b.recordItems(ctx, []*item{it}); err == nil || serverDown(err) || sessionRefused(err) {
		return err, false
	}
	// Also encode an empty message. If the codec cannot encode even that, the cause is the codec and not this message.
	return err, b.trial(ctx) == nil && b.encode(b.aside(new(Message), failed, "")) == nil
}

func isRefusal(err error) bool {
	var field *compensator.FieldError
	return errors.As(err, &field) || errors.Is(err, compensator.ErrOtherContent)
}

// The method without removes the items whose entry exists already, and counts them as duplicates. It returns the other
// items. The parameter existing is the set of the idempotency keys of the existing entries.
func (b *batch) without(items []*item, existing map[compensator.IdempotencyKey]bool) (remaining []*item) {
	for _, it := range items {
		if it.isSettled = existing[it.entry.IdempotencyKey]; it.isSettled {
			b.event.Duplicates++
		} else {
			remaining = append(remaining, it)
		}
	}
	return remaining
}

func (b *batch) blame(ctx context.Context, items []*item, err error) {
	if len(items) == 1 {
		b.condemn(ctx, items[0], err)
		return
	}
	var fault *faultError
	if errors.As(err, &fault) {
		if i := slices.IndexFunc(items, func(it *item) bool { return it.kind == meant && it.message.ID == fault.id }); i >= 0 {
			culprit := items[i]
			b.settle(ctx, slices.Concat(items[:i], items[i+1:]))
			b.settle(ctx, []*item{culprit})
			return
		}
	}
	b.halve(ctx, items)
}

func (b *batch) halve(ctx context.Context, items []*item) {
	middle := len(items) / 2
	b.settle(ctx, items[:middle])
	failpoint.Reach(failpoint.BatchHalved)
	b.settle(ctx, items[middle:])
}

func (b *batch) condemn(ctx context.Context, it *item, err error) {
	var work *workError
	switch {
	case it.kind != meant && !it.dense:
		it.condense()
	case it.kind != meant:
		b.event.Refused++
		b.cfg.Logger.Error("intake: message cannot be recorded in any form, and stays unacknowledged", "source", b.name, "message", it.message.ID, "err", err)
		return
	case errors.As(err, &work) && compensator.VerdictOf(err) != observe.Permanent:
		*it = *b.aside(it.message, failed, "")
		b.cfg.Logger.Warn("intake: message failed, and is set aside for the log to try again", "source", b.name, "message", it.message.ID, "err", err)
	case work == nil && errors.Is(err, compensator.ErrOtherContent):
		other := digest(it.entry.Content)
		*it = *b.setAside(it.message, err.Error())
		it.entry.IdempotencyKey = idempotencyKey(b.name, it.message.ID, other)
	default:
		*it = *b.setAside(it.message, err.Error())
	}
	b.settle(ctx, []*item{it})
	failpoint.Reach(failpoint.AsideSettled)
}

// recordItems repeats a transaction whose answer to COMMIT was lost.
func (b *batch) recordItems(works context.Context, items []*item) error {
	for failures := 0; ; failures++ {
		retryNow, err := b.recordOnce(works, items)
		if !retryNow || !pause(works, failures) {
			return err
		}
	}
}

// recordOnce returns retryNow if the answer to COMMIT was lost. Another transaction then finds out whether the entries
// exist.
func (b *batch) recordOnce(works context.Context, items []*item) (retryNow bool, err error) {
	ctx, cancel := context.WithTimeoutCause(works, b.cfg.Timeout, errSlow)
	defer cancel()
	entries := make([]compensator.NewEntry, len(items))
	for i, it := range items {
		if err := b.encode(it); err != nil {
			return false, err
		}
		entries[i] = it.entry
	}
	var receipt *compensator.Receipt
	err = b.c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) (err error) {
		if receipt, err = b.c.Record(ctx, tx, entries...); err != nil {
			return err
		}
		if err = b.work(ctx, tx, freshItems(items, receipt)); err != nil {
			return err
		}
		failpoint.Reach(failpoint.MessagesWritten)
		return nil
	})
	var work *workError
	if receipt != nil && !errors.As(err, &work) && errors.Is(err, compensator.ErrCommitUnknown) {
		return b.resolve(works, items, receipt), err // The next transaction may start only after this one has ended on the server.
	}
	if err != nil {
		return false, err
	}
	for i, it := range items {
		b.recordSettled(it, receipt.Entries[i].Duplicate)
	}
	return false, nil
}

func (b *batch) recordSettled(it *item, duplicate bool) {
	it.isSettled = true
	switch {
	case duplicate:
		b.event.Duplicates++
	case it.kind == aside:
		b.event.SetAside++
	case it.kind == failed:
		b.event.Failed++
	default:
		b.event.Recorded++
	}
}

// freshItems returns the messages for Config.Work: those whose entries are new.
func freshItems(items []*item, receipt *compensator.Receipt) (messages []*Message) {
	for i, it := range items {
		if it.kind == meant && !receipt.Entries[i].Duplicate {
			messages = append(messages, it.message)
		}
	}
	return messages
}

// resolve waits until the server has ended a transaction whose answer to COMMIT was lost. It returns false if ctx has
// ended.
func (b *batch) resolve(ctx context.Context, items []*item, receipt *compensator.Receipt) bool {
	key := items[0].entry.IdempotencyKey
	for i, recorded := range receipt.Entries {
		if !recorded.Duplicate {
			key = items[i].entry.IdempotencyKey
			break
		}
	}
	for failures := 1; ; failures++ {
		_, err := b.c.Resolve(ctx, key)
		if err == nil || errors.Is(err, compensator.ErrNotFound) {
			return true
		}
		b.waitAfter(len(items), err)
		if !pause(ctx, failures) {
			return false
		}
	}
}

// acknowledge gives up after three failures. The source then delivers the messages again, and the Intake finds their
// entries in the log.
func (in *Intake) acknowledge(ctx context.Context, done []Message) {
	for failures := 1; len(done) > 0; failures++ {
		err := usererr.Safe(in.source.Ack(ctx, done))
		if err == nil {
			failpoint.Reach(failpoint.MessagesAcknowledged)
			return
		}
		in.waitAfter(len(done), failure("acknowledge to "+in.name, err))
		if failures == 3 || !pause(ctx, failures) {
			return
		}
	}
}

func (in *Intake) release(ctx context.Context, left []Message) {
	r, ok := in.source.(releaser)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	if err := r.release(ctx, left); err != nil {
		in.cfg.Logger.Debug("intake: messages could not be given back", "source", in.name, "err", err)
	}
}
