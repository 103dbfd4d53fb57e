package otel

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
)

// gauges query the Compensator and, through it, the database, when metrics are collected.
type gauges struct {
	t *Telemetry
	c *compensator.Compensator

	ready, queue, stuck, breakers, limited, waiting  metric.Int64ObservableGauge
	due, late                                        metric.Int64ObservableGauge
	cases, instances                                 metric.Int64ObservableGauge
	overdue, nextStart, pastDue, atRisk, paused, age metric.Float64ObservableGauge

	// The mutex in the field looking guards readAt, casesAt and openCases. A goroutine holds this mutex while it calls
	// the method read. Other goroutines do not wait for the mutex. They report the earlier readings, which are in the
	// field current.
	looking   sync.Mutex
	readAt    time.Time
	casesAt   time.Time
	openCases []reading
	current   atomic.Pointer[[]reading]
}

type reading struct {
	gauge  metric.Observable
	value  float64
	labels labels
}

const (
	lookEvery   = 15 * time.Second
	casesEvery  = 2 * lookEvery   // twice lookEvery, because it takes long to read the cases of a log with problems
	lookTimeout = 5 * time.Second // maximum time that a scrape waits for a database that does not answer
	maxWaiting  = 1000            // maximum count of entries per type and state. The backlog may have a higher number
)

func newGauges(t *Telemetry, c *compensator.Compensator) (metric.Registration, error) {
	g := &gauges{t: t, c: c}
	var problems []error
	gauge := func(name, unit, description string) metric.Int64ObservableGauge {
		made, err := t.meter.Int64ObservableGauge(name, metric.WithDescription(description), metric.WithUnit(unit))
		problems = append(problems, err)
		return made
	}
	g.ready = gauge(ready, "", "1 if this process is ready, else 0. Health.Ready has the reason.")
	g.queue = gauge(queueUp, "", "1 if the queue answers or is in this process. 0 if this process polls the database instead.")
	g.stuck = gauge(attemptStuck, "{attempt}", "Number of handlers that still run after their timeout.")
	g.breakers = gauge(breakerOpen, "", "1 if the breaker of the type is open in this process, so that the process claims no entries of the type.")
	g.limited = gauge(limitWaiting, "{entry}", "Number of due entries of the type that this process has tried to claim and that wait for a permit of their limit.")
	g.waiting = gauge(entryWaiting, "{entry}", "Number of pending, retrying, compensating and dead entries in the log. Every process reports the same value. For each type and state, 1,000 means at least 1,000. With Operations.Statistics the value may be higher. compensator.backlog.age is the age of such a value.")
	g.due = gauge(entryDue, "{entry}", "Number of entries of the type whose due time has come and that have not ended, with those that run. Every process reports the same value. Only with Operations.Statistics, and absent if no process has counted within five minutes.")
	g.late = gauge(entryOverdue, "{entry}", "Number of entries in compensator.entry.due that have been due for more than a minute.")
	fraction := func(name, unit, description string) metric.Float64ObservableGauge {
		made, err := t.meter.Float64ObservableGauge(name, metric.WithDescription(description), metric.WithUnit(unit))
		problems = append(problems, err)
		return made
	}
	g.nextStart = fraction(limitNextStart, "s", "Time until the rate of the type's limit allows the next start, by the clock of this process. Absent if no entry waits for the rate.")
	g.cases = gauge(caseOpen, "{case}", "Number of open cases, which wait for a person. The kind is outcome unknown if the effect of an attempt may have happened, and dead if each attempt is known to have failed. Every process reports the same value. Only with Config.Operations.")
	g.instances = gauge(instanceCount, "{process}", "Number of live processes, and of gone processes. A process is gone for a day after it was killed or has lost the database. Every process reports the same value. Only with Operations.Instances.")
	g.overdue = fraction(entryOldestOverdue, "s", "Time for which the oldest overdue entry of the type has been due. Every process reports the same value.")
	g.age = fraction(backlogAge, "s", "Time since a process counted the waiting entries without a limit. Only with Operations.Statistics, and absent if no process has counted within five minutes.")
	g.pastDue = fraction(casePastDue, "s", "Time since the due time of the case that was due first, by the clock of this process. 0 if no open case is past due. Only with Config.Operations.")
	g.paused = fraction(typePaused, "s", "Time since a person paused the type. Absent if the type is not paused. Every process reports the same value. Only with Config.Operations.")
	g.atRisk = fraction(caseAtRisk, "{major_unit}", "Sum of the known amounts of open cases, in the major unit of the currency, for example dollars. Only the first 32 currencies. Every process reports the same value. Only with Config.Operations.")
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return t.meter.RegisterCallback(g.observe, g.ready, g.queue, g.stuck, g.breakers, g.limited, g.nextStart, g.waiting, g.due, g.late, g.age, g.overdue, g.cases, g.instances, g.pastDue, g.atRisk, g.paused)
}

// observe may be called concurrently by several metric readers.
func (g *gauges) observe(ctx context.Context, observer metric.Observer) error {
	defer survive()
	for _, r := range g.readings(ctx) {
		opts := g.t.options(r.labels).observe
		if f, ok := r.gauge.(metric.Float64Observable); ok {
			observer.ObserveFloat64(f, r.value, opts...)
		} else {
			observer.ObserveInt64(r.gauge.(metric.Int64Observable), int64(r.value), opts...)
		}
	}
	return nil
}

// readings returns the last readings if they are younger than lookEvery, or if another goroutine is reading new ones.
func (g *gauges) readings(ctx context.Context) []reading {
	if g.looking.TryLock() {
		defer g.looking.Unlock()
		if g.readAt.IsZero() || time.Since(g.readAt) >= lookEvery {
			readings := g.read(ctx)
			g.current.Store(&readings)
			g.readAt = time.Now()
		}
	}
	if readings := g.current.Load(); readings != nil {
		return *readings
	}
	return nil
}

// read leaves out what the database does not return, because an old value would suggest that nothing has changed.
func (g *gauges) read(ctx context.Context) (readings []reading) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	health := g.c.Health(ctx)
	readings = append(readings, reading{g.ready, answerValue(health.Ready()), labels{}}, reading{g.queue, answerValue(health.Queue), labels{}})
	stuckByType, openByType, limitedByType, nextStarts := make(map[string]float64), make(map[string]float64), make(map[string]float64), make(map[string]float64)
	for _, s := range health.Stuck {
		stuckByType[s.BusinessType]++
	}
	for _, b := range health.OpenBreakers {
		openByType[b.BusinessType] = 1
	}
	for _, l := range health.Limited {
		limitedByType[l.BusinessType] = float64(l.Waiting)
		if !l.NextAt.IsZero() {
			nextStarts[l.BusinessType] = max(0, time.Until(l.NextAt).Seconds())
		}
	}
	readings = append(readings, g.byType(g.stuck, g.t.runTypes, stuckByType, sum, labels{})...)
	readings = append(readings, g.byType(g.breakers, g.t.runTypes, openByType, larger, labels{})...)
	readings = append(readings, g.byType(g.limited, g.t.runTypes, limitedByType, sum, labels{})...)
	readings = append(readings, g.byType(g.nextStart, g.t.runTypes, nextStarts, larger, labels{})...)
	if health.Database != nil {
		return readings
	}
	overdue := make(map[string]float64)
	for businessType, d := range health.Overdue {
		overdue[businessType] = d.Seconds()
	}
	readings = append(readings, g.byType(g.overdue, g.t.storedTypes, overdue, larger, labels{})...)
	readings = append(readings, g.countWaiting(ctx)...) // Query the cases last, because there may be many of them.
	if time.Since(g.casesAt) >= casesEvery {
		g.openCases = nil
		// Only a success changes casesAt. After an error, the next read tries again and does not wait for casesEvery.
		if status, err := admin.StandingOf(ctx, g.c); err == nil {
			g.openCases, g.casesAt = g.readCases(status), time.Now()
		}
	}
	return append(readings, g.openCases...)
}

// readCases returns none if status is nil.
func (g *gauges) readCases(status *admin.Standing) (readings []reading) {
	if status == nil {
		return nil
	}
	openByKind := make(map[admin.CaseKind]map[string]float64)
	for _, count := range status.Cases {
		if openByKind[count.Kind] == nil {
			openByKind[count.Kind] = make(map[string]float64)
		}
		openByKind[count.Kind][count.BusinessType] = float64(count.N)
	}
	for kind, ofTypes := range openByKind {
		readings = append(readings, g.byType(g.cases, g.t.storedTypes, ofTypes, sum, labels{kind: kind.String()})...)
	}
	readings = append(readings, reading{g.pastDue, status.PastDue.Seconds(), labels{}})
	paused := make(map[string]float64)
	for businessType, pausedAt := range status.Paused {
		paused[businessType] = pausedAt.Seconds()
	}
	readings = append(readings, g.byType(g.paused, g.t.storedTypes, paused, larger, labels{})...)
	for instanceState, n := range status.Instances {
		readings = append(readings, reading{g.instances, float64(n), labels{instance: string(instanceState)}})
	}
	for currency, minor := range status.AtRisk {
		// The constant other stands for several currencies. Their amounts cannot be added, so there is no reading for
		// them.
		if name, _ := g.t.currencies.canonical(currency); name != other {
			readings = append(readings, reading{g.atRisk, minor / math.Pow10(admin.Decimals(name)), labels{currency: name}})
		}
	}
	return readings
}

func (g *gauges) countWaiting(ctx context.Context) (readings []reading) {
	counts, err := admin.Of(g.c).Count(ctx, admin.CountFilter{AtMost: maxWaiting})
	if err != nil {
		return nil
	}
	backlogs := make(map[string]admin.Backlog)
	// After an error, report no backlog. Operations.Statistics may not be set, or the database may have failed.
	if backlog, err := admin.Of(g.c).Backlog(ctx); err == nil && backlog.Known {
		due, late := make(map[string]float64), make(map[string]float64)
		for _, b := range backlog.Types {
			backlogs[b.BusinessType], due[b.BusinessType], late[b.BusinessType] = b, float64(b.Due), float64(b.Overdue)
		}
		readings = append(readings, reading{g.age, max(0, backlog.Age.Seconds()), labels{}})
		readings = append(readings, g.byType(g.due, g.t.storedTypes, due, sum, labels{})...)
		readings = append(readings, g.byType(g.late, g.t.storedTypes, late, sum, labels{})...)
	}
	waitingByState := make(map[compensator.State]map[string]float64)
	for _, count := range counts {
		if count.State.Terminal() && count.State != compensator.Dead {
			continue
		}
		if waitingByState[count.State] == nil {
			waitingByState[count.State] = make(map[string]float64)
		}
		n := count.N
		// If More is true, the Admin has stopped counting at maxWaiting, so the true number is higher than n. The
		// number in the backlog has no maximum. But the backlog was counted earlier, so its number may also be lower
		// than n.
		if count.More {
			n = max(n, backlogs[count.BusinessType].Of(count.State))
		}
		waitingByState[count.State][count.BusinessType] = float64(n)
	}
	for state, ofTypes := range waitingByState {
		readings = append(readings, g.byType(g.waiting, g.t.storedTypes, ofTypes, sum, labels{state: state.String()})...)
	}
	return readings
}

// byType returns one reading for each type that is reported under its name. All other types together get one reading,
// whose value joinTypes computes.
func (g *gauges) byType(gauge metric.Observable, types *names, values map[string]float64, joinTypes func(a, b float64) float64, labelsOf labels) (readings []reading) {
	valuesByType := make(map[string]float64)
	for businessType, value := range values {
		name, _ := types.canonical(businessType)
		valuesByType[name] = joinTypes(valuesByType[name], value)
	}
	for name, value := range valuesByType {
		labelsOf.businessType = name
		readings = append(readings, reading{gauge, value, labelsOf})
	}
	return readings
}

func sum(a, b float64) float64    { return a + b }
func larger(a, b float64) float64 { return max(a, b) }

func answerValue(err error) float64 {
	if err != nil {
		return 0
	}
	return 1
}
