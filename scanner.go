package compensator

import (
	"context"
	"sync"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/testkit"
	"github.com/compensator-go/compensator/processlog"
)

// Run works entries off until ctx ends. Then it claims no more, waits for running handlers (Config.StopTimeout), stores
// their outcomes, and returns nil; a *StuckError when handlers do not return; another error when the database takes no
// outcomes: those entries come due again when their leases end. ErrRunning: it runs already. It may be called again.
func (c *Compensator) Run(ctx context.Context) error {
	if c.closed() {
		return ErrClosed
	}
	c.engine.LookForPauses(ctx) // before anything is taken, be it only what is recorded here
	if err := c.engine.Start(ctx); err != nil {
		return err
	}
	defer c.engine.End()

	// What claims ends first: whoever waits for the handlers waits for the last ones.
	claiming := c.engine.Reporting(ctx)
	var loops sync.WaitGroup
	loops.Go(func() { c.engine.Scan(claiming) })
	loops.Go(func() { c.engine.Reconcile(claiming) })
	loops.Go(func() { c.engine.KeepPauses(claiming) })
	loops.Go(func() { c.engine.KeepTime(claiming) })
	loops.Go(func() { c.engine.KeepHouse(claiming) })
	loops.Go(func() { c.engine.Listen(claiming) })

	// Leases are renewed until the last outcome is stored, which is long after ctx has ended.
	renewing, stopRenewing := context.WithCancel(context.WithoutCancel(ctx))
	var renewer sync.WaitGroup
	renewer.Go(func() { c.engine.Renew(renewing) })

	<-ctx.Done()
	c.engine.Refuse()
	failpoint.Reach(failpoint.StopBegun)
	loops.Wait()
	failpoint.Reach(failpoint.LoopsEnded)
	err := c.engine.Drain()
	stopRenewing()
	renewer.Wait()
	return err
}

func init() {
	testkit.Attempt = func(ctx context.Context, of any, id processlog.ID) error {
		c := of.(*Compensator)
		if c.closed() {
			return ErrClosed
		}
		return c.engine.Attempt(ctx, id)
	}
	testkit.MoveLinesOn = func(ctx context.Context, of any, ids []processlog.ID) (bool, error) {
		return of.(*Compensator).engine.MoveLinesOn(ctx, ids)
	}
	testkit.Blocked = func(ctx context.Context, of any, ids []processlog.ID) ([]processlog.ID, error) {
		return of.(*Compensator).engine.Blocked(ctx, ids)
	}
}
