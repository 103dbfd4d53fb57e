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

// Options say who may what.
type Options struct {
	Access   Access // required
	ReadOnly bool   // refuse whatever would be written down, whatever Access says; then nothing is written, no refusal either

	ReadTime time.Duration // how long one question to the log may take; 0: two seconds, which many who look leave the service
}

// Admin serves people. Its methods may be called concurrently: it asks the log for four things at a time for who looks, and
// for two for who acts, each for Options.ReadTime at most. For an Actor without a name, or without the right, lists and sums
// have nothing of what he may not see, an entry is not found, and whatever acts returns or answers ErrNotAllowed; the
// database's errors come as they are.
type Admin struct {
	c        *compensator.Compensator
	log      operating.Log
	access   Access
	readOnly bool
	readTime time.Duration

	reads, actions chan struct{} // have one in them for each read under way

	mu       sync.Mutex // guards what follows
	refusals map[string]refusals
	found    []string // types
	foundAt  time.Time

	counts   *shared[[]processlog.Count]
	standing *shared[condition]
	groups   *shared[[]processlog.CaseGroup]
	acts     atomic.Int64 // that may have changed what is shared
}

// What an Admin refuses. Others are the library's: compensator.ErrNotFound, which an entry of a type that may not be seen is
// as well, ErrChanged, ErrBusy, *StateError, *FieldError.
var (
	ErrNotAllowed = errors.New("admin: not allowed")
	ErrReadOnly   = errors.New("admin: nothing may be changed here")
)

// New makes an Admin of a Compensator whose Config.Operations is set. A *FieldError names what is missing.
func New(c *compensator.Compensator, opts Options) (*Admin, error) {
	if opts.Access == nil {
		return nil, &compensator.FieldError{Field: "Access", Reason: "is nil: nobody may do anything without"}
	}
	if c == nil {
		return nil, &compensator.FieldError{Field: "Compensator", Reason: "is nil"}
	}
	if opts.ReadTime < 0 {
		return nil, &compensator.FieldError{Field: "ReadTime", Reason: fmt.Sprintf("%v: want 0 or more", opts.ReadTime)}
	}
	log := operating.Of(c)
	if log == nil {
		return nil, &compensator.FieldError{Field: "Operations", Reason: "is not set in the Compensator's Config"}
	}
	return &Admin{c: c, log: log, access: opts.Access, readOnly: opts.ReadOnly, readTime: cmp.Or(opts.ReadTime, readTime),
		reads: make(chan struct{}, readsAtOnce), actions: make(chan struct{}, actsAtOnce),
		refusals: make(map[string]refusals), counts: newShared[[]processlog.Count](), standing: newShared[condition](), groups: newShared[[]processlog.CaseGroup]()}, nil
}

// may asks Access. Nobody without a name, and nothing on a panic; nor of a type whose name ends with spaces, which no type's does:
// MySQL takes it for the name without, of which Access was not asked.
func (d *Admin) may(ctx context.Context, a Actor, right Right, on Subject) (may bool) {
	if a.invalid() || strings.HasSuffix(on.Type, " ") {
		return false
	}
	defer func() {
		if recover() != nil {
			may = false
		}
	}()
	return d.access.May(ctx, a, right, on)
}

// May reports whether an action would be let through, for a page that shows no button in vain. It records nothing.
func (d *Admin) May(ctx context.Context, a Actor, right Right, on Subject) bool {
	return !(d.readOnly && right.writes()) && d.may(ctx, a, right, on)
}

// ReadOnly reports whether Options said so.
func (d *Admin) ReadOnly() bool { return d.readOnly }
