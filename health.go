package compensator

import "context"

// Health asks the database and the queue. It works without Run, too.
func (c *Compensator) Health(ctx context.Context) Health { return c.engine.Health(ctx) }
