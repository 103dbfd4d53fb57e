package compensator

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/usererr"
	"github.com/compensator-go/compensator/processlog"
)

// Options say how the library runs an entry. With the zero value, the entry runs at once after the commit.
type Options struct {
	// IdempotencyKey identifies the business event. If you record the same key twice, the second Record changes
	// nothing, and its receipt says Duplicate. Put the type into the key, for example "close-42" and "notify-42". If
	// IdempotencyKey is empty, Record generates a unique, time-ordered key. A key has at most 191 characters and no
	// trailing space. A key prevents a second entry until the library deletes the first entry: see Config.Keep.
	IdempotencyKey IdempotencyKey

	Delay time.Duration // time until the entry is due. By the database's clock, the entry never starts before this time has passed
	At    time.Time     // time at which the entry is due. Set Delay or At, not both. Record turns At into a delay by the clock of this process

	// BatchID, BusinessID, BusinessExtID and UserID help people to find the entry. Each has at most 64 characters. The
	// library only shows these four values and searches for them. BatchID has one more use: HandlerConfig.AfterBatch
	// returns a BatchID, and then makes its entry wait until all entries with this BatchID have ended.
	BatchID       string // id of a group of entries, for example of all entries of one upload. A BatchID has no trailing space
	BusinessID    string // id of the thing that the work changes, for example an order id
	BusinessExtID string // a second id of the thing that the work changes, for example the id of a payment at a partner
	UserID        string // the user for whom the work is done
	UserName      string // name of the user for whom the work is done. Erase removes the name

	// Headers are stored with the entry, and stay when a person requeues the entry. Entry.Headers, the message of a
	// relay, and Propagator.Extract get these headers. As JSON, Headers and the headers of the propagator take at most
	// 2,048 bytes together. All headers must be valid UTF-8. Record refuses a name that both Headers and the propagator
	// set.
	Headers map[string]string

	MaxAttempts     int  // MaxAttempts overrides HandlerConfig.MaxAttempts for this entry. If MaxAttempts is 0, each process uses its own HandlerConfig.MaxAttempts when an attempt ends
	FailOnDuplicate bool // FailOnDuplicate makes Record return ErrDuplicate if the key exists already. Record still records the other entries of the call, and tx stays usable
}

// NewEntry is an entry to record. Type.Entry builds one from a typed value.
type NewEntry struct {
	BusinessType string // names the handler; at most 64 characters
	Content      []byte // at most Config.MaxContent bytes. Record copies it
	Options

	alreadyDone     bool  // the caller of Record does the work itself, so the entry is recorded as succeeded
	forPeriodicSlot bool  // whether the entry is for a slot of a periodic type. If it is true and an entry with the same key exists, Record accepts the existing entry
	encodeErr       error // the error with which Type.Entry failed
}

// Type records entries of one business type. The compiler checks the type of their content. Its methods are safe for
// concurrent use.
type Type[T any] struct {
	c     *Compensator
	name  string
	codec Codec
}

// Name returns the business type.
func (t *Type[T]) Name() string { return t.name }

// Record writes one entry through tx: see Compensator.Record.
func (t *Type[T]) Record(ctx context.Context, tx Tx, v T, opts Options) (*Receipt, error) {
	return t.c.Record(ctx, tx, t.Entry(v, opts))
}

// Entry returns an entry with the content v, for Compensator.Record, which can record several entries at once. If v cannot be
// encoded, Compensator.Record returns a *FieldError for the entry.
func (t *Type[T]) Entry(v T, opts Options) NewEntry {
	content, err := t.encode(v)
	return NewEntry{BusinessType: t.name, Content: content, Options: opts, encodeErr: err}
}

func (t *Type[T]) encode(v T) (content []byte, err error) {
	defer refusePanic("content", &err)
	if content, err = t.codec.Marshal(v); err != nil {
		err = usererr.Safe(err)
		return nil, &FieldError{Field: "content", Reason: fmt.Sprintf("encode %T: %v", v, err)}
	}
	return content, nil
}

// Once makes a consumer idempotent. Once reports whether this transaction is the first one to do a piece of work. The
// parameter id identifies the work: it can be the id of a message. If Once returns true, do the work in tx. If Once
// returns false, an earlier transaction has done the work: commit tx, and acknowledge the message.
//
// Once records an entry that has succeeded already. The entry holds v for people to see. The entry prevents a second
// run of the work for as long as the log keeps the entry: see TypeConfig.Keep. If two transactions use the same id at
// the same time, the second transaction waits for the end of the first one. If an entry with this id waits, runs or is
// dead, Once completes this entry as CompleteTx does. If an entry with this id has ended without success, Once returns
// a *StateError. All other errors are errors of Record. After any error, roll back.
func (t *Type[T]) Once(ctx context.Context, tx Tx, id IdempotencyKey, v T) (first bool, err error) {
	entry := t.Entry(v, Options{IdempotencyKey: id})
	entry.alreadyDone = true
	if id == "" {
		entry.encodeErr = errors.Join(entry.encodeErr, &FieldError{Field: "idempotency key", Reason: "is empty"})
	}
	allProofs.noteOnce(proofKey{t.c.fingerprint, id})
	receipt, err := t.c.Record(ctx, tx, entry)
	if err != nil {
		return false, err
	}
	switch recorded := receipt.Entries[0]; {
	case !recorded.Duplicate:
		return true, nil
	case recorded.State == Succeeded:
		return false, nil
	}
	_, err = t.CompleteTx(ctx, tx, id)
	if errors.Is(err, ErrAlreadySucceeded) { // the entry succeeded after Record had read its state
		return false, nil
	}
	return err == nil, err
}

// Record writes entries inside the caller's open transaction. Record neither begins nor ends this transaction. The
// entries exist if, and only if, the transaction commits. tx is any handle with ExecContext and QueryContext. Without
// an open transaction Record returns ErrNoTransaction. Record checks all entries before it sends anything.
//
// After any error except ErrDuplicate, roll back. Also roll back after a *FieldError, although nothing was sent. A
// Connector and InTx enforce the rollback: a commit fails and returns ErrNotRecorded. To continue without the entry,
// roll back to a savepoint that was set before the call.
//
// An idempotency key may exist already, in the table or earlier in the same call. Then the event was recorded before,
// and Record writes no second entry. The following rules say whether this is an error:
//
//   - By default, this is no error: see Recorded.
//   - With Options.FailOnDuplicate, Record returns ErrDuplicate.
//   - With TypeConfig.RefuseOtherContent, Record returns ErrOtherContent if the contents differ.
//   - If the key belongs to an entry of another type, Record always returns an *OtherTypeError. That entry is about
//     another event, so the event of this call would stay without an entry.
//
// Record reports all invalid entries at once, each with a *FieldError. After Close, Record returns ErrClosed.
func (c *Compensator) Record(ctx context.Context, tx Tx, entries ...NewEntry) (*Receipt, error) {
	if c.closed() {
		return nil, c.refuse(ctx, tx, ErrClosed)
	}
	rec, err := c.newRecording(ctx, entries)
	if err != nil {
		return nil, c.refuse(ctx, tx, err)
	}
	if err := rec.RunRecorders(); err != nil {
		return nil, c.refuse(ctx, tx, err)
	}
	ctx, inquiry := c.inquire(ctx, tx, nil)
	watch, err := c.enlist(ctx, tx)
	if err != nil {
		return nil, preventCommit(watch, describeNoTransaction(tx, err))
	}
	if watch != nil {
		rec.Reserve() // a rollback must free the reserved slots, and watch reports the rollback
	}
	receipt, err := rec.insert(ctx, tx, entries, watch)
	watch = inquiry.endOr(watch)
	if err != nil {
		rec.RolledBack()
		return nil, preventCommit(watch, describeNoTransaction(tx, err))
	}
	failpoint.Reach(failpoint.EntryInserted)
	if watch != nil {
		watch.OnEnd(receipt.transactionEnded)
	} else {
		rec.AwaitCommit()
	}
	rec.NotifyRecorded(ctx)
	return receipt, receipt.refuseDuplicates(entries)
}

func (c *Compensator) refuse(ctx context.Context, tx Tx, err error) error {
	ctx, inquiry := c.inquire(ctx, tx, nil)
	watch, _ := c.enlist(ctx, tx)
	if watch == nil && inquiry != nil {
		// tx may wrap a ScopedTx, and the library has sent no statement that would show this. So send a statement with
		// Probe. If the statement reaches a ScopedTx, the ScopedTx enters itself into the inquiry, which ctx carries.
		_ = c.store.Probe(ctx, tx)
	}
	return preventCommit(inquiry.endOr(watch), err)
}

// preventCommit makes the commit of a transaction fail, because an entry could not be written.
func preventCommit(watch transactionEnd, err error) error {
	if watch != nil {
		watch.Taint(err)
	}
	return err
}

type recording struct {
	engine.Recording
	c         *Compensator
	positions []entryPosition // one for each entry of the call
	receipt   Receipt

	oneEntry struct { // memory for the usual call, which has one entry
		places  [1]entryPosition
		drafts  [1]processlog.Draft
		entries [1]Recorded
	}
}

type entryPosition struct {
	draftIndex  int  // index in Drafts
	repeatsKey  bool // an earlier entry of this call has the same key
	sameContent bool // the earlier entry with the same key also has the same content
}

func (c *Compensator) newRecording(ctx context.Context, entries []NewEntry) (*recording, error) {
	propagated, err := c.headers(ctx)
	var problems []error
	if err != nil {
		problems = append(problems, err)
	}
	rec := &recording{c: c}
	rec.Drafts = slices.Grow(rec.oneEntry.drafts[:0], len(entries))
	rec.positions = slices.Grow(rec.oneEntry.places[:0], len(entries))[:len(entries)]
	token := c.engine.LeaseToken() // The entries may be inserted with a lease of this process.
	draftOfKey := make(map[IdempotencyKey]int, len(entries))
	for i, e := range entries {
		draft, err := c.draft(e)
		stored, badHeaders := propagated.merge(e.Headers)
		if err == nil {
			err = c.seal(&draft)
		}
		if err = errors.Join(err, badHeaders); err != nil {
			problems = append(problems, nameEntry(i, len(entries), err))
			continue
		}
		draft.Headers, draft.Token = stored, token
		if first, found := draftOfKey[draft.IdempotencyKey]; found {
			rec.positions[i] = entryPosition{draftIndex: first, repeatsKey: true, sameContent: bytes.Equal(draft.Content, rec.Drafts[first].Content)}
			continue
		}
		draftOfKey[draft.IdempotencyKey] = len(rec.Drafts)
		rec.positions[i].draftIndex = len(rec.Drafts)
		rec.Drafts = append(rec.Drafts, draft)
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	rec.Attach(c.engine)
	return rec, nil
}

func nameEntry(i, n int, err error) error {
	if n == 1 {
		return err
	}
	return fmt.Errorf("entry %d of %d: %w", i+1, n, err)
}

// refusePanic returns an error for a panic, because the caller could recover from a panic and commit without the entry.
func refusePanic(field string, err *error) {
	if p := recover(); p != nil {
		*err = &FieldError{Field: field, Reason: "panicked: " + usererr.PanicText(p)}
	}
}

func (c *Compensator) draft(e NewEntry) (processlog.Draft, error) {
	delay, err := e.delay()
	if e.IdempotencyKey == "" {
		e.IdempotencyKey = newIdempotencyKey()
	}
	problems := append(e.problems(c.cfg.MaxContent), err, e.encodeErr)
	e.Content = append([]byte(nil), e.Content...) // the caller may reuse its buffer before the entry is sent
	return processlog.Draft{
		IdempotencyKey: e.IdempotencyKey, BusinessType: e.BusinessType, BatchID: e.BatchID, BusinessID: e.BusinessID, BusinessExtID: e.BusinessExtID,
		UserID: e.UserID, UserName: e.UserName, Content: e.Content, MaxAttempts: e.MaxAttempts, Delay: delay, Done: e.alreadyDone,
	}, errors.Join(problems...)
}

const endsWithSpace = "ends with a space, which databases ignore when they compare"

func (e *NewEntry) problems(maxContent int) (problems []error) {
	refuse := func(field, reason string) { problems = append(problems, &FieldError{Field: field, Reason: reason}) }
	if err := validateType(e.BusinessType); err != nil {
		problems = append(problems, err)
	}
	if strings.HasSuffix(string(e.IdempotencyKey), " ") {
		refuse("idempotency key", endsWithSpace)
	}
	if strings.HasSuffix(e.BatchID, " ") {
		refuse("batch id", endsWithSpace)
	}
	for _, f := range []struct {
		name, value string
		limit       int
	}{
		{"idempotency key", string(e.IdempotencyKey), processlog.MaxIdempotencyKey}, {"batch id", e.BatchID, processlog.MaxName}, {"business id", e.BusinessID, processlog.MaxName},
		{"business ext id", e.BusinessExtID, processlog.MaxName}, {"user id", e.UserID, processlog.MaxName}, {"user name", e.UserName, processlog.MaxName},
	} {
		if reason := textProblem(f.value, f.limit); reason != "" {
			refuse(f.name, reason)
		}
	}
	if len(e.Content) > maxContent {
		refuse("content", fmt.Sprintf("%d bytes, at most %d", len(e.Content), maxContent))
	}
	if e.MaxAttempts < 0 || e.MaxAttempts > processlog.MaxCount {
		refuse("max attempts", fmt.Sprintf("%d: want 0 (the type's) or more", e.MaxAttempts))
	}
	return problems
}

func (c *Compensator) seal(draft *processlog.Draft) (err error) {
	codec := c.types.sealer(draft.BusinessType)
	if codec == nil {
		return nil
	}
	defer refusePanic("content", &err)
	if draft.Content, err = codec.Seal(draft.Content, draft.BusinessType, string(draft.IdempotencyKey)); err != nil {
		err = usererr.Safe(err)
		return &FieldError{Field: "content", Reason: fmt.Sprintf("seal: %v", err)}
	}
	if len(draft.Content) > c.cfg.MaxContent {
		return &FieldError{Field: "content", Reason: fmt.Sprintf("%d bytes when sealed, at most %d", len(draft.Content), c.cfg.MaxContent)}
	}
	return nil
}

func (o Options) delay() (time.Duration, error) {
	delay := o.Delay
	if !o.At.IsZero() {
		if o.Delay != 0 {
			return 0, &FieldError{Field: "At", Reason: "and Delay are both given: want one"}
		}
		delay = max(0, time.Until(o.At))
	}
	if delay < 0 || delay > processlog.MaxDelay {
		return 0, &FieldError{Field: "delay", Reason: fmt.Sprintf("%v: want 0 to 100 years", delay)}
	}
	return time.Duration(processlog.Millis(delay)) * time.Millisecond, nil
}

// validateType checks a name that becomes part of Redis keys and log lines.
func validateType(name string) error {
	reason := textProblem(name, processlog.MaxName)
	switch {
	case name == "":
		reason = "is empty"
	case strings.TrimSpace(name) != name:
		reason = "starts or ends with a space"
	case strings.ContainsFunc(name, unicode.IsControl):
		reason = "holds a control character"
	}
	if reason != "" {
		return &FieldError{Field: "business type", Reason: reason}
	}
	return nil
}

func textProblem(s string, limit int) string {
	switch {
	case !utf8.ValidString(s):
		return "is not valid UTF-8"
	case utf8.RuneCountInString(s) > limit:
		return fmt.Sprintf("%d characters, at most %d", utf8.RuneCountInString(s), limit)
	case strings.ContainsRune(s, 0):
		return "holds a NUL character"
	}
	return ""
}

func (rec *recording) insert(ctx context.Context, tx Tx, entries []NewEntry, watch transactionEnd) (*Receipt, error) {
	var inserted []processlog.Inserted
	if len(rec.Drafts) > 0 {
		var err error
		if inserted, err = rec.c.store.Insert(ctx, tx, rec.Drafts, watch != nil && watch.FullyWatched()); err != nil {
			return nil, err
		}
	}
	rec.SetInserted(inserted)
	if err := rec.RunRecorderWrites(ctx, tx); err != nil {
		return nil, err
	}
	rec.fillReceipt()
	return &rec.receipt, rec.receipt.refuseOtherEvents(entries)
}

// newIdempotencyKey draws a UUID of version 7 (RFC 9562). It is unique and ordered by time, so new keys are added at
// the end of the unique index.
func newIdempotencyKey() IdempotencyKey {
	var b [16]byte
	_, _ = rand.Read(b[:])
	binary.BigEndian.PutUint64(b[:8], uint64(time.Now().UnixMilli())<<16|uint64(b[6])<<8|uint64(b[7]))
	b[6] = b[6]&0x0f | 0x70
	b[8] = b[8]&0x3f | 0x80
	var text [36]byte
	hex.Encode(text[0:], b[0:4])
	hex.Encode(text[9:], b[4:6])
	hex.Encode(text[14:], b[6:8])
	hex.Encode(text[19:], b[8:10])
	hex.Encode(text[24:], b[10:16])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return IdempotencyKey(text[:])
}
