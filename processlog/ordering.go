package processlog

import (
	"context"
	"time"
)

// Ordering is the part of a store for ordered types. Each entry with an ordering key has a note in a separate table.
// The note holds the key, and the position of the entry among the entries of the key.
//
// An entry "counts" as long as it can block later entries of its key. This depends on its state in the log. An ended
// entry does not count. A dead entry counts only if the argument dead is true. An entry is blocked as long as another
// entry of its key counts and has an earlier position.
type Ordering interface {
	// Join writes the notes of entries in the caller's transaction. If an entry already has a note under the same key,
	// the note gets the new epoch and keeps its position. If the table of notes is missing, Join returns a *FieldError
	// that names the table.
	Join(ctx context.Context, tx Tx, positions []Position) error

	// Blocked returns the ids of entries that another entry of the same key blocks, in any order. It reads positions only
	// from notes of the entry's current epoch. So an entry without such a note is not blocked. If the table of notes is
	// missing, no entry is blocked. Blocked reads everything that was committed before the call.
	Blocked(ctx context.Context, businessType string, ids []ID, dead bool) ([]ID, error)

	// Fronts reads up to limit keys of a type, in their order. It starts with the key that follows afterKey. If afterKey
	// is empty, it starts with the first key. It may read fewer than limit keys. For each key it returns the first entry
	// that counts, if that entry is due and has no lease. The result lastKey is the last key that was read, or "" if no
	// keys follow. The cost grows with limit, not with the number of entries.
	Fronts(ctx context.Context, businessType, afterKey string, limit int, dead bool) (ids []ID, lastKey string, err error)

	// Firsts reads, for each key in positions, the first entry that counts. It reads everything that was committed
	// before the call. It sets First and Known of each KeyState. Its cost does not grow with the number of entries of a
	// key.
	Firsts(ctx context.Context, businessType string, positions []Position, dead bool) (map[string]KeyState, error)

	// KeyStates reads the whole KeyState of each key in positions. It sees everything that was committed before the
	// call. It reads each key in one snapshot. The parameter token is the token under which the caller has claimed
	// entries. If positions is empty, KeyStates only checks that the table of notes exists.
	KeyStates(ctx context.Context, businessType string, positions []Position, token Token, dead bool) (map[string]KeyState, error)

	// Block writes notes of claimed entries as Join does, and undoes their claims as Release does. Each entry becomes due
	// after its Wait. Advance may make it due sooner.
	//
	// A *RefusedError names entries that the database refuses to write. Block has blocked all other entries. If the error
	// is also ErrBusy, some entries are not blocked, because their rows were locked. After any other error, some entries
	// may be blocked. Call Release to give back the entries that are not blocked.
	Block(ctx context.Context, blocked []BlockedEntry, token Token) error

	// Advance finds the entries that may run after other entries of their keys have ended. The parameter positions names
	// these keys and, as far as the caller knows them, the ended entries of each key. For each key, Advance looks at
	// the first entry that counts, and returns it if it may run now: it is due and has no lease. If the first entry is
	// not due because Block has delayed it, Advance makes it due and returns it. Advance does not do so while another
	// entry of the key has a lease. Advance also removes the notes of ended entries before the first entry.
	//
	// Advance does not wait long for a lock. If the row of a first entry is locked, the entry stays unchanged. A
	// *RefusedError names entries that the database refuses to make due.
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

	// OrderID is the position of the entry under its key. Entries run in the order of OrderID. Zero means that OrderID
	// equals ID. If one call of Record writes several entries, the lowest of their ids becomes the OrderID of the caller's
	// first entry, and so on. If two entries have the same OrderID, the entry with the lower ID comes first.
	OrderID ID
}

// KeyState is the state of the entries of one key.
type KeyState struct {
	First ID // first entry that counts; zero: no entry counts
	// Known counts the given positions that are known, that is, whose entry has a note with the same epoch as the
	// position. KeyStates may leave out ended entries.
	Known int
	Taken bool // whether another entry that counts has a lease under another token

	// Members lists the entries that count, in the order of their positions, at most MaxMembers. Members is nil if another
	// process may still run one of these entries. This is so if the entry was claimed under another token than the
	// caller's, and no outcome and no release was stored since. It does not matter whether the lease has ended.
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
