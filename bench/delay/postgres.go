package delay

import (
	"errors"
	"fmt"
	"testing"

	"github.com/compensator-go/compensator/bench/internal/pgserver"
)

// startPostgres starts a server with its default settings and reads its version.
func startPostgres(tb testing.TB) (place, error) {
	server, err := pgserver.Start(tb)
	if errors.Is(err, pgserver.ErrNotHere) {
		return place{}, fmt.Errorf("%w: %w", errNotHere, err)
	}
	if err != nil {
		return place{}, err
	}
	return place{Postgres: server.URL, Versions: "PostgreSQL " + server.Version}, nil
}
