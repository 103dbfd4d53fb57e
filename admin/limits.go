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

// Limited is a type with entries that wait for a limit (TypeConfig.Limit), as far as the process that serves the Admin
// knows.
type Limited = observe.LimitedType

// Limited lists the types with entries that wait for a limit. It needs SeeOverview. It leaves out types that the actor
// may not see. It sends no query.
func (d *Admin) Limited(ctx context.Context, a Actor) []Limited {
	return d.visibleLimited(ctx, d.log.Limited(), d.rightsOf(a, SeeOverview))
}

func (d *Admin) visibleLimited(ctx context.Context, limited []Limited, mayRead *typeRights) []Limited {
	return slices.DeleteFunc(slices.Clone(limited), func(l Limited) bool { return !mayRead.holds(ctx, l.BusinessType) })
}

// Limit describes a limit on the starts of entries (TypeConfig.Limit). Admin.Limits lists a limit only after a process
// has claimed an entry to which the limit applies.
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

	UsedUp bool      `json:"used_up"`          // whether no entry may start now; false if Keyed is set
	FreeAt time.Time `json:"free_at,omitzero"` // if UsedUp is set: when the rate allows the next start, by the clock of this process; zero: when an entry that runs has ended
}

// Changed reports whether a person's values are in force.
func (l Limit) Changed() bool { return l.Person != LimitValues{} }

// LimitValues are the numbers of a limit.
type LimitValues = processlog.LimitValues

// Interval converts a rate, such as 100 starts in a minute, into the time between two starts. The result is rounded up,
// as in TypeConfig.Limit.
func Interval(starts int64, period time.Duration) time.Duration {
	return (period + time.Duration(starts) - 1) / time.Duration(starts)
}

// Limits lists the limits of the types that the actor may see, sorted by name. It needs SeeOverview.
func (d *Admin) Limits(ctx context.Context, a Actor) ([]Limit, error) {
	stored, err := d.readLimits(ctx, "")
	mayRead := d.rightsOf(a, SeeOverview)
	var limits []Limit
	for _, l := range stored {
		types := slices.DeleteFunc(slices.Clone(l.Types), func(name string) bool { return !mayRead.holds(ctx, name) })
		if len(types) == 0 {
			continue
		}
		limit := Limit{Name: l.Name, Types: types, Keyed: l.Keyed, LimitValues: l.InForce(), Program: l.Program, Person: l.Person,
			Version: l.Version, Actor: l.Actor, Reason: l.Reason, At: l.At}
		if !l.Keyed {
			k, err := d.limitedKey(ctx, l, "")
			if err != nil {
				return nil, err
			}
			limit.UsedUp = k.Starts == 0 || l.InForce().Concurrent > 0 && len(k.Holders) >= l.InForce().Concurrent
			if k.Starts == 0 {
				limit.FreeAt = time.Now().Add(k.Next).UTC()
			}
		}
		limits = append(limits, limit)
	}
	return limits, err
}

func (d *Admin) limitedKey(ctx context.Context, limit processlog.StoredLimit, key string) (processlog.LimitedKey, error) {
	return runQuery(ctx, d, func(ctx context.Context) (processlog.LimitedKey, error) {
		return d.log.Operations().LimitedKey(ctx, limit, key)
	})
}

func (d *Admin) readLimits(ctx context.Context, name string) ([]processlog.StoredLimit, error) {
	return runQuery(ctx, d, func(ctx context.Context) ([]processlog.StoredLimit, error) {
		return d.log.Operations().Limits(ctx, name)
	})
}

// ChangeLimit sets values of a limit in all processes, in place of the values that the program has set. If a field of
// values is 0, the program's value applies. So LimitValues{} restores all values of the program. Each claim that begins
// after ChangeLimit has returned obeys the new values. Entries that are already running continue. The actor needs the
// right ChangeLimit for each type that shares the limit.
//
// The argument seen is the limit as the method Limits has returned it. If a person has changed the limit after that
// call of Limits, ChangeLimit returns ErrChanged.
//
// ChangeLimit returns ErrNotFound if no claim has used the limit yet. It also returns ErrNotFound if the actor may
// neither see nor change any type of the limit. ErrNotAllowed, ErrReadOnly and *FieldError have the same meaning as for
// Pause.
func (d *Admin) ChangeLimit(ctx context.Context, a Actor, seen Limit, values LimitValues, why Why) error {
	if d.readOnly {
		return ErrReadOnly
	}
	reason, err := why.text()
	if err != nil {
		return err
	}
	for _, p := range values.Problems() {
		return &compensator.FieldError{Field: strings.ToLower(p.Field), Reason: p.Reason}
	}
	stored, err := d.readLimits(withAction(ctx), seen.Name)
	if err != nil {
		return err
	}
	subject := seen.Name + ": " + limitText(values)
	if len(stored) == 0 || seen.Name == "" { // Without a name, readLimits reads all limits.
		return d.refuseLimit(ctx, a, nil, subject, seen.Name, reason)
	}
	limit := stored[0]
	if len(limit.Types) == 0 { // Without a type, the loop below would not ask for the right ChangeLimit.
		limit.Types = []string{""}
	}
	var ops []processlog.Operation
	for _, name := range limit.Types {
		if !d.mayDo(ctx, a, ChangeLimit, Subject{Type: name}) {
			return d.refuseLimit(ctx, a, limit.Types, subject, limit.Name, reason)
		}
		ops = append(ops, processlog.Operation{Actor: a.ID, Action: string(ChangeLimit), BusinessType: name, Subject: subject, Reason: reason})
	}
	limit.Version, limit.Person, limit.Actor, limit.Reason = seen.Version, values, a.ID, reason
	defer d.actionCount.Add(1)
	return d.log.Operations().PutLimit(ctx, limit, ops...)
}

// refuseLimit records that the actor may not change a limit. The record names the first type of the limit that the
// actor may see or change. If there is no such type, refuseLimit returns ErrNotFound, as for a limit that does not
// exist. Otherwise it returns ErrNotAllowed.
func (d *Admin) refuseLimit(ctx context.Context, a Actor, types []string, subject, name, reason string) error {
	ctx = withAction(ctx)
	op, isHidden := processlog.Operation{Action: string(ChangeLimit), Subject: subject, Reason: reason}, true
	for _, of := range types {
		if d.mayDo(ctx, a, SeeOverview, Subject{Type: of}) || d.mayDo(ctx, a, ChangeLimit, Subject{Type: of}) {
			op.BusinessType, isHidden = of, false
			break
		}
	}
	if err := d.recordRefusal(ctx, a, op); err != ErrNotAllowed || !isHidden {
		return err
	}
	return fmt.Errorf("limit %q: %w", name, compensator.ErrNotFound)
}

func limitText(v LimitValues) string {
	var parts []string
	if v.Interval > 0 {
		n, period := v.Rate()
		unit := "starts"
		if n == 1 {
			unit = "start"
		}
		parts = append(parts, fmt.Sprintf("%d %s in %v", n, unit, period))
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

// MayChangeLimit reports whether the actor may change a limit. It asks for the types in l.Types only.
func (d *Admin) MayChangeLimit(ctx context.Context, a Actor, l Limit) bool {
	return !d.readOnly && !slices.ContainsFunc(l.Types, func(name string) bool { return !d.mayDo(ctx, a, ChangeLimit, Subject{Type: name}) })
}
