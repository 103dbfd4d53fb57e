package howto

import (
	"context"
	"net/http"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/observe/probe"
	"github.com/compensator-go/compensator/ui"
)

// Cases turns on cases. The case of a refund shows the refund's amount in euros.
func Cases() *compensator.Operations {
	return &compensator.Operations{
		Due: 8 * time.Hour, // A case is late after this time. The default is 24 hours.
		Types: map[string]compensator.CaseConfig{
			"refund": {Due: time.Hour, Amount: func(e *compensator.Entry) (compensator.Amount, error) {
				var r Refund
				err := e.Decode(&r)
				return compensator.Amount{Minor: r.Cents, Currency: "EUR"}, err
			}},
		},
	}
}

// Rights decides who may do what.
type Rights struct{}

// May allows Mei to requeue refunds below 1,000 euros.
func (Rights) May(_ context.Context, a admin.Actor, right admin.Right, on admin.Subject) bool {
	if a.ID != "mei" || on.Type != "refund" {
		return false
	}
	switch right {
	case admin.SeeOverview, admin.SeeEntries: // without SeeEntries, a person finds no entry to act on, whatever other rights the person has
		return true
	case admin.Requeue:
		return on.Amount.Known() && on.Amount.Minor < 100_000
	}
	return false
}

// Pages serves the admin pages below /ops/log/.
func Pages(mux *http.ServeMux, c *compensator.Compensator, session func(*http.Request) (admin.Actor, bool)) error {
	d, err := admin.New(c, admin.Options{Access: Rights{}})
	if err != nil {
		return err
	}
	h, err := ui.New(ui.Options{Identify: session, Base: "/ops/log/", Types: map[string]ui.TypeView{"refund": {Show: []string{"OrderID", "Cents"}}}}, d)
	if err != nil {
		return err
	}
	mux.Handle("/ops/log/", h)
	return nil
}

// Probes serves readiness and health.
func Probes(mux, operators *http.ServeMux, c *compensator.Compensator) {
	mux.Handle("GET /readyz", probe.Ready(1500*time.Millisecond, c))
	operators.Handle("GET /health", probe.Health(1500*time.Millisecond, c)) // where the public does not come
}
