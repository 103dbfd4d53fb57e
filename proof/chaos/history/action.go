package history

// Action is a person's or a service's call, before it is made.
type Action struct {
	At         int64  `json:"at"`            // wall µs
	Call       uint64 `json:"call"`          // counted in this process from 1
	Action     string `json:"action"`        // an Action…
	ID         uint64 `json:"id,omitempty"`  // the entry, when it is named by id
	Key        string `json:"key,omitempty"` // or by idempotency key; both may be given
	Tx         uint64 `json:"tx,omitempty"`  // it is part of this transaction of the process; 0: one of its own
	DelayMS    int64  `json:"delay_ms,omitempty"`
	Compensate bool   `json:"compensate,omitempty"` // requeue: the compensation again
}

// ActionEnd is its answer. With a Tx, what an action without error did stands and falls with the transaction.
type ActionEnd struct {
	At     int64  `json:"at"` // wall µs
	Call   uint64 `json:"call"`
	Err    string `json:"err,omitempty"` // an Err… class; ErrState, ErrNotFound and ErrBusy: nothing was changed
	Detail string `json:"detail,omitempty"`

	Already bool `json:"already,omitempty"` // cancel: it was cancelled before, nothing was changed
	Dead    bool `json:"dead,omitempty"`    // cancel, complete: it was dead
}

// The actions, as the library spells them.
const (
	ActionComplete       = "complete"
	ActionCancel         = "cancel"
	ActionReschedule     = "reschedule"
	ActionRequeue        = "requeue"
	ActionSettleManually = "settle by hand"
)

// Event is one call of the library's observer.
type Event struct {
	At       int64  `json:"at"` // wall µs
	Event    string `json:"event"`
	ID       uint64 `json:"id,omitempty"`
	Type     string `json:"type,omitempty"`
	State    int8   `json:"state,omitempty"`
	EndedBy  string `json:"ended_by,omitempty"`
	Enqueued int    `json:"announced,omitempty"` // reconciled
	Polled   int    `json:"polled,omitempty"`
	Rebuilt  bool   `json:"rebuilt,omitempty"`
	Err      string `json:"err,omitempty"` // attempt broken: an Err… class
	Detail   string `json:"detail,omitempty"`
}

// The events. Settled need not be written: the audit tells. Of reconciled only rounds that found something.
const (
	EventSettled        = "settled"
	EventOutcomeDropped = "outcome dropped"
	EventStuck          = "stuck"
	EventQueueDown      = "queue down"
	EventQueueUp        = "queue up"
	EventReconciled     = "reconciled"
	EventAttemptBroken  = "attempt broken" // by the database or a connection, whatever its handler returned
)

// Kind implements Record.
func (*Action) Kind() string { return "action" }

// Kind implements Record.
func (*ActionEnd) Kind() string { return "action_end" }

// Kind implements Record.
func (*Event) Kind() string { return "event" }
