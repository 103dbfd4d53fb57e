//go:build failpoints

package crashmatrix

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
)

var ann = admin.AuditInfo{Actor: "ann", Reason: "again"}

// The order of the steps is random, so that a process may be killed during each of them.
func (l *victim) actManually(ctx context.Context) error {
	acts := []func(context.Context) error{l.repairDead, l.undoAgain, l.erase}
	if l.In == adjusted {
		acts = append(acts, l.changeLimit)
	}
	rand.Shuffle(len(acts), func(i, j int) { acts[i], acts[j] = acts[j], acts[i] })
	for _, act := range acts {
		if err := act(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (l *victim) repairDead(ctx context.Context) error {
	dead, err := l.latest(ctx, hand, compensator.Dead)
	dead = slices.DeleteFunc(dead, func(e compensator.Entry) bool { return e.EndedBy != compensator.EndedByPermanent })
	if err != nil || l.p.admin == nil && rand.N(3) == 0 {
		return errors.Join(err, l.requeueAll(ctx, dead))
	}
	if l.p.admin != nil && len(dead) > 1 && rand.N(2) == 0 {
		if rand.N(2) == 0 {
			return l.actOnAll(ctx)
		}
		return l.tryOneFirst(ctx, dead)
	}
	for _, e := range dead {
		settle := rand.N(2)
		switch {
		case e.Epoch == 0 && e.ID.Row()%3 == 0:
			err = unlessLate(l.p.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
				_, err := l.p.CancelTx(ctx, tx, e.ID)
				return err
			}))
		case l.p.admin != nil:
			err = l.throughAdmin(ctx, e, []admin.Right{admin.Requeue, admin.SettleManually}[settle])
		case settle == 0:
			err = unlessLate(admin.Of(l.p.Compensator).Requeue(ctx, e.ID, admin.RequeueOptions{AuditInfo: ann}))
		default:
			err = unlessLate(admin.Of(l.p.Compensator).SettleManually(ctx, e.ID, ann))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *victim) latest(ctx context.Context, kind string, in ...compensator.State) ([]compensator.Entry, error) {
	page, err := admin.Of(l.p.Compensator).List(ctx, admin.Filter{States: in, BusinessType: kind, Newest: true, Limit: 4})
	return page.Entries, err
}

func (l *victim) requeueAll(ctx context.Context, entries []compensator.Entry) error {
	refusals, err := admin.Of(l.p.Compensator).RequeueAll(ctx, entries, admin.RequeueOptions{AuditInfo: ann})
	for _, refusal := range refusals {
		err = errors.Join(err, unlessLate(refusal))
	}
	return err
}

func (l *victim) undoAgain(ctx context.Context) error {
	undone, err := l.latest(ctx, recall, compensator.Compensated)
	for _, e := range undone {
		if e.Epoch == 0 && e.ID.Row()%2 == 0 {
			err = errors.Join(err, unlessLate(admin.Of(l.p.Compensator).Requeue(ctx, e.ID, admin.RequeueOptions{AuditInfo: ann, Compensate: true})))
		}
	}
	return err
}

func (l *victim) erase(ctx context.Context) error {
	rest, err := l.latest(ctx, hand, compensator.SettledManually, compensator.Succeeded)
	for _, e := range rest {
		if !e.Erased && e.ID.Row()%3 > 0 {
			_, failed := admin.Of(l.p.Compensator).Erase(ctx, e.ID, ann)
			err = errors.Join(err, unlessLate(failed))
		}
	}
	return err
}

// Each change has a different reason, so that checkLimitChanges can count the changes.
func (l *victim) changeLimit(ctx context.Context) error {
	actor := admin.Actor{ID: "admin"}
	limits, err := l.p.admin.Limits(ctx, actor)
	if err != nil || len(limits) == 0 {
		return err
	}
	values := admin.LimitValues{Interval: time.Duration(1+rand.N(5)) * time.Millisecond, Burst: 10 + rand.N(10), Concurrent: 2 + rand.N(4)}
	return unlessLate(l.p.admin.ChangeLimit(ctx, actor, limits[0], values, admin.Why{Reason: fmt.Sprint(rand.Uint64())}))
}

func (l *victim) throughAdmin(ctx context.Context, e compensator.Entry, action admin.Right) error {
	actor, why := admin.Actor{ID: "admin"}, admin.Why{Reason: "again"}
	view, err := l.p.admin.Entry(ctx, actor, e.ID)
	if err != nil || view.Case == nil {
		return err
	}
	taken, err := l.p.admin.TakeCases(ctx, actor, []admin.SeenCase{{EntryID: e.ID, Version: view.Case.Version}}, why)
	err = errors.Join(append(taken, err)...)
	if err != nil && !errors.Is(err, admin.ErrChanged) && !errors.Is(err, compensator.ErrNotFound) && !errors.Is(err, compensator.ErrBusy) {
		return err
	}
	_, err = l.p.admin.Change(ctx, actor, admin.Change{Action: action, Entries: []admin.Seen{{ID: e.ID, Version: e.Version}}, Why: why, Checked: true, Again: true})
	return err
}

// If the process is killed after the first entry, a later process can continue the action.
func (l *victim) tryOneFirst(ctx context.Context, entries []compensator.Entry) error {
	actor := admin.Actor{ID: "admin"}
	change := admin.Change{Action: admin.Requeue, Why: admin.Why{Reason: "all of them"}, Checked: true}
	for _, e := range entries {
		change.Entries = append(change.Entries, admin.Seen{ID: e.ID, Version: e.Version})
	}
	id, _, err := l.p.admin.StartBulk(ctx, actor, change, admin.BulkOptions{TryFirst: true})
	if err != nil || id == (admin.BulkID{}) {
		return err
	}
	return l.p.admin.ContinueBulk(ctx, actor, id)
}

// actOnAll requeues all dead entries of the kind "hand" in one action. Because of TryFirst, the first batch has one
// entry and the other entries follow in a second batch. So a victim can be killed between two batches.
func (l *victim) actOnAll(ctx context.Context) error {
	actor := admin.Actor{ID: "admin"}
	change := admin.Change{Action: admin.Requeue, Why: admin.Why{Reason: "all of them"}, Checked: true}
	search := admin.Search{Filter: admin.Filter{States: []compensator.State{compensator.Dead}, BusinessType: hand, EndedBy: compensator.EndedByPermanent}}
	id, err := l.p.admin.StartMatching(ctx, actor, change, search, admin.BulkOptions{TryFirst: true, Key: fmt.Sprintf("form %016d", rand.Uint64())})
	if err != nil || id == (admin.BulkID{}) {
		return err
	}
	return l.p.admin.ContinueBulk(ctx, actor, id)
}

func unlessLate(err error) error {
	var state *compensator.StateError
	if errors.As(err, &state) || errors.Is(err, compensator.ErrBusy) || errors.Is(err, admin.ErrChanged) {
		return nil
	}
	return err
}
