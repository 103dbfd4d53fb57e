package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/bench/internal/child"
)

// killed holds how long the entries of a killed process wait for their next attempt. They wait until their leases end,
// because until then other processes cannot distinguish a dead process from a slow one.
type killed struct {
	Lease   time.Duration `json:"lease_ns"`
	Entries int           `json:"entries"`
	P50     time.Duration `json:"p50_ns"` // time from kill -9 to the next attempt
	Max     time.Duration `json:"max_ns"`
}

const killedHead = "| lease | entries | kill -9 → next attempt, p50 s | most s |\n| ---: | ---: | ---: | ---: |"

func (k killed) String() string {
	s := func(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 2, 64) }
	return fmt.Sprintf("| %v | %d | %s | %s |", k.Lease, k.Entries, s(k.P50), s(k.Max))
}

// victimEnv names the environment variable that carries the victim as JSON to a re-executed test binary.
const victimEnv = "BENCH_VICTIM"

type victim struct {
	DSN, Redis string // Redis is empty for a process without Redis
	Lease      time.Duration
	Entries    int           // entries that run at the same time
	Takes      time.Duration // duration of each handler; 0 means that the victim records its own entries and their handlers never return
	Limited    bool          // whether the type has the limit of limitOfRun
}

func (a *arena) measureKill(lease time.Duration, entries int) killed {
	a.Helper()
	a.empty()
	seen := newStarts()
	successor := a.newLibraryWith(compensator.HandlerConfig[raw]{Concurrency: entries, Lease: lease}, func(_ context.Context, e *compensator.Entry) error {
		seen.note(e.ID.String())
		return nil
	})
	defer successor.close()
	kill := a.startVictim(victim{DSN: a.dsn, Redis: a.redis.Addr(), Lease: lease, Entries: entries})
	at := make(map[string]time.Time, entries)
	ids, err := admin.Of(successor.Compensator).List(a.Context(), admin.Filter{BusinessType: benchType, Limit: entries})
	a.must(err)
	successor.run()
	time.Sleep(time.Second) // Let the second process start its claims and find nothing to do.
	now := kill()
	for _, e := range ids.Entries {
		at[e.ID.String()] = now
	}
	a.waitUntil(func() bool { return seen.count() >= entries })
	l := lagsOf("", 0, seen.latencies(at, lease))
	return killed{lease, entries, l.P50, l.Max}
}

func (a *arena) startVictim(v victim) (kill func() time.Time) {
	a.Helper()
	text, err := json.Marshal(v)
	a.must(err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victimEnv+"="+string(text))
	cmd.Stderr, cmd.SysProcAttr = os.Stderr, child.Attributes(nil, syscall.SIGKILL)
	ready, err := cmd.StdoutPipe()
	a.must(err)
	a.must(cmd.Start())
	once := sync.OnceValue(func() time.Time {
		now := time.Now()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return now
	})
	a.Cleanup(func() { once() })
	if _, err := ready.Read(make([]byte, 1)); err != nil {
		a.Fatalf("the process to be killed did not start: %v", err)
	}
	return once
}

// runVictim runs the victim in a re-executed test binary, and then never returns. In any other process it returns at
// once.
func runVictim() {
	text := os.Getenv(victimEnv)
	if text == "" {
		return
	}
	var v victim
	err := json.Unmarshal([]byte(text), &v)
	if err == nil {
		err = v.run()
	}
	fmt.Fprintln(os.Stderr, "bench victim:", err)
	os.Exit(2)
}

func (v victim) run() error {
	if v.Takes > 0 {
		return v.work()
	}
	db, err := openPool(v.DSN, producers+4, true)
	if err != nil {
		return err
	}
	var started sync.WaitGroup
	started.Add(v.Entries)
	l, err := openLibrary(db, newClient(v.Redis), compensator.HandlerConfig[raw]{Concurrency: v.Entries, Lease: v.Lease}, nil, func(context.Context, *compensator.Entry) error {
		started.Done()
		select {}
	})
	if err != nil {
		return err
	}
	ctx := context.Background()
	if _, err := l.record(ctx, v.Entries, compensator.Options{}); err != nil {
		return err
	}
	go func() {
		started.Wait()
		fmt.Print("r")
	}()
	return l.Run(ctx)
}

func (v victim) work() error {
	db, err := openPool(v.DSN, producers+4, true)
	if err != nil {
		return err
	}
	cfg := compensator.HandlerConfig[raw]{Concurrency: v.Entries, Lease: v.Lease}
	if v.Limited {
		cfg.Limit = limitOfRun
	}
	var client *redis.Client
	if v.Redis != "" {
		client = newClient(v.Redis)
	}
	l, err := openLibrary(db, client, cfg, nil, func(context.Context, *compensator.Entry) error {
		time.Sleep(v.Takes)
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Print("r")
	return l.Run(context.Background())
}
