package compensator

import (
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/compensator-go/compensator/internal/sqlstore"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// Config says where the process log is and how the library runs its entries. Only DB is required. New copies the
// Config, fills in defaults, and reports all invalid fields at once.
type Config struct {
	// DB is the database of the process log and of your business tables: MySQL from 8.0.1, MariaDB from 10.6, or SQLite
	// from 3.35. MySQL 8.0 and 8.4 are untested. If DB comes from Open, or from sql.OpenDB of a Connector, each COMMIT
	// of your program enqueues the entries of its transaction. Your program closes DB after Close.
	DB *sql.DB

	// Redis is the client of the Redis (version 5 or newer) that stores the delay queue for all processes. The client
	// is a *redis.Client (failover clients included) or a *redis.ClusterClient. The library opens a second client with
	// the options of this client, but without retries, because a script that is sent twice could claim twice. The
	// library's client opens up to PoolSize connections to a server, and one more to listen for wake-ups, but never
	// more than MaxActiveConns, which must be at least 2. If Redis is nil, a timing wheel in this process replaces the
	// queue. The library then polls the database for entries of other processes.
	Redis redis.UniversalClient

	// Name distinguishes this log from other logs of the same program, for example "orders". Name is optional if the
	// program has only one log. Package serve uses Name in errors, package probe in answers, package ui in addresses,
	// and module otel as an attribute. In each line of the library's log output, the attribute "log" is Name.
	// Name has up to 64 letters, digits, dots, hyphens, tildes and underscores. Name does not begin with a dot.
	Name string

	Table  string // name of the table of the process log, optionally as database.table. Default "common_process_log"
	Prefix string // prefix of every Redis key, so that several logs can share a Redis. Default "compensator"

	// Lease is how long a claimed entry belongs to this process without a renewal. When a lease has ended, another
	// process may claim the entry, even if the handler in this process still runs. Default 30 s, at least 1 s.
	// HandlerConfig.Lease overrides it.
	Lease time.Duration

	Grace             time.Duration // how long an entry must be overdue before the reconciler enqueues it again. Default 3 s
	ReconcileInterval time.Duration // pause between two reconciler rounds. The library adds a random time of up to a fifth of this pause. Default 10 s
	PollInterval      time.Duration // pause between two reconciler rounds if there is no Redis, and as long as Redis does not answer. Default 1 s

	// Horizon is the longest delay with which a new entry enters the queue at once. An entry with a longer delay is at
	// first only in the database. A round of the reconciler puts this entry into the queue when the entry is due within
	// four times ReconcileInterval. Default 10 min, at least 1 s.
	Horizon time.Duration

	// QueueLimit limits the number of entries of one type in the queue. While the queue is full for a type, a further
	// entry of this type is at first only in the database, like an entry with a delay longer than Horizon. There is one
	// exception: an entry that is due within four times ReconcileInterval enters the queue even then. Default 100,000;
	// at least 1,000.
	QueueLimit int

	// Keep is the time after which the library deletes entries that succeeded, were compensated or were cancelled. Keep
	// applies to types that have a handler in this process. One process at a time deletes entries, 100 in a step. After
	// each step the process pauses for four times as long as the step took. Keep is at least an hour, or 0 (the default),
	// which keeps entries forever. An idempotency key prevents a second entry only as long as the first entry exists. So
	// choose a Keep that is longer than the time in which your program may record the same event again. The library
	// deletes neither dead entries nor entries that a person settled. Keep needs the table of slots, which Migrate
	// creates.
	Keep time.Duration

	// StopOnLoss stops this process after the database has lost commits. The library detects lost commits, for example
	// if a lagging replica was promoted. By default the library reports the loss in Health, in Logger and through
	// Observer.HistoryLost, and continues to run entries. If StopOnLoss is true, this process claims and starts no
	// entry after a loss until a person calls admin.Log.AcceptLoss. Record accepts entries after a loss, with and
	// without StopOnLoss.
	StopOnLoss bool

	IgnoreLoss bool // IgnoreLoss turns off the detection of lost commits. Do not set both IgnoreLoss and StopOnLoss

	Operations  *Operations   // Operations turns on cases, rights and the audit log for people: see package admin. If Operations is nil, the library neither reads nor writes the tables of package admin
	MaxContent  int           // maximum size of an entry's content in bytes. Default 256 KiB, at most 8 MiB
	StopTimeout time.Duration // how long Run waits for running handlers when it ends. The contexts of the handlers end with ErrStopping after two thirds of StopTimeout. Default 30 s

	Logger     *slog.Logger     // Logger gets messages for operators, never the content of an entry. The library does not log failed attempts, unless Observer is observe.LogFailures. Default slog.Default()
	Observer   observe.Observer // Observer has methods that the library calls at every step of an entry, for example to count metrics
	Propagator Propagator       // Propagator carries values of a context, for example a trace, from Record to the handler

	Middleware      []Middleware      // Middleware wraps all handlers and compensations, except batch handlers. The first middleware is the outermost
	BatchMiddleware []BatchMiddleware // BatchMiddleware wraps all batch handlers. The first BatchMiddleware is the outermost

	// Store replaces DB, in unit tests and simulations: see package compensatortest. Compensator.Close closes the
	// Store. If New finds the Config valid but fails later, New closes the Store.
	Store processlog.Store

	Queue processlog.Queue // Queue replaces Redis, in unit tests and simulations. Compensator.Close closes the Queue
}

const hardMaxContent = 8 << 20

var logNames = regexp.MustCompile(`^[A-Za-z0-9_~-][A-Za-z0-9._~-]{0,63}$`)

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
	cfg.Middleware, cfg.BatchMiddleware = slices.Clone(cfg.Middleware), slices.Clone(cfg.BatchMiddleware)
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

func (cfg Config) validate() error {
	var problems []error
	refuse := func(bad bool, field, reason string) {
		if bad {
			problems = append(problems, &FieldError{Field: field, Reason: reason})
		}
	}
	atLeast := func(field string, d, least time.Duration) {
		reason := spanProblem(d, least)
		refuse(reason != "", field, reason)
	}
	refuse(cfg.DB == nil && cfg.Store == nil, "DB", "is missing")
	refuse(cfg.DB != nil && cfg.Store != nil, "Store", "replaces DB: give one of them")
	refuse(isNilPointer(cfg.Redis), "Redis", fmt.Sprintf("is a %T that points to nothing; leave the field out to have none", cfg.Redis))
	refuse(cfg.Redis != nil && cfg.Queue != nil, "Queue", "replaces Redis: give one of them")
	refuse(cfg.Name != "" && !logNames.MatchString(cfg.Name), "Name", fmt.Sprintf("%q: want up to 64 letters, digits and . _ ~ -, with no dot at the beginning", cfg.Name))
	badPrefix := prefixProblem(cfg.Prefix)
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
	badKeep := keepProblem(cfg.Keep)
	refuse(badKeep != "", "Keep", badKeep)
	refuse(cfg.StopOnLoss && cfg.IgnoreLoss, "IgnoreLoss", "contradicts StopOnLoss: set one of them")
	refuse(cfg.QueueLimit < 1000, "QueueLimit", "is less than 1,000")
	refuse(cfg.MaxContent < 1 || cfg.MaxContent > hardMaxContent, "MaxContent", fmt.Sprintf("%d: want 1 byte to 8 MiB", cfg.MaxContent))
	return errors.Join(problems...)
}

// longestSpan is the longest duration that may be configured. Sums and small multiples of it do not overflow.
const longestSpan = 10 * 365 * 24 * time.Hour

func spanProblem(d, least time.Duration) string {
	switch {
	case d < least:
		return fmt.Sprintf("%v is less than %v", d, least)
	case d > longestSpan:
		return fmt.Sprintf("%v is more than 10 years", d)
	}
	return ""
}
