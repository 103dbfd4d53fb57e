package admin

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

type (
	Instance     = processlog.Instance     // what a process says about itself
	InstanceType = processlog.InstanceType // a business type with a handler in a process
	ClaimHold    = processlog.ClaimHold    // why a process does not claim due entries of a type

	InstanceState = processlog.InstanceState // whether a process runs
)

// The states of a process.
const (
	InstanceLive  = processlog.InstanceLive  // it has written its row lately
	InstanceGone  = processlog.InstanceGone  // it was not closed, and has not written its row for three minutes
	InstanceEnded = processlog.InstanceEnded // Close has ended it
)

// Instances reads the descriptions that processes have stored of themselves, sorted by name. Only the process itself
// writes its row. So a live process that cannot reach the database is InstanceGone, as if it had been killed. Instances
// returns a process for a day after its last write. A Compensator without Config.Operations, or a missing table, is a
// *FieldError.
func (l *Log) Instances(ctx context.Context) ([]Instance, error) {
	store := l.c.Operations()
	if store == nil {
		return nil, newNoInstancesError()
	}
	return store.Instances(ctx)
}

func newNoInstancesError() error {
	return &compensator.FieldError{Field: "Operations.Instances", Reason: "is not set in the Compensator's Config"}
}

// Instances are the processes of a log, as an actor may see them.
type Instances struct {
	At   time.Time  `json:"at"`   // when the processes were read, by the clock of this process
	List []Instance `json:"list"` // sorted by name, and then by ID

	// Libraries and Builds are the known versions of the live processes, sorted. More than one version means that an update is
	// running, or that the update missed a process.
	Libraries []string `json:"libraries"`
	Builds    []string `json:"builds"` // see Libraries

	Deploys []Deploy `json:"deploys"` // first start of each known version of the service, oldest first
}

// Deploy is the first start of a process with a version of the service. Deploys older than a day may be missing or
// inexact. The row of a process is deleted a day after the process was last seen.
type Deploy struct {
	At    time.Time `json:"at"`    // by the database's clock
	Build string    `json:"build"` // see Instance
}

// deploysOf returns the first start of each version. It leaves out processes whose version is unknown.
func deploysOf(instances []Instance) (deploys []Deploy) {
	for _, i := range instances {
		at := slices.IndexFunc(deploys, func(d Deploy) bool { return d.Build == i.Build })
		switch {
		case i.Build == "":
		case at < 0:
			deploys = append(deploys, Deploy{i.StartedAt, i.Build})
		case i.StartedAt.Before(deploys[at].At):
			deploys[at].At = i.StartedAt
		}
	}
	slices.SortFunc(deploys, func(a, b Deploy) int { return cmp.Or(a.At.Compare(b.At), strings.Compare(a.Build, b.Build)) })
	return deploys
}

// KeepsInstances reports whether Operations.Instances is set. Without this setting, the method Instances returns an
// error.
func (d *Admin) KeepsInstances() bool { return d.hasInstances }

// Instances returns the processes that have stored a description of themselves. If Operations.Instances is not set,
// Instances returns a *FieldError. The actor needs SeeOverview for the empty type, because the result contains the
// names of hosts. The result leaves out types that the actor may not see. Instances reads the database at most once in
// some seconds for all actors, as Overview does.
func (d *Admin) Instances(ctx context.Context, a Actor) (Instances, error) {
	if !d.mayDo(ctx, a, SeeOverview, Subject{}) {
		return Instances{}, ErrNotAllowed
	}
	all, at, err := d.readInstances(ctx)
	if err != nil {
		return Instances{}, err
	}
	found := Instances{At: at, List: make([]Instance, len(all)), Deploys: deploysOf(all)}
	mayRead := d.rightsOf(a, SeeOverview)
	for n := range all {
		i := all[n]
		i.Types = slices.DeleteFunc(slices.Clone(i.Types), func(t InstanceType) bool { return !mayRead.holds(ctx, t.Name) })
		if found.List[n] = i; i.State() == processlog.InstanceLive {
			found.Libraries, found.Builds = append(found.Libraries, i.Library), append(found.Builds, i.Build)
		}
	}
	slices.Sort(found.Libraries)
	slices.Sort(found.Builds)
	isUnknown := func(version string) bool { return version == "" }
	found.Libraries = slices.DeleteFunc(slices.Compact(found.Libraries), isUnknown)
	found.Builds = slices.DeleteFunc(slices.Compact(found.Builds), isUnknown)
	return found, nil
}

func (d *Admin) readInstances(ctx context.Context) ([]Instance, time.Time, error) {
	if !d.hasInstances {
		return nil, time.Time{}, newNoInstancesError()
	}
	return d.instances.get(ctx, &d.actionCount, func(ctx context.Context) ([]Instance, error) { return runQuery(ctx, d, d.log.Operations().Instances) })
}
