package history

// Attempt is one run of a handler that begins: written by the outermost middleware, or as the handler's first
// line, with what its Entry says. A batch handler writes one line for each of its entries.
type Attempt struct {
	At           int64  `json:"at"`  // wall µs
	Run          uint64 `json:"run"` // this run of a handler on this entry, counted in this process from 1
	ID           uint64 `json:"id"`  // the entry's
	Key          string `json:"key"` // idempotency key
	Version      uint64 `json:"version"`
	Epoch        uint32 `json:"epoch,omitempty"`
	Attempt      int    `json:"attempt"` // Entry.Attempt
	State        int8   `json:"state"`
	Compensation bool   `json:"compensation,omitempty"`
	Batch        int    `json:"batch,omitempty"` // entries in the batch handler's call; 0: no batch handler
	Hash         uint64 `json:"hash"`            // of the content, as the handler is given it
	NextAt       int64  `json:"next_at"`         // Entry.NextAt, ms of the database's clock
}

// AttemptEnd is what the handler returns, written before it does. An attempt without one was killed.
type AttemptEnd struct {
	At      int64  `json:"at"` // wall µs
	Run     uint64 `json:"run"`
	ID      uint64 `json:"id"`                 // the entry's, as in Attempt
	Outcome string `json:"outcome"`            // an Outcome… class
	AfterMS int64  `json:"after_ms,omitempty"` // asked for with RetryAfter or Snooze
	Cause   string `json:"cause,omitempty"`    // why the handler's context has ended, a Cause…; empty: it has not
}

// What a handler returns.
const (
	OutcomeOK          = "ok"
	OutcomeFail        = "fail" // any other error
	OutcomePermanent   = "permanent"
	OutcomeRetryAfter  = "retry after"
	OutcomeSnooze      = "snooze"
	OutcomeUnavailable = "unavailable"
	OutcomePanic       = "panic"     // also Goexit
	OutcomeCanceled    = "canceled"  // the error is context.Canceled, ErrStopping or ErrLeaseLost
	OutcomeNoVerdict   = "noverdict" // a batch handler that panics, or answers with the wrong number
)

// Why a handler's context ended: the library's errors, by context.Cause.
const (
	CauseLeaseLost = "lease lost"
	CauseCancelled = "cancelled"
	CauseStopping  = "stopping"
	CauseTimeout   = "timeout"
	CauseOther     = "other"
)

// Effect is a handler's effect outside the database. It is written twice: with Phase EffectBefore before
// anything outside happens, and EffectAfter when it has.
type Effect struct {
	At           int64  `json:"at"`  // wall µs
	Run          uint64 `json:"run"` // as in Attempt
	ID           uint64 `json:"id"`
	Epoch        uint32 `json:"epoch,omitempty"`
	Compensation bool   `json:"compensation,omitempty"`
	Phase        string `json:"phase"`
}

// The phases of an effect.
const (
	EffectBefore = "before"
	EffectAfter  = "after"
)

// EffectRow is a row that a transactional handler or compensation wrote in its own transaction, dumped at the
// end from a table without a unique key. Such a handler writes exactly one row before it returns nil.
type EffectRow struct {
	ID           uint64 `json:"id"` // the entry's
	Key          string `json:"key"`
	Epoch        uint32 `json:"epoch,omitempty"`
	Version      uint64 `json:"version,omitempty"` // the attempt's
	Compensation bool   `json:"compensation,omitempty"`
}

// Kind implements Record.
func (*Attempt) Kind() string { return "attempt" }

// Kind implements Record.
func (*AttemptEnd) Kind() string { return "attempt_end" }

// Kind implements Record.
func (*Effect) Kind() string { return "effect" }

// Kind implements Record.
func (*EffectRow) Kind() string { return "effect_row" }
