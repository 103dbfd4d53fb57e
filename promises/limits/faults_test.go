package limits

import (
	"context"
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/grants"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/internal/testservers"
)

var (
	faultsFor  = flag.Duration("faults", 8*time.Second, "how long TestLimitsHoldWhileProcessesAndServersFail disturbs the processes")
	faultsSeed = flag.Uint64("faults-seed", 1, "seed of its faults")
)

// Two of the types share a limit.
var limitedTypes = map[string]compensator.Limit{
	"charge": {Rate: compensator.PerSecond(20), Burst: 5, Key: func(e *compensator.Entry) string { return e.UserID }},
	"ship":   {Concurrent: 3},
	"refund": {Rate: compensator.PerSecond(40), Burst: 3, Concurrent: 4, Of: "psp"},
	"payout": {Rate: compensator.PerSecond(40), Burst: 3, Concurrent: 4, Of: "psp"},
}

var limitedNames = slices.Sorted(maps.Keys(limitedTypes))

// workerEnv is the environment variable with the workerProgram of a worker process, as JSON.
const workerEnv = "COMPENSATOR_LIMITS_WORKER"

type workerProgram struct {
	DSN, Redis, Prefix string // Redis is empty for a worker without Redis
	Plain              bool   // whether the pool is opened without a Connector
}

func runWorker(program string) {
	must := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
	var p workerProgram
	must(json.Unmarshal([]byte(program), &p))
	open := harness.WatchedPool(p.DSN)
	if p.Plain {
		open = harness.PlainPool(p.DSN)
	}
	db, err := open()
	must(err)
	cfg := compensator.Config{DB: db, Prefix: p.Prefix, Lease: 2 * time.Second, Grace: 200 * time.Millisecond,
		ReconcileInterval: 300 * time.Millisecond, PollInterval: 200 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)}
	if p.Redis != "" {
		cfg.Redis = redis.NewClient(&redis.Options{Addr: p.Redis})
	}
	var c *compensator.Compensator
	for c == nil { // The database may be down.
		if c, err = compensator.New(context.Background(), cfg); err != nil {
			<-time.After(100 * time.Millisecond)
		}
	}
	for name, limit := range limitedTypes {
		handler := &compensator.HandlerConfig[harness.Order]{TypeConfig: compensator.TypeConfig{Limit: limit}}
		for {
			_, err := compensator.Handle(context.Background(), c, name, func(context.Context, *compensator.Entry, harness.Order) error {
				<-time.After(time.Duration(20+rand.IntN(60)) * time.Millisecond)
				return nil
			}, handler)
			if err == nil {
				break
			}
			<-time.After(100 * time.Millisecond)
		}
	}
	must(c.Run(context.Background()))
}

func startWorker(w *harness.World, p workerProgram) *harness.Child {
	w.T.Helper()
	p.DSN, p.Prefix = w.DSN, w.Name
	text, err := json.Marshal(p)
	require.NoError(w.T, err)
	return w.StartProcess(workerEnv + "=" + string(text))
}

func watchLeases(w *harness.World) {
	w.T.Helper()
	w.Exec("CREATE TABLE leases (seq BIGINT AUTO_INCREMENT PRIMARY KEY, id BIGINT NOT NULL, business_type VARCHAR(64) NOT NULL, version BIGINT NOT NULL," +
		" was_version BIGINT NOT NULL, was_until BIGINT NOT NULL, lease_until BIGINT NOT NULL, at BIGINT NOT NULL) ENGINE=InnoDB")
	w.Exec("CREATE TRIGGER leases_change AFTER UPDATE ON common_process_log FOR EACH ROW INSERT INTO leases (id, business_type, version, was_version, was_until, lease_until, at)" +
		" VALUES (NEW.id, NEW.business_type, NEW.version, OLD.version, OLD.lease_until, NEW.lease_until, " + harness.NowMillis + ")")
}

func mostPermits(w *harness.World, types ...string) int {
	w.T.Helper()
	rows, err := w.DB.Query("SELECT id, business_type, was_version, version, was_until, lease_until, at FROM leases ORDER BY seq")
	require.NoError(w.T, err)
	defer rows.Close()
	var permits grants.Permits
	for rows.Next() {
		var c grants.Change
		var name string
		require.NoError(w.T, rows.Scan(&c.ID, &name, &c.Old, &c.New, &c.OldLease, &c.LeaseUntil, &c.ChangedAtMS))
		if slices.Contains(types, name) {
			permits.Note(c)
		}
	}
	require.NoError(w.T, rows.Err())
	return permits.Most()
}

// Triggers in the database record each start that a limit grants, and each lease. So the check of the limits does not
// depend on what the library reports. To run the test for longer, use make limits DURATION=10m.
// Failure: F1
func TestLimitsHoldWhileProcessesAndServersFail(t *testing.T) {
	t.Parallel()
	database, queue := testservers.NewSQL(t), testservers.NewRedis(t)
	w := harness.WorldAt(t, database.Database(t))
	w.Redis, w.Name = harness.RedisClient(t, queue), "limits"
	watchGrants(w)
	watchLeases(w)
	workers := make([]*harness.Child, 3)
	start := func(n int) {
		p := workerProgram{Plain: n == 1}
		if n != 2 {
			p.Redis = queue.Addr()
		}
		workers[n] = startWorker(w, p)
	}
	for n := range workers {
		start(n)
	}
	stop := record(w)
	change := changer(w)

	random := rand.New(rand.NewPCG(*faultsSeed, 0))
	between := func(least, most time.Duration) {
		harness.Elapse(least + time.Duration(random.Int64N(int64(most-least))))
	}
	faults := []func(){
		func() { n := random.IntN(len(workers)); workers[n].Kill(); start(n) },
		func() {
			worker := workers[random.IntN(len(workers))]
			worker.Signal(syscall.SIGSTOP)
			between(50*time.Millisecond, 3500*time.Millisecond) // The longest stop is longer than a lease.
			worker.Signal(syscall.SIGCONT)
		},
		func() { database.Pause(); between(50*time.Millisecond, 2500*time.Millisecond); database.Resume() },
		func() { database.Kill(); database.Restart(t) },
		func() { require.NoError(t, w.Redis.FlushAll(t.Context()).Err()) },
		func() {
			change("psp", admin.LimitValues{Interval: time.Second / 15, Burst: 2})
			change("ship", admin.LimitValues{Concurrent: 2})
		},
		func() { change("psp", admin.LimitValues{}); change("ship", admin.LimitValues{}) },
		func() { queue.Pause(); between(50*time.Millisecond, 1500*time.Millisecond); queue.Resume() },
	}
	rounds := 0
	for end := time.Now().Add(*faultsFor); rounds == 0 || time.Now().Before(end); rounds++ {
		random.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
		for _, fault := range faults {
			fault()
			between(100*time.Millisecond, 700*time.Millisecond)
		}
	}
	recorded := stop()
	require.True(t, change("psp", admin.LimitValues{}) && change("ship", admin.LimitValues{}))
	w.WaitAllEnded()
	for _, worker := range workers {
		worker.Kill()
	}

	require.Equal(t, recorded, w.Count("common_process_log WHERE state=1"), "each committed entry has succeeded")
	charges, calls := requireBound(w, "charge", time.Second/20, 5), requireBounds(w, "psp", admin.LimitValues{Interval: time.Second / 40, Burst: 3}, admin.LimitValues{Interval: time.Second / 15, Burst: 2})
	requireEachSuccessGranted(w, "charge", admin.LimitValues{Interval: time.Second / 20, Burst: 5})
	ships, both := mostPermits(w, "ship"), mostPermits(w, "refund", "payout")
	require.LessOrEqual(t, ships, 3)
	require.LessOrEqual(t, both, 4)
	require.Equal(t, 3, ships, "the limit was reached")
	t.Logf("%d entries, %d and %d starts granted, at most %d and %d permits at once, %d rounds of faults", recorded, charges, calls, ships, both, rounds)
}

// requireEachSuccessGranted requires a granted start for each success. requireBound checks only when starts were
// granted. It would not find a start that a process has used twice, or has used and returned.
func requireEachSuccessGranted(w *harness.World, name string, values admin.LimitValues) {
	w.T.Helper()
	found, err := grants.Check(w.T.Context(), w.DB, name, values)
	require.NoError(w.T, err)
	require.NotEmpty(w.T, found.Starts)
	for key, starts := range found.Starts {
		require.LessOrEqual(w.T, w.Count("common_process_log WHERE state=1 AND business_type=? AND user_id=?", name, key), starts, key)
	}
}

func changer(w *harness.World) func(name string, values admin.LimitValues) bool {
	w.T.Helper()
	cfg := w.QuickConfig()
	cfg.Operations = &compensator.Operations{}
	d, err := admin.New(w.New(cfg), admin.Options{Access: admin.AccessFunc(func(context.Context, admin.Actor, admin.Right, admin.Subject) bool { return true })})
	require.NoError(w.T, err)
	mei := admin.Actor{ID: "mei"}
	return func(name string, values admin.LimitValues) bool {
		ctx, cancel := context.WithTimeout(w.T.Context(), 5*time.Second)
		defer cancel()
		limits, err := d.Limits(ctx, mei)
		at := slices.IndexFunc(limits, func(l admin.Limit) bool { return l.Name == name })
		return err == nil && at >= 0 && d.ChangeLimit(ctx, mei, limits[at], values, admin.Why{Reason: "faults"}) == nil
	}
}

// record records entries of all types in small batches, as long as few entries are open.
func record(w *harness.World) (stop func() int) {
	w.T.Helper()
	ctx, cancel := context.WithCancel(w.T.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for n := 0; ctx.Err() == nil; n++ {
			_ = fill(ctx, w.DB, limitedNames[n%len(limitedNames)], n) // The database may be down.
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return func() int {
		cancel()
		<-ended
		return w.Count("common_process_log")
	}
}

func fill(ctx context.Context, db *sql.DB, name string, round int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var open int
	if err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM common_process_log WHERE business_type=? AND state IN (0,-1)", name).Scan(&open); err != nil || open >= 60 {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for i := range 10 {
		if _, err := tx.ExecContext(ctx, "INSERT INTO common_process_log (idempotent_id, business_type, user_id, content, next_at, created_at, updated_at) VALUES (?,?,?,'{}',"+harness.NowMillis+",UTC_TIMESTAMP(3),UTC_TIMESTAMP(3))",
			fmt.Sprintf("%s-%d-%d", name, round, i), name, fmt.Sprint("partner ", i%3)); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// The process must call the handler within 1 s after the limit has granted a start. The time that the claim needs
// before the grant does not count.
// Failure: F59
func TestEntryStartsWhoseClaimWasSlowBeforeItsPermitWasGranted(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	proxy, db := w.OpenProxied(true)
	cfg := w.QuickConfig()
	cfg.DB, cfg.Lease = db, 10*time.Second
	c := w.New(cfg)
	limit := compensator.Limit{Rate: compensator.Rate{Starts: 1, Per: time.Hour}, Burst: 3, Concurrent: 3}
	charges, ran := harness.HandleCounted(t, c, "charge", compensator.HandlerConfig[harness.Order]{TypeConfig: compensator.TypeConfig{Limit: limit}}, nil)
	w.RecordMany(c, charges, 3, compensator.Options{})
	slow := proxy.Arm(faultproxy.Rule{Fault: faultproxy.DelayReply, Delay: 1100 * time.Millisecond, Match: func(r faultproxy.Request) bool {
		return strings.Contains(r.Text, "common_process_log_limit") && strings.Contains(r.Text, "FOR UPDATE")
	}})
	w.Run(c)
	w.WaitAllEnded()
	require.Equal(t, 3, ran.Total())
	require.Positive(t, slow.Fired())
	require.Zero(t, w.Count("common_process_log WHERE state<>1 OR process_count>0"))
}

// Both attempts of the test end before the handler is called.
// Failure: F108
func TestAttemptThatCallsNoHandlerUsesUpNoStart(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	limited := compensator.TypeConfig{Limit: compensator.Limit{Rate: compensator.Rate{Starts: 1, Per: 24 * time.Hour}, Key: func(e *compensator.Entry) string { return e.UserID }}}
	parts, gate := harness.HandleGated(t, c, "part", compensator.HandlerConfig[harness.Order]{}, nil)
	closings, closed := harness.HandleCounted(t, c, "close", compensator.HandlerConfig[harness.Order]{TypeConfig: limited, AfterBatch: func(*compensator.Entry) string { return "b" }}, nil)
	charges, charged := harness.HandleCounted(t, c, "charge", compensator.HandlerConfig[harness.Order]{TypeConfig: limited}, nil)
	w.Record(parts, 0, compensator.Options{BatchID: "b"})
	closing := w.Record(closings, 0, compensator.Options{UserID: "a"})
	w.InTx(w.DB, func(tx *sql.Tx) {
		receipt, err := c.Record(t.Context(), tx, compensator.NewEntry{BusinessType: "charge", Content: []byte("no JSON"), Options: compensator.Options{UserID: "b"}})
		require.NoError(t, err)
		defer receipt.Committed()
	})
	w.Run(c)
	gate.Await(t)
	const waited = "common_process_log WHERE business_type<>'part' AND version>=2 AND delivery_count=0"
	w.Eventually(func() bool { return w.Count(waited) == 2 }, "both have had an attempt")
	charge := w.Record(charges, 0, compensator.Options{UserID: "b"})
	w.WaitState(charge, compensator.Succeeded)
	gate.Open()
	w.WaitState(closing, compensator.Succeeded)
	require.Equal(t, []int{1, 1}, []int{closed.Total(), charged.Total()})
}
