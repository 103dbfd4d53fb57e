package admin

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/operating"
	"github.com/compensator-go/compensator/processlog"
)

// Explanation says why an entry does not run now, and who looks at it next. It comes from the database, from the shared
// queue, and from the process that serves the Admin. That process does not know what other processes know: for example
// their handlers, their free slots and their breakers.
type Explanation struct {
	ID           compensator.EntryID `json:"entry_id"`      // the explained entry
	BusinessType string              `json:"business_type"` // its business type
	State        compensator.State   `json:"state"`         // its state when it was read
	At           time.Time           `json:"at"`            // when it was read, by the clock of this process
	Reasons      []Reason            `json:"reasons"`       // why it does not run now, or that it runs; at least one
	Next         []Reason            `json:"next"`          // who looks at it next, and when; at least one
}

// Explain says why an entry does not run now. It needs SeeEntries, like Entry, and returns the same errors. Without
// SeeOverview it does not say who paused the type, or why. Without SeeErrors it masks errors. Without SeeAuditLog it
// does not say who ended the entry. Without SeeContent it does not name the batch that the entry follows.
//
// Explain changes nothing. It sends at most nine statements, and one command to the queue.
func (d *Admin) Explain(ctx context.Context, a Actor, ref compensator.Ref) (Explanation, error) {
	row, err := read(ctx, d, func(ctx context.Context) (processlog.Row, error) { return d.log.Row(ctx, ref) })
	if err != nil {
		return Explanation{}, err
	}
	if !d.may(ctx, a, SeeEntries, Subject{Type: row.BusinessType}) {
		return Explanation{}, notFound(ref)
	}
	x := explainer{d: d, a: a, row: &row, found: Explanation{ID: row.ID, BusinessType: row.BusinessType, State: row.State, At: time.Now()},
		inFull: d.may(ctx, a, SeeErrors, Subject{Type: row.BusinessType})}
	err = x.explain(ctx)
	return x.found, err
}

// explainer collects the reasons of one entry.
type explainer struct {
	d      *Admin
	a      Actor
	row    *processlog.Row
	local  operating.Local
	inFull bool // whether errors are shown in full
	found  Explanation
}

// because adds a reason. It does not repeat an error that an earlier reason has.
func (x *explainer) because(r Reason) {
	told := slices.ContainsFunc(x.found.Reasons, func(earlier Reason) bool {
		return earlier.Text != "" && strings.HasSuffix(r.Text, earlier.Text)
	})
	switch {
	case told && r.Code == "problem":
		return
	case told:
		r.Text = ""
	}
	x.found.Reasons = append(x.found.Reasons, r)
}

func (x *explainer) next(r Reason) { x.found.Next = append(x.found.Next, r) }

// masked returns the text of an error as the actor may see it.
func (x *explainer) masked(err error) string {
	return x.d.scrubbed(processlog.FitError(text(err)), x.inFull)
}

func (x *explainer) explain(ctx context.Context) error {
	if code := invalid(x.row); code != "" {
		x.because(Reason{Code: code})
		x.next(Reason{Code: "next_repair"})
		return nil
	}
	if x.row.State.Terminal() {
		return x.ended(ctx)
	}
	x.local = x.d.log.Local(x.row)
	if x.local.Held || x.row.LeaseLeft > 0 {
		x.leased(ctx)
		return nil
	}
	return x.waits(ctx)
}

// invalid returns the code of an invalid row, which another program has written. The library never runs such a row.
func invalid(row *processlog.Row) string {
	const day = 24 * time.Hour
	switch {
	case !slices.Contains(processlog.States[:], row.State):
		return "invalid_state"
	case row.State.Terminal():
	case row.DueIn > processlog.MaxDelay+day:
		return "invalid_due"
	case row.LeaseLeft > 0 && row.Token == (processlog.Token{}):
		return "invalid_lease"
	}
	return ""
}

// ended explains an entry in a terminal state.
func (x *explainer) ended(ctx context.Context) error {
	r := Reason{Code: endings[x.row.EndedBy], At: x.row.NextAt, State: x.row.State.String(), N: x.row.ProcessCount}
	if x.row.EndedBy == compensator.EndedByExhausted && x.row.CompensateCount > 0 {
		r.Code, r.N = "dead_compensation", x.row.CompensateCount
	}
	if r.Code == "" {
		r.Code = "ended"
	}
	if err := x.endedBy(ctx, &r); err != nil {
		return err
	}
	x.because(r)
	if x.row.State != compensator.Dead {
		x.next(Reason{Code: "next_nobody"})
		return nil
	}
	cases, err := x.d.casesOf(ctx, []processlog.ID{x.row.ID})
	if err != nil {
		return err
	}
	x.next(Reason{Code: "next_person"})
	for _, c := range cases {
		if c.ClosedAt.IsZero() && c.Owner != "" {
			x.next(Reason{Code: "next_owner", Actor: c.Owner, At: c.DueAt})
		} else if c.ClosedAt.IsZero() {
			x.next(Reason{Code: "next_case", At: c.DueAt})
		}
	}
	return nil
}

// endings are the codes of the ways in which entries end.
var endings = map[compensator.EndedBy]string{
	compensator.EndedByHandler: "ended_handler", compensator.EndedByComplete: "ended_complete", compensator.EndedByCancel: "ended_cancel",
	compensator.EndedByPerson: "ended_person", compensator.EndedByExhausted: "dead_exhausted", compensator.EndedByPermanent: "dead_permanent",
	compensator.EndedByCrash: "dead_crash",
}

// endedBy adds the person who ended the entry, if the audit log has a record and the actor may see it.
func (x *explainer) endedBy(ctx context.Context, r *Reason) error {
	switch x.row.EndedBy {
	case compensator.EndedByPerson, compensator.EndedByCancel, compensator.EndedByComplete:
	default:
		return nil
	}
	if !x.d.may(ctx, x.a, SeeAuditLog, Subject{Type: x.row.BusinessType}) {
		return nil
	}
	page, err := x.d.AuditLog(ctx, x.a, AuditLogFilter{EntryID: x.row.ID, Limit: 50})
	for _, record := range page.Records {
		if record.After != nil && record.After.State == x.row.State && (record.Before == nil || record.Before.State != x.row.State) {
			r.Actor, r.Text = record.Actor, record.Reason
			break
		}
	}
	return err
}

// leased explains an entry that a process has claimed.
func (x *explainer) leased(ctx context.Context) {
	attempt, until := x.row.Attempt(), x.found.At.Add(x.row.LeaseLeft)
	switch {
	case x.local.Held && x.local.Returned:
		x.because(Reason{Code: "storing"})
	case x.local.Held && x.local.Stuck:
		x.because(Reason{Code: "stuck", At: x.local.Since, N: attempt})
	case x.local.Held:
		x.because(Reason{Code: "running", At: x.local.Since, N: attempt})
	default:
		x.because(Reason{Code: "leased", Until: until, N: attempt})
	}
	x.problems(ctx)
	x.next(Reason{Code: "next_outcome"})
	if x.row.LeaseLeft > 0 {
		x.next(Reason{Code: "next_lease_end", Until: until})
	}
}

// waits explains an entry that no process has claimed. It adds the reasons that hold for all processes first.
func (x *explainer) waits(ctx context.Context) error {
	var loss *processlog.LossError
	stopped := errors.As(x.local.Lost, &loss) && loss.Stopped
	if stopped {
		x.because(Reason{Code: "history_lost_stopped", Text: x.masked(x.local.Lost)})
	} else if x.local.Lost != nil {
		x.because(Reason{Code: "history_lost", Text: x.masked(x.local.Lost)})
	}
	paused, err := x.paused(ctx)
	if err != nil {
		return err
	}
	blocked, err := x.blocked(ctx)
	if err != nil {
		return err
	}
	x.notDue(blocked != nil)
	if err := x.limited(ctx); err != nil {
		return err
	}
	if x.row.DeliveryCount > 0 {
		x.because(Reason{Code: "lost_leases", N: x.row.DeliveryCount})
	}
	if x.local.Undecodable != nil {
		x.because(Reason{Code: "undecodable", Text: x.masked(x.local.Undecodable)})
	}
	if err := x.behindBatch(ctx); err != nil {
		return err
	}
	switch {
	case paused:
		x.next(Reason{Code: "next_resume", Every: x.local.ReconcileInterval * 12 / 10})
	case stopped:
		x.next(Reason{Code: "next_accept"})
	case blocked != nil:
		x.next(*blocked)
	default:
		x.here(ctx)
		x.queued(ctx)
	}
	x.problems(ctx)
	if len(x.found.Reasons) == 0 {
		x.because(Reason{Code: "due", At: x.row.NextAt})
	}
	return nil
}

// The method paused adds the pause of the type.
func (x *explainer) paused(ctx context.Context) (bool, error) {
	settings, err := read(ctx, x.d, x.d.log.Operations().Settings)
	for _, s := range settings {
		name, is := processlog.PausedType(s)
		if !is || name != x.row.BusinessType {
			continue
		}
		if x.d.may(ctx, x.a, SeeOverview, Subject{Type: name}) {
			x.because(Reason{Code: "paused", Actor: s.Actor, Text: s.Reason, At: s.At})
		} else {
			x.because(Reason{Code: "paused_by_somebody"})
		}
		return true, nil
	}
	return false, err
}

// blocked adds the entry that blocks this one, and returns what ends the wait. Whether a dead entry blocks is known
// only in a process that knows the type's Serial.
func (x *explainer) blocked(ctx context.Context) (next *Reason, err error) {
	by, err := read(ctx, x.d, func(ctx context.Context) (processlog.ID, error) {
		return x.d.log.Operations().BlockedBy(ctx, x.row.BusinessType, x.row.ID, !x.local.PassDead)
	})
	if err != nil { // A reader may have no right to the table of ordering keys.
		x.because(Reason{Code: "blocked_unknown", Text: x.masked(err)})
		return nil, ctx.Err()
	}
	if by.IsZero() {
		return nil, nil
	}
	versions, err := read(ctx, x.d, func(ctx context.Context) ([]processlog.Version, error) {
		return x.d.log.Store().Versions(ctx, []processlog.ID{by})
	})
	if err != nil || len(versions) == 0 {
		return nil, err
	}
	r := Reason{Code: "blocked", Entry: by, State: versions[0].State.String()}
	next = &Reason{Code: "next_blocker", Entry: by, Every: x.local.ReconcileInterval * 12 / 10}
	if versions[0].State == compensator.Dead {
		next = &Reason{Code: "next_blocker_person", Entry: by}
		if r.Code = "blocked_dead"; !x.local.Serial {
			r.Code = "blocked_dead_perhaps"
		}
	}
	x.because(r)
	return next, nil
}

// notDue adds the due time of an entry that is not due yet, and why it waits until then.
func (x *explainer) notDue(blocked bool) {
	if x.row.DueIn <= 0 {
		return
	}
	r := Reason{Code: "not_due", At: x.row.NextAt}
	compensating := x.row.State == compensator.Compensating
	switch {
	case blocked:
		r.Code = "not_due_blocked"
	case compensating && x.row.CompensateCount > 0:
		r.Code, r.N = "not_due_compensation", x.row.CompensateCount
	case !compensating && x.row.ProcessCount > 0:
		r.Code, r.N = "not_due_failed", x.row.ProcessCount
	case x.row.LastError != "":
		r.Code = "not_due_waits"
	}
	if r.Code != "not_due" && r.Code != "not_due_blocked" {
		r.Text = x.d.scrubbed(x.row.LastError, x.inFull)
	}
	x.because(r)
}

// limited adds a reason if the limit of the type allows no start now. It asks the database, because the limit holds over all processes.
func (x *explainer) limited(ctx context.Context) error {
	if x.row.DueIn > 0 || x.local.Known && x.local.Limit == "" {
		return nil
	}
	limit, found, err := x.limit(ctx)
	if err != nil || !found {
		return err
	}
	if limit.Keyed && (!x.local.Known || x.local.KeyUnknown != nil) {
		x.because(Reason{Code: "limit_key_unknown", Name: limit.Name})
		return nil
	}
	if x.local.Known && !x.local.LimitHolds {
		return nil
	}
	k, err := x.d.limitedKey(ctx, limit, x.local.LimitKey)
	if err != nil {
		return err
	}
	values := limit.InForce()
	if k.Starts == 0 {
		n, per := values.Rate()
		x.because(Reason{Code: "limited_rate", Name: limit.Name, Text: x.local.LimitKey, N: n, Every: per, At: x.found.At.Add(k.Next)})
	}
	if values.Concurrent > 0 && len(k.Holders) >= values.Concurrent {
		x.because(Reason{Code: "limited_concurrent", Name: limit.Name, Text: x.local.LimitKey, N: values.Concurrent})
		x.holders(ctx, k.Holders)
	}
	return nil
}

// limit returns the limit of the entry's type, as the database has it.
func (x *explainer) limit(ctx context.Context) (processlog.StoredLimit, bool, error) {
	limits, err := x.d.readLimits(ctx, x.local.Limit) // "" if the type is unknown here
	if err != nil {                                   // A reader may have no right to the table of limits.
		x.because(Reason{Code: "limit_unknown", Text: x.masked(err)})
		return processlog.StoredLimit{}, false, ctx.Err()
	}
	at := slices.IndexFunc(limits, func(l processlog.StoredLimit) bool {
		return x.local.Known || slices.Contains(l.Types, x.row.BusinessType)
	})
	if at < 0 {
		return processlog.StoredLimit{}, false, nil
	}
	return limits[at], true, nil
}

// mostHolders is how many holders of permits an explanation names.
const mostHolders = 10

// holders adds the entries that hold the permits. Entries of types that the actor may not see are left out.
func (x *explainer) holders(ctx context.Context, holders []processlog.PermitHolder) {
	r := Reason{Code: "limit_holders"}
	for _, h := range holders {
		if len(r.Entries) < mostHolders && x.d.may(ctx, x.a, SeeEntries, Subject{Type: h.BusinessType}) {
			r.Entries = append(r.Entries, h.ID)
		}
	}
	if len(r.Entries) > 0 {
		x.because(r)
	}
}

// behindBatch adds a reason if the entry is a follow-up that waits for the end of a batch.
func (x *explainer) behindBatch(ctx context.Context) error {
	if x.local.AfterBatch == "" {
		return nil
	}
	counts, err := read(ctx, x.d, func(ctx context.Context) ([]processlog.Count, error) {
		return x.d.log.Store().Count(ctx, nil, processlog.CountFilter{BatchID: x.local.AfterBatch, States: unfinished[:3], AtMost: overviewMost})
	})
	open := 0
	for _, c := range counts {
		open += c.N
	}
	// The id of the batch may come from the content, so the actor needs SeeContent. The entries of the batch may have
	// any type, so the actor needs SeeEntries for the empty type.
	seen := x.d.may(ctx, x.a, SeeContent, Subject{Type: x.row.BusinessType}) && x.d.may(ctx, x.a, SeeEntries, Subject{})
	switch {
	case open == 0:
	case seen:
		x.because(Reason{Code: "after_batch", Name: x.local.AfterBatch, N: open})
	default:
		x.because(Reason{Code: "after_some_batch"})
	}
	return err
}

// The method here adds why this process claims no entry of the type, or why it does not claim this entry although it is
// due.
func (x *explainer) here(ctx context.Context) {
	due := x.row.DueIn <= 0
	for _, b := range x.d.log.OpenBreakers() {
		if b.BusinessType == x.row.BusinessType {
			x.because(Reason{Code: "breaker", At: b.Since, Until: b.ProbeAt, Text: x.masked(b.Err)})
			return
		}
	}
	switch {
	case !due:
	case x.local.Handlers == 0:
		x.because(Reason{Code: "no_handlers", Name: x.row.BusinessType})
	case !x.local.Handler:
		x.because(Reason{Code: "no_handler", Name: x.row.BusinessType})
	case !x.local.Running:
		x.because(Reason{Code: "not_running"})
	case x.local.BatchWait+x.row.DueIn > 0 && x.row.State != compensator.Compensating:
		x.because(Reason{Code: "lingers", Until: x.found.At.Add(x.local.BatchWait + x.row.DueIn)})
	case x.local.Full:
		x.because(Reason{Code: "slots", N: x.local.Slots})
	}
}

// queued adds what is wrong with the queue, and who finds the entry next.
func (x *explainer) queued(ctx context.Context) {
	polls := Reason{Code: "next_poll", Every: x.local.PollInterval * 12 / 10, At: x.row.NextAt}
	if !x.d.log.SharedQueue() && x.local.Handlers > 0 {
		x.next(polls)
		return
	}
	if !x.d.log.SharedQueue() {
		x.because(Reason{Code: "queue_not_asked"})
		x.next(Reason{Code: "next_unknown", At: x.row.NextAt})
		return
	}
	queued, known, err := x.d.log.Queued(ctx, x.row)
	switch {
	case err != nil:
		x.because(Reason{Code: "queue_down", Text: x.d.scrubbed(processlog.FitError(text(err)), x.d.may(ctx, x.a, SeeErrors, Subject{}))})
		x.next(polls)
	case !known:
		x.next(Reason{Code: "next_queue", At: x.row.NextAt})
	case queued.Has:
		x.next(Reason{Code: "next_queue", At: x.found.At.Add(queued.In)})
	case queued.Lost && x.row.DueIn <= x.local.Horizon:
		x.because(Reason{Code: "queue_lost"})
		x.next(Reason{Code: "next_reconciler", Every: x.local.ReconcileInterval * 12 / 10})
	case x.row.DueIn <= 0:
		x.because(Reason{Code: "queue_forgot"})
		x.next(Reason{Code: "next_reconciler", Every: x.local.ReconcileInterval * 12 / 10})
	default:
		x.next(Reason{Code: "next_enqueue", Every: 4 * x.local.ReconcileInterval, At: x.row.NextAt})
	}
}

// problems adds the tasks of the library that fail now in this process.
func (x *explainer) problems(ctx context.Context) {
	for _, p := range x.local.Problems {
		inFull := x.d.may(ctx, x.a, SeeErrors, Subject{Type: p.BusinessType}) // A problem of the whole process may be about other types.
		x.because(Reason{Code: "problem", Name: p.What, Text: x.d.scrubbed(processlog.FitError(p.Error), inFull), At: p.Since, N: p.Times})
	}
}
