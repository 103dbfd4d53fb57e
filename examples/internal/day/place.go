package day

import (
	"context"
	"testing"
	"time"

	"github.com/compensator-go/compensator/examples/internal/faults"
	"github.com/compensator-go/compensator/internal/testservers"
)

// AddFault adds a fault of a server.
func (d *Day) AddFault(subject string, strike func(context.Context) error) {
	d.Faults = append(d.Faults, faults.Fault{What: subject, Strike: strike})
}

// PlaceRedis starts a Redis for the day unless one was given.
func (d *Day) PlaceRedis(t testing.TB) (own bool) {
	if own = d.Redis == ""; own {
		d.Redis = testservers.NewRedis(t).Addr()
	}
	return own
}

// PlaceDatabase creates a database for the day unless one was given.
func (d *Day) PlaceDatabase(t testing.TB, ownServer bool) {
	switch {
	case d.DSN != "":
	case ownServer:
		dsn, readOnly, err := faults.ReadOnlyFor(2*time.Second, testservers.NewSQL(t).Database(t))
		if err != nil {
			t.Fatal(err)
		}
		d.DSN, d.Faults = dsn, append(d.Faults, readOnly)
	default:
		d.DSN = testservers.Database(t)
	}
}
