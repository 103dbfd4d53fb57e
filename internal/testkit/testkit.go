// Package testkit gives package compensatortest access to internals of the root package. Each function takes a
// *compensator.Compensator as of. The root package sets the functions.
package testkit

import (
	"context"

	"github.com/compensator-go/compensator/processlog"
)

// Attempt makes one attempt of one entry, as Run would. It returns when the outcome is stored. No other entry is
// touched. of must not be running Run.
var Attempt func(ctx context.Context, of any, id processlog.ID) error

// AdvanceKeys advances the ordering keys of the entries ids. It does the work that follows each ended entry. It reports
// whether a blocked entry became due.
var AdvanceKeys func(ctx context.Context, of any, ids []processlog.ID) (bool, error)

// Blocked returns the ids that wait for an earlier entry of their ordering key. It looks only at types that are
// registered as serial with the compensator `of`.
var Blocked func(ctx context.Context, of any, ids []processlog.ID) ([]processlog.ID, error)
