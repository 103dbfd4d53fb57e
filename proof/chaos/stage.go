package chaos

import (
	"context"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

const waitTimeout = 3 * time.Minute

type stage struct {
	*servers
	tb        testing.TB
	cfg       Config
	history   *history.Writer
	apps      []*app
	faults    atomic.Uint64
	appsReady atomic.Bool
	startedAt int64 // when the load began, as in history.Action.At
}

var appConfigs = []appConfig{
	{Name: "app1", Runs: true, Connector: true},
	{Name: "app2", Runs: true, Connector: true, RepeatableRead: true},
	{Name: "app3", Runs: true, RepeatableRead: true},
	{Name: "shop", Connector: true},
}

// Run leaves the history in cfg.Dir for the checker.
func Run(tb testing.TB, cfg Config) {
	cfg = cfg.withDefaults()
	st := &stage{tb: tb, cfg: cfg}
	st.emptyDir()
	var err error
	if st.history, err = history.Create(cfg.Dir, "driver"); err != nil {
		tb.Fatal(err)
	}
	defer st.history.Close()
	st.servers = newServers(tb)
	st.write(st.describe())
	stopWatching := st.watch()
	st.startApps()
	st.startedAt = history.Now()
	replays, stopReplays := st.startReplays()
	st.runLoad()
	st.heal()
	stopReplays()
	rested := st.comeToRest()
	stopWatching()
	if !rested {
		st.stopApps() // If the apps ran on, the dumps would contradict each other.
	}
	st.dump()
	st.checkAttempts()
	st.checkLimits()
	replays.checkReplays()
	if rested {
		st.checkInstances()
		st.stopApps()
		st.checkStatistics()
	}
}

func (st *stage) stopApps() {
	for _, a := range st.apps {
		a.stop()
		a.checkLog()
	}
}

func (st *stage) emptyDir() {
	old, err := filepath.Glob(filepath.Join(st.cfg.Dir, "*"))
	if err != nil {
		st.tb.Fatal(err)
	}
	for _, name := range old {
		if ext := filepath.Ext(name); ext == ".jsonl" || ext == ".log" || ext == ".md" || ext == ".svg" || ext == ".png" {
			_ = os.Remove(name)
		}
	}
	if err := os.MkdirAll(st.cfg.Dir, 0o755); err != nil {
		st.tb.Fatal(err)
	}
}

func (st *stage) write(records ...history.Record) {
	if err := st.history.Write(records...); err != nil {
		st.tb.Errorf("history: %v", err)
	}
}

func (st *stage) mark(what string) { st.write(&history.Mark{At: history.Now(), What: what}) }

func (st *stage) describe() *history.Run {
	run := &history.Run{
		At: history.Now(), Seed: st.cfg.Seed, Types: types, Versions: st.versions(),
		GraceMS: grace.Milliseconds(), ReconcileIntervalMS: reconcileInterval.Milliseconds(), PollIntervalMS: pollInterval.Milliseconds(),
		HorizonMS: horizon.Milliseconds(), PurgeAgeMS: purgeAge.Milliseconds(), PutOffMS: longestPutOff.Milliseconds(),
		MinEntries: int(st.cfg.Rate * st.cfg.Duration.Seconds() / 5), Excused: st.cfg.Excused,
	}
	var can []fault
	can, run.Unavailable = st.available()
	for _, f := range can {
		run.FaultKinds = append(run.FaultKinds, f.kind)
	}
	return run
}

func (st *stage) versions() map[string]string {
	versions := map[string]string{st.sql.Flavor: st.sql.Version, "go": runtime.Version()}
	client := st.mainRedis()
	defer client.Close()
	info, err := client.Info(context.Background(), "server").Result()
	if err != nil {
		st.tb.Fatal(err)
	}
	for line := range strings.Lines(info) {
		if version, ok := strings.CutPrefix(strings.TrimSpace(line), "redis_version:"); ok {
			versions["redis"] = version
		}
	}
	if commit, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output(); err == nil {
		versions["commit"] = strings.TrimSpace(string(commit))
	}
	return versions
}

func (st *stage) startApps() {
	for i, base := range appConfigs {
		cfg := base
		p := st.newProxies()
		cfg.Dir, cfg.Seed = st.cfg.Dir, st.cfg.Seed*uint64(len(appConfigs))+uint64(i)
		cfg.DSN, cfg.CanaryDSN, cfg.Redis = p.dsn(i == 1), st.sql.DSN(database, "interpolateParams=true"), p.redis.Addr()
		cfg.Rate, cfg.People = st.cfg.Rate/float64(len(appConfigs)), st.cfg.People/float64(len(appConfigs))
		cfg.KillEvery = st.cfg.KillEvery * time.Duration(len(appConfigs))
		cfg.Failing, cfg.Poison, cfg.Careful = st.cfg.Failing, st.cfg.Poison, st.cfg.Careful
		st.apps = append(st.apps, startApp(st.tb, cfg, p))
	}
	st.awaitApps()
	st.appsReady.Store(true)
}

func (st *stage) awaitApps() {
	for _, a := range st.apps {
		if err := a.await(context.Background()); err != nil {
			st.tb.Fatal(err)
		}
	}
}

func (st *stage) runLoad() {
	over := make(chan struct{})
	timer := time.AfterFunc(st.cfg.Duration, func() { close(over) })
	defer timer.Stop()
	st.newNemesis().run(context.Background(), over)
	if st.tb.Failed() {
		return
	}
	<-over
}

// comeToRest returns false if that takes too long.
func (st *stage) comeToRest() bool {
	st.heal()
	st.awaitApps()
	st.mark(history.MarkHealed)
	for _, a := range st.apps {
		a.stopLoad()
	}
	st.awaitNothing("apps that still record", st.recordingApps)
	st.mark(history.MarkStopped)
	rested := st.awaitNothing("open entries", st.unfinished)
	st.awaitApps()
	if !rested {
		st.mark(history.MarkGaveUp)
		st.tb.Errorf("no entry was settled for %v, and some are still open", waitTimeout)
		return false
	}
	st.awaitNothing("members of the queue", st.queued)
	st.mark(history.MarkQuiescent)
	return true
}

func (st *stage) recordingApps() (n int64, err error) {
	for _, a := range st.apps {
		if !a.isUnloaded() {
			n++
		}
	}
	return n, nil
}

// unfinished counts the open entries of types that have a handler.
func (st *stage) unfinished() (int64, error) {
	return st.count("SELECT COUNT(*) FROM common_process_log WHERE state IN (0,-1,-3) AND business_type<>'" + typeOrphan + "'")
}

func (st *stage) count(query string) (n int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err = st.db.QueryRowContext(ctx, query).Scan(&n)
	return n, err
}

// awaitNothing gives up if the result has not become smaller for waitTimeout.
func (st *stage) awaitNothing(what string, count func() (int64, error)) bool {
	deadline, quiet, least := time.Now().Add(waitTimeout), 0, int64(math.MaxInt64)
	for time.Now().Before(deadline) {
		n, err := count()
		if err == nil && n < least {
			deadline, least = time.Now().Add(waitTimeout), n
		}
		if quiet++; n > 0 || err != nil {
			quiet = 0
		}
		if quiet == 5 {
			return true
		}
		wait(context.Background(), 100*time.Millisecond)
	}
	n, err := count()
	st.tb.Logf("gave up waiting: %d %s left, error: %v", n, what, err)
	return false
}

func (st *stage) watch() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() { watchForStalls(ctx, st.db, "driver", st.write) })
	watching.Go(func() {
		for ctx.Err() == nil {
			st.readClocks()
			if st.cfg.Sample != nil && st.appsReady.Load() {
				st.cfg.Sample(st)
			}
			wait(ctx, st.cfg.SampleEvery)
		}
	})
	return func() {
		cancel()
		watching.Wait()
	}
}

// readClocks writes nothing and returns false if the servers answer too slowly.
func (st *stage) readClocks() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	c := &history.Clock{At: history.Now()}
	err := st.db.QueryRowContext(ctx, "SELECT TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',SYSDATE(6)), (SELECT COALESCE(MAX(seq),0) FROM audit_trail)").Scan(&c.DBNow, &c.AuditSeq)
	if err != nil || history.Now()-c.At > 100_000 {
		return false
	}
	client := st.mainRedis()
	defer client.Close()
	if now, err := client.Time(ctx).Result(); err == nil {
		c.RedisNow = now.UnixMicro()
	}
	st.write(c)
	return true
}
