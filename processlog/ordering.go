package processlog

import (
	"context"
	"time"
)

// Ordering is the part of a store for ordered types. Each entry with an ordering key has a note with its position in a
// separate table.
//
// An entry "counts" as long as it can block later entries of its key. An ended entry does not count. A dead entry counts
// only if the argument dead is true. An entry is blocked as long as another entry of its key counts and has an earlier
// position.
type Ordering interface {
	// Join writes the notes of entries in the caller's transaction. An existing note under the same key gets the new epoch
	// and keeps its position. If the table of notes is missing, Join returns a *FieldError that names it.
	Join(ctx context.Context, tx Tx, positions []Position) error

	// Blocked returns the ids of entries that another entry of the same key blocks, in any order. An entry without a note
	// of its current epoch is not blocked. If the table of notes is missing, no entry is blocked. Blocked reads everything
	// that was committed before the call.
	Blocked(ctx context.Context, businessType string, ids []ID, dead bool) ([]ID, error)

	// Fronts reads up to limit keys of a type, in their order, after afterKey or from the start. For each key it returns
	// the first entry that counts, if that entry is due and has no lease. lastKey is the last key that was read, or "" if
	// no keys follow. The cost grows with limit only.
	Fronts(ctx context.Context, businessType, afterKey string, limit int, dead bool) (ids []ID, lastKey string, err error)

	// Firsts reads, for each key in positions, the first entry that counts, and sets First and Known of its KeyState. It
	// reads everything that was committed before the call. Its cost does not grow with the entries of a key.
	Firsts(ctx context.Context, businessType string, positions []Position, dead bool) (map[string]KeyState, error)

	// KeyStates reads the whole KeyState of each key in positions, each in one snapshot. It sees everything that was
	// committed before the call. token is the token under which the caller has claimed entries. If positions is empty,
	// KeyStates only checks that the table of notes exists.
	KeyStates(ctx context.Context, businessType string, positions []Position, token Token, dead bool) (map[string]KeyState, error)

	// Block writes notes of claimed entries as Join does, and undoes their claims as Release does. Each entry becomes due
	// after its Wait, unless Advance makes it due sooner.
	//
	// A *RefusedError names entries that the database refuses to write. If the error is also ErrBusy, some rows were
	// locked. All other entries are blocked. After any other error, some may be blocked. Call Release for the entries that
	// are not blocked.
	Block(ctx context.Context, blocked []BlockedEntry, token Token) error

	// Advance finds the entries that may run after other entries of their keys have ended. positions names the keys and,
	// as far as the caller knows them, the ended entries.
	//
	// Advance returns the first entry of a key that counts, if it is due and has no lease. If Block has delayed this
	// entry, Advance makes it due, unless another entry of the key has a lease. Advance also removes the notes of ended
	// entries before it.
	//
	// Advance does not wait long for a lock. A locked entry stays unchanged. A *RefusedError names entries that the
	// database refuses to make due.
	Advance(ctx context.Context, businessType string, positions []Position, dead bool) ([]ID, error)

	// Forget removes the notes of ended entries. A note stays if its epoch differs from Position.Epoch.
	Forget(ctx context.Context, positions []Position) error
}

// MaxOrderingKey is the maximum length of Position.Key in bytes.
const MaxOrderingKey = 64

// Position is the note of an entry under its ordering key.
type Position struct {
	BusinessType string // business type of the entry
	Key          string // any bytes, at least one
	ID           ID     // id of the entry
	Epoch        uint32 // epoch of the entry that the note is about

	// OrderID is the position of the entry under its key. Zero means that ID is the position. One call of Record may
	// write several entries, whose ids are not in the caller's order. The first of these entries then gets the lowest
	// of their ids as its OrderID, and so on. Of two equal OrderIDs, the lower ID comes first.
	OrderID ID
}

// KeyState is the state of the entries of one key.
type KeyState struct {
	First ID // first entry that counts; zero: no entry counts
	// Known counts the given positions whose entry has a note with the same epoch. KeyStates may leave out ended entries.
	Known int
	Taken bool // whether an entry that counts has a lease, and was not claimed under the token of the caller

	// Members lists the entries that count, in the order of their positions, at most MaxMembers. It is nil if another
	// process may still run one of them: the entry was claimed under another token than the caller's, and no outcome or
	// release was stored since.
	Members []Member
}

// MaxMembers is the maximum length of KeyState.Members.
const MaxMembers = 1000

// Member is an entry that counts, with the epoch of its note.
type Member struct {
	ID    ID     // id of the entry
	Epoch uint32 // epoch of its note
}

// BlockedEntry is a claimed entry that must wait until no other entry blocks it.
type BlockedEntry struct {
	Position
	Version uint64        // version of the entry after the claim
	Wait    time.Duration // time until the entry is due again, in whole milliseconds, > 0
}
