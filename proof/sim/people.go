package sim

import (
	"context"
	"strconv"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/processlog"
)

type deed struct {
	at    time.Duration
	whom  int
	entry int
	what  int
	delay time.Duration
	inTx  bool
	fails bool
	holds time.Duration
}

const (
	requeueDeed = 3
	purgeDeed   = 6
)

var serviceDeeds = [...]processlog.Action{processlog.ActionCancel, processlog.ActionComplete, processlog.ActionReschedule}

const purgeAge = time.Minute

func (w *world) drawDeeds() (deeds []deed) {
	for range w.rng.IntN(7) {
		deeds = append(deeds, deed{
			at: time.Duration(w.rng.Int64N(int64(w.plan.chaos))), whom: w.rng.IntN(8), entry: 1 + w.rng.IntN(12), what: w.rng.IntN(7),
			delay: time.Duration(w.rng.Int64N(int64(10 * time.Second))), inTx: w.rng.IntN(2) == 0, fails: w.rng.IntN(4) == 0,
			holds: time.Duration(w.rng.Int64N(int64(w.plan.holds))),
		})
	}
	if w.plan.chaos > purgeAge {
		deeds = append(deeds, deed{at: w.plan.chaos - time.Second, what: purgeDeed})
	}
	return deeds
}

func (w *world) do(d deed) {
	time.Sleep(d.at)
	n := w.alive(d.whom)
	if n == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	n.act(ctx, d, compensator.IdempotencyKey("e"+strconv.Itoa(d.entry)))
	if id := w.firstDead(); !id.IsZero() && (d.what == 0 || d.what == 1) {
		n.act(ctx, d, id)
	}
}

func (w *world) firstDead() (first compensator.EntryID) {
	for _, row := range w.store.Rows() {
		if row.State == compensator.Dead && (first.IsZero() || row.ID.Compare(first) < 0) {
			first = row.ID
		}
	}
	return first
}

// act ignores the result, because a refusal can be right. The oracle checks the row.
func (n *instance) act(ctx context.Context, d deed, ref compensator.Ref) {
	by := admin.AuditInfo{Actor: "somebody", Reason: "because"}
	switch d.what {
	case 0, 1, 2:
		n.w.oracle.noteRequest(serviceDeeds[d.what], false, ref)
		if d.inTx {
			n.deedInTx(ctx, d, ref)
			return
		}
		switch d.what {
		case 0:
			_, _ = n.c.Cancel(ctx, ref)
		case 1:
			_, _ = n.c.Complete(ctx, ref)
		case 2:
			_ = n.c.Reschedule(ctx, ref, d.delay)
		}
	case requeueDeed:
		if d.inTx {
			n.requeueAll(ctx, d, admin.RequeueOptions{AuditInfo: by})
			return
		}
		n.w.oracle.noteRequest(processlog.ActionRequeue, false, ref)
		_ = admin.Of(n.c).Requeue(ctx, ref, admin.RequeueOptions{AuditInfo: by, Delay: d.delay})
	case 4:
		row, err := n.ask(ctx, ref)
		undoes := err == nil && (row.BusinessType == undoType || row.BusinessType == undoTxType)
		if undoes {
			n.w.oracle.noteRequest(processlog.ActionRequeue, true, ref)
			_ = admin.Of(n.c).Requeue(ctx, ref, admin.RequeueOptions{AuditInfo: by, Compensate: true})
		}
	case 5:
		if d.inTx && d.fails {
			n.w.oracle.noteRequest(processlog.ActionErase, false, ref)
			_, _ = admin.Of(n.c).Erase(ctx, ref, by)
			n.w.oracle.noteRequest(processlog.ActionRequeue, false, ref)
			_ = admin.Of(n.c).Requeue(ctx, ref, admin.RequeueOptions{AuditInfo: by})
			return
		}
		n.w.oracle.noteRequest(processlog.ActionSettleManually, false, ref)
		_ = admin.Of(n.c).SettleManually(ctx, ref, by)
	case purgeDeed:
		_, _ = admin.Of(n.c).Purge(ctx, purgeAge)
	}
}

func (n *instance) requeueAll(ctx context.Context, d deed, opts admin.RequeueOptions) {
	page, err := admin.Of(n.c).List(ctx, admin.Filter{States: []compensator.State{compensator.Dead, compensator.Retrying}})
	if err != nil {
		return
	}
	select {
	case <-time.After(d.delay):
	case <-n.died:
	}
	for _, e := range page.Entries {
		n.w.oracle.noteRequest(processlog.ActionRequeue, false, e.ID)
	}
	_, _ = admin.Of(n.c).RequeueAll(ctx, page.Entries, opts)
}

// deedInTx carries out a deed in a transaction. It opens half of these transactions with the library's InTx.
func (n *instance) deedInTx(ctx context.Context, d deed, ref compensator.Ref) {
	act := func(ctx context.Context, tx compensator.Tx) (err error) {
		switch d.what {
		case 0:
			_, err = n.c.CancelTx(ctx, tx, ref)
		case 1:
			_, err = n.c.CompleteTx(ctx, tx, ref)
		case 2:
			err = n.c.RescheduleTx(ctx, tx, ref, d.delay)
		}
		select {
		case <-time.After(d.holds):
		case <-n.died:
		}
		if d.fails {
			return errBusiness
		}
		return err
	}
	if d.entry%2 == 0 {
		_ = n.c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error { return act(ctx, tx) })
		return
	}
	tx, err := n.store.begin(ctx)
	if err != nil {
		return
	}
	if act(ctx, tx) != nil {
		_ = tx.Rollback()
		return
	}
	_ = tx.Commit()
}

// lockRows locks rows in a transaction for a while, as a caller's transaction does. The locks end after the event's
// span, or when all faults end.
func (w *world) lockRows(e event) {
	token := processlog.Token{}
	token[0], token[1] = 0xff, byte(e.whom)
	rows := w.store.Rows()
	w.wg.Go(func() {
		ctx, cancel := context.WithTimeout(w.problem, e.span)
		defer cancel()
		tx, err := w.store.BeginTx(ctx)
		if err != nil {
			return
		}
		defer func() { _ = tx.Rollback() }()
		for i, row := range rows {
			if (e.whom>>i)&1 == 1 {
				_, _ = w.store.Change(ctx, tx, true, processlog.Change{Ref: row.ID, Action: processlog.ActionReschedule, Token: token})
			}
		}
		<-ctx.Done()
	})
}
