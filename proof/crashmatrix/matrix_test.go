//go:build failpoints

package crashmatrix

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/testservers"
)

var (
	kills = flag.Int("kills", 20, "number of processes killed at each point")
	seed  = flag.Uint64("seed", 0, "seed of the number n, where a process is killed at the nth time it reaches the point; 0: random")
)

// waitTimeout is so long because purge rounds begin a minute apart.
const waitTimeout = 3 * time.Minute

func TestMain(m *testing.M) {
	if text := os.Getenv(victimEnv); text != "" {
		fmt.Fprintln(os.Stderr, runVictim(text))
		os.Exit(1)
	}
	flag.Parse()
	if *seed == 0 {
		*seed = rand.Uint64()>>1 + 1
	}
	code := testservers.Main(m)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func TestEveryPointIsInTheMatrix(t *testing.T) {
	covered := make(map[failpoint.Point]bool)
	for _, c := range matrix {
		covered[c.point] = true
	}
	for _, p := range failpoint.Points() {
		require.True(t, covered[p], "no case kills at %s", p)
	}
}

// Failure: F118, F121
func TestProcessKilledAtAnyPointLosesNothingAndRepeatsNothing(t *testing.T) {
	t.Logf("-seed=%d", *seed)
	for _, c := range matrix {
		t.Run(c.name(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if c.in == unmade {
				w.killMigrations(c)
				return
			}
			w.make()
			if c.in == recorders {
				w.makeWhole()
			}
			if c.in.isBeside() {
				w.startHealthy(c.in)
			}
			random := c.random()
			// Chance decides whether a victim acts through the Admin before it is killed. If none has done so, kill up to
			// four times as many victims.
			for n := 0; n < *kills || c.in.staffed() && n < 4**kills && !w.personHasActed(); n++ {
				w.prepare(c.in, n)
				w.kill(c, n, 1+random.IntN(c.most))
			}
			if !c.in.isBeside() {
				w.startHealthy(c.in)
			}
			switch c.in {
			case streamed:
				w.awaitIntake()
			case adopting:
				w.awaitImport()
			default:
				// All victims may have been killed before they recorded an entry of this kind, and check needs one that succeeds.
				w.seedKind(pay, "last", 1, "state", "0", 0)
			}
			w.awaitHealthy()
			w.check(c.in)
		})
	}
}

func (c crash) random() *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(c.name()))
	return rand.New(rand.NewPCG(*seed, h.Sum64()))
}

func (w *world) kill(c crash, number, nth int) {
	w.t.Helper()
	text, err := json.Marshal(&victim{Number: number, In: c.in, Place: w.place})
	require.NoError(w.t, err)
	self, err := os.Executable()
	require.NoError(w.t, err)
	ctx, giveUp := context.WithTimeout(w.t.Context(), waitTimeout)
	defer giveUp()
	child := exec.CommandContext(ctx, self)
	child.Env = append(os.Environ(), victimEnv+"="+string(text), fmt.Sprintf("%s=%s:%d", failpoint.Env, c.point, nth))
	var said bytes.Buffer
	child.Stderr = &said
	stdin, err := child.StdinPipe()
	require.NoError(w.t, err)
	err = child.Run()
	_ = stdin.Close()
	require.NoError(w.t, ctx.Err(), "victim %d did not reach %s %d times\n%s", number, c.point, nth, said.String())
	require.Contains(w.t, said.String(), failpoint.Farewell+string(c.point), "victim %d was not killed at its point: %v", number, err)
	status := child.ProcessState.Sys().(syscall.WaitStatus)
	require.True(w.t, status.Signaled() && status.Signal() == syscall.SIGKILL, "victim %d: %v", number, err)
}

func (w *world) startHealthy(in surroundings) {
	w.t.Helper()
	hang := in == beside
	if in != wheel && in != streamed && in != adopting && in != inLine && !in.staffed() && !in.limited() {
		in = usual
	}
	p, err := newProcess(w.t.Context(), w.place, in)
	require.NoError(w.t, err)
	p.hang = hang
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	w.healthy = p
	w.stop = sync.OnceFunc(func() {
		cancel()
		assert.NoError(w.t, errors.Join(<-ended, p.close()))
	})
	w.t.Cleanup(w.stop)
}

func (w *world) awaitHealthy() {
	w.t.Helper()
	defer w.stop()
	w.eventually(func() bool { return w.count("common_process_log WHERE state IN (0,-1,-3)") == 0 }, w.describeOpen)
	w.eventually(func() bool { return len(w.queued()) == 0 }, func() string { return fmt.Sprintf("all entries have ended, but the queue still holds %v", w.queued()) })
	w.eventually(func() bool { return len(w.healthy.Health(w.t.Context()).Stuck) == 0 }, func() string { return "a handler does not return" })
	_, err := admin.Of(w.healthy.Compensator).Purge(w.t.Context(), purgeAge)
	require.NoError(w.t, err)
	h := w.healthy.Health(w.t.Context())
	require.True(w.t, h.Ready() == nil && h.OldestOverdue == 0 && h.Queue == nil && len(h.UnknownTypes) == 0 && len(h.Stuck) == 0, "%v", h)
}

func (w *world) queued() (members []string) {
	w.t.Helper()
	keys, err := w.redis.Keys(w.t.Context(), "*"+w.place.Prefix+"*:due").Result()
	require.NoError(w.t, err)
	for _, key := range keys {
		list, err := w.redis.ZRangeByScore(w.t.Context(), key, &redis.ZRangeBy{Min: "-inf", Max: "4e15"}).Result()
		require.NoError(w.t, err)
		members = append(members, list...)
	}
	return members
}

func (w *world) describeOpen() string {
	for _, l := range w.readLogs() {
		if !l.state.Terminal() {
			return fmt.Sprintf("entry %d (%s, %s) does not end: %s", l.id, l.kind, l.key, l)
		}
	}
	return "the last entry ended just now"
}

func (w *world) eventually(check func() bool, why func() string) {
	w.t.Helper()
	deadline := time.After(waitTimeout)
	for !check() {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-deadline:
			require.Fail(w.t, why())
		}
	}
}

// The next Migrate must complete the tables. The result must equal tables that were made without a crash, and must have
// one schema fingerprint.
func (w *world) killMigrations(c crash) {
	w.t.Helper()
	require.NoError(w.t, compensator.Migrate(w.t.Context(), w.db))
	atOnce := w.logTables()
	random := c.random()
	for n := range *kills {
		w.exec("DROP TABLE " + strings.Join(slices.Collect(maps.Keys(w.logTables())), ", "))
		w.kill(c, n, 1+n%c.most)
		w.kill(c, n, 1+random.IntN(c.most))
		require.NoError(w.t, compensator.Migrate(w.t.Context(), w.db))
		require.Equal(w.t, atOnce, w.logTables())
		require.Equal(w.t, 2, w.count("common_process_log_meta"))
		store, err := compensator.OpenStore(w.t.Context(), w.db, compensator.DefaultTable)
		require.NoError(w.t, err)
		require.NoError(w.t, store.Check(w.t.Context()))
		require.NoError(w.t, store.Close())
	}
}

func (w *world) logTables() map[string]string {
	w.t.Helper()
	made := make(map[string]string)
	w.each("SELECT table_name FROM information_schema.tables WHERE table_schema=DATABASE() AND table_name LIKE 'common_process_log%'", func(scan func(...any)) {
		var name, statement string
		scan(&name)
		require.NoError(w.t, w.db.QueryRow("SHOW CREATE TABLE "+name).Scan(&name, &statement))
		made[name] = statement
	})
	return made
}
