package desk

import (
	"context"
	"strings"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/operating"
	"github.com/compensator-go/compensator/processlog"
)

// Standing is what is open of a log's cases, for a program that watches over it: a gauge, an alert. It is nobody's view, and
// tells of all types.
type Standing struct {
	Cases   map[string]int     // by business type
	AtRisk  map[string]float64 // what those whose amount is known are worth, by currency, in its smallest unit
	PastDue time.Duration      // since when the case that was due first is due, by this process's clock; 0: none is yet
}

// StandingOf reads it, by two statements: of the 1,000 groups of failures with most cases. Where Config.Operations is not set
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
	s := &Standing{Cases: make(map[string]int), AtRisk: make(map[string]float64)}
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
	return s, err
}
