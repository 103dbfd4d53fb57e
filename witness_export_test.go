package compensator

// Remembered reports whether this process knows that the database had the entry.
func (c *Compensator) Remembered(idempotentID string) bool {
	w := &c.witness
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.seen {
		if w.seen[i].IdempotentID == idempotentID {
			return true
		}
	}
	return false
}
