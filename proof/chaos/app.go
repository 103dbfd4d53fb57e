package chaos

import (
	"bufio"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/proof/chaos/history"
)

const (
	atWork   = "at work"   // The app sends this when it records entries, and runs handlers if configured.
	noLoad   = "no load"   // The app sends this when its producers and people have stopped.
	stopLoad = "stop load" // The driver sends this to stop producers and people.
	stopAll  = "stop"      // The driver sends this to end the app normally.
)

const (
	lease             = 2 * time.Second
	grace             = 500 * time.Millisecond
	reconcileInterval = time.Second
	pollInterval      = 500 * time.Millisecond
	horizon           = 10 * time.Second
	stopTimeout       = 20 * time.Second
	purgeAge          = time.Minute // smallest age that Purge accepts
	longestDelay      = 20 * time.Second
	longestBackoff    = 2 * time.Second
	longestPutOff     = 2 * time.Minute // each Unavailable in a row doubles the pause, up to this limit
)

type appConfig struct {
	Name    string
	Process string
	Dir     string
	Seed    uint64

	DSN, Redis string
	CanaryDSN  string // database of the commits that watchForStalls measures

	Runs           bool
	Connector      bool
	RepeatableRead bool // whether the app's own transactions use REPEATABLE READ instead of READ COMMITTED

	Rate      float64
	People    float64
	KillEvery time.Duration

	Failing, Poison float64
	Careful         bool
}

type appProcess struct {
	cfg     appConfig
	history *history.Writer
	db      *sql.DB
	c       *compensator.Compensator
	results map[string]*compensator.ResultType[job, result] // by the name of the type

	recent recent
	runs   atomic.Uint64
	txs    atomic.Uint64
	calls  atomic.Uint64
}

// RunApp returns false when this process is not an app.
func RunApp() bool {
	text := os.Getenv(appEnv)
	if text == "" {
		return false
	}
	p := &appProcess{results: make(map[string]*compensator.ResultType[job, result])}
	must(json.Unmarshal([]byte(text), &p.cfg))
	p.run()
	return true
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos app:", err)
		os.Exit(2)
	}
}

func (p *appProcess) run() {
	loading, endLoad := context.WithCancel(context.Background())
	working, endWork := context.WithCancel(context.Background())
	go obey(endLoad, endWork)
	var err error
	p.history, err = history.Create(p.cfg.Dir, p.cfg.Name)
	must(err)
	p.db, err = p.openDB()
	must(err)
	client := redis.NewClient(&redis.Options{Addr: p.cfg.Redis})
	for p.c == nil && working.Err() == nil {
		if p.c, err = p.newCompensator(client); err != nil {
			fmt.Fprintln(os.Stderr, "chaos app: New:", err)
			wait(working, 200*time.Millisecond)
		}
	}
	if p.c != nil {
		stopWatching := p.watchForStalls()
		p.runLoad(loading, working)
		stopWatching()
		if err := p.c.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "chaos app: Close:", err)
		}
	}
	must(client.Close())
	_ = p.db.Close()
	p.write(&history.Mark{At: history.Now(), What: history.MarkExit})
}

func obey(endLoad, endWork context.CancelFunc) {
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		endLoad()
		if orders.Text() == stopAll {
			endWork()
			return
		}
	}
	os.Exit(3)
}

func (p *appProcess) runLoad(loading, working context.Context) {
	var load sync.WaitGroup
	random := rand.New(rand.NewPCG(p.cfg.Seed, 3))
	if p.cfg.Rate > 0 {
		for i := range producers {
			load.Go(newProducer(p, i, random).run(loading))
		}
	}
	if p.cfg.People > 0 {
		load.Go(newPerson(p, random).run(loading))
	}
	for range waiters {
		load.Go(newWaiter(p, random).run(loading))
	}
	fmt.Println(atWork)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		load.Wait()
		fmt.Println(noLoad)
	})
	if p.cfg.Runs {
		must(p.c.Run(working))
	} else {
		<-working.Done()
	}
	waiting.Wait()
}

// watchForStalls detects when the machine is overloaded.
func (p *appProcess) watchForStalls() (stop func()) {
	connector, err := quietConnector(p.cfg.CanaryDSN)
	must(err)
	db := sql.OpenDB(connector)
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() { watchForStalls(ctx, db, p.cfg.Name, p.write) })
	return func() {
		cancel()
		watching.Wait()
		_ = db.Close()
	}
}

func quietConnector(dsn string) (driver.Connector, error) {
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	config.Logger = &mysql.NopLogger{}
	return mysql.NewConnector(config)
}

func (p *appProcess) openDB() (*sql.DB, error) {
	connector, err := quietConnector(withProcess(p.cfg.DSN, p.cfg.Process))
	if err != nil {
		return nil, err
	}
	if p.cfg.Connector {
		connector = compensator.Connector(connector)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(40)
	db.SetMaxIdleConns(40)
	return db, nil
}

func (p *appProcess) newCompensator(client *redis.Client) (*compensator.Compensator, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := compensator.New(ctx, compensator.Config{
		DB: p.db, Redis: client, Prefix: prefix, Lease: lease, Grace: grace,
		ReconcileInterval: reconcileInterval, PollInterval: pollInterval, Horizon: horizon, StopTimeout: stopTimeout,
		Logger:   slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		Observer: p.observer(), Operations: &compensator.Operations{Attempts: true, Statistics: true, Instances: true, InstanceName: p.cfg.Name},
	})
	switch {
	case err != nil:
	case p.cfg.Runs:
		must(p.register(c))
	default:
		must(p.declareResults(c))
	}
	return c, err
}

// observer writes only events that the checker cannot read from the audit or from attempts.
func (p *appProcess) observer() observe.Observer {
	return observe.Observer{
		OutcomeDropped: func(e observe.SettledEvent) {
			p.write(&history.Event{At: history.Now(), Event: history.EventOutcomeDropped, ID: e.ID.Row(), Type: e.BusinessType, State: int8(e.State)})
		},
		AttemptEnded: func(e observe.AttemptEvent) {
			if class, detail := classOf(e.Err); class != "" && class != history.ErrOther && class != history.ErrContext {
				p.write(&history.Event{At: history.Now(), Event: history.EventAttemptBroken, ID: e.ID.Row(), Type: e.BusinessType, Err: class, Detail: detail})
			}
		},
		Stuck: func(e observe.AttemptEvent) {
			p.write(&history.Event{At: history.Now(), Event: history.EventStuck, ID: e.ID.Row(), Type: e.BusinessType})
		},
		QueueDown: func(error) { p.write(&history.Event{At: history.Now(), Event: history.EventQueueDown}) },
		QueueUp:   func() { p.write(&history.Event{At: history.Now(), Event: history.EventQueueUp}) },
		Reconciled: func(e observe.ReconciledEvent) {
			if e.Enqueued+e.Polled > 0 || e.Rebuilt {
				p.write(&history.Event{At: history.Now(), Event: history.EventReconciled, Enqueued: e.Enqueued, Polled: e.Polled, Rebuilt: e.Rebuilt})
			}
		},
	}
}

// write ends the process if it cannot write, because a history with a gap proves nothing.
func (p *appProcess) write(records ...history.Record) { must(p.history.Write(records...)) }
