package engine

import (
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// Holding describes an attempt that this process holds. People ask for it. The engine decides nothing by it.
type Holding struct {
	Since    time.Time // when the attempt began
	Stuck    bool      // whether the handler still runs after its timeout
	Returned bool      // whether the handler has returned and its outcome is not stored yet
}

// Holding returns the attempt that holds the row's entry in the row's epoch. held is false if this process does not
// hold the entry.
func (e *Engine) Holding(row *processlog.Row) (h Holding, held bool) {
	e.holdings.mu.Lock()
	defer e.holdings.mu.Unlock()
	a := e.holdings.held[holding{row.ID, row.Epoch}]
	if a == nil {
		return h, false
	}
	return Holding{Since: a.started, Stuck: a.stuckLocked(), Returned: a.returned.Load()}, true
}

// SlotsLeft returns how many further calls of a type's handler may begin now.
func (e *Engine) SlotsLeft(t *Type) int { return t.slots.Free() }
