package admin

import (
	"context"
	"strings"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/operating"
	"github.com/compensator-go/compensator/processlog"
)

// Standing holds the open cases and the paused types of a log. It covers all types and checks no rights.
type Standing struct {
	Cases     []CaseCount              // open cases by business type and kind
	AtRisk    map[string]float64       // sum of the known amounts by currency, in the currency's smallest unit
	Paused    map[string]time.Duration // how long each paused type has been paused, by this process's clock
	Instances map[InstanceState]int    // number of live and of gone processes; nil if Operations.Instances is not set
	PastDue   time.Duration            // how long ago the earliest case was due, by the clock of this process; 0 if no case is overdue
}

// StandingOf reads a Standing with four statements, or with five if Operations.Instances is set. AtRisk covers the
// 1,000 groups of failures with the most cases. If Config.Operations is not set, StandingOf returns nil without an
// error. Each error comes from the database.
func StandingOf(ctx context.Context, c *compensator.Compensator) (*Standing, error) {
	log := operating.Of(c)
	if log.Operations() == nil {
		return nil, nil
	}
	groups, err := log.Operations().CaseGroups(ctx, nil, Fingerprint{})
	if err != nil {
		return nil, err
	}
	s := &Standing{AtRisk: make(map[string]float64), Paused: make(map[string]time.Duration)}
	for _, g := range groups {
		if g.Currency != "" {
			s.AtRisk[strings.ToUpper(g.Currency)] += float64(g.Sum)
		}
	}
	if s.Cases, err = log.Operations().CountCases(ctx); err != nil {
		return s, err
	}
	first, err := log.Operations().Cases(ctx, processlog.CaseFilter{Limit: 1})
	if err == nil && len(first.Cases) > 0 {
		s.PastDue = max(0, time.Since(first.Cases[0].DueAt))
	}
	if err != nil {
		return s, err
	}
	settings, err := log.Operations().Settings(ctx)
	for _, setting := range settings {
		if name, isPause := processlog.PausedType(setting); isPause {
			s.Paused[name] = max(0, time.Since(setting.At))
		}
	}
	if err != nil || !log.KeepsInstances() {
		return s, err
	}
	instances, err := log.Operations().Instances(ctx)
	s.Instances = map[InstanceState]int{InstanceLive: 0, InstanceGone: 0}
	for _, i := range instances {
		if state := i.State(); state != InstanceEnded {
			s.Instances[state]++
		}
	}
	return s, err
}
