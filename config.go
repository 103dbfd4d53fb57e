package compensator

import (
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/compensator-go/compensator/internal/redisqueue"
	"github.com/compensator-go/compensator/internal/sqlstore"
	"github.com/compensator-go/compensator/processlog"
)

// Config says where the process log lives and how fast it is worked off. Only DB is required. New fills a copy with
// defaults, and names all that is wrong.
type Config struct {
	// DB holds the process log beside the business tables: MySQL from 8.0.1, MariaDB from 10.6, or SQLite from 3.35. Open
	// it on Connector and plain transactions announce their entries by themselves. The caller keeps and closes it.
	DB *sql.DB

	// Redis is the delay queue several processes share: a *redis.Client (also of a failover) or *redis.ClusterClient, of
	// Redis 5 or newer. The library opens a client of its own from its options, without retries that could claim twice. That
	// client opens up to PoolSize connections to a server and one to listen, and no more than MaxActiveConns in all: at least 2.
	// nil: no Redis at all; a timing wheel in this process, and the database polled for what others recorded.
	Redis redis.UniversalClient

	Table  string // the process log, optionally as database.table. Default "common_process_log"
	Prefix string // starts every Redis key, so that several logs share a Redis. Default "compensator"

	// Lease is how long a claimed entry belongs to this process without a renewal. Once it ends, another process may take
	// the entry even if our handler still runs. Default 30 s; at least 1 s. A type may have its own.
	Lease time.Duration

	Grace             time.Duration // an entry overdue for longer counts as forgotten by the queue. Default 3 s
	ReconcileInterval time.Duration // between two looks for what the queue lost, or up to a fifth more. Default 10 s
	PollInterval      time.Duration // replaces it while no Redis answers, or there is none; the same fifth. Default 1 s

	// What is due later than Horizon when it is recorded, or when the queue is filled again, and what is beyond QueueLimit
	// members of one type, stays in the database until it is due within four times ReconcileInterval: then the queue takes it.
	Horizon    time.Duration // default 10 min
	QueueLimit int           // default 100,000; at least 1,000

	// Keep is how long entries that have succeeded, been compensated or cancelled are kept, of the types that have a handler
	// here; then one process at a time purges them in small steps. At least an hour, and longer than any event may take to
	// come again: an idempotent id guards no longer than its entry. Dead entries stay, and so do those that a person has
	// settled. Default 0: for ever. It needs the table of slots, which Migrate makes.
	Keep time.Duration

	Operations  *Operations   // turns the operator's side on: see package desk. nil: no table of it is read or written
	MaxContent  int           // of an entry, in bytes. Default 256 KiB; at most 8 MiB
	StopTimeout time.Duration // Run waits so long for handlers; after 2/3 their contexts end: ErrStopping. Default 30 s

	Logger     *slog.Logger // gets what an operator should know; content is never logged. Single failures are not: observe.LogFailures. Default slog.Default()
	Observer   Observer     // sees every step, for metrics
	Propagator Propagator   // carries values, a trace for example, from Record to the handler

	Store processlog.Store // replaces DB, and Queue Redis, in unit tests and simulations; see package compensatortest. Closed by Close, and by a New that fails after its Config was found in order
	Queue processlog.Queue
}

const hardMaxContent = 8 << 20

func (cfg Config) withDefaults() Config {
	setDefault(&cfg.Table, DefaultTable)
	setDefault(&cfg.Prefix, "compensator")
	setDefault(&cfg.Lease, 30*time.Second)
	setDefault(&cfg.Grace, 3*time.Second)
	setDefault(&cfg.ReconcileInterval, 10*time.Second)
	setDefault(&cfg.PollInterval, time.Second)
	setDefault(&cfg.Horizon, 10*time.Minute)
	setDefault(&cfg.QueueLimit, 100_000)
	setDefault(&cfg.MaxContent, 256<<10)
	setDefault(&cfg.StopTimeout, 30*time.Second)
	cfg.Operations = cfg.Operations.withDefaults()
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return cfg
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// validate checks a Config whose defaults are filled in.
func (cfg Config) validate() error {
	var problems []error
	refuse := func(bad bool, field, reason string) {
		if bad {
			problems = append(problems, &FieldError{Field: field, Reason: reason})
		}
	}
	atLeast := func(field string, d, least time.Duration) {
		reason := badSpan(d, least)
		refuse(reason != "", field, reason)
	}
	refuse(cfg.DB == nil && cfg.Store == nil, "DB", "is missing")
	refuse(cfg.DB != nil && cfg.Store != nil, "Store", "replaces DB: give one of them")
	refuse(isNilPointer(cfg.Redis), "Redis", fmt.Sprintf("is a %T that points to nothing; leave the field out to have none", cfg.Redis))
	refuse(cfg.Redis != nil && cfg.Queue != nil, "Queue", "replaces Redis: give one of them")
	badPrefix := redisqueue.PrefixProblem(cfg.Prefix)
	refuse(badPrefix != "", "Prefix", badPrefix)
	if err := sqlstore.CheckTable(cfg.Table); err != nil {
		problems = append(problems, err)
	}
	atLeast("Lease", cfg.Lease, time.Second)
	atLeast("Grace", cfg.Grace, 100*time.Millisecond)
	atLeast("ReconcileInterval", cfg.ReconcileInterval, 100*time.Millisecond)
	atLeast("PollInterval", cfg.PollInterval, 100*time.Millisecond)
	atLeast("Horizon", cfg.Horizon, time.Second)
	atLeast("StopTimeout", cfg.StopTimeout, time.Millisecond)
	cfg.Operations.problems(refuse)
	badKeep := badKeep(cfg.Keep)
	refuse(badKeep != "", "Keep", badKeep)
	refuse(cfg.QueueLimit < 1000, "QueueLimit", "is less than 1,000")
	refuse(cfg.MaxContent < 1 || cfg.MaxContent > hardMaxContent, "MaxContent", fmt.Sprintf("%d: want 1 byte to 8 MiB", cfg.MaxContent))
	return errors.Join(problems...)
}

// longestSpan bounds what is configured: added to others, or a few times over, it is still a duration.
const longestSpan = 10 * 365 * 24 * time.Hour

// badSpan is what is wrong with a configured duration, if anything is.
func badSpan(d, least time.Duration) string {
	switch {
	case d < least:
		return fmt.Sprintf("%v is less than %v", d, least)
	case d > longestSpan:
		return fmt.Sprintf("%v is more than 10 years", d)
	}
	return ""
}
