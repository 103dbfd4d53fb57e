package admin

import (
	"context"
	"slices"

	"github.com/compensator-go/compensator"
)

// Types lists the business types for which the actor has a right, sorted. These are the types of the log, and the types
// with a handler in a live process that has stored a description of itself. The list may be some seconds old.
func (d *Admin) Types(ctx context.Context, a Actor, right Right) ([]string, error) {
	types, err := d.readTypes(ctx)
	if err != nil {
		return nil, err
	}
	handled, err := d.handledTypes(ctx)
	if err != nil {
		return nil, err
	}
	types = slices.Clone(types)
	for name := range handled {
		types = append(types, name)
	}
	slices.Sort(types)
	mayDo := d.rightsOf(a, right)
	return slices.DeleteFunc(slices.Compact(types), func(name string) bool { return !mayDo.holds(ctx, name) }), nil
}

// Unregistered returns the given types for which no live process has a handler although entries wait. It needs
// SeeOverview, and leaves out types that the actor may not see. If no process has stored a description of itself, the
// handlers are unknown, and Unregistered returns no type.
func (d *Admin) Unregistered(ctx context.Context, a Actor, types ...string) ([]string, error) {
	handled, err := d.handledTypes(ctx)
	if err != nil || handled == nil {
		return nil, err
	}
	mayRead := d.rightsOf(a, SeeOverview)
	types = slices.DeleteFunc(slices.Clone(types), func(name string) bool { return handled[name] || !mayRead.holds(ctx, name) })
	if len(types) == 0 {
		return nil, nil
	}
	counts, _, err := d.readCounts(ctx)
	waiting := make(map[string]bool)
	for _, c := range counts {
		if c.State != compensator.Dead {
			waiting[c.BusinessType] = true
		}
	}
	return slices.DeleteFunc(types, func(name string) bool { return !waiting[name] }), err
}

// handledTypes returns nil if no process has stored a description of itself.
func (d *Admin) handledTypes(ctx context.Context) (map[string]bool, error) {
	if !d.hasInstances {
		return nil, nil
	}
	all, _, err := d.readInstances(ctx)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	handled := make(map[string]bool)
	for _, i := range all {
		for _, t := range i.Types {
			if i.State() == InstanceLive && t.Slots > 0 {
				handled[t.Name] = true
			}
		}
	}
	return handled, nil
}
