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

// storedRow is one row: the version everybody reads, and the one of the transaction that holds it.
type storedRow struct {
	id        processlog.ID
	key       processlog.IdempotencyKey
	committed *version // nil: inserted and not committed yet
	working   *version // the holder's
	holder    *Tx
	sharers   []*Tx         // found it to be a duplicate of theirs; nobody else may write it
	released  chan struct{} // nil unless somebody waits: closed when the holder or a sharer lets go
}

// seenBy is the version that tx works on, or that everybody reads.
func (r *storedRow) seenBy(tx *Tx) *version {
	if tx != nil && r.holder == tx {
		return r.working
	}
	return r.committed
}

// freeFor reports whether tx, or a statement of its own when that is nil, may write the row.
func (r *storedRow) freeFor(tx *Tx) bool {
	return r.sharedFor(tx) && !slices.ContainsFunc(r.sharers, func(sharer *Tx) bool { return sharer != tx })
}

// sharedFor reports whether tx may read the row and keep it as it is.
func (r *storedRow) sharedFor(tx *Tx) bool { return r.holder == nil || r.holder == tx }

// owners are the transactions that others may have to wait for.
func (r *storedRow) owners() []*Tx {
	if r.holder != nil {
		return []*Tx{r.holder}
	}
	return r.sharers
}

// waitsFor reports whether somebody whom tx would wait for waits, through however many others, for tx.
func (r *storedRow) waitsFor(tx *Tx) bool {
	for _, owner := range r.owners() {
		if owner != tx && owner.waits != nil && (slices.Contains(owner.waits.owners(), tx) || owner.waits != r && owner.waits.waitsFor(tx)) {
			return true
		}
	}
	return false
}

// nextRelease is closed when somebody lets go of the row.
func (r *storedRow) nextRelease() <-chan struct{} {
	if r.released == nil {
		r.released = make(chan struct{})
	}
	return r.released
}

// release lets go of the row.
func (r *storedRow) release(tx *Tx) {
	if r.holder == tx {
		r.holder, r.working = nil, nil
	}
	r.sharers = slices.DeleteFunc(r.sharers, func(sharer *Tx) bool { return sharer == tx })
	if r.released != nil {
		close(r.released)
		r.released = nil
	}
}

// rowStep is one write: what a rollback undoes and a commit publishes.
type rowStep struct {
	row           *storedRow
	before, after *version // before is nil for an insert
	audit         *processlog.AuditRecord
}

func (st rowStep) mustFollow() {
	want := uint64(0)
	if st.before != nil {
		want = st.before.entry.Version + 1
	}
	if got := st.after.entry.Version; got != want {
		panic(fmt.Sprintf("compensatortest/memory: entry %s goes to version %d, want %d", st.row.id, got, want))
	}
}

// version is a row at one moment. It never changes once it is stored; the next one is a copy.
type version struct {
	entry      processlog.Row // without what follows
	token      processlog.Token
	nextAt     int64 // unix ms
	leaseUntil int64 // unix ms; 0: no lease
}

// newVersion is the row that draft inserts.
func newVersion(id processlog.ID, draft processlog.Draft, now int64) *version {
	v := &version{token: draft.Token, nextAt: dueAt(now, draft.Delay)}
	v.entry = processlog.Row{
		ID: id, IdempotencyKey: draft.IdempotencyKey, BusinessType: draft.BusinessType, BatchID: draft.BatchID,
		BusinessID: draft.BusinessID, BusinessExtID: draft.BusinessExtID, UserID: draft.UserID, UserName: draft.UserName,
		Content: append([]byte{}, draft.Content...), MaxProcessCount: draft.MaxProcessCount, CreatedAt: instant(now), UpdatedAt: instant(now),
	}
	if len(draft.Headers) > 0 {
		_ = json.Unmarshal(draft.Headers, &v.entry.Headers) // unreadable headers must not keep an entry from running
	}
	if draft.Done {
		v.entry.State, v.entry.EndedBy = processlog.Succeeded, processlog.EndedByComplete
	}
	if draft.Lease > 0 {
		v.entry.DeliveryCount, v.leaseUntil = 1, now+processlog.Millis(draft.Lease)
	}
	return v
}

// row is what a reader gets at now: a copy that shares nothing. It is zero for no version.
func (v *version) row(now int64) processlog.Row {
	if v == nil {
		return processlog.Row{}
	}
	row := v.entry
	row.Token, row.DueIn, row.LeaseLeft = v.token, duration(v.nextAt-now), duration(v.leaseUntil-now)
	row.NextAt = instant(v.nextAt)
	row.Content = bytes.Clone(v.entry.Content)
	row.Headers = maps.Clone(v.entry.Headers)
	return row
}

// next is the version a write at now starts from.
func (v *version) next(token processlog.Token, now int64) *version {
	next := *v
	next.token = token
	next.entry.Version++
	next.entry.UpdatedAt = instant(now)
	return &next
}

// claimed is the version that a claim leaves. A delivery of the caller's own is counted already.
func (v *version) claimed(token processlog.Token, lease time.Duration, now int64, own bool) *version {
	next := v.next(token, now)
	if !own || next.entry.DeliveryCount == 0 {
		next.entry.DeliveryCount++
	}
	next.leaseUntil = now + processlog.Millis(lease)
	return next
}

func (v *version) released(now int64) *version {
	next := v.next(v.token, now)
	next.entry.DeliveryCount--
	next.leaseUntil = 0
	return next
}

// blocked is the version of a released entry that is to wait.
func (v *version) blocked(wait time.Duration, now int64) *version {
	next := v.released(now)
	next.nextAt = dueAt(now, wait)
	return next
}

// woken is the version of a blocked entry whose turn has come.
func (v *version) woken(now int64) *version {
	next := v.next(v.token, now)
	next.nextAt = now
	return next
}

// settled is the version that outcome leaves. An absorbed success keeps the counts: another attempt may have
// recorded a failure since.
func (v *version) settled(outcome processlog.Outcome, token processlog.Token, now int64) *version {
	next := v.next(token, now)
	if !outcome.Absorb {
		next.entry.ProcessCount, next.entry.CompensateCount = outcome.ProcessCount, outcome.CompensateCount
	}
	next.entry.State, next.entry.EndedBy = outcome.To, outcome.EndedBy
	next.entry.LastError = processlog.FitError(outcome.LastError)
	next.entry.DeliveryCount, next.leaseUntil = 0, 0
	next.nextAt = now
	if !outcome.To.Terminal() {
		next.nextAt = dueAt(now, outcome.After)
	}
	return next
}

// changed is the version that a Change leaves, which computed after from v's row.
func (v *version) changed(after processlog.Row, now int64) *version {
	next := v.next(after.Token, now)
	next.entry.State, next.entry.EndedBy = after.State, after.EndedBy
	next.entry.ProcessCount, next.entry.CompensateCount = after.ProcessCount, after.CompensateCount
	next.entry.DeliveryCount, next.entry.Epoch = after.DeliveryCount, after.Epoch
	next.entry.Version = after.Version
	if after.Erased && !v.entry.Erased { // the moment of its end stays
		next.entry.Content, next.entry.Headers, next.entry.UserName, next.entry.LastError, next.entry.Erased = nil, nil, "", "", true
		return next
	}
	next.nextAt = dueAt(now, after.DueIn)
	if after.LeaseLeft == 0 {
		next.leaseUntil = 0
	}
	return next
}

func (v *version) due(now int64) bool    { return v.nextAt <= now }
func (v *version) leased(now int64) bool { return v.leaseUntil > now }

// scheduled says when the entry wants attention.
func (v *version) scheduled(now int64) processlog.Scheduled {
	return processlog.Scheduled{ID: v.entry.ID, In: duration(max(v.nextAt, v.leaseUntil) - now), DueIn: duration(v.nextAt - now), NextAt: v.nextAt}
}

// place compares rows by their place in the schedule.
func place(a, b processlog.Scheduled) int {
	return cmp.Or(cmp.Compare(a.NextAt, b.NextAt), a.ID.Compare(b.ID))
}

func instant(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

func duration(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

// dueAt is delay from now. Now was cut to milliseconds, so one more keeps it from being early.
func dueAt(now int64, delay time.Duration) int64 {
	return now + processlog.DueAfter(delay)
}
