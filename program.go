package compensator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/features"
	"github.com/compensator-go/compensator/internal/mysqlerr"
	"github.com/compensator-go/compensator/internal/operating"
	"github.com/compensator-go/compensator/internal/sqlstore"
	"github.com/compensator-go/compensator/internal/usererr"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

type program struct{ *Compensator }

func init() {
	operating.Of = func(of any) operating.Log { return program{of.(*Compensator)} }
	operating.ServerDown = func(err error) bool { return sqlstore.Blames(err) == mysqlerr.Server }
}

func (p program) Store() processlog.Store { return p.store }

func (p program) Operations() processlog.Operations {
	if p.cfg.Operations == nil {
		return nil
	}
	return p.store.(processlog.Operations) // New has checked this: see checkOperations
}

func (p program) KeepsAttempts() bool { return p.cfg.Operations != nil && p.cfg.Operations.Attempts }

func (p program) KeepsStatistics() bool { return p.stats() != nil }

func (p program) KeepsInstances() bool { return p.instances() != nil }

func (p program) Entry(row *processlog.Row) any { return p.entry(row) }

func (p program) Row(ctx context.Context, ref processlog.Ref) (processlog.Row, error) {
	return p.row(ctx, ref)
}

func (p program) RememberedFor() time.Duration { return engine.PurgeNoteAge }

func (p program) SharedQueue() bool { return p.queue != nil }

func (p program) Knows(businessType string) bool { return p.types.codec(businessType) != nil }

func (p program) OpenBreakers() []observe.OpenBreaker { return p.features.OpenBreakers() }

func (p program) Limited() []observe.LimitedType { return p.features.Limited() }

func (p program) Schedules() (schedules []operating.Schedule) {
	for _, s := range p.features.Schedules() {
		schedules = append(schedules, operating.Schedule(s))
	}
	return schedules
}

func (p program) SlotKey(businessType string, slot time.Time) string {
	return string(SlotKey(businessType, slot))
}

func (p program) Scrub(text string) string { return p.scrub(text) }

func (p program) Change(ctx context.Context, change processlog.Change) (processlog.Row, error) {
	return p.change(ctx, change)
}

func (p program) ChangeTx(ctx context.Context, tx processlog.Tx, change processlog.Change) (processlog.Row, error) {
	return p.changeTx(ctx, tx, change)
}

func (p program) RequeueAll(ctx context.Context, seen []processlog.Version, change processlog.Change) ([]processlog.Changed, error) {
	return p.changeMany(ctx, p.store.RequeueAll, seen, change)
}

func (p program) ChangeAll(ctx context.Context, seen []processlog.Version, change processlog.Change) ([]processlog.Changed, error) {
	return p.changeMany(ctx, p.Operations().ChangeAll, seen, change)
}

func (p program) ChangeBulk(ctx context.Context, seen []processlog.Version, change processlog.Change, batch processlog.BulkBatch) (record uint64, answers []processlog.Changed, err error) {
	answers, err = p.changeMany(ctx, func(ctx context.Context, seen []processlog.Version, change processlog.Change) (answers []processlog.Changed, err error) {
		record, answers, err = p.Operations().ChangeBulk(ctx, seen, change, batch)
		return answers, err
	}, seen, change)
	return record, answers, err
}

func (p program) changeMany(ctx context.Context, store func(context.Context, []processlog.Version, processlog.Change) ([]processlog.Changed, error),
	seen []processlog.Version, change processlog.Change) ([]processlog.Changed, error) {
	if p.closed() {
		return nil, ErrClosed
	}
	change.Token = processlog.NewToken()
	answers, err := store(p.engine.Reporting(ctx), seen, change)
	if err != nil {
		return nil, err
	}
	contents := p.contents(ctx, answers, change)
	for _, answer := range answers {
		if before := answer.Before; answer.Err == nil {
			before.Content = contents[before.ID]
			p.engine.ChangeCommitted(before, change)
		}
	}
	return answers, nil
}

// contents reads the content of the entries that the given change has ended, if their type uses ordering keys. The
// engine needs the content to find the ordering key, and then starts the next entry of this key at once.
func (p program) contents(ctx context.Context, answers []processlog.Changed, change processlog.Change) map[EntryID][]byte {
	contents := make(map[EntryID][]byte)
	for _, answer := range answers {
		if answer.Err != nil || !p.engine.Ordered(answer.Before.BusinessType) {
			continue
		}
		if after, err := change.After(answer.Before); err != nil || !after.State.Terminal() {
			continue
		}
		rows, err := p.store.Load(ctx, []EntryID{answer.Before.ID}) // load them one by one, because contents may be large
		if err == nil && len(rows) == 1 {
			contents[rows[0].ID] = rows[0].Content
		}
	}
	return contents
}

// Amounts calls the Amount functions of the rows' types.
func (p program) Amounts(ctx context.Context, rows []processlog.Row) (map[EntryID]Amount, error) {
	var ids []EntryID
	for i := range rows {
		if p.cfg.Operations.Types[rows[i].BusinessType].Amount != nil {
			ids = append(ids, rows[i].ID)
		}
	}
	whole, err := p.store.Load(ctx, ids)
	amounts := make(map[EntryID]Amount, len(whole))
	for i := range whole {
		amounts[whole[i].ID] = p.amount(&whole[i])
	}
	return amounts, err
}

func (p program) AcceptLoss(ctx context.Context, by processlog.AuditInfo) ([]processlog.LostEntry, error) {
	if p.closed() {
		return nil, ErrClosed
	}
	return p.features.AcceptLoss(ctx, by)
}

// typeFacts is what a process knows about a type beyond its handler.
type typeFacts struct {
	decode           func(e *Entry) error // decodes the content and drops the value
	serial, passDead bool
	limit            features.Limit // an empty Name means that there is no limit
}

// Local returns what this process knows about an entry and the entry's type.
func (p program) Local(row *processlog.Row) operating.Local {
	types := p.engine.TypeNames()
	local := operating.Local{Handlers: len(types), Running: p.engine.Accepts(), Horizon: p.cfg.Horizon,
		ReconcileInterval: p.cfg.ReconcileInterval, PollInterval: p.cfg.PollInterval, Lost: p.features.Lost()}
	if held, is := p.engine.HeldAttempt(row); is {
		local.Held, local.Since, local.Stuck, local.Returned = true, held.StartedAt, held.Stuck, held.Returned
	}
	if t := p.engine.TypeNamed(row.BusinessType); t != nil {
		local.Handler, local.Slots, local.BatchWait = true, t.Concurrency, t.Linger()
		// A claim may hold all slots while it searches for entries, although no handler runs. So the type counts as
		// full only if handlers run, too.
		running := p.engine.Held(func(a engine.HeldAttempt) bool { return a.Type == t && !a.Returned })
		local.Full = t.CallsAllowed() > 0 && t.Slots().Available() == 0 && len(running) > 0
		local.Hold = p.features.ClaimHold(t, row.DeliveryCount)
	}
	for _, problem := range p.engine.OpenProblems() {
		if problem.BusinessType == row.BusinessType || problem.BusinessType == "" {
			local.Problems = append(local.Problems, problem)
		}
	}
	facts, known := p.types.factsOf(row.BusinessType)
	if !known || row.Erased {
		return local
	}
	local.Known, local.Serial, local.PassDead = true, facts.serial, facts.passDead
	if facts.limit.Name != "" {
		local.Limit = facts.limit.Name
		local.LimitKey, local.LimitHolds, local.KeyUnknown = p.features.LimitKey(facts.limit, row)
	}
	local.Undecodable = p.undecodable(row, facts)
	if local.Undecodable == nil {
		local.AfterBatch = p.followedBatch(row)
	}
	return local
}

// undecodable returns the error of the codec, which is user code and may panic.
func (c *Compensator) undecodable(row *processlog.Row, facts typeFacts) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.New(usererr.PanicText(p))
		}
	}()
	return usererr.Of(facts.decode(c.entry(row)))
}

// followedBatch calls HandlerConfig.AfterBatch, which is user code and may panic.
func (c *Compensator) followedBatch(row *processlog.Row) (batchID string) {
	defer func() { _ = recover() }()
	if batchOf := c.types.afterBatchOf(row.BusinessType); batchOf != nil {
		batchID = batchOf(c.entry(row))
	}
	return batchID
}

// Queued returns what the queue tells about an entry. If the queue cannot tell anything about an entry, the second
// result is false.
func (p program) Queued(ctx context.Context, row *processlog.Row) (queued processlog.Queued, known bool, err error) {
	inspector, is := p.queue.(processlog.QueueInspector)
	if !is {
		return queued, false, p.features.PingQueue(ctx)()
	}
	ctx, cancel := context.WithTimeout(ctx, engine.QueueShare(ctx, maxInspect))
	defer cancel()
	if queued, err = inspector.Inspect(ctx, row.BusinessType, row.ID); err != nil {
		return queued, false, fmt.Errorf("inspect the queue: %w", err)
	}
	return queued, true, nil
}

const maxInspect = time.Second
