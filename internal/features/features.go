// Package features attaches the optional parts of the library to an engine.
//
// Each feature is a package of its own and has one file here, which is the only place that names it. A feature's file adds
// a function to the list of features in its init. Without that file and the feature's package everything else still
// compiles. What the feature did is then refused with an error, or left out.
package features

import (
	"context"

	"github.com/compensator-go/compensator/internal/engine"
)

// Set is an engine with its features.
type Set struct {
	Engine *engine.Engine

	loops []func(ctx context.Context)
}

// features are called by New in the order of their files' names.
var features []func(s *Set)

// New makes an engine and attaches all features to it. Close the engine.
func New(ctx context.Context, cfg engine.Config) *Set {
	s := &Set{Engine: engine.New(ctx, cfg)}
	for _, attach := range features {
		attach(s)
	}
	return s
}

// Loops returns the background loops of the features. Run starts each in a goroutine, and each ends with its context.
func (s *Set) Loops() []func(ctx context.Context) { return s.loops }
