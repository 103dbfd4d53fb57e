package compensator

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/sleep"
	"github.com/compensator-go/compensator/internal/usererr"
	"github.com/compensator-go/compensator/internal/verdict"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// Get reads one committed entry, with its content. It returns ErrNotFound if there is none. Any other error comes from
// the database.
func (c *Compensator) Get(ctx context.Context, ref Ref) (*Entry, error) {
	row, err := c.row(ctx, ref)
	if err != nil {
		return nil, err
	}
	return c.entry(&row), nil
}

func (c *Compensator) row(ctx context.Context, ref Ref) (processlog.Row, error) {
	id, err := c.idOf(ctx, ref)
	if err != nil {
		return processlog.Row{}, err
	}
	rows, err := c.store.Load(ctx, []EntryID{id})
	if err != nil {
		return processlog.Row{}, err
	}
	if len(rows) == 0 {
		return processlog.Row{}, notFound(ref)
	}
	return rows[0], nil
}

// idOf returns the id of an entry. It sends a statement only if ref is an idempotency key, and returns ErrNotFound if
// no entry has this key.
func (c *Compensator) idOf(ctx context.Context, ref Ref) (EntryID, error) {
	if id, isID := ref.(EntryID); isID {
		return id, nil
	}
	key, _ := ref.(IdempotencyKey)
	ids, err := c.store.IDs(ctx, nil, []IdempotencyKey{key})
	if err != nil {
		return EntryID{}, err
	}
	id, found := ids[key]
	if !found {
		return id, notFound(ref)
	}
	return id, nil
}

func notFound(ref Ref) error { return fmt.Errorf("%v: %w", ref, ErrNotFound) }

func (c *Compensator) entry(row *processlog.Row) *Entry {
	return entryOf(row, c.types.codec(row.BusinessType))
}

// Batch is the set of entries that were recorded with the same Options.BatchID. Its methods are safe for concurrent use.
type Batch struct {
	c  *Compensator
	id string
}

// Batch returns the batch with an id. The id must not be empty. Batch sends no statement.
func (c *Compensator) Batch(id string) *Batch { return &Batch{c: c, id: id} }

// Progress says how many entries of a batch have ended, and in which states they are. The zero value means that the batch
// has no committed entry.
type Progress struct {
	Total     int           // entries that were counted
	Done      int           // entries in a terminal state
	Succeeded int           // entries in state Succeeded
	Dead      int           // entries in state Dead, which wait for a person. Done counts them, too
	ByState   map[State]int // number of entries of each state; states without entries are missing
	More      bool          // the batch has more entries than were counted
}

// Finished reports whether all entries of the batch are in a terminal state.
func (p Progress) Finished() bool { return p.Total > 0 && p.Done == p.Total && !p.More }

// Progress counts the committed entries of the batch. It counts up to 1,000,000 entries of each type and state. An
// invalid id is a *FieldError. Any other error comes from the database.
func (b *Batch) Progress(ctx context.Context) (Progress, error) { return b.progress(ctx, nil) }

// ProgressTx counts like Progress, but reads through tx. Use it in a transactional handler, because the pool may have
// no second connection for the handler. It returns ErrNoTransaction if tx is nil.
func (b *Batch) ProgressTx(ctx context.Context, tx Tx) (Progress, error) {
	if tx == nil {
		return Progress{}, ErrNoTransaction
	}
	return b.progress(ctx, tx)
}

func (b *Batch) progress(ctx context.Context, tx Tx) (Progress, error) {
	p := Progress{ByState: make(map[State]int)}
	if err := validateBatch(b.id); err != nil {
		return p, err
	}
	counts, err := b.c.store.Count(ctx, tx, processlog.CountFilter{BatchID: b.id, AtMost: 1_000_000})
	for _, count := range counts {
		p.Total += count.N
		p.ByState[count.State] += count.N
		p.More = p.More || count.More
		if count.State.Terminal() {
			p.Done += count.N
		}
	}
	p.Succeeded, p.Dead = p.ByState[Succeeded], p.ByState[Dead]
	return p, err
}

func validateBatch(id string) error {
	switch {
	case id == "":
		return &FieldError{Field: "batch id", Reason: "is empty"}
	case strings.HasSuffix(id, " "):
		return &FieldError{Field: "batch id", Reason: endsWithSpace}
	}
	return nil
}

// Wait waits until each entry of the batch has ended or is dead. Then it returns their counts. It reads the index of
// the batch at first every 20 ms, later less often, and in the end every second. When ctx ends, Wait returns
// context.Cause(ctx). It returns ErrNotFound if no entry was recorded with this id. An invalid id is a *FieldError.
//
// Wait is for a caller or a test. Use HandlerConfig.AfterBatch for work that must follow a batch even if this process
// dies.
func (b *Batch) Wait(ctx context.Context) (Progress, error) {
	p, err := b.wait(ctx)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx) // Return the cause of ctx also if a statement failed because ctx had ended.
	}
	return p, err
}

func (b *Batch) wait(ctx context.Context) (Progress, error) {
	for pause, cursor := 20*time.Millisecond, ""; ; {
		open, next, err := b.c.firstOpen(ctx, b.id, cursor)
		if err != nil {
			return Progress{}, err
		}
		if open.IsZero() {
			p, err := b.Progress(ctx)
			switch {
			case err == nil && p.Total == 0:
				return p, fmt.Errorf("batch %q: %w", b.id, ErrNotFound)
			case err != nil || p.Done == p.Total:
				return p, err
			}
			next = "" // Begin again: a person may have requeued an entry during the wait, and more entries may have been recorded.
		}
		if pause, err = b.c.awaitEnd(ctx, open, pause); err != nil {
			return Progress{}, err
		}
		cursor = next
	}
}

// firstOpen searches a batch, from a cursor on, for the first entry that has not ended and is not dead. It returns the
// id of this entry, and the cursor with which the search continues after this entry. If there is no such entry, both
// results are zero.
func (c *Compensator) firstOpen(ctx context.Context, batchID, cursor string) (EntryID, string, error) {
	if err := validateBatch(batchID); err != nil {
		return EntryID{}, "", err
	}
	for {
		page, err := c.store.List(ctx, processlog.Filter{BatchID: batchID, States: []State{Pending, Retrying, Compensating}, Limit: 1, Cursor: cursor})
		switch {
		case err != nil:
			return EntryID{}, "", err
		case len(page.Rows) > 0:
			return page.Rows[0].ID, page.Next, nil
		case page.Next == "":
			return EntryID{}, "", nil
		}
		cursor = page.Next
	}
}

// awaitEnd reads an entry again and again until the entry has ended or is gone. It pauses before each read. The
// parameter pause is the first pause, and each further pause is longer, up to a second. awaitEnd returns the pause to
// use for the next entry.
func (c *Compensator) awaitEnd(ctx context.Context, id EntryID, pause time.Duration) (time.Duration, error) {
	for {
		if !sleep.For(ctx, pause) {
			return 0, context.Cause(ctx)
		}
		pause = min(pause*3/2, time.Second)
		at, err := c.store.Versions(ctx, []EntryID{id})
		if err != nil || len(at) == 0 || at[0].State.Terminal() {
			return pause, err
		}
	}
}

// afterBatch returns a check that makes the entry wait until the batch has ended. The wait costs no attempt, and
// MaxWait does not limit it.
func (c *Compensator) afterBatch(batchOf func(e *Entry) string, codec Codec) func(context.Context, *processlog.Row) error {
	return func(ctx context.Context, row *processlog.Row) error {
		err := c.checkBatch(ctx, row, batchOf(c.handlerEntry(row, codec)))
		if err != nil {
			return usererr.Of(verdict.LibraryWait(err))
		}
		return nil
	}
}

func (c *Compensator) checkBatch(ctx context.Context, row *processlog.Row, batchID string) error {
	switch {
	case batchID == "":
		return nil
	case strings.HasSuffix(batchID, " "):
		return Permanent(&FieldError{Field: "AfterBatch", Reason: fmt.Sprintf("%q %s", batchID, endsWithSpace)})
	case batchID == strings.TrimRight(row.BatchID, " "): // another program may have written this row with trailing spaces
		return Permanent(&FieldError{Field: "AfterBatch", Reason: fmt.Sprintf("%q is the entry's own batch: it would wait for itself", batchID)})
	}
	return c.snoozeUntilEnded(ctx, row, batchID)
}

// snoozeUntilEnded snoozes an entry that must run after a batch: see HandlerConfig.AfterBatch. If the batch still has
// an open entry, snoozeUntilEnded returns a Snooze. The snooze lasts an eighth of the age that the snoozed entry has
// now, but at least 500 ms and at most a minute. After the end of the batch, the snoozed entry runs as soon as its
// current snooze is over.
func (c *Compensator) snoozeUntilEnded(ctx context.Context, row *processlog.Row, batchID string) error {
	open, _, err := c.firstOpen(ctx, batchID, "")
	if err != nil {
		return Unavailable(fmt.Errorf("look at batch %q: %w", batchID, err))
	}
	if !open.IsZero() {
		return Snooze(min(max(row.Age()/8, 500*time.Millisecond), time.Minute))
	}
	failpoint.Reach(failpoint.BatchEnded)
	return nil
}

// Health asks the database and the queue at the same time. Health waits for the answer of the database until ctx ends.
// It waits for the answer of the queue for half of the time that ctx has left, and for at most 2 s. Health also works
// while Run does not run.
func (c *Compensator) Health(ctx context.Context) observe.Health {
	h := c.features.Health(ctx)
	h.History, h.OpenBreakers, h.Limited, h.Paused = c.features.Lost(), c.features.OpenBreakers(), c.features.Limited(), c.features.Paused()
	return h
}
