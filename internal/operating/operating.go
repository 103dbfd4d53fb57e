// Package operating is how packages admin and intake get what the root package gives nobody else: the store's other half, changes
// under the version seen, and a judgement of errors.
package operating

import (
	"context"

	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// Log is a Compensator as package admin sees it.
type Log interface {
	// Operations is the store's part for people.
	Operations() processlog.Operations

	// Scrub is an error's text without what people must not see.
	Scrub(text string) string

	// TimedOut reports whether an entry's LastError is of an attempt whose time had passed.
	TimedOut(lastError string) bool

	// SharedQueue reports whether there is a queue beside the database: a Redis, or one of the user's.
	SharedQueue() bool

	// Knows reports whether this process has a handler or a declaration of a business type.
	Knows(businessType string) bool

	// OpenBreakers are the types that this process leaves alone for now.
	OpenBreakers() []observe.OpenBreaker

	// Count is that of the store.
	Count(ctx context.Context, filter processlog.CountFilter) ([]processlog.Count, error)

	// ChangeAll is that of the store, and tells the queue, and attempts under way here, what has changed.
	ChangeAll(ctx context.Context, seen []processlog.Version, change processlog.Change) ([]processlog.Changed, error)

	// Amounts is what entries are worth, as far as the configuration tells: those of which it says nothing are absent. It reads
	// the contents of all the others at once.
	Amounts(ctx context.Context, rows []processlog.Row) (map[processlog.ID]processlog.Amount, error)
}

// Of is the Log of a *compensator.Compensator, nil where its Config.Operations is not set; its package sets Of.
var Of func(of any) Log

// ServerDown reports whether an error of anybody's statement, on whatever database, says that a server serves nobody, or nobody's
// writes. The root package sets it.
var ServerDown func(err error) bool
