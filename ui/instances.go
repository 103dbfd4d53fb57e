package ui

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/processlog"
)

type instancesData struct {
	Rows      []instanceRow
	Builds    string // versions of the service in live processes; empty if all processes have the same version
	Libraries string // versions of the library in live processes; empty if all processes have the same version

	Live, Gone      int
	Handlers, Slots int // of live processes
}

type instanceRow struct {
	ID                   processlog.InstanceID
	Name, Build, Library string
	State                admin.InstanceState
	Badge                string // kind of the badge that shows the State
	Seen                 string // time since the process was last seen
	Started              time.Time
	Running              bool
	Queue                string // key of the translated text about the queue; empty: the process has no queue
	Handlers, Slots      int
	Load                 int // share of slots in use, in percent
	Stuck                int
	Types                []admin.InstanceType
}

var instanceStates = []struct {
	state admin.InstanceState
	badge string
}{{admin.InstanceGone, "dead"}, {admin.InstanceLive, "succeeded"}, {admin.InstanceEnded, "cancelled"}}

func (s *server) showInstances(rq *request) {
	found, err := s.admin.Instances(rq.ctx, rq.Actor)
	if err != nil {
		rq.showFailure(err)
		return
	}
	var data instancesData
	if len(found.Builds) > 1 {
		data.Builds = strings.Join(found.Builds, ", ")
	}
	if len(found.Libraries) > 1 {
		data.Libraries = strings.Join(found.Libraries, ", ")
	}
	for _, of := range instanceStates {
		for _, i := range found.List {
			if i.State() != of.state {
				continue
			}
			row, err := rq.newInstanceRow(i, of.badge)
			if err != nil {
				rq.showFailure(err)
				return
			}
			data.Rows = append(data.Rows, row)
			data.count(row)
		}
	}
	if !rq.unchanged("instances", data) {
		rq.showPage(http.StatusOK, "instances", data)
	}
}

func (d *instancesData) count(row instanceRow) {
	switch row.State {
	case admin.InstanceLive:
		d.Live++
		d.Handlers, d.Slots = d.Handlers+row.Handlers, d.Slots+row.Slots
	case admin.InstanceGone:
		d.Gone++
	}
}

func (rq *request) newInstanceRow(i admin.Instance, badge string) (row instanceRow, err error) {
	row = instanceRow{ID: i.ID, Name: i.Name, Build: i.Build, Library: i.Library, State: i.State(), Badge: badge, Started: i.StartedAt, Running: i.Running, Types: slices.Clone(i.Types)}
	if i.Queue != "" {
		row.Queue = "instances.queue." + string(i.Queue)
	}
	for _, t := range i.Types {
		row.Handlers, row.Slots, row.Stuck = row.Handlers+t.Running, row.Slots+t.Slots, row.Stuck+t.Stuck
	}
	if row.Slots > 0 {
		row.Load = min(100, (row.Handlers*100+row.Slots-1)/row.Slots)
	}
	row.Seen, err = rq.Span(i.Unseen)
	return row, err
}
