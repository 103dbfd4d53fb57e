// Package testkit is how package compensatortest gets what the root package gives nobody else. Each function is for of, a
// *compensator.Compensator; its package sets them.
package testkit

import (
	"context"

	"github.com/compensator-go/compensator/processlog"
)

// Attempt makes one attempt of one entry, as Run would, while everything else stays as it is, and returns when its outcome is
// stored. of is not inside Run.
var Attempt func(ctx context.Context, of any, id processlog.ID) error

// AdvanceKeys does for the lines in which entries stand what is done behind each entry that ends, and reports whether somebody's turn
// has come.
var AdvanceKeys func(ctx context.Context, of any, ids []processlog.ID) (bool, error)

// Blocked returns those of ids that wait for another entry of their ordering key, of types that of knows as serial.
var Blocked func(ctx context.Context, of any, ids []processlog.ID) ([]processlog.ID, error)
