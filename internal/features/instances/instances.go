// Package instances stores a row in which this process describes itself to people: its name, its versions, its types,
// and how busy they are.
//
// The process writes one row when it begins, when Run begins, once a minute, and when it is closed.
package instances

import (
	"context"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/groupcommit"
	"github.com/compensator-go/compensator/processlog"
)

const problem = "this process could not store that it runs"

// Store stores what a process says about itself. See processlog.Operations.
type Store interface {
	WriteInstance(ctx context.Context, i processlog.Instance, age time.Duration, ended bool) error
}

// Reporter writes the row of this process.
type Reporter struct {
	e         *engine.Engine
	store     Store
	self      processlog.Instance
	queue     func() processlog.InstanceQueue
	schedules func() map[string]Schedule
	claimHold func(t *engine.Type, lostLeases int) *processlog.ClaimHold
	startedAt time.Time
	writer    groupcommit.Batcher[report]

	mu    sync.Mutex // guards the fields below
	timer *time.Timer
	ended bool
}

type report struct{ ended bool }

// mostReports is the maximum number of reports that wait to be written. A report describes the process when it is
// written. So a waiting report also covers what happens until then, and further waiting reports would say the same.
const mostReports = 2

// Schedule returns the first slot of a periodic type after a time, or the zero time if there is none.
type Schedule func(after time.Time) (time.Time, error)

// Attach makes the reporter of this process. From then on, the lease tokens of the process begin with its instance id.
func Attach(e *engine.Engine, store Store, name string, queue func() processlog.InstanceQueue, schedules func() map[string]Schedule, claimHold func(t *engine.Type, lostLeases int) *processlog.ClaimHold) *Reporter {
	r := &Reporter{e: e, store: store, queue: queue, schedules: schedules, claimHold: claimHold, startedAt: time.Now(), self: processlog.Instance{ID: processlog.NewInstanceID(), Name: name}}
	r.self.Library, r.self.Build = versions(debug.ReadBuildInfo())
	r.writer.Max, r.writer.Workers, r.writer.Bound, r.writer.Flush = mostReports+1, 1, mostReports+1, r.write
	e.MarkLeases(r.self.ID)
	e.Await(engine.WaitInClose, r)
	return r
}

const library = "github.com/compensator-go/compensator"

// development is the version that Go gives to a program or module that was built from a folder. It is the same for all
// such builds, so the function versions leaves it out.
const development = "(devel)"

func versions(info *debug.BuildInfo, known bool) (lib, build string) {
	if !known {
		return "", ""
	}
	if info.Main.Path == library {
		lib = info.Main.Version
	}
	for _, m := range info.Deps {
		if m.Path == library {
			lib = m.Version
			if m.Replace != nil {
				// If the program replaces the library's module by a directory, this version is empty.
				lib = m.Replace.Version
			}
		}
	}
	lib, build = strings.TrimPrefix(lib, development), strings.TrimPrefix(info.Main.Version, development)
	if build != "" {
		return lib, build
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			build = s.Value[:min(len(s.Value), 12)]
		}
	}
	return lib, build
}

// Begin writes the row for the first time. Its error names a missing table.
func (r *Reporter) Begin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, engine.StatementTimeout)
	defer cancel()
	if err := r.store.WriteInstance(ctx, r.describe(), time.Since(r.startedAt), false); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timer = time.AfterFunc(processlog.InstanceInterval, r.Report)
	return nil
}

// Report writes the row in the background. The next regular write follows a minute after this call.
func (r *Reporter) Report() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return
	}
	r.timer.Reset(processlog.InstanceInterval)
	if r.writer.Size() < mostReports {
		r.writer.Add(report{})
	}
}

// Done stores that this process has ended, and returns a channel that is closed when that is stored. The engine calls
// Done at the end of its Close.
func (r *Reporter) Done() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	// Begin sets the timer when it has written the row of this process. So if the timer is nil, there is no row to
	// update.
	if !r.ended && r.timer != nil {
		failpoint.Reach(failpoint.InstanceEnds)
		r.timer.Stop()
		r.writer.Add(report{ended: true})
	}
	r.ended = true
	return r.writer.Done()
}

// Quiet reports whether no report waits.
func (r *Reporter) Quiet() bool { return r.writer.Quiet() }

// write repeats no failed report, because the next one follows within a minute.
func (r *Reporter) write(reports []report) {
	ctx, cancel := r.e.Statement()
	defer cancel()
	err := r.store.WriteInstance(ctx, r.describe(), time.Since(r.startedAt), reports[len(reports)-1].ended)
	r.e.NoteResult(problem, err)
}

func (r *Reporter) describe() processlog.Instance {
	i := r.self
	i.Running, i.Queue = r.e.Accepts(), r.queue()
	schedules := r.schedules()
	for _, t := range r.e.Types() {
		state := processlog.InstanceType{Name: t.Name, Slots: t.Concurrency, Schedule: describeSchedule(schedules[t.Name]), Hold: r.hold(t)}
		delete(schedules, t.Name)
		for _, a := range r.e.Held(func(a engine.HeldAttempt) bool { return a.Type == t && !a.Returned }) {
			state.Running++
			if a.Stuck || a.LeftBehind {
				state.Stuck++
			}
		}
		i.Types = append(i.Types, state)
	}
	for name, schedule := range schedules { // periodic types without a handler in this process
		i.Types = append(i.Types, processlog.InstanceType{Name: name, Schedule: describeSchedule(schedule)})
	}
	slices.SortFunc(i.Types, func(a, b processlog.InstanceType) int { return strings.Compare(a.Name, b.Name) })
	return i
}

func describeSchedule(schedule Schedule) *processlog.InstanceSchedule {
	if schedule == nil {
		return nil
	}
	s, slot := new(processlog.InstanceSchedule), time.Now()
	for range processlog.InstanceSlots {
		var err error
		if slot, err = schedule(slot); err != nil || slot.IsZero() {
			break
		}
		s.Next = append(s.Next, slot)
	}
	return s
}

func (r *Reporter) hold(t *engine.Type) *processlog.ClaimHold {
	for lostLeases := range mostLostLeases + 1 {
		if hold := r.claimHold(t, lostLeases); hold != nil {
			return hold
		}
	}
	return nil
}

// mostLostLeases and more are treated alike.
const mostLostLeases = 2
