package compensator

// Remembered reports whether this process knows that the database had the entry.
func (c *Compensator) Remembered(idempotentID string) bool { return c.engine.Remembers(idempotentID) }
