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

	// Begin starts the transaction that a handler and its outcome share.
	Begin func(ctx context.Context) (Transaction, error)

	// Extract adds to a handler's context the values that its entry's headers carry.
	Extract func(base context.Context, headers map[string]string) context.Context

	// ErrorNumber returns the server's number of an error, or 0. The log uses it to recognise the same cause when error
	// texts differ.
	ErrorNumber func(err error) uint16

	// Blame returns whether the handler or the server causes an error of a handler's transaction.
	Blame func(err error) Blame
}

// Blame says whether the handler or the server causes the error of a statement.
type Blame int

const (
	BlameHandler Blame = iota // the statement is wrong and fails each time
	BlameEither               // a condition of the server, which the handler's statements may cause
	BlameServer               // a condition of the whole server, which no statement can avoid
)

// Transaction is a transaction that a handler's effect and its outcome share.
type Transaction interface {
	processlog.Tx
	Over() error // returns an error once the transaction has ended; an unknown state is not an end
	Commit() error
	Rollback()
}
