package day

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/compensator-go/compensator/examples/internal/faults"
	"github.com/compensator-go/compensator/internal/testservers"
)

// Blow adds one on servers.
func (d *Day) Blow(what string, strike func(context.Context) error) {
	d.Blows = append(d.Blows, faults.Blow{What: what, Strike: strike})
}

// PlaceRedis gives the day a Redis of its own, unless it has one, which is told.
func (d *Day) PlaceRedis(t testing.TB) (own bool) {
	if own = d.Redis == ""; own {
		d.Redis = testservers.NewRedis(t).Addr()
	}
	return own
}

// PlaceDatabase gives the day a database, unless it has one. One on a server of its own is made read-only for a while.
func (d *Day) PlaceDatabase(t testing.TB, ownServer bool) {
	switch {
	case d.DSN != "":
	case ownServer:
		server := testservers.NewSQL(t)
		root := server.Database(t)
		d.DSN = asService(t, root)
		d.Blow("database: read_only for 2 s", func(ctx context.Context) error { return readOnly(ctx, root, 2*time.Second) })
	default:
		d.DSN = testservers.Database(t)
	}
}

// asService gives a database a user whom read_only binds.
func asService(t testing.TB, root string) string {
	config, err := mysql.ParseDSN(root)
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("mysql", root)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, statement := range []string{"CREATE USER service IDENTIFIED BY 'secret'", fmt.Sprintf("GRANT ALL ON %s.* TO service", config.DBName)} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	config.User, config.Passwd = "service", "secret"
	return config.FormatDSN()
}

// readOnly is what a switchover looks like from below, but for the new primary: it becomes this one again.
func readOnly(ctx context.Context, root string, span time.Duration) error {
	db, err := sql.Open("mysql", root)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, "SET GLOBAL read_only = 1"); err != nil {
		return err
	}
	faults.Pause(ctx, span)
	_, err = db.ExecContext(context.WithoutCancel(ctx), "SET GLOBAL read_only = 0")
	return err
}
