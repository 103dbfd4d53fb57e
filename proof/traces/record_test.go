package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/compensatortest/suite"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/internal/redisqueue"
	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/processlog"
)

var tracesFlag = flag.String("traces", "", "the directory into which TestRecordTraces writes; make traces runs it")

func TestMain(m *testing.M) { harness.Main(m) }

// The differences between the runs show what is random in the scenario.
const recordedRuns = 3

func TestRecordTraces(t *testing.T) {
	if *tracesFlag == "" {
		t.Skip("make traces runs this, with a directory to write to")
	}
	r := &recorder{scenarios: make(map[string]scenario)}
	for i := range recordedRuns {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Run("sql", func(t *testing.T) {
				suite.TestStore(t, func(t *testing.T) suite.Harness { return tracedStore(t, r) })
			})
			t.Run("redis", func(t *testing.T) {
				suite.TestQueue(t, func(t *testing.T) suite.QueueHarness { return tracedQueue(t, r) })
			})
		})
	}
	r.write(t, *tracesFlag)
}

type recorder struct {
	mu        sync.Mutex
	scenarios map[string]scenario
}

func (r *recorder) add(test string, lines []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	parts := strings.Split(test, "/")
	name := strings.Join(parts[len(parts)-2:], "/")
	r.scenarios[name] = append(r.scenarios[name], lines)
}

func (r *recorder) write(t *testing.T, dir string) {
	agreed := make(map[int]int)
	for name, s := range r.scenarios {
		path := filepath.Join(dir, name+".txt")
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
		require.NoError(t, os.WriteFile(path, []byte(s.String()), 0o666))
		if len(s) == recordedRuns {
			agreed[s.agreed(0)]++
		}
		assert.Len(t, s, recordedRuns, name)
	}
	for i, v := range views {
		t.Logf("%3d scenarios agree with themselves in: %s", agreed[i], v.name)
	}
	t.Logf("%3d scenarios agree with themselves in no view", agreed[-1])
}

type statements struct {
	mu          sync.Mutex
	connections map[uint64]int
	lines       []string
	texts       []string // of the statements that were run, since the last call of take
}

func (s *statements) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	texts := s.texts
	s.texts = nil
	return texts
}

// match always returns false, so that the proxy applies no fault.
func (s *statements) match(r faultproxy.Request) bool {
	if r.Text == "" || r.Command == comStmtClose {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.connections[r.Connection] == 0 {
		s.connections[r.Connection] = len(s.connections) + 1
	}
	kind := map[byte]string{comQuery: "query", comStmtPrepare: "prepare", comStmtExecute: "execute"}[r.Command]
	if r.Runs() {
		s.texts = append(s.texts, r.Text)
	}
	s.lines = append(s.lines, fmt.Sprintf("%d %s %s", s.connections[r.Connection], kind, normal(r.Text)))
	return false
}

const (
	comQuery       = 0x03
	comStmtPrepare = 0x16
	comStmtExecute = 0x17
	comStmtClose   = 0x19
)

func tracedStore(t *testing.T, r *recorder) suite.Harness {
	t.Parallel()
	h, sent := openTraced(t, testservers.Database(t))
	t.Cleanup(func() {
		sent.mu.Lock()
		defer sent.mu.Unlock()
		r.add(t.Name(), sent.lines)
	})
	return h
}

func openTraced(t *testing.T, dsn string) (suite.Harness, *statements) {
	config, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	proxy, err := faultproxy.NewMySQL(config.Addr)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, proxy.Close()) })
	config.Addr = proxy.Addr()
	dsn = config.FormatDSN()
	h := harness.StoreOn(t, dsn, harness.WatchedPool(dsn))
	sent := &statements{connections: make(map[uint64]int)}
	proxy.Arm(faultproxy.Rule{Match: sent.match, Fault: faultproxy.Count})
	return h, sent
}

func tracedQueue(t *testing.T, r *recorder) suite.QueueHarness {
	t.Parallel()
	server := testservers.NewRedis(t)
	open := func(t *testing.T) *redis.Client {
		client := redis.NewClient(&redis.Options{Addr: server.Addr()})
		t.Cleanup(func() { _ = client.Close() })
		return client
	}
	client, watcher := open(t), open(t)
	monitored := make(chan string, 1<<16)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	monitor := watcher.Monitor(ctx, monitored)
	monitor.Start()
	require.Eventually(t, func() bool {
		_ = client.Ping(t.Context()).Err()
		return len(monitored) > 0
	}, time.Minute, time.Millisecond)
	t.Cleanup(func() {
		defer stop()
		r.add(t.Name(), commandsUntilMark(t, client, monitored))
		monitor.Stop()
	})
	openQueue := func(t *testing.T) processlog.Queue {
		q, err := redisqueue.Open(client, "traced")
		require.NoError(t, err)
		return q
	}
	return suite.QueueHarness{
		Queue: openQueue(t), Another: openQueue,
		Lose: func(t *testing.T) { require.NoError(t, client.FlushAll(t.Context()).Err()) },
	}
}

const endOfTrace = "end-of-trace"

func commandsUntilMark(t *testing.T, client *redis.Client, monitored <-chan string) []string {
	require.ErrorIs(t, client.Get(context.Background(), endOfTrace).Err(), redis.Nil)
	var lines []string
	connections := make(map[string]int)
	for deadline := time.After(time.Minute); ; {
		select {
		case line := <-monitored:
			if strings.Contains(line, endOfTrace) {
				return lines
			}
			if line = command(line, connections); line != "" {
				lines = append(lines, line)
			}
		case <-deadline:
			require.FailNow(t, "MONITOR did not report the end of the trace in time")
		}
	}
}

var script = regexp.MustCompile(`^(?i)("eval") "(?:[^"\\]|\\.)*"`)

func command(line string, connections map[string]int) string {
	_, line, _ = strings.Cut(line, "[")
	from, line, found := strings.Cut(line, "] ")
	verb := strings.ToLower(line)
	if !found || strings.HasPrefix(verb, `"ping"`) || strings.HasPrefix(verb, `"hello"`) || strings.HasPrefix(verb, `"client"`) {
		return ""
	}
	_, from, _ = strings.Cut(from, " ")
	if from != "lua" && connections[from] == 0 {
		connections[from] = len(connections) + 1
	}
	line = script.ReplaceAllString(line, "$1 SCRIPT")
	return fmt.Sprintf("%d %s", connections[from], normal(line))
}
