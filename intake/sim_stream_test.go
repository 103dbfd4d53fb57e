package intake

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// simStream simulates a stream of Redis with one consumer group. Each message gets an id that is greater, as a string,
// than the ids of all earlier messages.
type simStream struct {
	mu        sync.Mutex // guards the fields below
	there     bool       // the group exists
	messages  []redis.XMessage
	given     int
	pending   map[string]*simPending
	consumers map[string]time.Time
	acked     func(id string)
}

type simPending struct {
	consumer string
	since    time.Time
	count    int64
}

func newSimStream(acked func(id string)) *simStream {
	return &simStream{pending: make(map[string]*simPending), consumers: make(map[string]time.Time), acked: acked}
}

func (s *simStream) add(says string) (id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id = fmt.Sprintf("%06d-0", len(s.messages)+1)
	s.messages = append(s.messages, redis.XMessage{ID: id, Values: map[string]any{"says": says}})
	return id
}

func (s *simStream) atRest() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.given == len(s.messages) && len(s.pending) == 0
}

// simRedis simulates the Redis client of an Intake. Each command is one step of the simulation.
type simRedis struct {
	redis.UniversalClient // nil, because the Intake sends only the commands below
	*simLife
}

func (r *simRedis) command(ctx context.Context, do func(s *simStream)) error {
	s := r.w.stream
	return r.step(ctx, faultsOfCommands, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		do(s)
		return nil
	})
}

func (r *simRedis) XGroupCreateMkStream(ctx context.Context, _, _, _ string) *redis.StatusCmd {
	busy := false
	err := r.command(ctx, func(s *simStream) { busy, s.there = s.there, true })
	if err == nil && busy {
		err = errors.New("BUSYGROUP")
	}
	return redis.NewStatusResult("", err)
}

func (r *simRedis) XReadGroup(ctx context.Context, a *redis.XReadGroupArgs) *redis.XStreamSliceCmd {
	var taken []redis.XMessage
	err := r.command(ctx, func(s *simStream) {
		s.consumers[a.Consumer] = time.Now()
		for ; s.given < len(s.messages) && len(taken) < int(a.Count); s.given++ {
			m := s.messages[s.given]
			s.pending[m.ID] = &simPending{a.Consumer, time.Now(), 1}
			taken = append(taken, m)
		}
	})
	if err == nil && len(taken) == 0 {
		r.sleep(ctx, a.Block)
		err = redis.Nil
	}
	return redis.NewXStreamSliceCmdResult([]redis.XStream{{Messages: taken}}, err)
}

func (r *simRedis) XPendingExt(ctx context.Context, a *redis.XPendingExtArgs) *redis.XPendingExtCmd {
	var found []redis.XPendingExt
	err := r.command(ctx, func(s *simStream) {
		after, _ := strings.CutPrefix(a.Start, "(") // "-" sorts before all ids, so it means the beginning of the stream.
		for _, id := range slices.Sorted(maps.Keys(s.pending)) {
			p, idle := s.pending[id], time.Since(s.pending[id].since)
			if id > after && (a.Consumer == "" || a.Consumer == p.consumer) && idle >= a.Idle && len(found) < int(a.Count) {
				found = append(found, redis.XPendingExt{ID: id, Consumer: p.consumer, Idle: idle, RetryCount: p.count})
			}
		}
	})
	cmd := redis.NewXPendingExtCmd(ctx)
	cmd.SetVal(found)
	cmd.SetErr(err)
	return cmd
}

func (r *simRedis) XClaim(ctx context.Context, a *redis.XClaimArgs) *redis.XMessageSliceCmd {
	var claimed []redis.XMessage
	err := r.command(ctx, func(s *simStream) {
		s.consumers[a.Consumer] = time.Now()
		for _, m := range s.messages {
			p := s.pending[m.ID]
			if p != nil && slices.Contains(a.Messages, m.ID) && time.Since(p.since) >= a.MinIdle {
				*p = simPending{a.Consumer, time.Now(), p.count + 1}
				claimed = append(claimed, m)
			}
		}
	})
	return redis.NewXMessageSliceCmdResult(claimed, err)
}

// XRangeN finds every message, because the simulated stream never deletes a message.
func (r *simRedis) XRangeN(ctx context.Context, _, start, _ string, _ int64) *redis.XMessageSliceCmd {
	return redis.NewXMessageSliceCmdResult([]redis.XMessage{{ID: start}}, r.command(ctx, func(*simStream) {}))
}

func (r *simRedis) XAck(ctx context.Context, _, _ string, ids ...string) *redis.IntCmd {
	return redis.NewIntResult(0, r.command(ctx, func(s *simStream) {
		for _, id := range ids {
			s.acked(id)
			delete(s.pending, id)
		}
	}))
}

func (r *simRedis) XInfoConsumers(ctx context.Context, stream, name string) *redis.XInfoConsumersCmd {
	var list []redis.XInfoConsumer
	err := r.command(ctx, func(s *simStream) {
		// Do not sort by name: the names are random, so each run with the same seed would have another order.
		byTime := func(a, b string) int { return s.consumers[a].Compare(s.consumers[b]) }
		for _, name := range slices.SortedFunc(maps.Keys(s.consumers), byTime) {
			list = append(list, redis.XInfoConsumer{Name: name, Pending: s.pendingOfLocked(name), Idle: time.Since(s.consumers[name])})
		}
	})
	cmd := redis.NewXInfoConsumersCmd(ctx, stream, name)
	cmd.SetVal(list)
	cmd.SetErr(err)
	return cmd
}

func (s *simStream) pendingOfLocked(consumer string) (n int64) {
	for _, p := range s.pending {
		if p.consumer == consumer {
			n++
		}
	}
	return n
}

// EvalSha does the work of the script forget.lua.
func (r *simRedis) EvalSha(ctx context.Context, _ string, _ []string, args ...any) *redis.Cmd {
	return redis.NewCmdResult(int64(0), r.command(ctx, func(s *simStream) {
		if name := args[1].(string); s.pendingOfLocked(name) == 0 {
			delete(s.consumers, name)
		}
	}))
}

// Pipeline returns a pipeline that supports only the command that release sends. This command is XCLAIM stream group
// consumer 0 id IDLE ms RETRYCOUNT n JUSTID.
func (r *simRedis) Pipeline() redis.Pipeliner { return &simPipeline{r: r} }

type simPipeline struct {
	redis.Pipeliner
	r        *simRedis
	commands [][]any
}

func (p *simPipeline) Do(_ context.Context, args ...any) *redis.Cmd {
	p.commands = append(p.commands, args)
	return nil
}

func (p *simPipeline) Exec(ctx context.Context) ([]redis.Cmder, error) {
	return nil, p.r.command(ctx, func(s *simStream) {
		for _, c := range p.commands {
			if held := s.pending[c[5].(string)]; held != nil {
				*held = simPending{c[3].(string), time.Now().Add(-time.Duration(c[7].(int64)) * time.Millisecond), int64(c[9].(int))}
			}
		}
	})
}
