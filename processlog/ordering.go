package processlog

import (
	"context"
	"time"
)

// Ordering is the part of a store for ordered types. Each entry with an ordering key has a note in a table beside the log.
// The note holds the key and the position of the entry among the entries of that key. The log tells whether the entry
// still counts. An ended entry does not count. A dead entry counts only if the argument dead is true. An entry is
// blocked while another one that counts has an earlier position.
type Ordering interface {
	// Join writes the notes of entries in the caller's transaction. A second note of an entry under the same key takes
	// the new epoch and keeps the position. If the table of notes is missing, Join returns a *FieldError that names it.
	Join(ctx context.Context, tx Tx, positions []Position) error

	// Blocked returns those of ids that another entry of the same key blocks, in any order. It uses the notes alone. An
	// entry without a note under its epoch is not blocked. If the table is missing, no entry is blocked. Blocked reads
	// what was committed before the call.
	Blocked(ctx context.Context, businessType string, ids []ID, dead bool) ([]ID, error)

	// Fronts reads up to limit keys of a type that come after the key after; "" reads from the first key. It may read
	// fewer. It returns the first entry of each key if that entry is due and has no lease. last is the last key read, or
	// "" if no more follow. The cost grows with limit, not with the number of entries.
	Fronts(ctx context.Context, businessType, after string, limit int, dead bool) (ids []ID, last string, err error)

	// Firsts reads the first entry of each key of turns, as committed when it is called or later. It fills First and
	// Known of each Line. Its cost does not grow with the number of entries of a key.
	Firsts(ctx context.Context, businessType string, positions []Position, dead bool) (map[string]KeyState, error)

	// KeyStates reads the whole Line of each key of turns, as committed when it is called or later. Each key is read in one
	// snapshot. token is the one under which the caller has claimed entries. Without turns Lines only checks that the
	// table exists.
	KeyStates(ctx context.Context, businessType string, positions []Position, token Token, dead bool) (map[string]KeyState, error)

	// Block writes notes of claimed entries as Join does, and undoes their claims as Release does. Each entry becomes due
	// after its wait. Advance may make it due sooner. A *RefusedError names entries that the database refuses to write.
	// All others were blocked, unless ErrBusy comes with it. After another error some may be blocked, and Release returns
	// the others.
	Block(ctx context.Context, blocked []BlockedEntry, token Token) error

	// Advance returns for each key of left the first entry that counts, if that entry may run now: it is due and has no
	// lease. Advance first makes a blocked entry due, unless another entry of its key has a lease. left names keys, and
	// for each key the ended entries as far as the caller knows them. Advance also removes notes of ended entries that
	// are in front of the first entry. It does not wait long for a lock: a first entry whose row is locked stays
	// unchanged. A *RefusedError names entries that the database refuses to make due.
	Advance(ctx context.Context, businessType string, left []Position, dead bool) ([]ID, error)

	// Forget removes the notes of entries that have ended under their epochs.
	Forget(ctx context.Context, ended []Position) error
}

// MaxOrderingKey is the maximum number of bytes of a Turn's key.
const MaxOrderingKey = 64

// Position is the note of an entry under its ordering key.
type Position struct {
	BusinessType string
	Key          string // any bytes, at least one
	ID           ID
	Epoch        uint32

	// OrderID is the position among the entries of the key, in the order of ids. Zero means the entry's own ID. The
	// entries of one Record call share out their ids as places, so that they keep the caller's order. If two entries
	// have the same place, the one with the lower ID comes first.
	OrderID ID
}

// KeyState is the state of the entries of one key.
type KeyState struct {
	First ID   // first entry that counts; zero: none counts
	Known int  // number of the given turns that are noted under their epochs. Lines may leave out those that have ended
	Taken bool // another entry that counts has a lease under another token

	// Members are the entries that count, in order, at most MaxMembers. Members is nil if another entry that counts was
	// claimed under another token and not released since, even if that lease has ended.
	Members []Member
}

// MaxMembers is the maximum number of members of a Line.
const MaxMembers = 1000

// Member is an entry that counts, with the epoch of its note.
type Member struct {
	ID    ID
	Epoch uint32
}

// BlockedEntry is a claimed entry that must wait until no other entry blocks it.
type BlockedEntry struct {
	Position
	Version uint64        // version after the claim
	Wait    time.Duration // whole milliseconds, > 0
}
