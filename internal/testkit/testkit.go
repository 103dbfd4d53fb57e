// Package testkit gives package compensatortest access to internals of the root package. The root package sets the
// functions.
package testkit

import (
	"context"

	"github.com/compensator-go/compensator/processlog"
)

// Attempt makes one attempt of one entry, as Run would. It returns when the outcome is stored. It touches no other
// entry. The Compensator must not be running Run.
var Attempt func(ctx context.Context, of any, id processlog.ID) error

// AdvanceKeys does the work that follows the end of entries with an ordering key, for the entries with these ids. It
// reports whether a blocked entry became due.
var AdvanceKeys func(ctx context.Context, of any, ids []processlog.ID) (bool, error)

// Blocked returns those of the ids that wait for an earlier entry of their ordering key. It looks only at types that
// are registered as serial with the Compensator.
var Blocked func(ctx context.Context, of any, ids []processlog.ID) ([]processlog.ID, error)
