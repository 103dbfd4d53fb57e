package processlog

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/bits"
	"time"
)

// StartLimits is the part of a store for types whose starts are limited over all processes. A separate table has one row
// for each limit and key, with a time (see StartLimit.Free) and the entries that hold a permit.
//
// A permit lasts until the lease of its entry ends, or the entry is written again. So the permit of a process that dies
// ends, too.
type StartLimits interface {
	// ClaimLimited works like Claim, and leases only entries that get a permit. An entry without a permit is unchanged,
	// and is in Claimed.Limited. Claimed.Rooms says what is left for each key of the wanted entries.
	//
	// Permits are committed with the leases of the claim. Claims under one limit wait for each other. Each claim reads
	// the database's clock to compute how many starts are free.
	//
	// If a lease has ended, its permit goes to another entry. ClaimLimited then raises the version of the entry that
	// held the permit. So the holder of the lease can neither renew the lease nor store a failure.
	//
	// ClaimLimited obeys the values that a person has set (see Operations.PutLimit), and returns the values in
	// Claimed.InForce. If the person has changed the Interval, each key keeps the number of starts that it has already
	// used up of the Burst.
	//
	// If the table is missing, ClaimLimited returns a *FieldError that names it. If another claim under the same limit
	// takes too long, ClaimLimited returns ErrBusy.
	ClaimLimited(ctx context.Context, wanted []Wanted, token Token, lease time.Duration, limit StartLimit, accept func(*Row) bool) (Claimed, error)

	// ReturnStarts gives back starts that ClaimLimited has granted, if no entry has used them. The parameter
	// unusedStarts says for each key how many starts to give back. The Interval of the parameter limit must be the
	// Interval under which the starts were granted: see Claimed.InForce.
	//
	// ReturnStarts changes nothing for a key that has no row. It also changes nothing for a key to which another claim
	// has granted starts since. If ReturnStarts gave back the older starts of that key, the next claim could be granted
	// one start more than the burst.
	ReturnStarts(ctx context.Context, limit StartLimit, unusedStarts map[string]Unused) error

	// PurgeLimitKeys deletes the row of a key if no start was granted to the key for the duration in the parameter
	// idle. It returns the number of deleted rows, and stops when ctx ends. A key without a row may use its whole
	// burst. So a key must not gain starts by the deletion, and PurgeLimitKeys keeps these rows:
	//
	//   - rows whose stored time is in the future,
	//   - rows with a permit that has not ended,
	//   - the first row of each limit, and
	//   - locked rows.
	PurgeLimitKeys(ctx context.Context, idle time.Duration) (int, error)

	// CheckLimits returns a *FieldError if the table is missing.
	CheckLimits(ctx context.Context) error
}

// StartLimit is a limit on the starts of entries. Each key has the whole limit for itself.
type StartLimit struct {
	Name string // 1 to MaxName characters; types with the same name share the limit

	// Interval is the time between two starts at the full rate; 0: the rate is not limited. By the database's clock, every
	// window of time has at most window/Interval + Burst starts. Not negative.
	Interval time.Duration
	Burst    int // starts that may follow each other at once after a pause; at least 1 if Interval is set

	Concurrent int // entries that may hold a permit at once, at most MaxConcurrent; 0: any number

	Keyed bool // whether each key of the entries has the limit for itself

	// Key returns the key of an entry, at most MaxOrderingKey bytes. The result limited is false for an entry that
	// needs no permit. The result ok is false for an entry that must not start. If Key is nil, all entries share the
	// key "". Key is called while the row is locked, so it must not block.
	Key func(row *Row) (key string, limited, ok bool)

	// Advance lets a claim reserve starts of a key for later, when the claim leases entries of the key. The parameter
	// left is the number of starts that are still free for the key. The result is the number of starts to reserve, at
	// most left. The caller of ClaimLimited finds this number in Room.Advance. The caller may use these starts later,
	// or return them with ReturnStarts. ClaimLimited calls Advance only if Interval is set and Concurrent is 0. nil
	// means that a claim reserves no starts. Advance is called while rows are locked, so it must not block.
	Advance func(key string, left int) int
}

// TakeAdvance returns the number of starts that a claim takes in advance for a key: the result of Advance, at most
// left.
func (l *StartLimit) TakeAdvance(key string, left int) int {
	if l.Advance == nil || l.Interval == 0 || l.Concurrent > 0 || left <= 0 {
		return 0
	}
	return min(left, l.Advance(key, left))
}

// MaxConcurrent is the highest StartLimit.Concurrent.
const MaxConcurrent = 1000

const (
	MaxBurst     = 1_000_000            // the highest StartLimit.Burst
	MaxBurstTime = 365 * 24 * time.Hour // the longest Burst × Interval
)

// Of returns the key of an entry, as the function in the field Key does. If this function is nil, the key is "".
func (l *StartLimit) Of(row *Row) (key string, limited, ok bool) {
	if l.Key == nil {
		return "", true, true
	}
	return l.Key(row)
}

// Free returns how many starts are free for a key, and the time until one more start is free. The parameter lead is the
// stored time of the key minus the database's current time.
//
// The stored time is the theoretical arrival time of the generic cell rate algorithm. Each start sets the stored time
// to the later of two times, plus Interval: the previous stored time, and the current time. A start is allowed only if
// the new stored time is at most Burst × Interval in the future.
func (l *StartLimit) Free(lead time.Duration) (starts int, untilNext time.Duration) {
	if l.Interval == 0 {
		return Unbounded, 0
	}
	remaining := time.Duration(l.Burst)*l.Interval - max(0, lead)
	starts = max(0, int(remaining/l.Interval))
	return starts, time.Duration(starts+1)*l.Interval - remaining
}

// Unbounded is the number of free starts or permits where nothing limits them.
const Unbounded = 1 << 30

// Room is what a key has left after a claim.
type Room struct {
	Starts  int           // starts that the rate allows now; Unbounded if the limit has no rate
	Next    time.Duration // time until the rate allows one more start
	Permits int           // permits that are free; Unbounded if Concurrent is 0
	Advance int           // starts that the claim has taken in advance: see StartLimit.Advance
	Granted int64         // grows with each start that the key is granted, and never repeats
}

// Unused says how many starts a claim was granted for one key, but no entry has used.
type Unused struct {
	Starts  int   // number of starts
	Granted int64 // Room.Granted after the claim
}

// Limited is an entry that was due and had no lease, but got no permit.
type Limited struct {
	ID  ID            // id of the entry
	Key string        // key under the limit
	In  time.Duration // time after which to claim the entry again
}

// LimitedLater returns how many limited entries have an In above 0. The next claims may skip these entries. An entry
// whose In is 0 waits because the limit delays its whole type. The next claims must not skip that entry, so that no
// later entry starts before it.
func (c *Claimed) LimitedLater() (n int) {
	for i := range c.Limited {
		if c.Limited[i].In > 0 {
			n++
		}
	}
	return n
}

// LimitValues are the numbers of a limit: see StartLimit.
type LimitValues struct {
	Interval   time.Duration `json:"interval_ns"` // time between two starts at the full rate; 0: no rate
	Burst      int           `json:"burst"`       // starts that may follow each other at once; 0 without a rate
	Concurrent int           `json:"concurrent"`  // entries that may run at once; 0: any number
}

// Problems returns everything that is wrong with the numbers. The Field of each error is Rate (for the Interval), Burst
// or Concurrent.
func (v LimitValues) Problems() (problems []*FieldError) {
	refuse := func(isInvalid bool, field, format string, args ...any) {
		if isInvalid {
			problems = append(problems, &FieldError{Field: field, Reason: fmt.Sprintf(format, args...)})
		}
	}
	refuse(v.Interval < 0 || v.Interval > MaxBurstTime, "Rate", "has one start in %v: want one in at most a year", v.Interval)
	refuse(v.Burst < 0 || v.Burst > MaxBurst, "Burst", "%d: want 0 to %d", v.Burst, MaxBurst)
	refuse(v.Interval > 0 && v.Burst > 1 && v.Interval > MaxBurstTime/time.Duration(v.Burst), "Burst", "%d starts take more than a year", v.Burst)
	refuse(v.Concurrent < 0 || v.Concurrent > MaxConcurrent, "Concurrent", "%d: want 0 to %d", v.Concurrent, MaxConcurrent)
	return problems
}

// Rate returns the Interval as a number of starts in a second, a minute, an hour or a day, or as one start in the
// Interval. Without a rate it returns zeros.
func (v LimitValues) Rate() (starts int, period time.Duration) {
	if v.Interval <= 0 {
		return 0, 0
	}
	for _, period := range []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour} {
		n := (period + v.Interval/2) / v.Interval
		if deviation := period - n*v.Interval; n > 0 && max(deviation, -deviation) <= period/1000 {
			return int(n), period
		}
	}
	return 1, v.Interval
}

// Values returns the numbers of the limit.
func (l *StartLimit) Values() LimitValues { return LimitValues{l.Interval, l.Burst, l.Concurrent} }

// StoredLimit is what a log knows about a limit, since the first claim under it.
type StoredLimit struct {
	Name    string      `json:"name"`           // StartLimit.Name
	Types   []string    `json:"business_types"` // types that have claimed under the limit, sorted
	Keyed   bool        `json:"keyed"`          // whether StartLimit.Key is set, so that each key has the whole limit for itself
	Program LimitValues `json:"program"`        // values that the process of the latest claim has set

	Person  LimitValues `json:"person"`              // values that a person has set; 0: that of Program
	Version uint64      `json:"version,string"`      // number of changes by people. PutLimit compares it
	Actor   string      `json:"actor,omitempty"`     // the person who made the last change
	Reason  string      `json:"reason,omitempty"`    // reason that Actor gave
	At      time.Time   `json:"changed_at,omitzero"` // time of the last change, by the database's clock
}

// InForce returns the values that claims obey: those of a person, where a person has set them, and otherwise those of
// the program.
func (l *StoredLimit) InForce() LimitValues { return l.Program.With(l.Person) }

// With returns a copy of v in which each value of personValues that is not zero replaces the value of v. If the Burst
// would take longer than MaxBurstTime, With reduces the Burst. If the Interval is zero, With sets the Burst to zero.
func (v LimitValues) With(personValues LimitValues) LimitValues {
	v.Interval, v.Burst, v.Concurrent = cmp.Or(personValues.Interval, v.Interval), cmp.Or(personValues.Burst, v.Burst), cmp.Or(personValues.Concurrent, v.Concurrent)
	if v.Interval == 0 {
		v.Burst = 0
		return v
	}
	v.Burst = max(1, min(v.Burst, int(MaxBurstTime/v.Interval)))
	return v
}

// Set gives the limit other values.
func (l *StartLimit) Set(v LimitValues) {
	l.Interval, l.Burst, l.Concurrent = v.Interval, v.Burst, v.Concurrent
}

// Rescaled converts the lead of a key when the Interval of a limit changes. The lead is the stored time of the key
// minus the current time: see StartLimit.Free. The number of starts that the key has used up is the lead divided by the
// Interval, rounded up. Rescaled returns the lead for which this number is the same under the new Interval. The
// parameter oldInterval is the Interval of the last grant.
//
// An Interval of 0 means that the rate is not limited. If one of the two Intervals is 0, the result is 0. A lead of
// zero or less stays as it is.
func Rescaled(lead, oldInterval, newInterval time.Duration) time.Duration {
	switch {
	case lead <= 0 || oldInterval == newInterval:
		return lead
	case oldInterval <= 0 || newInterval <= 0:
		// Without an old rate, starts were not counted. Without a new rate, starts will not be counted.
		return 0
	}
	highBits, lowBits := bits.Mul64(uint64(lead), uint64(newInterval))
	if highBits >= uint64(oldInterval) {
		return math.MaxInt64 / 2
	}
	scaled, remainder := bits.Div64(highBits, lowBits, uint64(oldInterval))
	if remainder > 0 {
		scaled++
	}
	return time.Duration(min(scaled, math.MaxInt64/2))
}

// LimitedKey is the state of one key under a limit.
type LimitedKey struct {
	Starts  int            // starts that the rate allows now; Unbounded if the limit has no rate
	Next    time.Duration  // time until the rate allows one more start
	Holders []PermitHolder // entries that hold a permit now, in the order of their ids; empty if Concurrent is 0
}

// PermitHolder is an entry that holds a permit.
type PermitHolder struct {
	ID           ID     // id of the entry
	BusinessType string // business type of the entry
}
