// Package oneattempt is how package compensatortest gets what the root package gives nobody else: one attempt of one
// entry, while everything else stays as it is.
package oneattempt

import (
	"context"

	"github.com/compensator-go/compensator/processlog"
)

// Make makes one attempt of an entry, as Run would, and returns when its outcome is stored. of is a
// *compensator.Compensator that is not inside Run; its package sets Make.
var Make func(ctx context.Context, of any, id processlog.ID) error
