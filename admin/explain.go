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
// queue, and from the process that serves the Admin. The process does not know the handlers, the free slots and the
// breakers of other processes.
type Explanation struct {
	ID           compensator.EntryID `json:"entry_id"`      // the explained entry
	BusinessType string              `json:"business_type"` // its business type
	State        compensator.State   `json:"state"`         // its state when it was read
	At           time.Time           `json:"at"`            // when it was read, by the clock of this process
	Reasons      []Reason            `json:"reasons"`       // why it does not run now, or that it runs; at least one
	Next         []Reason            `json:"next"`          // who looks at it next, and when; at least one
}

// Explain says why an entry does not run now. Explain needs the right SeeEntries, like Entry, and returns the same
// errors. Some details need another right for the type of the entry:
//   - Who paused the type, and why: SeeOverview.
//   - Errors in full: SeeErrors. Without this right, Explain masks errors.
//   - Who ended the entry: SeeAuditLog.
//   - The key of the entry under a limit: SeeContent, because the key may come from the content.
//
// Details that concern more than one type need a right for the empty type, Subject{}:
//   - Names of processes: SeeOverview.
//   - Errors of the queue or of the whole process, in full: SeeErrors.
//   - The batch that the entry follows: SeeEntries. Explain also needs SeeContent for the type of the entry, because
//     the batch may come from the content.
//
// Explain changes nothing. It sends at most eleven statements, and one command to the queue.
func (d *Admin) Explain(ctx context.Context, a Actor, ref compensator.Ref) (Explanation, error) {
	row, err := d.visibleRow(ctx, a, ref)
	if err != nil {
		return Explanation{}, err
	}
	return d.explain(ctx, a, row, time.Now(), nil)
}

func (d *Admin) explain(ctx context.Context, a Actor, row *processlog.Row, at time.Time, view *EntryView) (Explanation, error) {
	x := explainer{d: d, a: a, row: row, view: view, explanation: Explanation{ID: row.ID, BusinessType: row.BusinessType, State: row.State, At: at},
		isFull: d.mayDo(ctx, a, SeeErrors, Subject{Type: row.BusinessType})}
	err := x.addAll(ctx)
	return x.explanation, err
}

type explainer struct {
	d           *Admin
	a           Actor
	row         *processlog.Row
	view        *EntryView // the case and the audit log of the entry; nil if they were not read yet
	local       operating.Local
	isFull      bool // whether errors are shown in full
	explanation Explanation
}

// addReason adds the reason r, but shows an error text only once. If an earlier reason already shows the text of r,
// addReason adds r without the text. A reason with the code "problem" says nothing new without its text. So addReason
// leaves out such a reason if its text is shown already.
func (x *explainer) addReason(r Reason) {
	isTold := slices.ContainsFunc(x.explanation.Reasons, func(other Reason) bool {
		return other.Text != "" && strings.HasSuffix(r.Text, other.Text)
	})
	switch {
	case isTold && r.Code == "problem":
		return
	case isTold:
		r.Text = ""
	}
	x.explanation.Reasons = append(x.explanation.Reasons, r)
}

func (x *explainer) addNext(r Reason) { x.explanation.Next = append(x.explanation.Next, r) }

func (x *explainer) visibleText(err error) string {
	return x.d.scrubText(processlog.FitError(text(err)), x.isFull)
}

func (x *explainer) addAll(ctx context.Context) error {
	if code := invalidReason(x.row); code != "" {
		x.addReason(Reason{Code: code})
		x.addNext(Reason{Code: "next_repair"})
		return nil
	}
	if x.row.State.Terminal() {
		return x.addEnded(ctx)
	}
	x.local = x.d.log.Local(x.row)
	if x.local.Held || x.row.LeaseLeft > 0 {
		x.addLease(ctx)
		return nil
	}
	return x.addWaits(ctx)
}

func invalidReason(row *processlog.Row) string {
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

func (x *explainer) addEnded(ctx context.Context) error {
	r := Reason{Code: endReasons[x.row.EndedBy], At: x.row.NextAt, State: x.row.State.String(), N: x.row.ProcessCount}
	if x.row.EndedBy == compensator.EndedByExhausted && x.row.CompensateCount > 0 {
		r.Code, r.N = "dead_compensation", x.row.CompensateCount
	}
	if r.Code == "" {
		r.Code = "ended"
	}
	if err := x.addEndedBy(ctx, &r); err != nil {
		return err
	}
	x.addReason(r)
	if x.row.State != compensator.Dead {
		x.addNext(Reason{Code: "next_nobody"})
		return nil
	}
	c, err := x.readCase(ctx)
	if err != nil {
		return err
	}
	x.addNext(Reason{Code: "next_person"})
	switch {
	case c == nil || !c.ClosedAt.IsZero():
	case c.Owner != "":
		x.addNext(Reason{Code: "next_owner", Actor: c.Owner, At: c.DueAt})
	default:
		x.addNext(Reason{Code: "next_case", At: c.DueAt})
	}
	return nil
}

func (x *explainer) readCase(ctx context.Context) (*Case, error) {
	if x.view != nil {
		return x.view.Case, nil
	}
	cases, err := x.d.casesOf(ctx, []processlog.ID{x.row.ID})
	return caseOf(cases, x.row.ID), err
}

func (x *explainer) readAuditLog(ctx context.Context) ([]AuditLogRecord, error) {
	if x.view != nil {
		return x.view.AuditLog, nil
	}
	page, err := x.d.AuditLog(ctx, x.a, AuditLogFilter{EntryID: x.row.ID, Limit: 50})
	return page.Records, err
}

var endReasons = map[compensator.EndedBy]string{
	compensator.EndedByHandler: "ended_handler", compensator.EndedByComplete: "ended_complete", compensator.EndedByCancel: "ended_cancel",
	compensator.EndedByPerson: "ended_person", compensator.EndedByExhausted: "dead_exhausted", compensator.EndedByPermanent: "dead_permanent",
	compensator.EndedByCrash: "dead_crash",
}

func (x *explainer) addEndedBy(ctx context.Context, r *Reason) error {
	switch x.row.EndedBy {
	case compensator.EndedByPerson, compensator.EndedByCancel, compensator.EndedByComplete:
	default:
		return nil
	}
	if !x.d.mayDo(ctx, x.a, SeeAuditLog, Subject{Type: x.row.BusinessType}) {
		return nil
	}
	records, err := x.readAuditLog(ctx)
	for _, record := range records {
		if record.After != nil && record.After.State == x.row.State && (record.Before == nil || record.Before.State != x.row.State) {
			r.Actor, r.Text = record.Actor, record.Reason
			break
		}
	}
	return err
}

func (x *explainer) addLease(ctx context.Context) {
	attempt, endsAt := x.row.Attempt(), x.explanation.At.Add(x.row.LeaseLeft)
	switch {
	case x.local.Held && x.local.Returned:
		x.addReason(Reason{Code: "storing"})
	case x.local.Held && x.local.Stuck:
		x.addReason(Reason{Code: "stuck", At: x.local.Since, N: attempt})
	case x.local.Held:
		x.addReason(Reason{Code: "running", At: x.local.Since, N: attempt})
	default:
		x.addHolder(ctx, Reason{Code: "leased", Until: endsAt, N: attempt})
	}
	x.addProblems(ctx)
	x.addNext(Reason{Code: "next_outcome"})
	if x.row.LeaseLeft > 0 {
		x.addNext(Reason{Code: "next_lease_end", Until: endsAt})
	}
}

// visibleInstances returns none if the actor may not see them, or if they cannot be read.
func (d *Admin) visibleInstances(ctx context.Context, a Actor) []Instance {
	if !d.mayDo(ctx, a, SeeOverview, Subject{}) {
		return nil
	}
	all, _, _ := d.readInstances(ctx)
	return all
}

func (x *explainer) instances(ctx context.Context) []Instance { return x.d.visibleInstances(ctx, x.a) }

// holdersOf returns the processes that may have given a lease its token. More than one is improbable.
func holdersOf(token processlog.Token, processes []Instance) (holders []Instance) {
	for _, p := range processes {
		if token.MarkedBy(p.ID) {
			holders = append(holders, p)
		}
	}
	return holders
}

var holderCodes = map[InstanceState]string{InstanceLive: "leased_by", InstanceGone: "leased_by_gone", InstanceEnded: "leased_by_ended"}

// addHolder finds the process by the token of the row. If it finds none, it adds fallback.
func (x *explainer) addHolder(ctx context.Context, fallback Reason) {
	holders := holdersOf(x.row.Token, x.instances(ctx))
	for _, i := range holders {
		x.addReason(Reason{Code: holderCodes[i.State()], Name: i.Name, Every: i.Unseen.Round(time.Second), Until: fallback.Until, N: fallback.N})
	}
	if len(holders) == 0 {
		x.addReason(fallback)
	}
}

func (x *explainer) addOtherProcesses(ctx context.Context, fallback string) {
	all, n := x.instances(ctx), 0
	var holds []Reason
	for _, i := range all {
		at := slices.IndexFunc(i.Types, func(t InstanceType) bool { return t.Name == x.row.BusinessType && t.Slots > 0 })
		if i.State() != InstanceLive || at < 0 {
			continue
		}
		n++
		if hold := i.Types[at].Hold; hold != nil && hold.LostLeases <= x.row.DeliveryCount && holdCodes[hold.Reason] != "" {
			told := x.holdReason(i.Name, *hold)
			told.At = i.SeenAt.Add(-hold.For)
			holds = append(holds, told)
		}
	}
	switch {
	case len(all) == 0:
		x.addReason(Reason{Code: fallback, Name: x.row.BusinessType})
	case n == 0:
		x.addReason(Reason{Code: "no_process", Name: x.row.BusinessType})
	default:
		x.addReason(Reason{Code: "in_processes", Name: x.row.BusinessType, N: n})
	}
	for _, hold := range holds {
		x.addReason(hold)
	}
}

var holdCodes = map[processlog.ClaimHoldReason]string{
	processlog.HeldByBacklog: "outcomes_wait", processlog.HeldByRefusals: "outcomes_refused", processlog.HeldBySuspects: "suspects_run",
}

// holdReason says why a process does not claim the entry. The parameter process is the name of another process, or
// empty for this process.
func (x *explainer) holdReason(process string, hold ClaimHold) Reason {
	code := holdCodes[hold.Reason]
	if process != "" {
		code += "_in"
	}
	return Reason{Code: code, Name: process, N: hold.N, At: x.explanation.At.Add(-hold.For)}
}

// addWaits explains an entry that has not ended and that no process holds.
//
// Each of these facts alone keeps the entry from running:
//   - The type is paused.
//   - Work is stopped after a loss.
//   - Another entry blocks the entry.
//
// If one of these facts holds, addWaits adds no reason of this process or of the queue.
func (x *explainer) addWaits(ctx context.Context) error {
	var loss *processlog.LossError
	isStopped := errors.As(x.local.Lost, &loss) && loss.Stopped
	if isStopped {
		x.addReason(Reason{Code: "history_lost_stopped", Text: x.visibleText(x.local.Lost)})
	} else if x.local.Lost != nil {
		x.addReason(Reason{Code: "history_lost", Text: x.visibleText(x.local.Lost)})
	}
	isPaused, pauseEnd, err := x.addPause(ctx)
	if err != nil {
		return err
	}
	afterBlocker, err := x.addBlocker(ctx)
	if err != nil {
		return err
	}
	x.addNotDue(afterBlocker != nil)
	if err := x.addLimit(ctx); err != nil {
		return err
	}
	if x.row.DeliveryCount > 0 {
		x.addReason(Reason{Code: "lost_leases", N: x.row.DeliveryCount})
	}
	if x.local.Undecodable != nil {
		x.addReason(Reason{Code: "undecodable", Text: x.visibleText(x.local.Undecodable)})
	}
	if err := x.addBatch(ctx); err != nil {
		return err
	}
	switch {
	case isPaused:
		if pauseEnd.IsZero() {
			x.addNext(Reason{Code: "next_resume", Every: x.local.ReconcileInterval * 12 / 10})
		} else {
			x.addNext(Reason{Code: "next_pause_end", Until: pauseEnd})
		}
	case isStopped:
		x.addNext(Reason{Code: "next_accept"})
	case afterBlocker != nil:
		x.addNext(*afterBlocker)
	default:
		x.addProcess(ctx)
		x.addQueue(ctx)
	}
	x.addProblems(ctx)
	if len(x.explanation.Reasons) == 0 {
		x.addReason(Reason{Code: "due", At: x.row.NextAt})
	}
	return nil
}

func (x *explainer) addPause(ctx context.Context) (isPaused bool, end time.Time, err error) {
	settings, err := runQuery(ctx, x.d, x.d.log.Operations().Settings)
	for _, s := range settings {
		name, isPause := processlog.PausedType(s)
		if !isPause || name != x.row.BusinessType {
			continue
		}
		if !x.d.mayDo(ctx, x.a, SeeOverview, Subject{Type: name}) {
			x.addReason(Reason{Code: "paused_by_somebody"})
			return true, time.Time{}, nil
		}
		code := "paused"
		if end = s.PauseEnd(); !end.IsZero() {
			code = "paused_until"
		}
		x.addReason(Reason{Code: code, Actor: s.Actor, Text: s.Reason, At: s.At, Until: end})
		return true, end, nil
	}
	return false, time.Time{}, err
}

// addBlocker returns nil if nothing blocks x.row. A dead entry blocks it unless the type sets PassDead.
func (x *explainer) addBlocker(ctx context.Context) (afterBlocker *Reason, err error) {
	blockerID, err := runQuery(ctx, x.d, func(ctx context.Context) (processlog.ID, error) {
		return x.d.log.Operations().BlockedBy(ctx, x.row.BusinessType, x.row.ID, !x.local.PassDead)
	})
	if err != nil { // A reader may have no right to the table of ordering keys.
		x.addReason(Reason{Code: "blocked_unknown", Text: x.visibleText(err)})
		return nil, ctx.Err()
	}
	if blockerID.IsZero() {
		return nil, nil
	}
	versions, err := runQuery(ctx, x.d, func(ctx context.Context) ([]processlog.Version, error) {
		return x.d.log.Store().Versions(ctx, []processlog.ID{blockerID})
	})
	if err != nil || len(versions) == 0 {
		return nil, err
	}
	r := Reason{Code: "blocked", Entry: blockerID, State: versions[0].State.String()}
	afterBlocker = &Reason{Code: "next_blocker", Entry: blockerID, Every: x.local.ReconcileInterval * 12 / 10}
	if versions[0].State == compensator.Dead {
		afterBlocker = &Reason{Code: "next_blocker_person", Entry: blockerID}
		if r.Code = "blocked_dead"; !x.local.Serial {
			r.Code = "blocked_dead_perhaps"
		}
	}
	x.addReason(r)
	return afterBlocker, nil
}

func (x *explainer) addNotDue(isBlocked bool) {
	if x.row.DueIn <= 0 {
		return
	}
	r := Reason{Code: "not_due", At: x.row.NextAt}
	isCompensating := x.row.State == compensator.Compensating
	switch {
	case isBlocked:
		r.Code = "not_due_blocked"
	case isCompensating && x.row.CompensateCount > 0:
		r.Code, r.N = "not_due_compensation", x.row.CompensateCount
	case !isCompensating && x.row.ProcessCount > 0:
		r.Code, r.N = "not_due_failed", x.row.ProcessCount
	case x.row.LastError != "":
		r.Code = "not_due_waits"
	}
	if r.Code != "not_due" && r.Code != "not_due_blocked" {
		r.Text = x.d.scrubText(x.row.LastError, x.isFull)
	}
	x.addReason(r)
}

func (x *explainer) addLimit(ctx context.Context) error {
	if x.row.DueIn > 0 || x.local.Known && x.local.Limit == "" {
		return nil
	}
	limit, isFound, err := x.readLimit(ctx)
	if err != nil || !isFound {
		return err
	}
	if limit.Keyed && (!x.local.Known || x.local.KeyUnknown != nil) {
		x.addReason(Reason{Code: "limit_key_unknown", Name: limit.Name})
		return nil
	}
	if x.local.Known && !x.local.LimitHolds {
		return nil
	}
	k, err := x.d.limitedKey(ctx, limit, x.local.LimitKey)
	if err != nil {
		return err
	}
	values, key := limit.InForce(), ""
	if x.d.mayDo(ctx, x.a, SeeContent, Subject{Type: x.row.BusinessType}) { // The key may come from the content.
		key = x.local.LimitKey
	}
	if k.Starts == 0 {
		n, period := values.Rate()
		x.addReason(Reason{Code: "limited_rate", Name: limit.Name, Text: key, N: n, Every: period, At: x.explanation.At.Add(k.Next)})
	}
	if values.Concurrent > 0 && len(k.Holders) >= values.Concurrent {
		x.addReason(Reason{Code: "limited_concurrent", Name: limit.Name, Text: key, N: values.Concurrent})
		x.addHolders(ctx, k.Holders)
	}
	return nil
}

func (x *explainer) readLimit(ctx context.Context) (processlog.StoredLimit, bool, error) {
	limits, err := x.d.readLimits(ctx, x.local.Limit) // "" if the type is unknown here
	if err != nil {                                   // A reader may have no right to the table of limits.
		x.addReason(Reason{Code: "limit_unknown", Text: x.visibleText(err)})
		return processlog.StoredLimit{}, false, ctx.Err()
	}
	index := slices.IndexFunc(limits, func(l processlog.StoredLimit) bool {
		return x.local.Known || slices.Contains(l.Types, x.row.BusinessType)
	})
	if index < 0 {
		return processlog.StoredLimit{}, false, nil
	}
	return limits[index], true, nil
}

const maxHolders = 10

func (x *explainer) addHolders(ctx context.Context, holders []processlog.PermitHolder) {
	r := Reason{Code: "limit_holders"}
	for _, h := range holders {
		if len(r.Entries) < maxHolders && x.d.mayDo(ctx, x.a, SeeEntries, Subject{Type: h.BusinessType}) {
			r.Entries = append(r.Entries, h.ID)
		}
	}
	if len(r.Entries) > 0 {
		x.addReason(r)
	}
}

func (x *explainer) addBatch(ctx context.Context) error {
	if x.local.AfterBatch == "" {
		return nil
	}
	counts, err := runQuery(ctx, x.d, func(ctx context.Context) ([]processlog.Count, error) {
		return x.d.log.Store().Count(ctx, nil, processlog.CountFilter{BatchID: x.local.AfterBatch, States: unfinished[:3], AtMost: maxCount})
	})
	openEntries := 0
	for _, c := range counts {
		openEntries += c.N
	}
	isVisible := x.d.mayDo(ctx, x.a, SeeContent, Subject{Type: x.row.BusinessType}) && x.d.mayDo(ctx, x.a, SeeEntries, Subject{})
	switch {
	case openEntries == 0:
	case isVisible:
		x.addReason(Reason{Code: "after_batch", Name: x.local.AfterBatch, N: openEntries})
	default:
		x.addReason(Reason{Code: "after_some_batch"})
	}
	return err
}

func (x *explainer) addProcess(ctx context.Context) {
	isDue := x.row.DueIn <= 0
	for _, b := range x.d.log.OpenBreakers() {
		if b.BusinessType == x.row.BusinessType {
			x.addReason(Reason{Code: "breaker", At: b.Since, Until: b.ProbeAt, Text: x.visibleText(b.Err)})
			return
		}
	}
	switch {
	case !isDue:
	case x.local.Handlers == 0:
		x.addOtherProcesses(ctx, "no_handlers")
	case !x.local.Handler:
		x.addOtherProcesses(ctx, "no_handler")
	case !x.local.Running:
		x.addReason(Reason{Code: "not_running"})
	case x.local.Hold != nil:
		x.addReason(x.holdReason("", *x.local.Hold))
	case x.local.BatchWait+x.row.DueIn > 0 && x.row.State != compensator.Compensating:
		x.addReason(Reason{Code: "lingers", Until: x.explanation.At.Add(x.local.BatchWait + x.row.DueIn)})
	case x.local.Full:
		x.addReason(Reason{Code: "slots", N: x.local.Slots})
	}
}

func (x *explainer) addQueue(ctx context.Context) {
	nextPoll := Reason{Code: "next_poll", Every: x.local.PollInterval * 12 / 10, At: x.row.NextAt}
	if !x.d.log.SharedQueue() && x.local.Handlers > 0 {
		x.addNext(nextPoll)
		return
	}
	if !x.d.log.SharedQueue() {
		x.addReason(Reason{Code: "queue_not_asked"})
		x.addNext(Reason{Code: "next_unknown", At: x.row.NextAt})
		return
	}
	queued, isKnown, err := x.d.log.Queued(ctx, x.row)
	switch {
	case err != nil:
		x.addReason(Reason{Code: "queue_down", Text: x.d.scrubText(processlog.FitError(text(err)), x.d.mayDo(ctx, x.a, SeeErrors, Subject{}))})
		x.addNext(nextPoll)
	case !isKnown:
		x.addNext(Reason{Code: "next_queue", At: x.row.NextAt})
	case queued.Has:
		x.addNext(Reason{Code: "next_queue", At: x.explanation.At.Add(queued.In)})
	case queued.Lost && x.row.DueIn <= x.local.Horizon:
		x.addReason(Reason{Code: "queue_lost"})
		x.addNext(Reason{Code: "next_reconciler", Every: x.local.ReconcileInterval * 12 / 10})
	case x.row.DueIn <= 0:
		x.addReason(Reason{Code: "queue_forgot"})
		x.addNext(Reason{Code: "next_reconciler", Every: x.local.ReconcileInterval * 12 / 10})
	default:
		x.addNext(Reason{Code: "next_enqueue", Every: 4 * x.local.ReconcileInterval, At: x.row.NextAt})
	}
}

func (x *explainer) addProblems(ctx context.Context) {
	for _, p := range x.local.Problems {
		// A problem without a type concerns the whole process. Its text may be about other types, so the actor needs
		// SeeErrors for the empty type.
		isFull := x.d.mayDo(ctx, x.a, SeeErrors, Subject{Type: p.BusinessType})
		x.addReason(Reason{Code: "problem", Name: p.What, Text: x.d.scrubText(processlog.FitError(p.Error), isFull), At: p.Since, N: p.Times})
	}
}
