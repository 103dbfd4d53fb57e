package memory

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

type storedRow struct {
	id        processlog.ID
	key       processlog.IdempotencyKey
	committed *version // nil until the insert commits
	current   *version // version that the holder sees
	holder    *Tx
	sharers   []*Tx         // transactions that found a duplicate here; no other transaction may write the row
	freed     chan struct{} // closed when a transaction in holder or sharers releases the row; nil unless a call waits
}

func (r *storedRow) seenBy(tx *Tx) *version {
	if tx != nil && r.holder == tx {
		return r.current
	}
	return r.committed
}

// freeFor reports whether the transaction tx may write the row now. A nil tx means a statement outside any transaction.
func (r *storedRow) freeFor(tx *Tx) bool {
	return r.sharedFor(tx) && !slices.ContainsFunc(r.sharers, func(sharer *Tx) bool { return sharer != tx })
}

// sharedFor reports whether the transaction tx may take a shared lock on the row now.
func (r *storedRow) sharedFor(tx *Tx) bool { return r.holder == nil || r.holder == tx }

func (r *storedRow) owners() []*Tx {
	if r.holder != nil {
		return []*Tx{r.holder}
	}
	return r.sharers
}

// waitsFor reports whether the transaction tx would cause a deadlock if it waited for the row.
func (r *storedRow) waitsFor(tx *Tx) bool {
	for _, owner := range r.owners() {
		if owner != tx && owner.waitsForRow != nil && (slices.Contains(owner.waitsForRow.owners(), tx) || owner.waitsForRow != r && owner.waitsForRow.waitsFor(tx)) {
			return true
		}
	}
	return false
}

func (r *storedRow) nextRelease() <-chan struct{} {
	if r.freed == nil {
		r.freed = make(chan struct{})
	}
	return r.freed
}

func (r *storedRow) release(tx *Tx) {
	if r.holder == tx {
		r.holder, r.current = nil, nil
	}
	r.sharers = slices.DeleteFunc(r.sharers, func(sharer *Tx) bool { return sharer == tx })
	if r.freed != nil {
		close(r.freed)
		r.freed = nil
	}
}

// rowStep is one write of a transaction. A rollback undoes the write, and a commit publishes it.
type rowStep struct {
	row           *storedRow
	before, after *version // before is nil for an insert
	audit         *processlog.AuditRecord
}

func (st rowStep) requireSuccessor() {
	wantVersion := uint64(0)
	if st.before != nil {
		wantVersion = st.before.entry.Version + 1
	}
	if gotVersion := st.after.entry.Version; gotVersion != wantVersion {
		panic(fmt.Sprintf("compensatortest/memory: entry %s goes to version %d, want %d", st.row.id, gotVersion, wantVersion))
	}
}

// version is the content of a row after one write. A stored version never changes, because each write stores a new
// copy.
type version struct {
	entry      processlog.Row // without the values in the fields below
	token      processlog.Token
	nextAt     int64 // unix ms
	leaseUntil int64 // in unix ms (0: no lease)
	faults     processlog.Faults
	result     *result                    // nil if none was ever stored
	attempts   []processlog.FailedAttempt // the oldest first; never changed, only replaced
}

type result struct {
	epoch uint32
	bytes []byte
}

func newVersion(id processlog.ID, draft processlog.Draft, now int64) *version {
	v := &version{entry: draft.Row(), token: draft.Token, nextAt: dueTime(now, draft.Delay)}
	v.entry.ID, v.entry.Content, v.entry.MaxAttempts = id, append([]byte{}, draft.Content...), draft.MaxAttempts
	v.entry.CreatedAt, v.entry.UpdatedAt = millisToTime(now), millisToTime(now)
	if len(draft.Headers) > 0 {
		_ = json.Unmarshal(draft.Headers, &v.entry.Headers) // An entry must run even if its headers are unreadable.
	}
	if draft.Done {
		v.entry.State, v.entry.EndedBy = processlog.Succeeded, processlog.EndedByComplete
	}
	if draft.Lease > 0 {
		v.entry.DeliveryCount, v.leaseUntil = 1, now+processlog.Millis(draft.Lease)
	}
	return v
}

// row returns a deep copy of the version as a Row. For a nil version it returns a zero Row.
func (v *version) row(now int64) processlog.Row {
	if v == nil {
		return processlog.Row{}
	}
	row := v.entry
	row.Token, row.DueIn, row.LeaseLeft = v.token, millisToDuration(v.nextAt-now), millisToDuration(v.leaseUntil-now)
	row.NextAt = millisToTime(v.nextAt)
	row.Content = bytes.Clone(v.entry.Content)
	row.Headers = maps.Clone(v.entry.Headers)
	return row
}

// fullRow returns the Row of the version, with the Faults and the Result of the entry.
func (v *version) fullRow(now int64) processlog.Row {
	row := v.row(now)
	if v != nil {
		row.Faults, row.Result = v.faults, v.validContent()
	}
	return row
}

// rowAtEnd returns the Row of the version as the method Ends needs it. If the entry has not ended, the Row has no
// content.
func (v *version) rowAtEnd(now int64) processlog.Row {
	row := v.row(now)
	if !row.State.Terminal() {
		row.Content = nil
	}
	row.Result = v.validContent()
	return row
}

func (v *version) validContent() []byte {
	if v.result == nil || v.entry.State != processlog.Succeeded || v.result.epoch != v.entry.Epoch {
		return nil
	}
	return bytes.Clone(v.result.bytes)
}

func (v *version) successor(token processlog.Token, now int64) *version {
	next := *v
	next.token = token
	next.entry.Version++
	next.entry.UpdatedAt = millisToTime(now)
	return &next
}

// withClaim returns the version that a claim writes. Usually a claim counts a delivery. If isOwn is true, the caller
// claims an entry that it has inserted with a lease. The insert has counted this lease as a delivery, so the claim does
// not count another one. If the count is 0 again, because the lease was released, the claim counts a delivery.
func (v *version) withClaim(token processlog.Token, lease time.Duration, now int64, isOwn bool) *version {
	next := v.successor(token, now)
	if !isOwn || next.entry.DeliveryCount == 0 {
		next.entry.DeliveryCount++
	}
	next.leaseUntil = now + processlog.Millis(lease)
	return next
}

func (v *version) withRelease(now int64) *version {
	next := v.successor(v.token, now)
	next.entry.DeliveryCount--
	next.leaseUntil = 0
	return next
}

func (v *version) withBlock(wait time.Duration, now int64) *version {
	next := v.withRelease(now)
	next.nextAt = dueTime(now, wait)
	return next
}

func (v *version) withWake(now int64) *version {
	next := v.successor(v.token, now)
	next.nextAt = now
	return next
}

// withOutcome returns the version that an outcome writes. A success outside the transaction of the handler keeps the
// counts of the row, because a later attempt may have recorded a failure since the claim.
func (v *version) withOutcome(outcome processlog.Outcome, inTx bool, token processlog.Token, now int64) *version {
	next := v.successor(token, now)
	isSuccess := outcome.To.IsSuccess()
	if inTx || !isSuccess {
		next.entry.ProcessCount, next.entry.CompensateCount = outcome.ProcessCount, outcome.CompensateCount
	}
	next.entry.State, next.entry.EndedBy = outcome.To, outcome.EndedBy
	next.entry.LastError = processlog.FitError(outcome.LastError)
	next.entry.DeliveryCount, next.leaseUntil = 0, 0
	if outcome.Faults != nil {
		next.faults = *outcome.Faults
	}
	if outcome.Result != nil && outcome.To == processlog.Succeeded {
		next.result = &result{next.entry.Epoch, bytes.Clone(outcome.Result)}
	}
	next.nextAt = now
	if !outcome.To.Terminal() {
		next.nextAt = dueTime(now, outcome.After)
	}
	if outcome.Attempt != nil && !isSuccess {
		next.addAttempt(*outcome.Attempt, outcome.Version)
	}
	return next
}

// addAttempt stores a failed attempt in the slot that AttemptSlot computes from the claimed version. The new attempt
// replaces the old attempt in this slot.
func (v *version) addAttempt(a processlog.FailedAttempt, claimedVersion uint64) {
	a.Version, a.Error, a.Instance = claimedVersion, processlog.FitError(a.Error), processlog.FitActor(a.Instance)
	a.DueAt, a.StartedAt, a.Took = millisToTime(a.DueAt.UnixMilli()), millisToTime(a.StartedAt.UnixMilli()), a.Took.Truncate(time.Millisecond)
	if a.NextAt = (time.Time{}); !v.entry.State.Terminal() {
		a.NextAt = millisToTime(v.nextAt)
	}
	keptAttempts := slices.DeleteFunc(slices.Clone(v.attempts), func(other processlog.FailedAttempt) bool {
		return processlog.AttemptSlot(other.Version) == processlog.AttemptSlot(claimedVersion)
	})
	v.attempts = append(keptAttempts, a)
}

func clearErrors(attempts []processlog.FailedAttempt) []processlog.FailedAttempt {
	cleared := slices.Clone(attempts)
	for i := range cleared {
		cleared[i].Error = ""
	}
	return cleared
}

// withChange returns the version that a change writes. The argument after is the result of Change.After.
func (v *version) withChange(after processlog.Row, now int64) *version {
	next := v.successor(after.Token, now)
	next.entry.State, next.entry.EndedBy = after.State, after.EndedBy
	next.entry.ProcessCount, next.entry.CompensateCount = after.ProcessCount, after.CompensateCount
	next.entry.DeliveryCount, next.entry.Epoch = after.DeliveryCount, after.Epoch
	next.entry.Version = after.Version
	if after.Erased && !v.entry.Erased { // Keep the time at which the entry ended.
		next.entry.Content, next.entry.Headers, next.entry.UserName, next.entry.LastError, next.entry.Erased = nil, nil, "", "", true
		next.result, next.attempts = nil, clearErrors(v.attempts)
		return next
	}
	if next.entry.LastError = after.LastError; after.Faults != (processlog.Faults{}) {
		next.faults = after.Faults
	}
	next.nextAt = dueTime(now, after.DueIn)
	if after.LeaseLeft == 0 {
		next.leaseUntil = 0
	}
	return next
}

func (v *version) isDue(now int64) bool    { return v.nextAt <= now }
func (v *version) isLeased(now int64) bool { return v.leaseUntil > now }

// scheduledEntry returns the entry with the time at which it can be claimed. This time is the due time or the end of
// the lease, whichever is later.
func (v *version) scheduledEntry(now int64) processlog.Scheduled {
	return processlog.Scheduled{ID: v.entry.ID, In: millisToDuration(max(v.nextAt, v.leaseUntil) - now), DueIn: millisToDuration(v.nextAt - now), NextAt: v.nextAt}
}

func compareDue(a, b processlog.Scheduled) int {
	return cmp.Or(cmp.Compare(a.NextAt, b.NextAt), a.ID.Compare(b.ID))
}

func millisToTime(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

func millisToDuration(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

// dueTime returns the due time of an entry in unix ms. The parameter now is the current time in unix ms, rounded down.
// So for a delay above 0, dueTime adds one millisecond, and the entry does not start early.
func dueTime(now int64, delay time.Duration) int64 {
	return now + processlog.DueAfter(delay)
}
