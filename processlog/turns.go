package processlog

import (
	"context"
	"time"
)

// Turns is what serial types ask of a store. Each entry with an ordering key has a note beside the log: its key and its
// position among the entries of that key. The log says whether the entry still counts: an ended one does not, and a dead one
// counts only where dead is true. An entry is blocked while another that counts has an earlier position.
type Turns interface {
	// Join notes entries under their keys, in the caller's transaction. A second note of an entry under the same key takes
	// the new epoch and keeps the position. Without the table of notes Join returns a *FieldError that names it.
	Join(ctx context.Context, tx Tx, turns []Turn) error

	// Blocked returns those of ids that another entry of the same key blocks, in any order. It answers from notes alone: an
	// entry without a note under its epoch is not blocked, nor is any where the table is missing. It reads what was committed
	// before the call.
	Blocked(ctx context.Context, businessType string, ids []ID, dead bool) ([]ID, error)

	// Fronts reads up to limit keys of a type, perhaps fewer, that come after a key, "" for the first. It returns the first
	// entry of each key if that is due and has no lease. last is the last key read, "" if no more follow. The cost grows with
	// limit, not with the number of entries.
	Fronts(ctx context.Context, businessType, after string, limit int, dead bool) (ids []ID, last string, err error)

	// Firsts reads, by key, who is first among the entries of each key of turns, as committed when it is called or later. Of a
	// Line it fills First and Known. Its cost does not grow with the number of entries of a key.
	Firsts(ctx context.Context, businessType string, turns []Turn, dead bool) (map[string]Line, error)

	// Lines reads all that Line says about the keys of turns, in one snapshot for each key, as committed when it is called or
	// later. token is the one under which the caller has claimed entries. Without turns Lines only looks for the table.
	Lines(ctx context.Context, businessType string, turns []Turn, token Token, dead bool) (map[string]Line, error)

	// Park notes claimed entries as Join does, and undoes their claim as Release does. Each comes due only after its wait,
	// unless Advance makes it due sooner. A *RefusedError names entries that the database refuses to write: all others are
	// parked, unless ErrBusy stands beside it. After another error some may be parked; Release gives the others back.
	Park(ctx context.Context, parked []Parked, token Token) error

	// Advance returns, of each key of left, the first entry that counts, if that may run now: it is due and has no lease. A
	// parked one is made due before, unless another entry of its key has a lease. left names keys, and of each, as far as the
	// caller knows, the entries that have ended. Where notes of others are left over in front of the first entry, Advance
	// forgets them. It waits long for no lock: a first entry whose row somebody holds stays as it is. A *RefusedError names those
	// that the database refuses to make due.
	Advance(ctx context.Context, businessType string, left []Turn, dead bool) ([]ID, error)

	// Forget removes the notes of entries that have ended under their epochs.
	Forget(ctx context.Context, ended []Turn) error
}

// MaxTurnKey is how many bytes a Turn's key may have.
const MaxTurnKey = 64

// Turn is the note of an entry under its ordering key.
type Turn struct {
	BusinessType string
	Key          string // any bytes, at least one
	ID           ID
	Epoch        uint32

	// Place is the position among the entries of the key, in the order of ids; zero: the entry's own ID. Entries of one
	// Record call take each other's ids as places, so that they stand in the caller's order. Of two entries with the same
	// place the one with the lower ID comes first.
	Place ID
}

// Line is how the entries of one key stand.
type Line struct {
	First ID   // the first entry that counts; zero: none does
	Known int  // how many of the turns asked for are noted under their epochs. Lines need not count those that have ended
	Taken bool // another entry that counts has a lease under another token

	// Members are the entries that count, in order, and at most MaxMembers of them. It is nil where another entry that counts
	// has been claimed under another token and not been given back since, even if that lease is over.
	Members []Member
}

// MaxMembers is how many members of a Line are told at most.
const MaxMembers = 1000

// Member is an entry that counts, and the epoch that it is noted under.
type Member struct {
	ID    ID
	Epoch uint32
}

// Parked is a claimed entry that is to wait until no other blocks it.
type Parked struct {
	Turn
	Version uint64        // as claimed
	Wait    time.Duration // whole milliseconds, > 0
}
