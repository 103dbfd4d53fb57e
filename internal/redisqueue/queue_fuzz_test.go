package redisqueue

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

// oddServer does not answer after the last of its replies.
type oddServer struct{ replies []any }

func (s *oddServer) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *oddServer) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error { return s.answer(cmd) }
}

func (s *oddServer) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		var first error
		for _, cmd := range cmds {
			if err := s.answer(cmd); first == nil {
				first = err
			}
		}
		return first
	}
}

var errSilent = errors.New("the server says nothing")

func (s *oddServer) answer(cmd redis.Cmder) error {
	var reply any = errSilent
	if len(s.replies) > 0 {
		reply, s.replies = s.replies[0], s.replies[1:]
	}
	if err, isError := reply.(error); isError {
		cmd.SetErr(err)
		return err
	}
	cmd.(*redis.Cmd).SetVal(reply)
	return nil
}

// Each byte of program adds a reply or nests the last ones.
func replyTree(program []byte, number int64, text string) []any {
	var stack []any
	for _, step := range program[:min(len(program), 64)] {
		var reply any
		switch step % 16 {
		case 0:
			reply = number
		case 1:
			reply = text
		case 2:
			reply = nil
		case 3, 4, 5:
			n := min(int(step/16), len(stack))
			reply = append([]any{}, stack[len(stack)-n:]...)
			stack = stack[:len(stack)-n]
		case 6:
			reply = float64(number)
		case 7:
			reply = number%2 == 0
		case 8:
			reply = map[any]any{text: number}
		case 9:
			reply = redis.Nil
		case 10:
			reply = scriptError("NOSCRIPT No matching script")
		case 11:
			reply = scriptError("OOM command not allowed")
		case 12:
			reply = int64(1)
		case 13:
			reply = "7"
		case 14:
			reply = errSilent
		case 15:
			reply = []any{int64(number), int64(-1), []any{text, "7", number, nil}, int64(1)}
		}
		stack = append(stack, reply)
	}
	return stack
}

type scriptError string

func (e scriptError) Error() string { return string(e) }
func (scriptError) RedisError()     {}

// The queue must not return a token, an id or a wait that was not in the reply.
func FuzzQueueReplies(f *testing.F) {
	for _, number := range []int64{0, -1, 1, 1700000000000, math.MaxInt64, math.MinInt64} {
		for _, program := range [][]byte{
			{}, {0}, {1}, {2}, {3}, {0, 0, 1, 16 + 3, 48 + 3}, {0, 2, 3, 48 + 3}, {1, 0, 3, 48 + 3}, {0, 0, 0, 48 + 3}, {0, 1, 3, 48 + 3},
			{0, 0, 32 + 3}, {1, 1, 32 + 3}, {0, 1, 32 + 3}, {12, 12, 12}, {10, 0}, {10, 10, 15}, {11, 12}, {9}, {15}, {8, 8}, {6, 7}, {14, 15},
		} {
			f.Add(program, number, "42")
			f.Add(program, number, "007")
		}
	}
	f.Fuzz(func(t *testing.T, program []byte, number int64, text string) {
		server := new(oddServer)
		client := redis.NewClient(&redis.Options{Addr: "192.0.2.1:1", MaxRetries: -1})
		defer client.Close()
		client.AddHook(server)
		keys, err := newKeys("odd", 2)
		require.NoError(t, err)
		q := &Queue{client: client, keys: keys, instance: "me"}
		replies := replyTree(program, number, text)
		again := func() { server.replies = append([]any(nil), replies...) }

		again()
		leased, err := q.Claim(t.Context(), "a", 10, time.Second)
		requireClaimed(t, leased, err, number, text)
		again()
		waits, lostTypes, err := q.Peek(t.Context(), []string{"a", "b", "c"})
		require.Equal(t, err == nil, len(waits) == 3)
		require.LessOrEqual(t, len(lostTypes), 3)
		for _, wait := range waits {
			require.GreaterOrEqual(t, wait, time.Duration(0))
		}
		again()
		heads, lostTypes, _ := q.Enqueue(t.Context(), []processlog.QueueEntry{{BusinessType: "a", ID: processlog.RowID(1)}, {BusinessType: "b", ID: processlog.RowID(2)}}, processlog.EnqueueRules{MaxLease: time.Minute})
		require.LessOrEqual(t, max(len(heads), len(lostTypes)), 2)
		again()
		rebuildTypes, err := q.Rebuild(t.Context(), []string{"a", "b", "c"}, processlog.Token{1}, time.Second)
		require.True(t, err == nil && len(rebuildTypes) <= 3 || len(rebuildTypes) == 0)
		again()
		completeTypes, err := q.Rebuilt(t.Context(), []string{"a", "b", "c"}, processlog.Token{1})
		require.True(t, err == nil && len(completeTypes) <= 3 || len(completeTypes) == 0)
		again()
		_ = q.Settle(t.Context(), "a", []processlog.QueueOutcome{{ID: processlog.RowID(1), Token: number, In: time.Duration(number)}})
		again()
		if lead, err := q.Lead(t.Context(), time.Second); lead {
			require.NoError(t, err)
		}
		again()
		if owners, err := q.stampOwner(t.Context(), q.allTags(), "us"); err == nil {
			require.Len(t, owners, 2)
		}
	})
}

func requireClaimed(t *testing.T, leased processlog.Leased, err error, number int64, text string) {
	t.Helper()
	if err != nil {
		require.Equal(t, processlog.Leased{}, leased)
		return
	}
	require.Contains(t, []int64{number, 1}, leased.Token)
	require.GreaterOrEqual(t, leased.Next, time.Duration(0))
	for _, id := range leased.IDs {
		require.Contains(t, []string{"7", text}, id.String())
	}
}

// A duration must never be shortened on its way to Redis or to a table.
func FuzzDurations(f *testing.F) {
	for _, d := range []int64{0, 1, -1, 999_999, 1_000_000, 1_000_001, math.MaxInt64, math.MinInt64, math.MaxInt64 - 999_999} {
		f.Add(d)
	}
	f.Fuzz(func(t *testing.T, n int64) {
		d := time.Duration(n)
		ms := processlog.Remaining(d)
		require.Equal(t, d <= 0, ms == 0)
		require.GreaterOrEqual(t, processlog.Millis(d), d.Milliseconds())
		if d > 0 {
			require.GreaterOrEqual(t, ms-1, int64(0))
			require.Less(t, time.Duration(ms-1)*time.Millisecond, d, "at most a millisecond longer")
			require.Equal(t, ms, processlog.Millis(d))
		}
		if d > 0 {
			wait, ok := untilDue(d.Microseconds())
			require.True(t, ok)
			require.Equal(t, d.Truncate(time.Microsecond), wait)
		}
	})
}
