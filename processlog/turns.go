package processlog

import (
	"context"
	"time"
)

// Turns is what serial types ask of a store: of each key the line of its entries, in the order of their ids. That an entry
// stands in a line is noted beside the log; whether it still counts there the log says: ended ones do not, and dead ones
// only where dead is true.
type Turns interface {
	// Join puts entries into their lines, in the caller's transaction. One that stands there already is noted under the epoch
	// given. Without the table of turns it returns a *FieldError that names it.
	Join(ctx context.Context, tx Tx, turns []Turn) error

	// Lines reads the lines in which entries of one type stand that were claimed under token, by key, as committed when it is
	// called or later. Without turns it only looks for the table, as Join does.
	Lines(ctx context.Context, businessType string, turns []Turn, token Token, dead bool) (map[string]Line, error)

	// Park puts claimed entries into their lines as Join does, and undoes their claim as Release does; besides, each comes due
	// only after its wait, unless Advance makes it due sooner. A *RefusedError names entries that the database refuses to write:
	// all others are parked, but where ErrBusy stands beside it. On another error some may be parked; Release gives the others back.
	Park(ctx context.Context, parked []Parked, token Token) error

	// Advance forgets, from the front of each key's line on, those who count there no more, and makes the first who does due
	// now, if he is parked and nobody in the line has a lease. It returns those it has made due, and waits long for nobody: the
	// first of a line whose row somebody holds keeps his wait. A *RefusedError names those that the database refuses to make due.
	Advance(ctx context.Context, businessType string, keys []string, dead bool) ([]ID, error)
}

// MaxTurnKey is how many bytes a Turn's key may have.
const MaxTurnKey = 64

// Turn is an entry's place in the line of a key.
type Turn struct {
	BusinessType string
	Key          string // any bytes, at least one
	ID           ID
	Epoch        uint32
}

// Line is how a key's line stands.
type Line struct {
	First  ID   // the lowest id in it; zero: nobody stands there
	Taken  bool // somebody in it has a lease under another token
	Known  int  // how many of the turns asked for are noted, under their epochs
	Length int  // how many are noted in it, those that have ended since included
}

// Parked is a claimed entry that is to wait for its turn.
type Parked struct {
	Turn
	Version uint64        // as claimed
	Wait    time.Duration // whole milliseconds, > 0
}
