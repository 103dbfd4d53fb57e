package admin

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// Overview is what needs looking at, of the types that the actor may see.
type Overview struct {
	At     time.Time      `json:"at"`               // when entries were counted, by the clock of this process
	Types  []TypeOverview `json:"types"`            // those with entries that are unfinished or dead, or that are paused or left alone, by name
	Health *Health        `json:"health,omitempty"` // of this process and its servers
}

// TypeOverview is a type's entries that are unfinished or dead, and what keeps them from being claimed.
type TypeOverview struct {
	Type    string        `json:"type"`
	Counts  []Count       `json:"counts"`            // those that are not 0, pending first
	Overdue time.Duration `json:"overdue,omitempty"` // how long the one that waits longest has been due and unclaimed; 0: none
	Unknown bool          `json:"unknown,omitempty"` // it is overdue, and this process has no handler for it
	Paused  *Paused       `json:"paused,omitempty"`
	Broken  *Broken       `json:"breaker,omitempty"` // its breaker is open in this process; others may claim the type
}

// Broken is a type of which the process that serves the Admin claims no entry for now: TypeConfig.Breaker has opened.
type Broken struct {
	Type    string    `json:"type"`
	Since   time.Time `json:"since"`    // by the clock of that process, as ProbeAt
	ProbeAt time.Time `json:"probe_at"` // from then on one entry is tried; that one may be under way, or not have come due yet
	Error   string    `json:"error"`    // of the last call that failed; its shape to who has no SeeErrors
}

// Count is a number of entries, up to 1,000.
type Count struct {
	State compensator.State `json:"state"`
	N     int               `json:"n"`
	More  bool              `json:"more,omitempty"` // there are more
}

// Health is what an operator should know of the process that serves him. What is wrong is shown as entries' errors are: its shape to
// who has no SeeErrors with no type.
type Health struct {
	Database string `json:"database,omitempty"` // what is wrong; empty: it answers
	Queue    string `json:"queue,omitempty"`    // what is wrong; empty: it answers, or there is none
	NoQueue  bool   `json:"no_queue,omitempty"` // there is no queue beside the database, so none was asked
	History  string `json:"history,omitempty"`  // the database has gone back, and this process has stopped
	Running  bool   `json:"running"`            // Run is at work in this process
}

// overviewMost is how far the overview counts a group.
const overviewMost = 1000

// unfinished are the states that the overview counts.
var unfinished = []compensator.State{compensator.Pending, compensator.Retrying, compensator.Compensating, compensator.Dead}

// Overview counts what is unfinished or dead, up to 1,000 of each type and state. It wants SeeOverview, asked for each type,
// and for the Health with no type; ErrNotAllowed: he has it for none. All who ask within two seconds, or while it is read, share what was read; of a log that takes long
// to count, within two hundred times as long, up to ten seconds. What is done through this Admin shows at once.
func (d *Admin) Overview(ctx context.Context, a Actor) (Overview, error) {
	sees := d.sight(a, SeeOverview)
	counts, at, err := d.counted(ctx)
	if err != nil {
		return Overview{}, err
	}
	all, err := d.condition(ctx)
	if err != nil {
		return Overview{}, err
	}
	types := make(map[string]*TypeOverview)
	of := func(name string) *TypeOverview {
		if types[name] == nil {
			types[name] = &TypeOverview{Type: name}
		}
		return types[name]
	}
	for _, c := range counts {
		if sees.sees(ctx, c.BusinessType) {
			t := of(c.BusinessType)
			t.Counts = append(t.Counts, Count{c.State, c.N, c.More})
		}
	}
	found := Overview{At: at}
	health := all.health
	for name, overdue := range health.Overdue {
		if sees.sees(ctx, name) {
			of(name).Overdue, of(name).Unknown = overdue, slices.Contains(health.UnknownTypes, name)
		}
	}
	paused := pausedAmong(ctx, all.settings, sees)
	for i := range paused {
		of(paused[i].Type).Paused = &paused[i]
	}
	broken := d.brokenAmong(ctx, a, health.OpenBreakers, sees)
	for i := range broken {
		of(broken[i].Type).Broken = &broken[i]
	}
	if sees.sees(ctx, "") {
		inFull := d.may(ctx, a, SeeErrors, Subject{})
		wrong := func(err error) string { return d.told(processlog.FitError(text(err)), inFull) } // a driver may say its address, with the password
		found.Health = &Health{Database: wrong(health.Database), Queue: wrong(health.Queue), History: wrong(health.History), Running: health.Running, NoQueue: !d.log.SharedQueue()}
	} else if len(types) == 0 {
		known, err := d.types(ctx)
		if err != nil {
			return Overview{}, err
		}
		if !slices.ContainsFunc(known, func(name string) bool { return sees.sees(ctx, name) }) {
			return Overview{}, ErrNotAllowed
		}
	}
	for _, t := range types {
		slices.SortFunc(t.Counts, func(a, b Count) int { return slices.Index(unfinished, a.State) - slices.Index(unfinished, b.State) })
		found.Types = append(found.Types, *t)
	}
	slices.SortFunc(found.Types, func(a, b TypeOverview) int { return strings.Compare(a.Type, b.Type) })
	return found, nil
}

// Broken lists the types that the process that serves the Admin leaves alone, as they are now, of those that the actor may
// see: it wants SeeOverview. It asks the log for nothing.
func (d *Admin) Broken(ctx context.Context, a Actor) []Broken {
	return d.brokenAmong(ctx, a, d.log.OpenBreakers(), d.sight(a, SeeOverview))
}

// brokenAmong has their errors cut as the log cuts those of entries, for they are the handlers' own, of any length.
func (d *Admin) brokenAmong(ctx context.Context, a Actor, open []compensator.OpenBreaker, sees *sight) (seen []Broken) {
	inFull := d.sight(a, SeeErrors)
	for _, b := range open {
		if sees.sees(ctx, b.BusinessType) {
			seen = append(seen, Broken{Type: b.BusinessType, Since: b.Since, ProbeAt: b.ProbeAt, Error: d.told(processlog.FitError(text(b.Err)), inFull.sees(ctx, b.BusinessType))})
		}
	}
	return seen
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
