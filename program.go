package compensator

import (
	"context"
	"time"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/operating"
	"github.com/compensator-go/compensator/processlog"
)

// program adapts a Compensator to what admin.Of expects.
type program struct{ *Compensator }

func init() {
	operating.ProgramOf = func(of any) operating.Program { return program{of.(*Compensator)} }
}

func (p program) Store() processlog.Store { return p.store }

func (p program) Entry(row *processlog.Row) any { return p.entry(row) }

func (p program) Row(ctx context.Context, ref processlog.Ref) (processlog.Row, error) {
	return p.row(ctx, ref)
}

func (p program) HasCases() bool { return p.cfg.Operations != nil }

func (p program) RememberedFor() time.Duration { return engine.PurgeNoteAge }

func (p program) Change(ctx context.Context, ch processlog.Change) (processlog.Row, error) {
	return p.change(ctx, ch)
}

func (p program) ChangeTx(ctx context.Context, tx processlog.Tx, ch processlog.Change) (processlog.Row, error) {
	return p.changeTx(ctx, tx, ch)
}

// RequeueAll requeues the entries that still have the versions in seen.
func (p program) RequeueAll(ctx context.Context, seen []processlog.Version, change processlog.Change) ([]processlog.Changed, error) {
	if p.closed() {
		return nil, ErrClosed
	}
	change.Token = processlog.NewToken()
	answers, err := p.store.RequeueAll(p.engine.Reporting(ctx), seen, change)
	if err != nil {
		return nil, err
	}
	for _, answer := range answers {
		if answer.Err == nil {
			p.engine.Changed(answer.Before, change)
		}
	}
	return answers, nil
}

func (p program) AcceptLoss(ctx context.Context, by processlog.AuditInfo) ([]processlog.LostEntry, error) {
	if p.closed() {
		return nil, ErrClosed
	}
	return p.features.AcceptLoss(ctx, by)
}
