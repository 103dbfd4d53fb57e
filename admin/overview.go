package admin

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// Overview shows what needs attention, for the types that the actor may see.
type Overview struct {
	At     time.Time      `json:"at"`               // when the entries were counted, by the clock of this process
	Types  []TypeOverview `json:"types"`            // types with unfinished or dead entries, paused types, and types with an open breaker or a limit that is used up; sorted by name
	Health *Health        `json:"health,omitempty"` // health of this process and its servers

	// BacklogAge is how long ago the Backlog of each type was counted. It is 0 if no process has counted within the
	// last five minutes.
	BacklogAge time.Duration `json:"backlog_age,omitempty"`
}

// TypeOverview counts the unfinished and dead entries of a type. It also shows why processes do not claim them, if
// there is a reason.
type TypeOverview struct {
	Type    string        `json:"type"`              // business type
	Counts  []StateCount  `json:"counts"`            // counts above 0, pending first
	Overdue time.Duration `json:"overdue,omitempty"` // how long the oldest due entry has waited for a claim; 0: no due entry waits
	Unknown bool          `json:"unknown,omitempty"` // whether entries are overdue and this process has no handler for the type
	// Unregistered says that entries of the type wait, and that no live process has a handler for it. It is false if no
	// process has stored a description of itself (Operations.Instances).
	Unregistered bool     `json:"unregistered,omitempty"`
	Paused       *Paused  `json:"paused,omitempty"`  // the pause; nil if the type is not paused
	Limited      *Limited `json:"limited,omitempty"` // set if entries of the type wait for a limit, as far as this process knows
	Broken       *Broken  `json:"breaker,omitempty"` // set if the breaker of the type is open in this process. Other processes may claim the type
	Backlog      *Backlog `json:"backlog,omitempty"` // entries that waited when a process with Operations.Statistics counted them; nil if it has counted none within the last five minutes
}

// Broken is a type whose breaker (HandlerConfig.Breaker) is open in the process that serves the Admin. As long as it is
// open, this process claims no entry of the type.
type Broken struct {
	Type  string    `json:"type"`  // business type
	Since time.Time `json:"since"` // when the breaker opened, by the clock of the process that serves the Admin

	// ProbeAt is when the process that serves the Admin tries one entry again, by the clock of this process. If ProbeAt
	// is in the past, the attempt is running, or no entry is due.
	ProbeAt time.Time `json:"probe_at"`
	Error   string    `json:"error"` // error of the last failed call; masked without SeeErrors
}

// StateCount is the number of entries of one state.
type StateCount struct {
	State compensator.State `json:"state"`          // state of the counted entries
	N     int               `json:"n"`              // number of entries. A number above 1,000 comes from TypeOverview.Backlog
	More  bool              `json:"more,omitempty"` // there are at least N entries, and nobody has counted further
}

// Health describes the process that serves the Admin, and its servers. Its errors are masked for an actor who lacks
// SeeErrors for the empty type.
type Health struct {
	Database string `json:"database,omitempty"` // error of the database; empty if the database answers
	Queue    string `json:"queue,omitempty"`    // error of the queue; empty if the queue answers, or if there is no queue
	NoQueue  bool   `json:"no_queue,omitempty"` // whether the database is the only queue
	History  string `json:"history,omitempty"`  // set if the database was rolled back to an earlier state and nobody has accepted the loss
	Running  bool   `json:"running"`            // whether Run is running in this process
}

// maxCount is the maximum count per type and state.
const maxCount = 1000

var unfinished = []compensator.State{compensator.Pending, compensator.Retrying, compensator.Compensating, compensator.Dead}

// Overview counts unfinished and dead entries, up to 1,000 of each type and state. Larger numbers come from the last
// Backlog if Operations.Statistics is set. Overview asks Access for SeeOverview for each type. The field Health needs
// SeeOverview for the empty type. If the actor has SeeOverview for no type, Overview returns ErrNotAllowed.
//
// All actors share one result. The Admin reads a new result after two to ten seconds, or earlier if this Admin has
// carried out an action.
func (d *Admin) Overview(ctx context.Context, a Actor) (Overview, error) {
	mayRead := d.rightsOf(a, SeeOverview)
	counts, at, err := d.readCounts(ctx)
	if err != nil {
		return Overview{}, err
	}
	current, err := d.readCondition(ctx)
	if err != nil {
		return Overview{}, err
	}
	types := make(map[string]*TypeOverview)
	typeNamed := func(name string) *TypeOverview {
		if types[name] == nil {
			types[name] = &TypeOverview{Type: name}
		}
		return types[name]
	}
	for _, c := range counts {
		if mayRead.holds(ctx, c.BusinessType) {
			t := typeNamed(c.BusinessType)
			t.Counts = append(t.Counts, StateCount{c.State, c.N, c.More})
		}
	}
	overview := Overview{At: at}
	health := current.health
	for name, overdue := range health.Overdue {
		if mayRead.holds(ctx, name) {
			typeNamed(name).Overdue, typeNamed(name).Unknown = overdue, slices.Contains(health.UnknownTypes, name)
		}
	}
	paused := visiblePaused(ctx, current.settings, mayRead)
	for i := range paused {
		typeNamed(paused[i].Type).Paused = &paused[i]
	}
	openBreakers := d.visibleBroken(ctx, a, health.OpenBreakers, mayRead)
	for i := range openBreakers {
		typeNamed(openBreakers[i].Type).Broken = &openBreakers[i]
	}
	limitedTypes := d.visibleLimited(ctx, health.Limited, mayRead)
	for i := range limitedTypes {
		typeNamed(limitedTypes[i].BusinessType).Limited = &limitedTypes[i]
	}
	if mayRead.holds(ctx, "") {
		isFull := d.mayDo(ctx, a, SeeErrors, Subject{})
		problemText := func(err error) string { return d.scrubText(processlog.FitError(text(err)), isFull) } // Scrub the error, because a driver's error may contain the address and the password of its server.
		overview.Health = &Health{Database: problemText(health.Database), Queue: problemText(health.Queue), History: problemText(health.History), Running: health.Running, NoQueue: !d.log.SharedQueue()}
	} else if len(types) == 0 {
		typeNames, err := d.readTypes(ctx)
		if err != nil {
			return Overview{}, err
		}
		if !slices.ContainsFunc(typeNames, func(name string) bool { return mayRead.holds(ctx, name) }) {
			return Overview{}, ErrNotAllowed
		}
	}
	unregistered, err := d.Unregistered(ctx, a, slices.Collect(maps.Keys(types))...)
	if err != nil {
		return Overview{}, err
	}
	for _, name := range unregistered {
		types[name].Unregistered = true
	}
	for _, t := range types {
		slices.SortFunc(t.Counts, func(a, b StateCount) int {
			return slices.Index(unfinished, a.State) - slices.Index(unfinished, b.State)
		})
		overview.Types = append(overview.Types, *t)
	}
	slices.SortFunc(overview.Types, func(a, b TypeOverview) int { return strings.Compare(a.Type, b.Type) })
	overview.AddBacklog(current.backlog)
	return overview, nil
}

// Broken lists the types whose breaker is open now in the process that serves the Admin. It needs SeeOverview. It
// leaves out types that the actor may not see. It sends no query.
func (d *Admin) Broken(ctx context.Context, a Actor) []Broken {
	return d.visibleBroken(ctx, a, d.log.OpenBreakers(), d.rightsOf(a, SeeOverview))
}

// visibleBroken cuts errors to the length that the log stores, because errors of handlers may have any length.
func (d *Admin) visibleBroken(ctx context.Context, a Actor, openBreakers []observe.OpenBreaker, mayRead *typeRights) (visible []Broken) {
	seesErrors := d.rightsOf(a, SeeErrors)
	for _, b := range openBreakers {
		if mayRead.holds(ctx, b.BusinessType) {
			visible = append(visible, Broken{Type: b.BusinessType, Since: b.Since, ProbeAt: b.ProbeAt, Error: d.scrubText(processlog.FitError(text(b.Err)), seesErrors.holds(ctx, b.BusinessType))})
		}
	}
	return visible
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
