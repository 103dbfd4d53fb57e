// Package testkit gives package compensatortest access to internals of the root package. The root package sets the
// functions.
package testkit

import (
	"context"

	"github.com/compensator-go/compensator/processlog"
)

// Attempt returns when the outcome is stored. It touches no other entry. The Compensator must not be running Run.
var Attempt func(ctx context.Context, of any, id processlog.ID) error

// AdvanceKeys reports whether a blocked entry became due.
var AdvanceKeys func(ctx context.Context, of any, ids []processlog.ID) (bool, error)

// Blocked looks only at types that are registered as serial with the Compensator.
var Blocked func(ctx context.Context, of any, ids []processlog.ID) ([]processlog.ID, error)
