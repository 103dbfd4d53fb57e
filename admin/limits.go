package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// Limited is a type with entries that the process that serves the Admin knows to wait for a limit (TypeConfig.Limit).
type Limited struct {
	Type    string    `json:"type"`             // business type
	Limit   string    `json:"limit"`            // name of the limit
	Waiting int       `json:"waiting"`          // entries that are known to wait; more may wait. See observe.LimitedType
	NextAt  time.Time `json:"next_at,omitzero"` // when the rate allows the next start, by the clock of that process; zero: when an entry that runs has ended
}

// Limited lists the types with entries that wait for a limit. It needs SeeOverview. It leaves out types that the actor may not see. It
// sends no query.
func (d *Admin) Limited(ctx context.Context, a Actor) []Limited {
	return d.limitedAmong(ctx, d.log.Limited(), d.sight(a, SeeOverview))
}

func (d *Admin) limitedAmong(ctx context.Context, all []observe.LimitedType, sees *sight) (seen []Limited) {
	for _, l := range all {
		if sees.sees(ctx, l.BusinessType) {
			seen = append(seen, Limited{Type: l.BusinessType, Limit: l.Limit, Waiting: l.Waiting, NextAt: l.NextAt})
		}
	}
	return seen
}

// Limit describes a limit on the starts of entries (TypeConfig.Limit). The log knows a limit from its first claim on.
type Limit struct {
	Name  string   `json:"name"`           // name of the limit
	Types []string `json:"business_types"` // types that share the limit and that the actor may see, sorted
	Keyed bool     `json:"keyed"`          // whether each key of the entries has its own limit

	LimitValues             // values in force
	Program     LimitValues `json:"program"` // values that the program has set
	Person      LimitValues `json:"person"`  // values that a person has set; 0: that of the program

	Version uint64    `json:"version,string"`      // number of changes by people. ChangeLimit needs it
	Actor   string    `json:"actor,omitempty"`     // the person who made the last change
	Reason  string    `json:"reason,omitempty"`    // reason that Actor gave
	At      time.Time `json:"changed_at,omitzero"` // time of the last change, by the database's clock
}

// Changed reports whether a person's values are in force.
func (l Limit) Changed() bool { return l.Person != LimitValues{} }

// LimitValues are the numbers of a limit.
type LimitValues = processlog.LimitValues

// Interval returns the time between two starts for a rate of starts in a period. It rounds up, as TypeConfig.Limit does.
func Interval(starts int64, per time.Duration) time.Duration {
	return (per + time.Duration(starts) - 1) / time.Duration(starts)
}

// Limits lists the limits of the types that the actor may see, sorted by name. It needs SeeOverview.
func (d *Admin) Limits(ctx context.Context, a Actor) ([]Limit, error) {
	stored, err := read(ctx, d, d.log.Operations().Limits)
	sees := d.sight(a, SeeOverview)
	var limits []Limit
	for _, l := range stored {
		types := slices.DeleteFunc(slices.Clone(l.Types), func(name string) bool { return !sees.sees(ctx, name) })
		if len(types) > 0 {
			limits = append(limits, Limit{Name: l.Name, Types: types, Keyed: l.Keyed, LimitValues: l.InForce(), Program: l.Program, Person: l.Person,
				Version: l.Version, Actor: l.Actor, Reason: l.Reason, At: l.At})
		}
	}
	return limits, err
}

// ChangeLimit sets values of a limit in place of the program's own, in all processes. A value of 0 stays the program's own, so
// LimitValues{} ends the change. Each claim that begins after ChangeLimit has returned obeys the new values. Entries that run go on.
// ChangeLimit needs the right ChangeLimit for each type that shares the limit.
//
// It returns ErrChanged if a person has changed the limit since seen was read. It returns ErrNotFound if no entry was claimed under the
// limit yet. Its other errors are ErrNotAllowed, ErrReadOnly and *FieldError, as for Pause.
func (d *Admin) ChangeLimit(ctx context.Context, a Actor, seen Limit, values LimitValues, why Why) error {
	if d.readOnly {
		return ErrReadOnly
	}
	reason, err := why.text()
	if err == nil {
		err = validLimit(values)
	}
	if err != nil {
		return err
	}
	stored, err := read(acting(ctx), d, d.log.Operations().Limits)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(stored, func(l processlog.StoredLimit) bool { return l.Name == seen.Name })
	if at < 0 {
		return fmt.Errorf("limit %q: %w", seen.Name, compensator.ErrNotFound)
	}
	limit := stored[at]
	subject := limit.Name + ": " + limitText(values)
	var ops []processlog.Operation
	for _, name := range limit.Types {
		if !d.may(ctx, a, ChangeLimit, Subject{Type: name}) {
			return d.refuseType(ctx, a, name, processlog.Operation{Action: string(ChangeLimit), Subject: subject, Reason: reason})
		}
		ops = append(ops, processlog.Operation{Actor: a.ID, Action: string(ChangeLimit), BusinessType: name, Subject: subject, Reason: reason})
	}
	limit.Version, limit.Person, limit.Actor, limit.Reason = seen.Version, values, a.ID, reason
	defer d.acts.Add(1)
	return d.log.Operations().PutLimit(ctx, limit, ops...)
}

// validLimit returns a *FieldError for values that no limit may have.
func validLimit(v LimitValues) error {
	for _, f := range []struct {
		field string
		wrong bool
		want  string
	}{
		{"rate", v.Interval < 0 || v.Interval > processlog.MaxBurstTime, "want one start in at most a year"},
		{"burst", v.Burst < 0 || v.Burst > processlog.MaxBurst, fmt.Sprintf("want 1 to %d", processlog.MaxBurst)},
		{"burst", v.Interval > 0 && v.Interval > processlog.MaxBurstTime/time.Duration(max(1, v.Burst)), "takes more than a year at this rate"},
		{"concurrent", v.Concurrent < 0 || v.Concurrent > processlog.MaxConcurrent, fmt.Sprintf("want 1 to %d", processlog.MaxConcurrent)},
	} {
		if f.wrong {
			return &compensator.FieldError{Field: f.field, Reason: f.want}
		}
	}
	return nil
}

// limitText describes values for the audit log.
func limitText(v LimitValues) string {
	var parts []string
	if v.Interval > 0 {
		n, per := v.Rate()
		parts = append(parts, fmt.Sprintf("%d starts in %v", n, per))
	}
	if v.Burst > 0 {
		parts = append(parts, fmt.Sprintf("burst %d", v.Burst))
	}
	if v.Concurrent > 0 {
		parts = append(parts, fmt.Sprintf("%d at once", v.Concurrent))
	}
	if len(parts) == 0 {
		return "as the program"
	}
	return strings.Join(parts, ", ")
}

// MayChangeLimit reports whether the actor may change a limit, as far as its types in l tell.
func (d *Admin) MayChangeLimit(ctx context.Context, a Actor, l Limit) bool {
	return !d.readOnly && !slices.ContainsFunc(l.Types, func(name string) bool { return !d.may(ctx, a, ChangeLimit, Subject{Type: name}) })
}
