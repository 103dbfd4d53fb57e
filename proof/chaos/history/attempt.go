package history

// The outermost middleware or the first line of the handler writes an Attempt for each entry.
type Attempt struct {
	At           int64  `json:"at"`
	Run          uint64 `json:"run"` // number of this run of a handler on one entry; counts from 1 in each process
	ID           uint64 `json:"id"`
	Key          string `json:"key"`
	Version      uint64 `json:"version"`
	Epoch        uint32 `json:"epoch,omitempty"`
	Attempt      int    `json:"attempt"`
	State        int8   `json:"state"`
	Compensation bool   `json:"compensation,omitempty"`
	Batch        int    `json:"batch,omitempty"` // number of entries in the call of the batch handler (0: not a batch handler)
	Hash         uint64 `json:"hash"`            // hash of the content that the handler received
	NextAt       int64  `json:"next_at"`         // Entry.NextAt in ms of the database's clock
}

// AttemptEnd is written before the handler returns. If an Attempt has no AttemptEnd, its process was killed.
type AttemptEnd struct {
	At      int64  `json:"at"`
	Run     uint64 `json:"run"`
	ID      uint64 `json:"id"`
	Outcome string `json:"outcome"`            // one of the constants Outcome…
	AfterMS int64  `json:"after_ms,omitempty"` // delay that the handler asked for with RetryAfter or Snooze
	Cause   string `json:"cause,omitempty"`    // reason why the handler's context ended, one of the constants Cause… (empty: the context has not ended)
}

const (
	OutcomeOK          = "ok"
	OutcomeFail        = "fail" // any other error
	OutcomePermanent   = "permanent"
	OutcomeRetryAfter  = "retry after"
	OutcomeSnooze      = "snooze"
	OutcomeUnavailable = "unavailable"
	OutcomePanic       = "panic"     // a panic or runtime.Goexit
	OutcomeCanceled    = "canceled"  // an error that is context.Canceled, ErrStopping or ErrLeaseLost
	OutcomeNoVerdict   = "noverdict" // the batch handler panicked or returned the wrong number of results
)

const (
	CauseLeaseLost = "lease lost"
	CauseCancelled = "cancelled"
	CauseStopping  = "stopping"
	CauseTimeout   = "timeout"
	CauseOther     = "other"
)

// Effect is written twice: before the effect happens with Phase EffectBefore, and once it has happened with
// EffectAfter.
type Effect struct {
	At           int64  `json:"at"`
	Run          uint64 `json:"run"`
	ID           uint64 `json:"id"`
	Epoch        uint32 `json:"epoch,omitempty"`
	Compensation bool   `json:"compensation,omitempty"`
	Phase        string `json:"phase"`
}

const (
	EffectBefore = "before"
	EffectAfter  = "after"
)

// EffectRow is written in the transaction of its handler. The driver dumps the rows at the end, from a table without a
// unique key.
type EffectRow struct {
	ID           uint64 `json:"id"`
	Key          string `json:"key"`
	Epoch        uint32 `json:"epoch,omitempty"`
	Version      uint64 `json:"version,omitempty"` // version of the attempt
	Compensation bool   `json:"compensation,omitempty"`
}

func (*Attempt) Kind() string { return "attempt" }

func (*AttemptEnd) Kind() string { return "attempt_end" }

func (*Effect) Kind() string { return "effect" }

func (*EffectRow) Kind() string { return "effect_row" }
