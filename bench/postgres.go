package bench

import (
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/compensator-go/compensator/bench/internal/pgserver"
)

// The PostgreSQL server is as durable as the arena's MariaDB.
type postgres struct {
	a     *arena
	url   string
	admin *pgxpool.Pool
}

// The first two settings ensure durability. As on MariaDB, all data fits into memory and the server writes no log for
// replicas. No checkpoint happens during a run.
var postgresSettings = []string{
	"fsync=on", "synchronous_commit=on", "shared_buffers=2GB", "max_wal_size=4GB", "checkpoint_timeout=30min",
	"wal_level=minimal", "max_wal_senders=0", "max_connections=200",
}

// On a machine without PostgreSQL, startPostgres logs the reason and returns nil.
func startPostgres(a *arena) *postgres {
	a.Helper()
	server, err := pgserver.Start(a, postgresSettings...)
	if errors.Is(err, pgserver.ErrNotHere) {
		a.Log(err)
		return nil
	}
	a.must(err)
	p := &postgres{a: a, url: server.URL}
	p.admin = p.pool(2)
	return p
}

// pool opens a pool and waits for its n connections, so that no measurement includes connecting.
func (p *postgres) pool(n int32) *pgxpool.Pool {
	p.a.Helper()
	cfg, err := pgxpool.ParseConfig(p.url)
	p.a.must(err)
	cfg.MaxConns, cfg.MinConns = n, n
	pool, err := pgxpool.NewWithConfig(p.a.Context(), cfg)
	p.a.must(err)
	p.a.Cleanup(pool.Close)
	p.a.waitUntil(func() bool { return pool.Stat().IdleConns() == n })
	return pool
}

func (p *postgres) exec(query string) {
	p.a.Helper()
	_, err := p.admin.Exec(p.a.Context(), query)
	p.a.must(err)
}
