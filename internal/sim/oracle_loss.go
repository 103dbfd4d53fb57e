package sim

import "github.com/compensator-go/compensator"

// noticedLocked: G19, an instance stops only if the database has gone back.
func (o *oracle) noticedLocked(n *instance, loss *compensator.LossError) {
	o.failLocked("G19: instance %d stopped: %v; the database has lost nothing", n.number, loss)
}
