package admin

import (
	"context"
	"strings"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/operating"
	"github.com/compensator-go/compensator/processlog"
)

// Standing is what is open of a log's cases, and what is paused, for a program that watches over it: a gauge, an alert. It is nobody's view, and
// tells of all types.
type Standing struct {
	Cases   map[string]int           // by business type
	AtRisk  map[string]float64       // what those whose amount is known are worth, by currency, in its smallest unit
	Paused  map[string]time.Duration // for how long each paused type has been paused, by this process's clock
	PastDue time.Duration            // since when the case that was due first is due, by this process's clock; 0: none is yet
}

// StandingOf reads it, by three statements: of the 1,000 groups of failures with most cases. Where Config.Operations is not set
// it is nil.
func StandingOf(ctx context.Context, c *compensator.Compensator) (*Standing, error) {
	log := operating.Of(c)
	if log == nil {
		return nil, nil
	}
	groups, err := log.Operations().CaseGroups(ctx, nil, Fingerprint{})
	if err != nil {
		return nil, err
	}
	s := &Standing{Cases: make(map[string]int), AtRisk: make(map[string]float64), Paused: make(map[string]time.Duration)}
	for _, g := range groups {
		s.Cases[g.BusinessType] += g.N
		if g.Currency != "" {
			s.AtRisk[strings.ToUpper(g.Currency)] += float64(g.Sum)
		}
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
		if name, is := processlog.PausedType(setting); is {
			s.Paused[name] = max(0, time.Since(setting.At))
		}
	}
	return s, err
}
