package compensator

import "time"

// Options say how an entry is to be processed. The zero value: as soon as the transaction commits.
type Options struct {
	// IdempotentID makes recording the same business event twice harmless: the second changes nothing and
	// its receipt says Duplicate. Empty draws a unique, time-ordered one. At most 191 bytes, no trailing
	// space.
	IdempotentID string

	// Delay or At, not both: when the entry comes due. Never earlier by the database's clock. At is turned
	// into a delay with this process's clock.
	Delay time.Duration
	At    time.Time

	BatchID       string // at most 64 bytes each
	BusinessID    string
	BusinessExtID string
	UserID        string
	UserName      string

	// MaxProcessCount caps the failures of this entry. 0: the type's, read when an attempt is settled.
	MaxProcessCount int

	// FailOnDuplicate makes Record return ErrDuplicate instead of telling so in the receipt.
	FailOnDuplicate bool
}

// NewEntry is an entry to record. Type.Entry makes one from a typed value.
type NewEntry struct {
	BusinessType string
	Content      []byte // at most Config.MaxContent bytes
	Options
}
