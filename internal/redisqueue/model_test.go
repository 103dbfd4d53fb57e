package redisqueue_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/compensator-go/compensator/compensatortest/memory"
	"github.com/compensator-go/compensator/internal/redisqueue"
	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/processlog"
)

// TestMemoryQueueAnswersAsARedisDoes sends the same commands to a queue on Redis and to the queue in memory.
//
// The test cannot set the clock of Redis. So each duration is either very short or very long. A very short duration is
// over before the next command. No two sums of very long durations are equal.
func TestMemoryQueueAnswersAsARedisDoes(t *testing.T) {
	t.Parallel()
	server := testservers.NewRedis(t) // because the test fills its memory
	client := redisClient(t, server)
	program := rapid.SliceOfN(queueCommands(), 10, 25)
	rapid.Check(t, func(r *rapid.T) {
		m := newQueueTwins(t, client, "twin")
		defer m.close()
		for i, command := range program.Draw(r, "commands") {
			if m.run(command); len(m.failures) > 0 {
				r.Fatalf("command %d, %#v\n%s", i, command, strings.Join(m.failures, "\n"))
			}
		}
	})
}

// queueTwins has a queue on Redis as side 0, and the queue in memory as side 1. Two processes use each queue.
type queueTwins struct {
	ctx      context.Context
	client   *redis.Client
	prefix   string
	redis    *redisqueue.Queue
	memory   *memory.Queue
	sides    [2][2]processlog.Queue
	tokens   [][2]int64    // tokens of each claim
	full     bool          // whether Redis is at its memory limit
	apart    time.Duration // longest time that one command took on both sides together
	saved    []redisKey
	snapshot *memory.QueueState
	failures []string
}

type redisKey struct {
	name, dump string
	expires    time.Duration // time since 1970 (≤ 0: never)
}

func newQueueTwins(t *testing.T, client *redis.Client, prefix string) *queueTwins {
	m := &queueTwins{ctx: t.Context(), client: client, prefix: prefix, memory: memory.NewQueue()}
	m.redis = openQueue(t, client, prefix)
	m.sides = [2][2]processlog.Queue{{m.redis, openQueue(t, client, prefix)}, {m.memory.Client(), m.memory.Client()}}
	require.NoError(t, m.redis.Check(t.Context(), "one")) // so that no connect is measured
	require.NoError(t, m.sides[1][0].Check(t.Context(), "one"))
	return m
}

func (m *queueTwins) close() {
	m.limit(false)
	m.clear()
	for _, q := range []processlog.Queue{m.sides[0][0], m.sides[0][1], m.sides[1][0], m.sides[1][1]} {
		assert.NoError(m, q.Close())
	}
}

func (m *queueTwins) Errorf(format string, args ...any) {
	m.failures = append(m.failures, fmt.Sprintf(format, args...))
}

// instant is a duration so short that it is over before the next command.
const instant = 2 * time.Millisecond

// queueCommand is a command for a queue. The method run of queueTwins calls the method ask for both sides. The result
// named equal must be the same for both sides. The result named near holds times to wait, which must be almost the
// same.
type queueCommand interface {
	ask(m *queueTwins, side int) (equal any, near []time.Duration)
}

func (m *queueTwins) run(command queueCommand) {
	began := time.Now()
	want, wantNear := command.ask(m, 0)
	got, gotNear := command.ask(m, 1)
	m.apart = max(m.apart, time.Since(began))
	assert.Equal(m, want, got, "expected is Redis's answer, actual the double's")
	m.near("answered", wantNear, gotNear)
	m.compareMembers()
	<-time.After(2 * instant)
}

func (m *queueTwins) near(what string, want, got []time.Duration) {
	if !assert.Len(m, got, len(want), what) {
		return
	}
	for i := range want {
		if want[i] == processlog.Never || got[i] == processlog.Never {
			assert.Equal(m, want[i], got[i], what)
			continue
		}
		assert.InDelta(m, want[i], got[i], float64(2*m.apart+2*time.Millisecond), "%s %v and %v", what, want[i], got[i])
	}
}

var queueTypes = []string{"order", "stock"}

// compareMembers compares the order of the ids exactly, and the due times approximately.
func (m *queueTwins) compareMembers() {
	var want, got [2][]string
	var wantAt, gotAt []time.Duration
	for i, businessType := range queueTypes {
		members, err := m.client.ZRangeWithScores(m.ctx, m.redis.DueKey(businessType), 0, -1).Result()
		if !redis.HasErrorPrefix(err, "WRONGTYPE") {
			assert.NoError(m, err)
		}
		for _, z := range members {
			if z.Score > 4e15 {
				continue // no entry
			}
			want[i] = append(want[i], z.Member.(string))
			wantAt = append(wantAt, time.Duration(z.Score)*time.Millisecond)
		}
	}
	for _, member := range m.memory.Members() {
		i := slices.Index(queueTypes, member.BusinessType)
		got[i] = append(got[i], member.ID.String())
		gotAt = append(gotAt, time.Duration(member.At)*time.Millisecond)
	}
	if assert.Equal(m, want, got, "members: expected are Redis's, actual the double's") {
		m.near("members at", wantAt, gotAt)
	}
}

func queueCommands() *rapid.Generator[queueCommand] {
	return rapid.OneOf(
		queueCommandsOf(drawEnqueue), queueCommandsOf(drawEnqueue), queueCommandsOf(drawEnqueue),
		queueCommandsOf(drawQueueClaim), queueCommandsOf(drawQueueClaim), queueCommandsOf(drawQueueSettle), queueCommandsOf(drawQueueSettle),
		queueCommandsOf(drawAsk), queueCommandsOf(drawUpset), queueCommandsOf(drawRebuild), queueCommandsOf(drawRebuild),
	)
}

func queueCommandsOf[C queueCommand](draw func(*rapid.T) C) *rapid.Generator[queueCommand] {
	return rapid.Custom(func(t *rapid.T) queueCommand { return draw(t) })
}

func drawProcess(t *rapid.T) int { return rapid.IntRange(0, 1).Draw(t, "process") }

func drawQueueType(t *rapid.T) string { return rapid.SampledFrom(queueTypes).Draw(t, "type") }

// drawWaitOf draws the time until an entry is due. The long times are hours, and leases take minutes. So a due time is
// never close to the end of a lease, and both sides return the same order.
func drawWaitOf(t *rapid.T) time.Duration {
	return pickOne(t, "in", -time.Second, 0, 0, instant-time.Microsecond, instant, time.Hour, 2*time.Hour, 5*time.Hour, 9*time.Hour)
}

// The texts of these ids sort differently from their numbers.
func drawQueueID() *rapid.Generator[uint64] {
	return rapid.SampledFrom([]uint64{1, 2, 3, 9, 10, 11, 100, 1 << 53, 1<<53 + 1, 1<<64 - 1})
}

type enqueueCommand struct {
	Process int
	Items   []processlog.QueueEntry
	Rules   processlog.EnqueueRules
}

func drawEnqueue(t *rapid.T) enqueueCommand {
	item := rapid.Custom(func(t *rapid.T) processlog.QueueEntry {
		return processlog.QueueEntry{BusinessType: drawQueueType(t), ID: processlog.RowID(drawQueueID().Draw(t, "id")), In: drawWaitOf(t)}
	})
	rules := processlog.EnqueueRules{MaxLease: pickOne(t, "max lease", 31*time.Minute, 97*time.Minute), Limit: pickOne(t, "limit", 0, 3), Near: pickOne(t, "near", 0, 11*time.Minute)}
	return enqueueCommand{drawProcess(t), rapid.SliceOfN(item, 0, 8).Draw(t, "items"), rules}
}

func (c enqueueCommand) ask(m *queueTwins, side int) (any, []time.Duration) {
	newHeads, lostTypes, err := m.sides[side][c.Process].Enqueue(m.ctx, c.Items, c.Rules)
	left := &processlog.LeftOutError{}
	if err != nil {
		assert.ErrorAs(m, err, &left)
	}
	return [][]string{append([]string{}, newHeads...), append([]string{}, lostTypes...), append([]string{}, left.BusinessTypes...)}, nil
}

type queueClaimCommand struct {
	Process, Limit int
	Type           string
	Lease          time.Duration
}

func drawQueueClaim(t *rapid.T) queueClaimCommand {
	return queueClaimCommand{drawProcess(t), rapid.IntRange(-1, 5).Draw(t, "limit"), drawQueueType(t), pickOne(t, "lease", 0, instant, 7*time.Minute, 23*time.Minute, 131*time.Minute)}
}

func (c queueClaimCommand) ask(m *queueTwins, side int) (any, []time.Duration) {
	leased, err := m.sides[side][c.Process].Claim(m.ctx, c.Type, c.Limit, c.Lease)
	assert.NoError(m, err)
	if side == 0 {
		m.tokens = append(m.tokens, [2]int64{})
	}
	m.tokens[len(m.tokens)-1][side] = leased.Token
	return []any{append([]processlog.ID{}, leased.IDs...), leased.Lost}, []time.Duration{leased.Next, time.Duration(leased.Token) * time.Millisecond}
}

type queueSettleCommand struct {
	Process int
	Type    string
	Items   []settledItem
}

type settledItem struct {
	ID     uint64
	Ago    int
	Remove bool
	In     time.Duration
}

func drawQueueSettle(t *rapid.T) queueSettleCommand {
	item := rapid.Custom(func(t *rapid.T) settledItem {
		return settledItem{drawQueueID().Draw(t, "id"), pickOne(t, "ago", 0, 0, 0, 1, 2), rapid.Bool().Draw(t, "remove"), drawWaitOf(t)}
	})
	return queueSettleCommand{drawProcess(t), drawQueueType(t), rapid.SliceOfN(item, 1, 10).Draw(t, "items")}
}

func (c queueSettleCommand) ask(m *queueTwins, side int) (any, []time.Duration) {
	var outcomes []processlog.QueueOutcome
	for _, item := range c.Items {
		token := int64(1)
		if i := len(m.tokens) - 1 - item.Ago; i >= 0 {
			token = m.tokens[i][side]
		}
		outcomes = append(outcomes, processlog.QueueOutcome{ID: processlog.RowID(item.ID), Token: token, Remove: item.Remove, In: item.In})
	}
	assert.NoError(m, m.sides[side][c.Process].Settle(m.ctx, c.Type, outcomes))
	return nil, nil
}

type askCommand struct {
	Process     int
	Fingerprint string
	Period      time.Duration
}

func drawAsk(t *rapid.T) askCommand {
	return askCommand{drawProcess(t), pickOne(t, "fingerprint", "one", "two"), pickOne(t, "period", instant, time.Hour)}
}

func (c askCommand) ask(m *queueTwins, side int) (any, []time.Duration) {
	q := m.sides[side][c.Process]
	leads, err := q.Lead(m.ctx, c.Period)
	assert.NoError(m, err)
	waits, lostTypes, err := q.Peek(m.ctx, append([]string{"none"}, queueTypes...))
	assert.NoError(m, err)
	return []any{leads, q.Check(m.ctx, c.Fingerprint) == nil, lostTypes}, waits
}

type rebuildCommand struct {
	Process int
	Types   []string
	Token   processlog.Token
	Period  time.Duration // how long the rebuild may take; 0: the command ends the rebuild
}

func drawRebuild(t *rapid.T) rebuildCommand {
	types := rapid.SampledFrom([][]string{queueTypes, queueTypes[:1], queueTypes[1:], nil}).Draw(t, "types")
	return rebuildCommand{drawProcess(t), types, pickOne(t, "token", processlog.Token{1}, processlog.Token{2}), pickOne(t, "period", 0, 0, instant, time.Hour)}
}

func (c rebuildCommand) ask(m *queueTwins, side int) (any, []time.Duration) {
	q := m.sides[side][c.Process]
	var types []string
	var err error
	if c.Period > 0 {
		types, err = q.Rebuild(m.ctx, c.Types, c.Token, c.Period)
	} else {
		types, err = q.Rebuilt(m.ctx, c.Types, c.Token)
	}
	assert.NoError(m, err)
	return append([]string{}, types...), nil
}

// upsetCommand changes Redis without the queue.
type upsetCommand struct{ What string }

func drawUpset(t *rapid.T) upsetCommand {
	return upsetCommand{pickOne(t, "what", "lose", "lose a type", "lose its wholeness", "rename", "occupy", "fill", "make room", "save", "restore")}
}

func (c upsetCommand) ask(m *queueTwins, side int) (any, []time.Duration) {
	switch {
	case c.What == "restore" && m.snapshot == nil:
	case c.What == "lose a type" && side == 0:
		assert.NoError(m, m.client.Del(m.ctx, m.redis.DueKey(queueTypes[0])).Err())
	case c.What == "lose a type":
		m.memory.LoseType(queueTypes[0])
	case c.What == "lose its wholeness" && side == 0:
		err := m.client.ZRem(m.ctx, m.redis.DueKey(queueTypes[0]), m.redis.Whole(queueTypes[0])).Err()
		assert.True(m, err == nil || redis.HasErrorPrefix(err, "WRONGTYPE"))
	case c.What == "lose its wholeness":
		m.memory.LoseWhole(queueTypes[0])
	case c.What == "rename" && side == 0:
		if err := m.client.Rename(m.ctx, m.redis.DueKey(queueTypes[1]), m.redis.DueKey(queueTypes[0])).Err(); err != nil {
			assert.ErrorContains(m, err, "no such key")
		}
	case c.What == "rename":
		m.memory.Rename(queueTypes[1], queueTypes[0])
	case c.What == "occupy" && side == 0:
		m.withRoom(func() {
			key := m.redis.DueKey(queueTypes[0])
			assert.NoError(m, m.client.Del(m.ctx, key).Err())
			assert.NoError(m, m.client.RPush(m.ctx, key, "somebody else's").Err())
		})
	case c.What == "occupy":
		m.memory.Occupy(queueTypes[0])
	case c.What == "fill" || c.What == "make room":
		if full := c.What == "fill"; side == 0 {
			m.limit(full)
		} else {
			m.memory.Fill(full)
		}
	case c.What == "save" && side == 0:
		m.saved = m.save()
	case c.What == "save":
		snapshot := m.memory.Snapshot()
		m.snapshot = &snapshot
	case side == 0:
		m.clear()
		if c.What == "restore" {
			m.withRoom(m.restore)
		}
	case c.What == "lose":
		m.memory.Lose()
	default:
		m.memory.Restore(*m.snapshot)
	}
	return nil, nil
}

func (m *queueTwins) limit(full bool) {
	limit := "0"
	if m.full = full; full {
		limit = "1"
	}
	assert.NoError(m, m.client.ConfigSet(m.ctx, "maxmemory", limit).Err())
}

func (m *queueTwins) withRoom(do func()) {
	full := m.full
	m.limit(false)
	do()
	m.limit(full)
}

func (m *queueTwins) keys() []string {
	keys, err := m.client.Keys(m.ctx, "{"+m.prefix+":*").Result()
	assert.NoError(m, err)
	return keys
}

func (m *queueTwins) clear() {
	if keys := m.keys(); len(keys) > 0 {
		assert.NoError(m, m.client.Del(m.ctx, keys...).Err())
	}
}

func (m *queueTwins) save() []redisKey {
	var saved []redisKey
	for _, key := range m.keys() {
		dump, err := m.client.Dump(m.ctx, key).Result()
		if err == redis.Nil {
			continue
		}
		assert.NoError(m, err)
		expires, err := m.client.PExpireTime(m.ctx, key).Result()
		assert.NoError(m, err)
		saved = append(saved, redisKey{key, dump, expires})
	}
	return saved
}

func (m *queueTwins) restore() {
	for _, key := range m.saved {
		args := []any{"RESTORE", key.name, max(0, key.expires.Milliseconds()), key.dump, "ABSTTL"}
		assert.NoError(m, m.client.Do(m.ctx, args...).Err())
	}
}

func pickOne[T any](t *rapid.T, label string, values ...T) T {
	return rapid.SampledFrom(values).Draw(t, label)
}
