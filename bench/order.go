package bench

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/observe"
)

type orderRun struct {
	Keys    int           `json:"keys"`
	Each    int           `json:"each"` // entries per key
	Serial  bool          `json:"serial"`
	Limited bool          `json:"limited,omitempty"` // whether the type has a limit for each key, which is never reached
	Redis   bool          `json:"redis"`
	Handler time.Duration `json:"handler"` // duration of each handler call

	wrap func(cfg *compensator.Config) // changes the settings of the process that runs the backlog; nil: no change

	Rate   float64 `json:"rate"`   // entries a second
	Writes float64 `json:"writes"` // rows inserted, updated or deleted per entry, after recording
	CPU    float64 `json:"cpu_us"` // processor time per entry in µs, of this process and the database, after recording
}

const orderConcurrency = 100

const orderHead = "| backlog | handler | Redis | order | entries/s | row writes an entry |\n|---|---|---|---|---|---|"

func (r orderRun) String() string {
	redis, order := "no", "none"
	if r.Redis {
		redis = "yes"
	}
	if r.Serial {
		order = "by key"
	}
	return fmt.Sprintf("| %d keys × %d | %v | %s | %s | %.0f | %.2f |", r.Keys, r.Each, r.Handler, redis, order, r.Rate, r.Writes)
}

// Calls of one key run one at a time, so no more calls run at once than there are keys.
func (r orderRun) maxRate() float64 {
	return float64(min(r.Keys, orderConcurrency)) / r.Handler.Seconds()
}

func (r orderRun) run(a *arena) orderRun {
	a.Helper()
	a.empty()
	r.record(a)
	var settled atomic.Int64
	entries := int64(r.Keys * r.Each)
	began, before, cpu := time.Now(), a.rowWrites(), a.databaseCPU()+processCPU()
	stop := r.start(a, compensator.HandlerConfig[raw]{Concurrency: orderConcurrency}, func(context.Context, *compensator.Entry) error {
		time.Sleep(r.Handler)
		return nil
	}, func(observe.SettledEvent) { settled.Add(1) })
	a.waitUntil(func() bool { return settled.Load() >= entries })
	r.Rate = float64(entries) / time.Since(began).Seconds()
	r.CPU = (a.databaseCPU() + processCPU() - cpu) * 1e6 / float64(entries)
	stop()
	r.Writes = float64(a.rowWrites()-before) / float64(entries)
	return r
}

// Successive entries have different keys.
func (r orderRun) record(a *arena) {
	a.Helper()
	db := a.openWatched(2)
	r.wrap = nil
	c, client := r.open(a, db, nil)
	orders, err := compensator.Declare[raw](a.TB.Context(), c, benchType, r.typed())
	a.must(err)
	for first := 0; first < r.Keys*r.Each; first += 100 {
		tx, err := db.BeginTx(a.Context(), nil)
		a.must(err)
		var entries []compensator.NewEntry
		for i := first; i < min(first+100, r.Keys*r.Each); i++ {
			entries = append(entries, orders.Entry(raw(content), compensator.Options{UserID: strconv.Itoa(i % r.Keys)}))
		}
		_, err = c.Record(a.Context(), tx, entries...)
		a.must(err)
		a.must(tx.Commit())
	}
	r.close(a, c, db, client)
}

func (r orderRun) typed() *compensator.TypeConfig {
	cfg := &compensator.TypeConfig{Codec: asIs{}}
	if r.Serial {
		cfg.Serial = func(e *compensator.Entry) string { return e.UserID }
	}
	if r.Limited {
		cfg.Limit = compensator.Limit{Rate: compensator.PerSecond(10_000), Burst: 10_000, Key: func(e *compensator.Entry) string { return e.UserID }}
	}
	return cfg
}

func (r orderRun) open(a *arena, db *sql.DB, settled func(observe.SettledEvent)) (*compensator.Compensator, *redis.Client) {
	a.Helper()
	cfg := compensator.Config{DB: db, Logger: slog.New(slog.DiscardHandler), Observer: observe.Observer{Settled: settled}}
	var client *redis.Client
	if r.Redis {
		client = a.client()
		cfg.Redis = client
	}
	if r.wrap != nil {
		r.wrap(&cfg)
	}
	c, err := compensator.New(a.Context(), cfg)
	a.must(err)
	return c, client
}

func (r orderRun) start(a *arena, cfg compensator.HandlerConfig[raw], handler func(context.Context, *compensator.Entry) error, settled func(observe.SettledEvent)) (stop func()) {
	a.Helper()
	db := a.openWatched(producers + 4)
	c, client := r.open(a, db, settled)
	cfg.TypeConfig = *r.typed()
	_, err := compensator.Handle(a.TB.Context(), c, benchType, func(ctx context.Context, e *compensator.Entry, _ raw) error { return handler(ctx, e) }, &cfg)
	a.must(err)
	ctx, cancel := context.WithCancel(a.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	return func() {
		cancel()
		a.must(<-done)
		r.close(a, c, db, client)
	}
}

func (r orderRun) close(a *arena, c *compensator.Compensator, db *sql.DB, client *redis.Client) {
	a.Helper()
	a.must(c.Close())
	a.must(db.Close())
	if client != nil {
		a.must(client.Close())
	}
}

// rowWrites reads the counters of InnoDB. On MariaDB it reads the handler counters, which leave out temporary tables.
func (a *arena) rowWrites() (n int64) {
	a.Helper()
	counted := "'Innodb_rows_inserted','Innodb_rows_updated','Innodb_rows_deleted'"
	if strings.Contains(a.sqlVersion(), "MariaDB") {
		counted = "'Handler_write','Handler_update','Handler_delete'"
	}
	rows, err := a.admin.QueryContext(a.Context(), "SHOW GLOBAL STATUS WHERE Variable_name IN ("+counted+")")
	a.must(err)
	defer rows.Close()
	for rows.Next() {
		var name string
		var value int64
		a.must(rows.Scan(&name, &value))
		n += value
	}
	a.must(rows.Err())
	return n
}

func (a *arena) sqlVersion() (version string) {
	a.Helper()
	a.must(a.admin.QueryRowContext(a.Context(), "SELECT VERSION()").Scan(&version))
	return version
}
