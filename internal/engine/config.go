package engine

import (
	"context"
	"log/slog"
	"time"

	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// Config is what an engine works with and by: required where nothing else is said. Durations are those of the root's Config.
type Config struct {
	Store    processlog.Store
	Log      *slog.Logger
	Observer observe.Observer

	Lease             time.Duration // of types that have none of their own; with no types at all, how often a scanner looks
	Grace             time.Duration
	ReconcileInterval time.Duration
	PollInterval      time.Duration
	StopTimeout       time.Duration

	// Begin starts the transaction that a handler shares with its outcome.
	Begin func(ctx context.Context) (Transaction, error)

	// Extract gives a handler's context the values that travelled with its entry.
	Extract func(base context.Context, headers map[string]string) context.Context

	// ErrorNumber tells causes apart whose texts differ each time: the server's number of an error, or 0.
	ErrorNumber func(err error) uint16

	// Blame says whose fault an error of a handler's transaction is.
	Blame func(err error) Blame
}

// Blame says whether an error of a statement is the fault of the handler that sent it.
type Blame int

const (
	BlameHandler Blame = iota // the statement is wrong, and fails whenever it is sent
	BlameEither               // the server's condition, or what the handler brings it into each time
	BlameServer               // a condition of the whole server, which no statement can avoid
)

// Transaction is one that a handler's effect and its outcome share.
type Transaction interface {
	processlog.Tx
	Over() error // why it has ended, if it has; a doubt is no end
	Commit() error
	Rollback()
}
