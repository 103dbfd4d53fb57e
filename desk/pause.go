package desk

import (
	"context"
	"time"
)

// Paused is a type of which no process claims entries.
type Paused struct {
	Type    string    `json:"type"`
	Version uint64    `json:"version,string"` // for Resume
	Actor   string    `json:"actor"`
	Reason  string    `json:"reason"`
	At      time.Time `json:"at"`
}

// Paused lists the types that are paused and that the actor may see: it wants SeeOverview.
func (d *Desk) Paused(ctx context.Context, a Actor) ([]Paused, error) { return nil, errNotYet }

// Pause has all processes claim no more entries of a type, each within its ReconcileInterval and a fifth; attempts under
// way go on, and recording does. It wants Pause. ErrChanged: it is paused already.
func (d *Desk) Pause(ctx context.Context, a Actor, businessType string, why Why) error {
	return errNotYet
}

// Resume ends a pause as it was seen. It wants Pause. ErrChanged.
func (d *Desk) Resume(ctx context.Context, a Actor, seen Paused, why Why) error { return errNotYet }
