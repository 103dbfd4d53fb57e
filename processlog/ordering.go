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

	// Fronts reads up to limit keys of a type, in the order of the keys. It begins after afterKey, or with the first
	// key if afterKey is "". For each key it finds the first entry that can block later entries (see Ordering). Fronts
	// returns this entry if the entry is due and has no lease. lastKey is the last key that was read, or "" if no keys
	// follow. The cost grows only with limit.
	Fronts(ctx context.Context, businessType, afterKey string, limit int, dead bool) (ids []ID, lastKey string, err error)

	// Firsts finds, for each key in positions, the first entry that can block later entries (see Ordering). It sets the
	// fields First and Known of the KeyState. Firsts reads everything that was committed before the call. Its cost does
	// not grow with the number of entries of a key.
	Firsts(ctx context.Context, businessType string, positions []Position, dead bool) (map[string]KeyState, error)

	// KeyStates reads all fields of the KeyState of each key in positions, each key in one snapshot. It sees everything
	// that was committed before the call. The parameter token is the token under which the caller has claimed entries.
	// So KeyStates can distinguish the caller's own leases from those of other processes. If positions is empty,
	// KeyStates only checks that the table of notes exists (see Ordering).
	KeyStates(ctx context.Context, businessType string, positions []Position, token Token, dead bool) (map[string]KeyState, error)

	// Block writes notes of claimed entries as Join does, and undoes the claims of these entries as Release does. Each
	// entry becomes due after its Wait, unless Advance makes the entry due sooner.
	//
	// The error wraps a *RefusedError if the database refuses to write some of the entries. It wraps ErrBusy if some
	// rows were locked. After these two errors, all other entries are blocked. After any other error, some of the
	// entries may be blocked. Call Release for the entries that are not blocked.
	Block(ctx context.Context, blocked []BlockedEntry, token Token) error

	// Advance finds the entries that may run because other entries of their keys have ended. The parameter positions
	// names the keys. It also names the ended entries, as far as the caller knows them.
	//
	// For each key, Advance looks only at the first entry that can block later entries (see Ordering). There are two
	// cases in which Advance returns the id of this first entry:
	//
	//   - The first entry is due and has no lease.
	//   - The method Block has delayed the first entry, and no entry of the key has a lease. Advance makes the first
	//     entry due.
	//
	// Advance also removes the notes (see Ordering) of ended entries that come before the first entry.
	//
	// Advance does not wait long for a lock. A locked entry stays unchanged. A *RefusedError names entries that the
	// database refuses to make due.
	Advance(ctx context.Context, businessType string, positions []Position, dead bool) ([]ID, error)

	// Forget removes the notes of ended entries. A note stays if its epoch differs from Position.Epoch.
	Forget(ctx context.Context, positions []Position) error
}

// MaxOrderingKey is the maximum length of Position.Key in bytes.
const MaxOrderingKey = 64

// Position is the note of an entry: a row in the table of notes. The note stores the position of the entry among all
// entries with the same ordering key. See Ordering.
type Position struct {
	BusinessType string // business type of the entry
	Key          string // any bytes, at least one
	ID           ID     // id of the entry
	Epoch        uint32 // epoch of the entry that the note is about

	// OrderID is the position of the entry under its key. If OrderID is zero, the id of the entry is the position. One
	// call of Record may write several entries, and their ids may not be in the caller's order. Then the caller's first
	// entry gets the lowest of these ids as its OrderID, the second entry gets the next id, and so on. Of two entries
	// with the same position, the entry with the lower ID comes first.
	OrderID ID
}

// KeyState is the state of the entries of one key.
type KeyState struct {
	First ID // first entry that can block later entries (see Ordering); zero: there is no such entry
	// Known is the number of the given positions for which a note with the same key, ID and Epoch exists. KeyStates may
	// leave out ended entries.
	Known int
	// Taken says that another process runs an entry that can block later entries. The entry has a lease, and the lease
	// has another token than the caller's.
	Taken bool

	// Members lists the entries that can block later entries (see Ordering), in the order of their positions, at most
	// MaxMembers. Members is nil if another process may still run one of these entries. That is the case if both
	// conditions are true for the entry:
	//
	//   - Another token than the caller's claimed the entry last.
	//   - Since that claim, neither an outcome nor a release was stored.
	Members []Member
}

// MaxMembers is the maximum length of KeyState.Members.
const MaxMembers = 1000

// Member is an entry that can block later entries (see Ordering). The epoch is that of the entry's note.
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
