package engine

import (
	"context"
	"log/slog"
	"time"

	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// Config holds the dependencies and settings of an engine. All fields are required unless their comment says otherwise.
// Durations have the meaning that Config of the root package documents.
type Config struct {
	Store    processlog.Store
	Log      *slog.Logger
	Observer observe.Observer

	Lease             time.Duration // lease of types without one of their own; also used for the scanner's interval if there are no types
	Grace             time.Duration
	ReconcileInterval time.Duration
	PollInterval      time.Duration
	StopTimeout       time.Duration

	// Extract adds to a handler's context the values that its entry's headers carry.
	Extract func(base context.Context, headers map[string]string) context.Context

	// ErrorNumber returns the server's number of an error, or 0. The log uses it to recognise the same cause when error
	// texts differ.
	ErrorNumber func(err error) uint16
}
