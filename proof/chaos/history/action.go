package history

// Action is written before the call is made.
type Action struct {
	At         int64  `json:"at"`
	Call       uint64 `json:"call"`
	Action     string `json:"action"`
	ID         uint64 `json:"id,omitempty"`
	Key        string `json:"key,omitempty"`
	Tx         uint64 `json:"tx,omitempty"` // the process's transaction to which the call belongs (0: the library's own transaction)
	DelayMS    int64  `json:"delay_ms,omitempty"`
	Compensate bool   `json:"compensate,omitempty"` // for a requeue: requeue to the compensation
}

// ActionEnd is the answer to an Action. If the Action names a Tx, the change takes effect when that transaction
// commits.
type ActionEnd struct {
	At     int64  `json:"at"`
	Call   uint64 `json:"call"`
	Err    string `json:"err,omitempty"` // one of the constants Err…; ErrState, ErrNotFound and ErrBusy mean that nothing changed
	Detail string `json:"detail,omitempty"`

	Already bool `json:"already,omitempty"` // for a cancel: the entry was cancelled before, and nothing changed
	Dead    bool `json:"dead,omitempty"`    // for a cancel or a complete: the entry was dead
}

const (
	ActionComplete       = "complete"
	ActionCancel         = "cancel"
	ActionReschedule     = "reschedule"
	ActionRequeue        = "requeue"
	ActionSettleManually = "settle by hand"
)

type Event struct {
	At       int64  `json:"at"`
	Event    string `json:"event"`
	ID       uint64 `json:"id,omitempty"`
	Type     string `json:"type,omitempty"`
	State    int8   `json:"state,omitempty"`
	EndedBy  string `json:"ended_by,omitempty"`
	Enqueued int    `json:"announced,omitempty"` // for a reconciled event: number of entries enqueued again
	Polled   int    `json:"polled,omitempty"`
	Rebuilt  bool   `json:"rebuilt,omitempty"`
	Err      string `json:"err,omitempty"` // class of the error, for events of attempts: one of the constants Err…
	Detail   string `json:"detail,omitempty"`
}

const (
	EventSettled        = "settled"
	EventOutcomeDropped = "outcome dropped"
	EventStuck          = "stuck"
	EventQueueDown      = "queue down"
	EventQueueUp        = "queue up"
	EventReconciled     = "reconciled"
	EventAttemptBroken  = "attempt broken" // the database or the connection failed; the result of the handler does not matter
)

func (*Action) Kind() string { return "action" }

func (*ActionEnd) Kind() string { return "action_end" }

func (*Event) Kind() string { return "event" }
