// Package redisqueue implements the delay queue on Redis that several processes share. The queue is one sorted set for
// each business type.
//
// The queue holds only hints. If Redis loses, repeats or invents data, entries only start later. See promise G10.
// Scripts read the time from the clock of Redis, and callers pass only durations to a script, so nothing starts early.
// See promise G9. Redis serves no other client while a script runs. So each script uses one key and does a limited
// amount of work.
//
// The package never repeats a script that was sent alone and may have run. If a claim ran twice, the second run would
// lease a second batch of entries. Scripts in a pipeline are safe to repeat.
//
// The engine calls the queue through the interface processlog.Queue, from any goroutine. The package starts no
// goroutine, and contains no code for SQL or handlers.
package redisqueue

import (
	"context"
	"crypto/rand"
	_ "embed" // for the scripts
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/compensator-go/compensator/internal/grouped"
	"github.com/compensator-go/compensator/processlog"
)

// Queue keeps one sorted set (zset) for each business type. The members of a zset are the ids of entries. The score of
// a member is the due time of the entry, or the end of its lease. Scores are in Unix milliseconds of the clock of
// Redis. A zset survives a crash of this process.
//
// A complete zset also contains a mark, which is the member "whole …". If Redis loses the zset, it also loses the mark.
// Until the type is rebuilt, the mark is missing, the type counts as lost, and every reply about the type says so. A
// type also counts as lost in two other cases:
//
//   - Redis cannot add an entry, because it is at its memory limit. Claims and settles still work.
//   - The key holds a value that is not a zset. Queue does not change this value.
//
// One call may send several scripts. If one script fails, the other scripts still take effect. After an error, the
// caller may call every method again.
type Queue struct {
	client   redis.UniversalClient // separate from the user's client
	keys     redisKeys
	instance string // random name that the method Lead stores in Redis while this process leads

	knownVersion atomic.Bool // whether Check has read the version of the server
}

var (
	_ processlog.Queue          = (*Queue)(nil)
	_ processlog.QueueInspector = (*Queue)(nil)
)

// Open returns a Queue, and does not connect to Redis.
func Open(client redis.UniversalClient, prefix string) (*Queue, error) {
	ownClient, err := ownRedisClient(client)
	if err != nil {
		return nil, err
	}
	tags := uint32(1)
	if _, cluster := ownClient.(*redis.ClusterClient); cluster {
		tags = clusterTags
	}
	k, err := newKeys(prefix, tags)
	if err != nil {
		return nil, errors.Join(err, ownClient.Close())
	}
	return &Queue{client: ownClient, keys: k, instance: rand.Text()}, nil
}

// maxScriptMembers is the maximum number of entries in one script. The number is limited because Redis serves no other
// client while a script runs.
const maxScriptMembers = 1000

var (
	//go:embed lua/enqueue.lua
	enqueueSource string
	//go:embed lua/claim.lua
	claimSource string
	//go:embed lua/settle.lua
	settleSource string
	//go:embed lua/peek.lua
	peekSource string
	//go:embed lua/rebuild.lua
	rebuildSource string
	//go:embed lua/rebuilt.lua
	rebuiltSource string
	//go:embed lua/stamp.lua
	stampSource string
	//go:embed lua/lead.lua
	leadSource string
	//go:embed lua/inspect.lua
	inspectSource string

	enqueueScript = redis.NewScript(enqueueSource)
	claimScript   = redis.NewScript(claimSource)
	settleScript  = redis.NewScript(settleSource)
	peekScript    = redis.NewScript(peekSource)
	rebuildScript = redis.NewScript(rebuildSource)
	rebuiltScript = redis.NewScript(rebuiltSource)
	stampScript   = redis.NewScript(stampSource)
	leadScript    = redis.NewScript(leadSource)
	inspectScript = redis.NewScript(inspectSource)
)

// Check returns an error if Redis is older than 5, if it denies this client a script or a key, or if another database
// uses the prefix. It writes the fingerprint if there is none.
func (q *Queue) Check(ctx context.Context, fingerprint string) error {
	if err := q.checkVersion(ctx); err != nil {
		return fmt.Errorf("check redis: %w", err)
	}
	// Stamp the first tag alone. If two databases with the same prefix start at the same time, only one of them becomes
	// the owner of the first tag. The other one gets an error, and stamps none of the other tags.
	for _, tags := range [][]uint32{q.allTags()[:1], q.allTags()[1:]} {
		owners, err := q.stampOwner(ctx, tags, fingerprint)
		if err != nil {
			return fmt.Errorf("check redis: %w", err)
		}
		for _, owner := range owners {
			if owner != fingerprint {
				return &processlog.FieldError{Field: "Prefix", Reason: fmt.Sprintf("%q belongs to another log, of another database or table (its fingerprint is %q, ours %q): "+
					"give each log a prefix of its own", q.keys.prefix, owner, fingerprint)}
			}
		}
	}
	return nil
}

// checkVersion returns an error if Redis is too old, or if the call fails. Once Redis has named a version that is new
// enough, checkVersion sends no further call. It accepts a server that hides its version.
func (q *Queue) checkVersion(ctx context.Context) error {
	if q.knownVersion.Load() {
		return nil
	}
	info, err := q.client.Info(ctx, "server").Result()
	switch {
	case redis.HasErrorPrefix(err, "NOPERM"), redis.HasErrorPrefix(err, "unknown command"):
		return nil
	case err != nil:
		return q.wrapError(ctx, err)
	}
	err = checkRedisVersion(info)
	q.knownVersion.Store(err == nil)
	return err
}

func checkRedisVersion(info string) error {
	_, version, _ := strings.Cut(info, "redis_version:")
	version, _, _ = strings.Cut(version, "\r\n")
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); err == nil && n < 5 {
		return &processlog.FieldError{Field: "Redis", Reason: fmt.Sprintf("version %s is too old: scripts that read the clock and then write need 5 or newer", version)}
	}
	return nil
}

func (q *Queue) Enqueue(ctx context.Context, items []processlog.QueueEntry, rules processlog.EnqueueRules) (newHeads, lostTypes []string, err error) {
	calls, types := q.queueEntries(items, rules)
	replies, err := q.run(ctx, calls)
	leftOut := &processlog.LeftOutError{}
	for i, reply := range replies {
		// If the call has failed, the reply is nil and the variable answer becomes 0. Nothing is then reported about
		// the type, because a failed call does not say whether the type is lost.
		answer, _ := reply.(int64)
		newHeads = addIf(answer&1 != 0, newHeads, types[i])
		lostTypes = addIf(answer&2 != 0, lostTypes, types[i])
		leftOut.BusinessTypes = addIf(answer&(4|8) != 0, leftOut.BusinessTypes, types[i])
		switch {
		case answer&4 != 0:
			leftOut.Reason = "OOM: Redis is at its maxmemory"
		case answer&8 != 0:
			leftOut.Reason = "WRONGTYPE: " + q.keys.dueKey(types[i]) + " holds a value of another type"
		}
	}
	if err == nil && len(leftOut.BusinessTypes) > 0 {
		err = leftOut
	}
	return newHeads, lostTypes, wrapQueueError("enqueue", err)
}

func (q *Queue) queueEntries(items []processlog.QueueEntry, rules processlog.EnqueueRules) (calls []scriptCall, types []string) {
	for businessType, entries := range grouped.Each(items, func(a processlog.QueueEntry) string { return a.BusinessType }) {
		for chunk := range slices.Chunk(entries, maxScriptMembers) {
			key := q.keys.dueKey(businessType)
			args := make([]any, 0, 5+2*len(chunk))
			args = append(args, wholeMark(key), rebuildMark("nobody", key),
				processlog.Remaining(rules.MaxLease), max(0, rules.Limit), processlog.Remaining(rules.Near))
			numbers := make([]memberNumbers, len(chunk))
			for i, a := range chunk {
				numbers[i] = memberNumbers{id: a.ID.Row(), in: processlog.Remaining(a.In)}
				args = append(args, &numbers[i].id, &numbers[i].in)
			}
			calls = append(calls, scriptCall{enqueueScript, key, args})
			types = append(types, businessType)
		}
	}
	return calls, types
}

// memberNumbers are the numbers of one entry in the arguments of a script. The arguments are pointers to these fields,
// because a number in an []any allocates memory. A script must treat the id as a text, because numbers in Lua are
// floats.
type memberNumbers struct {
	id uint64
	in int64 // ms
}

// addIf appends a business type to types if the condition is true. If the type is already the last element, addIf
// appends nothing.
func addIf(condition bool, types []string, businessType string) []string {
	if !condition || len(types) > 0 && types[len(types)-1] == businessType {
		return types
	}
	return append(types, businessType)
}

// Claim leases at most 1,000 entries, even if the limit is higher.
func (q *Queue) Claim(ctx context.Context, businessType string, limit int, lease time.Duration) (processlog.Leased, error) {
	limit = min(max(limit, 0), maxScriptMembers)
	key := q.keys.dueKey(businessType)
	replies, err := q.run(ctx, []scriptCall{{claimScript, key, []any{wholeMark(key), limit, max(1, processlog.Remaining(lease))}}})
	if err != nil {
		return processlog.Leased{}, wrapQueueError("claim "+businessType, err)
	}
	leased, ok := readLeased(replies[0])
	if !ok {
		return processlog.Leased{}, fmt.Errorf("claim %s: unexpected reply %v", businessType, replies[0])
	}
	return leased, nil
}

// readLeased decodes token, wait, members, lost.
func readLeased(reply any) (leased processlog.Leased, ok bool) {
	parts, _ := reply.([]any)
	if len(parts) != 4 {
		return processlog.Leased{}, false
	}
	token, isToken := parts[0].(int64)
	next, isWait := untilDue(parts[1])
	members, isList := parts[2].([]any)
	leased = processlog.Leased{Token: token, Next: next, Lost: parts[3] == int64(1)}
	for _, member := range members {
		s, _ := member.(string)
		if id, err := processlog.ParseID(s); err == nil { // Skip members that are not ids.
			leased.IDs = append(leased.IDs, id)
		}
	}
	return leased, isToken && isWait && isList
}

func (q *Queue) Settle(ctx context.Context, businessType string, items []processlog.QueueOutcome) error {
	var calls []scriptCall
	key := q.keys.dueKey(businessType)
	for chunk := range slices.Chunk(items, maxScriptMembers) {
		args := make([]any, 0, 1+3*len(chunk))
		args = append(args, wholeMark(key))
		numbers := make([]memberNumbers, len(chunk))
		for i := range chunk {
			o := &chunk[i]
			numbers[i] = memberNumbers{id: o.ID.Row(), in: processlog.Remaining(o.In)}
			if o.Remove {
				numbers[i].in = -1
			}
			args = append(args, &numbers[i].id, &o.Token, &numbers[i].in)
		}
		calls = append(calls, scriptCall{settleScript, key, args})
	}
	_, err := q.run(ctx, calls)
	return wrapQueueError("settle "+businessType, err)
}

func (q *Queue) Peek(ctx context.Context, businessTypes []string) (waits []time.Duration, lostTypes []string, err error) {
	answers, err := q.askEach(ctx, peekScript, businessTypes, func(key string) []any { return []any{wholeMark(key)} })
	if err != nil {
		return nil, nil, wrapQueueError("peek", err)
	}
	waits = make([]time.Duration, len(businessTypes))
	for i, businessType := range businessTypes {
		answer, _ := answers[i].([]any)
		if len(answer) != 2 {
			return nil, nil, fmt.Errorf("peek: unexpected answer %v", answers[i])
		}
		wait, ok := untilDue(answer[0])
		if !ok {
			return nil, nil, fmt.Errorf("peek: unexpected answer %v", answer)
		}
		waits[i] = wait
		lostTypes = addIf(answer[1] == int64(1), lostTypes, businessType)
	}
	return waits, lostTypes, nil
}

// Inspect implements processlog.QueueInspector.
func (q *Queue) Inspect(ctx context.Context, businessType string, id processlog.ID) (processlog.Queued, error) {
	key := q.keys.dueKey(businessType)
	replies, err := q.run(ctx, []scriptCall{{inspectScript, key, []any{wholeMark(key), id.String()}}})
	if err != nil {
		return processlog.Queued{}, wrapQueueError("inspect "+businessType, err)
	}
	parts, _ := replies[0].([]any)
	if len(parts) != 3 {
		return processlog.Queued{}, fmt.Errorf("inspect %s: unexpected reply %v", businessType, replies[0])
	}
	wait, _ := parts[1].(int64)
	return processlog.Queued{Has: parts[0] == int64(1), In: time.Duration(wait) * time.Millisecond, Lost: parts[2] == int64(1)}, nil
}

func (q *Queue) Rebuild(ctx context.Context, businessTypes []string, token processlog.Token, period time.Duration) (rebuildTypes []string, err error) {
	answers, err := q.askEach(ctx, rebuildScript, businessTypes, func(key string) []any {
		return []any{wholeMark(key), rebuildMark(rebuilder(token), key), max(1, processlog.Remaining(period))}
	})
	return typesAnswered(businessTypes, answers), wrapQueueError("rebuild", err)
}

func (q *Queue) Rebuilt(ctx context.Context, businessTypes []string, token processlog.Token) (completeTypes []string, err error) {
	answers, err := q.askEach(ctx, rebuiltScript, businessTypes, func(key string) []any {
		return []any{wholeMark(key), rebuildMark(rebuilder(token), key)}
	})
	return typesAnswered(businessTypes, answers), wrapQueueError("end rebuild", err)
}

func typesAnswered(businessTypes []string, answers []any) (types []string) {
	for i, answer := range answers {
		types = addIf(answer == int64(1), types, businessTypes[i])
	}
	return types
}

// askEach runs a script on the key of each type, in one round trip. Some servers refuse a script that loops over its keys.
func (q *Queue) askEach(ctx context.Context, script *redis.Script, businessTypes []string, args func(key string) []any) ([]any, error) {
	calls := make([]scriptCall, len(businessTypes))
	for i, businessType := range businessTypes {
		key := q.keys.dueKey(businessType)
		calls[i] = scriptCall{script, key, args(key)}
	}
	answers, err := q.run(ctx, calls)
	if err != nil {
		return nil, err
	}
	return answers, nil
}

// Lead renews the leadership. If the leader has not called Lead for a period, another process takes over.
func (q *Queue) Lead(ctx context.Context, period time.Duration) (bool, error) {
	replies, err := q.run(ctx, []scriptCall{{
		leadScript, q.keys.lead(), []any{q.instance, max(1, processlog.Remaining(period))},
	}})
	if err != nil {
		return false, wrapQueueError("lead", err)
	}
	return replies[0] == int64(1), nil
}

// Evicts returns the maxmemory policy if it may evict the keys of the queue. Otherwise, or if the policy is unknown, it
// returns "".
func (q *Queue) Evicts(ctx context.Context) string {
	const setting = "maxmemory-policy"
	config, err := q.client.ConfigGet(ctx, setting).Result()
	if err != nil || !strings.HasPrefix(config[setting], "allkeys-") {
		return ""
	}
	return config[setting]
}

// Close closes the connections of the queue. The user's client stays open.
func (q *Queue) Close() error { return q.client.Close() }

func (q *Queue) allTags() []uint32 {
	tags := make([]uint32, q.keys.tags)
	for i := range tags {
		tags[i] = uint32(i)
	}
	return tags
}

func (q *Queue) stampOwner(ctx context.Context, tags []uint32, fingerprint string) ([]string, error) {
	var calls []scriptCall
	for _, tag := range tags {
		calls = append(calls, scriptCall{stampScript, q.keys.owner(tag), []any{fingerprint}})
	}
	replies, err := q.run(ctx, calls)
	if err != nil {
		return nil, err
	}
	found := make([]string, len(replies))
	for i, reply := range replies {
		var ok bool
		if found[i], ok = reply.(string); !ok {
			return nil, fmt.Errorf("unexpected reply %v", reply)
		}
	}
	return found, nil
}

func wrapQueueError(operation string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", operation, err)
}

// untilDue converts microseconds. -1 means Never.
func untilDue(reply any) (wait time.Duration, ok bool) {
	us, ok := reply.(int64)
	if us < 0 || us > int64(processlog.Never/time.Microsecond) {
		return processlog.Never, ok
	}
	return time.Duration(us) * time.Microsecond, ok
}
