package admin

import (
	"context"
	"slices"
	"time"

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
	LimitValues
}

// LimitValues are the numbers of a limit.
type LimitValues = processlog.LimitValues

// Limits lists the limits of the types that the actor may see, sorted by name. It needs SeeOverview.
func (d *Admin) Limits(ctx context.Context, a Actor) ([]Limit, error) {
	stored, err := read(ctx, d, d.log.Operations().Limits)
	sees := d.sight(a, SeeOverview)
	var limits []Limit
	for _, l := range stored {
		types := slices.DeleteFunc(slices.Clone(l.Types), func(name string) bool { return !sees.sees(ctx, name) })
		if len(types) > 0 {
			limits = append(limits, Limit{Name: l.Name, Types: types, Keyed: l.Keyed, LimitValues: l.InForce()})
		}
	}
	return limits, err
}
