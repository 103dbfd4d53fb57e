package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/operating"
	"github.com/compensator-go/compensator/processlog"
)

// Options configure an Admin.
type Options struct {
	Access Access // decides what each person may do. Required
	// ReadOnly refuses every action that the audit log would record, even if Access allows the action. The Admin then
	// writes nothing to the database, not even records of refused actions.
	ReadOnly bool

	// ReadTime is the maximum duration of one query. 0 means 2 seconds. The limit protects the service's database from
	// readers.
	ReadTime time.Duration
}

// Admin lets people read the log and act on it. Its methods may be called concurrently. It sends at most four queries
// at a time for reads, and at most two for actions. Each query takes at most Options.ReadTime.
//
// An Actor without a name has no rights.
//
// If an actor lacks the right for an action, the action returns ErrNotAllowed. An action on several entries has
// ErrNotAllowed in the answer for each refused entry. An invalid filter is a *compensator.FieldError. The Admin returns
// errors of the database unchanged. If ctx ends before a query begins, the error is context.Cause(ctx).
type Admin struct {
	c             *compensator.Compensator
	log           operating.Log
	access        Access
	readOnly      bool
	hasInstances  bool // whether Operations.Instances is set
	hasStatistics bool // whether Operations.Statistics is set
	readTime      time.Duration

	reads, actions chan struct{} // semaphores: each holds one element per query under way

	mu          sync.Mutex // guards the next three fields
	refusals    map[string]refusals
	types       []string // the known business types
	typesReadAt time.Time

	counts      *cached[[]processlog.Count]
	conditions  *cached[condition]
	settings    *cached[[]processlog.Setting]
	groups      *cached[[]processlog.CaseGroup]
	trends      map[time.Duration]*cached[history] // by the time that they cover
	instances   *cached[[]processlog.Instance]
	actionCount atomic.Int64 // number of actions so far; an action makes the shared results outdated
}

// Errors with which an Admin refuses an action. For an entry whose type the actor may not see, the error is
// compensator.ErrNotFound. The other errors are ErrChanged, and compensator.ErrBusy, *StateError and *FieldError.
var (
	ErrNotAllowed = errors.New("admin: not allowed")                                  // Access refused the action. Nothing was done
	ErrReadOnly   = errors.New("admin: this Admin is read-only, so nothing was done") // Options.ReadOnly is set
)

// New returns an Admin of a Compensator whose Config.Operations is set. If something is missing, New returns a
// *FieldError that names the missing field.
func New(c *compensator.Compensator, opts Options) (*Admin, error) {
	if opts.Access == nil {
		return nil, &compensator.FieldError{Field: "Access", Reason: "is nil: set an Access, which decides what each actor may do"}
	}
	if c == nil {
		return nil, &compensator.FieldError{Field: "Compensator", Reason: "is nil"}
	}
	if opts.ReadTime < 0 {
		return nil, &compensator.FieldError{Field: "ReadTime", Reason: fmt.Sprintf("%v: want 0 or more", opts.ReadTime)}
	}
	log := operating.Of(c)
	if log.Operations() == nil {
		return nil, &compensator.FieldError{Field: "Operations", Reason: "is not set in the Compensator's Config"}
	}
	return &Admin{c: c, log: log, access: opts.Access, readOnly: opts.ReadOnly, hasStatistics: log.KeepsStatistics(), hasInstances: log.KeepsInstances(), readTime: cmp.Or(opts.ReadTime, defaultReadTime),
		reads: make(chan struct{}, maxReads), actions: make(chan struct{}, maxActionReads),
		trends: newTrends(), instances: newCached[[]processlog.Instance](),
		refusals: make(map[string]refusals), counts: newCached[[]processlog.Count](), conditions: newCached[condition](), settings: newCached[[]processlog.Setting](), groups: newCached[[]processlog.CaseGroup]()}, nil
}

// Name returns compensator.Config.Name, the name of the log.
func (d *Admin) Name() string { return d.c.Name() }

// mayDo asks Access for the right. It returns false for an invalid actor, and if Access panics.
//
// mayDo also returns false for a type whose name ends with a space. No business type has such a name. But MySQL ignores
// spaces at the end when it compares texts, so a query for this name would find entries of another type.
func (d *Admin) mayDo(ctx context.Context, a Actor, right Right, subject Subject) (mayDo bool) {
	if a.isInvalid() || strings.HasSuffix(subject.Type, " ") {
		return false
	}
	defer func() {
		if recover() != nil {
			mayDo = false
		}
	}()
	return d.access.May(ctx, a, right, subject)
}

// May reports whether the actor has a right. May records nothing.
func (d *Admin) May(ctx context.Context, a Actor, right Right, subject Subject) bool {
	return !(d.readOnly && right.isWrite()) && d.mayDo(ctx, a, right, subject)
}

// ReadOnly returns Options.ReadOnly.
func (d *Admin) ReadOnly() bool { return d.readOnly }
