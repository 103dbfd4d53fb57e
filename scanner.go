package compensator

import (
	"context"
	"sync"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/testkit"
	"github.com/compensator-go/compensator/processlog"
)

// Run claims and runs entries until ctx ends. Then it claims no more, waits up to Config.StopTimeout for running
// handlers, and stores their outcomes.
//
// Run returns:
//   - nil if all outcomes were stored;
//   - a *StuckError if handlers did not return;
//   - ErrRunning if Run is running already;
//   - ErrClosed after Close;
//   - another error if the database did not store the outcomes. Their entries are due again when their leases end.
//
// Run may be called again after it has returned. If the process dies during Run, no entry is lost. Its running entries
// run again, here or in another process, when their leases end.
func (c *Compensator) Run(ctx context.Context) error {
	if c.closed() {
		return ErrClosed
	}
	c.features.BeforeRun(ctx) // Call this before any entry starts. This process may already have recorded entries.
	if err := c.engine.Start(ctx, true); err != nil {
		return err
	}
	defer c.engine.RunEnded()
	c.warnOfPool()

	// These loops claim entries. When Run stops, it waits for these loops before it waits for handlers. After the loops
	// have ended, no new handler starts.
	claiming := c.engine.Reporting(ctx)
	var loops sync.WaitGroup
	loops.Go(func() { c.engine.Scan(claiming) })
	loops.Go(func() { c.engine.Reconcile(claiming) })
	for _, loop := range c.features.Loops() {
		loops.Go(func() { loop(claiming) })
	}

	// Renew leases until the last outcome is stored.
	renewing, stopRenewing := context.WithCancel(context.WithoutCancel(ctx))
	var renewer sync.WaitGroup
	renewer.Go(func() { c.engine.Renew(renewing) })

	<-ctx.Done()
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
		return c.features.Attempt(ctx, id)
	}
	testkit.AdvanceKeys = func(ctx context.Context, of any, ids []processlog.ID) (bool, error) {
		return of.(*Compensator).features.AdvanceKeys(ctx, ids)
	}
	testkit.Blocked = func(ctx context.Context, of any, ids []processlog.ID) ([]processlog.ID, error) {
		return of.(*Compensator).features.Blocked(ctx, ids)
	}
}
