package rollback

import (
	"context"
	"slices"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// acceptance identifies the audit record by which a person has accepted a loss.
type acceptance struct {
	at            int64
	actor, reason string
}

func acceptanceOf(r processlog.AuditRecord) acceptance {
	return acceptance{r.At.UnixMilli(), r.Actor, r.Reason}
}

// readNotes computes the time of an audit record on this process's clock once. After a change of the database's
// clock, a second computation could make an old record look new.
func (d *Detector) readNotes(ctx context.Context) ([]processlog.AuditRecord, error) {
	sentAt := time.Now()
	notes, err := d.e.Store.History(ctx, processlog.ID{})
	for _, r := range notes {
		if _, known := d.acceptedAt[acceptanceOf(r)]; r.Action == processlog.ActionAcceptLoss && !known {
			d.acceptedAt[acceptanceOf(r)] = sentAt.Add(-max(0, r.Ago))
		}
	}
	return notes, err
}

func (d *Detector) acceptedSince(notes []processlog.AuditRecord, moment time.Time) bool {
	return slices.ContainsFunc(notes, func(r processlog.AuditRecord) bool {
		return r.Action == processlog.ActionAcceptLoss && d.acceptedAt[acceptanceOf(r)].After(moment)
	})
}

func (d *Detector) endIfAccepted(ctx context.Context, loss *loss) (accepted bool, err error) {
	d.logLoss(loss)
	notes, err := d.readNotes(ctx)
	if err != nil || !d.acceptedSince(notes, loss.newest) {
		return false, err
	}
	d.endReport(loss)
	return true, nil
}

// endReport forgets all versions, because those of the lost history would be reported as lost again.
func (d *Detector) endReport(loss *loss) {
	d.versions.forget()
	d.openLoss.Store(nil)
	d.loggedAt = time.Time{}
	d.e.Log.Warn("compensator: a person has accepted what the database lost", "lost", loss.Lost)
	d.e.Wake()
}

// Accept writes an audit record by which a person accepts the loss, and ends the report. Accept returns what the
// database has lost, as far as this process remembers it. It returns the error of ctx if ctx ends first.
func (d *Detector) Accept(ctx context.Context, by processlog.AuditInfo) ([]processlog.LostEntry, error) {
	if err := d.lock(ctx); err != nil {
		return nil, err
	}
	defer d.unlock()
	if d.openLoss.Load() == nil {
		_ = d.checkLocked(ctx, nil) // This process may not have noticed the loss yet.
	}
	ctx = d.e.Reporting(ctx)
	if err := d.e.Store.Note(ctx, processlog.ActionAcceptLoss, by); err != nil {
		return nil, err
	}
	// Read the new audit record now, so that its time on the clock of this process is known. A later change of the
	// database's clock then cannot change this time.
	if _, err := d.readNotes(ctx); ctx.Err() == nil {
		d.e.NoteResult(problem, err)
	}
	loss := d.openLoss.Load()
	if loss == nil {
		return nil, nil
	}
	d.endReport(loss)
	return loss.Lost, nil
}
