// Package features attaches the optional parts of the library to an engine.
//
// Each feature is a package of its own. One file here imports that package, and its init adds a function to the list of
// features. If you delete that file and the feature's package, everything else still compiles.
package features

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// Config is what the features need beyond the engine's own Config.
type Config struct {
	// Paused reads the stored settings, which say what types people have paused. A nil Paused means that nobody can
	// pause a type.
	Paused func(ctx context.Context) ([]processlog.Setting, error)

	// CaseOf returns the case to open when an outcome makes its entry dead. It is nil if no cases are kept.
	CaseOf func(row *processlog.Row, o *processlog.Outcome) *processlog.CaseDraft

	// ScrubAttempt removes confidential data from the error of a failed attempt that is stored for people. It is nil if
	// no attempts are kept.
	ScrubAttempt func(text string) string

	// Stats stores the statistics of this process. It is nil if no statistics are kept.
	Stats processlog.Operations

	// Instances stores the row in which this process describes itself. It is nil if no such rows are kept.
	Instances processlog.Operations

	// Instance is the name of this process, for people. It is needed if ScrubAttempt or Instances is set.
	Instance string

	// StopOnLoss says what happens after the database was rolled back to an earlier state, and so has lost commits. If
	// StopOnLoss is true, this process claims and starts no entry until a person accepts the loss.
	StopOnLoss bool

	IgnoreLoss bool // turns off the check whether the database was rolled back to an earlier state

	Queue        Queue
	Transactions Transactions
}

// Transactions is what transactional handlers need from the database. See transactional.Settings.
type Transactions struct {
	Begin        func(ctx context.Context) (Transaction, error)
	ServersFault func(err error) (possible, wholeServer bool)
}

// Transaction is a transaction of a handler. See transactional.Transaction.
type Transaction interface {
	processlog.Tx
	Over() error
	Commit() error
	Rollback()
}

// TxHandler is a handler or a compensation that works in a transaction.
type TxHandler func(ctx context.Context, tx Transaction, row *processlog.Row) error

// CallHandler is a handler that begins its transaction late. See transactional.CallHandler.
type CallHandler func(ctx context.Context, begin func() (Transaction, error), row *processlog.Row) error

// Queue holds the settings of the queue.
type Queue struct {
	Queue       processlog.Queue // nil: a queue in this process, which knows only the entries of this process
	Down        bool             // whether the queue did not answer when New checked it
	Fingerprint string           // fingerprint of the database
	Horizon     time.Duration    // entries that are due later are not enqueued yet
	Limit       int              // maximum number of entries of one type
}

// TypeSettings are the settings of a business type that belong to features.
type TypeSettings struct {
	Breaker Breaker // the zero value means no breaker
	Batch   Batch   // the zero value: a call of the handler takes one entry
	Limit   Limit   // the zero value means no limit

	PublishEnds bool // processes that wait for an entry of the type are notified of its end

	// Ready is called before the handler, but not before the compensation. If it returns an error, the attempt ends
	// with that error, and the handler is not called.
	Ready func(ctx context.Context, row *processlog.Row) error

	RunTx, UndoTx TxHandler   // nil: the handler or the compensation needs no transaction
	RunCall       CallHandler // the two functions of a handler that HandleCall registered; nil for other handlers
}

// Limit is shared by types with a limit of the same name. See limits.Settings.
type Limit struct {
	Name       string
	Interval   time.Duration
	Burst      int
	Concurrent int
	Key        func(row *processlog.Row) string
}

// Batch is a handler that takes several entries. See batches.Settings.
type Batch struct {
	Call func(ctx context.Context, rows []*processlog.Row) []error
	Size int
	Wait time.Duration
}

// Breaker holds the settings of a type's breaker. All are set, or none.
type Breaker struct {
	Of    int
	Share float64
	Pause time.Duration
}

// Serial says which entries of a type run one at a time. See ordering.Serial.
type Serial struct {
	Key      func(row *processlog.Row) string
	PassDead bool
}

// Period is work that is done once for each slot of a schedule. See periodic.Period.
type Period struct {
	Name     string
	Schedule func(after time.Time) time.Time
	CatchUp  int
	Problem  string
	Do       func(ctx context.Context, from time.Time, slots []time.Time, at time.Time) (bool, error)
}

// Schedule computes the slots of a periodic type.
type Schedule struct {
	Name string
	Next func(after time.Time) (time.Time, error) // the first slot after a time; zero if there is none
}

// Set is an engine with its features. A function field does nothing if its feature is not built in.
type Set struct {
	Engine *engine.Engine

	OpenBreakers func() []observe.OpenBreaker // sorted by type
	Limited      func() []observe.LimitedType // types with entries that wait for a limit; sorted by type
	Paused       func() []observe.PausedType  // types that people have paused; sorted by type

	// LimitKey returns the key of an entry under the limit of its type, and whether the limit holds for the entry.
	LimitKey func(l Limit, row *processlog.Row) (key string, limited bool, err error)

	// Busy reports whether this process has recorded, run or ended entries lately. The statistics count these entries.
	// If no statistics are kept, Busy always returns true.
	Busy func() bool

	// PingQueue asks the queue whether it answers, and returns at once. The function answer waits for the result: nil,
	// or an error that says why the queue cannot be used.
	PingQueue func(ctx context.Context) (answer func() error)

	// Health asks the database and the queue.
	Health func(ctx context.Context) observe.Health

	// Lost returns the loss of data that was detected in the database, or nil if there is none or a person has accepted
	// it. It asks no server.
	Lost func() error

	// AcceptLoss ends the report of a loss in all processes. It returns the lost entries that this process knows of.
	AcceptLoss func(ctx context.Context, by processlog.AuditInfo) ([]processlog.LostEntry, error)

	// Recur calls p.Do for each slot of a schedule. For each slot, only one of all processes makes the call. Call Recur
	// before Run.
	Recur func(ctx context.Context, p Period) error

	// Schedules returns the schedules of the periodic types of this process, in the order of their registration.
	Schedules func() []Schedule

	// Serialize gives a type an ordering key. Call it before the type is registered. It sends a query to the database.
	Serialize func(ctx context.Context, businessType string, s Serial) error

	// AdvanceKeys gets the ids of entries. For each ordering key of these entries, it makes the next entry of the key
	// due. Blocked gets the ids of entries, and returns the ids of those that wait for another entry. Both functions
	// are for tests.
	AdvanceKeys func(ctx context.Context, ids []processlog.ID) (moved bool, err error)
	Blocked     func(ctx context.Context, ids []processlog.ID) ([]processlog.ID, error)

	// Await waits for the end of an entry: see waiting.Waiting. StopWaiting ends all calls of Await.
	Await       func(ctx context.Context, id processlog.ID, businessType string) (processlog.Row, error)
	StopWaiting func()

	// Attempt makes one attempt of one entry while no Run is under way.
	Attempt func(ctx context.Context, id processlog.ID) error

	cfg      Config
	begin    []func(ctx context.Context) error
	batch    func(t *engine.Type, b Batch)               // nil if not built in
	transact func(t *engine.Type, settings TypeSettings) // nil if not built in
	limit    func(l Limit) (func(t *engine.Type), error) // nil if not built in
	types    []func(t *engine.Type, settings TypeSettings)

	// notify sends messages to the other processes. listen receives the messages of the other processes until its
	// context ends. It passes each message to handleMessage, which returns true if the message was for a feature other
	// than the queue. If no queue carries messages, the fields notify and listen are nil.
	notify        func(ctx context.Context, messages []string) error
	listen        func(ctx context.Context)
	handleMessage func(message string) bool

	// reportMissing gets recorded entries whose ids are not in the database. It searches the database for their
	// idempotency keys, and reports the entries whose key does not exist either.
	reportMissing func(entries []engine.RecordedEntry)

	suspectHold func(t *engine.Type, lostLeases int) *processlog.ClaimHold // see ClaimHold

	queueReached func() bool // whether the shared queue answered the last call; nil if there is no shared queue

	beforeRun []func(ctx context.Context)
	loops     []func(ctx context.Context)
}

// localQueue makes a queue in this process. A nil localQueue means that the build has no such queue. Without a queue,
// the database alone says which entries are due.
var localQueue func() processlog.Queue

// New calls all functions of the list features, in any order. Then it calls the functions of the list dependents, which
// read what the first functions have put into the Set.
var features, dependents []func(s *Set)

// New makes an engine and attaches all features to it. The caller must close the engine.
func New(ctx context.Context, cfg engine.Config, settings Config) *Set {
	s := &Set{
		Engine: engine.New(ctx, cfg), cfg: settings,
		OpenBreakers: func() []observe.OpenBreaker { return nil },
		Limited:      func() []observe.LimitedType { return nil },
		Paused:       func() []observe.PausedType { return nil },
		Busy:         func() bool { return true },
		LimitKey:     func(Limit, *processlog.Row) (string, bool, error) { return "", false, nil },
		PingQueue:    func(context.Context) func() error { return func() error { return nil } },
		Health: func(context.Context) observe.Health {
			return observe.Health{Database: missing("Health")}
		},
		Lost: func() error { return nil },
		AcceptLoss: func(context.Context, processlog.AuditInfo) ([]processlog.LostEntry, error) {
			return nil, missing("the rollback detector")
		},
		Recur:       func(context.Context, Period) error { return missing("periodic types and maintenance") },
		Schedules:   func() []Schedule { return nil },
		Serialize:   func(context.Context, string, Serial) error { return missing("ordering keys") },
		AdvanceKeys: func(context.Context, []processlog.ID) (bool, error) { return false, nil },
		Blocked:     func(context.Context, []processlog.ID) ([]processlog.ID, error) { return nil, nil },
		Await: func(context.Context, processlog.ID, string) (processlog.Row, error) {
			return processlog.Row{}, missing("Wait")
		},
		StopWaiting:   func() {},
		handleMessage: func(string) bool { return false },
		reportMissing: func([]engine.RecordedEntry) {},
		suspectHold:   func(*engine.Type, int) *processlog.ClaimHold { return nil },
		Attempt:       func(context.Context, processlog.ID) error { return missing("single attempts") },
	}
	for _, attach := range slices.Concat(features, dependents) {
		attach(s)
	}
	return s
}

func missing(what string) error { return fmt.Errorf("compensator: this build is without %s", what) }

// Register adds a type with its features. Call it before Run.
func (s *Set) Register(t engine.Type, settings TypeSettings) error {
	if settings.Batch.Call != nil && s.batch == nil {
		return missing("handlers of several entries")
	}
	transacts := settings.RunTx != nil || settings.UndoTx != nil || settings.RunCall != nil
	if transacts && s.transact == nil {
		return missing("transactional handlers")
	}
	limit := func(*engine.Type) {}
	if settings.Limit.Name != "" {
		if s.limit == nil {
			return missing("limits over all processes")
		}
		var err error
		if limit, err = s.limit(settings.Limit); err != nil {
			return err
		}
	}
	return s.Engine.Register(t, func(t *engine.Type) {
		if settings.Batch.Call != nil {
			s.batch(t, settings.Batch)
		}
		if transacts {
			s.transact(t, settings)
		}
		if settings.Ready != nil {
			t.Run = whenReady(settings.Ready, t.Run)
		}
		limit(t)
		for _, attach := range s.types {
			attach(t, settings)
		}
	})
}

func whenReady(ready func(ctx context.Context, row *processlog.Row) error, run engine.Handler) engine.Handler {
	return func(a *engine.Attempt) engine.Result {
		if err := ready(a.Context(), &a.Row); err != nil {
			return engine.Result{Err: err}
		}
		return run(a)
	}
}

// ClaimHold returns why this process does not claim due entries of a type, or nil if it does. lostLeases is how many
// leases the entries have lost.
func (s *Set) ClaimHold(t *engine.Type, lostLeases int) *processlog.ClaimHold {
	e := s.Engine
	switch {
	case e.OutcomesBacklogged():
		n, backlogged := e.WaitingOutcomes()
		return &processlog.ClaimHold{Reason: processlog.HeldByBacklog, N: n, For: backlogged}
	case e.OutcomesRefused(t):
		return &processlog.ClaimHold{Reason: processlog.HeldByRefusals, N: e.Refusals.Outcomes(t.Name), For: e.Refusals.OutcomesFor(t.Name, engine.MaxRefusedOutcomes)}
	}
	return s.suspectHold(t, lostLeases)
}

// Begin prepares the features, before anything is recorded. It asks the database only for features that the Config
// turns on.
func (s *Set) Begin(ctx context.Context) error {
	for _, begin := range s.begin {
		if err := begin(ctx); err != nil {
			return err
		}
	}
	return nil
}

// BeforeRun prepares the features for a Run.
func (s *Set) BeforeRun(ctx context.Context) {
	for _, prepare := range s.beforeRun {
		prepare(ctx)
	}
}

// Loops returns the background loops of the features. Run starts each in a goroutine, and each ends with its context.
func (s *Set) Loops() []func(ctx context.Context) { return s.loops }
