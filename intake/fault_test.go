package intake

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/processlog"
)

// The request or the answer of COMMIT is lost.
// Failure: F96
func TestBatchWhoseCommitIsInDoubtIsResolvedBeforeItIsAcknowledged(t *testing.T) {
	t.Parallel()
	for name, rule := range harness.CommitFaults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			proxy, db := r.OpenProxied(true)
			quick := r.QuickConfig()
			quick.DB = db
			c := r.New(quick)
			rule.Match = harness.MatchNext(faultproxy.Contains("INSERT INTO effects"), faultproxy.Commit())
			rule.Nth = 2
			trap := proxy.Arm(rule)
			cfg := testConfig()
			cfg.Batch = 50
			in := r.open(c, r.spec(), cfg)
			r.add(1, 200)
			r.start(in)
			r.waitSettled("shop")
			require.Equal(t, 1, trap.Fired())
			r.requireBooks(200, 0)
			stats, err := in.Stats(t.Context())
			require.NoError(t, err)
			duplicates := int64(0)
			if rule.Fault == faultproxy.DropReply {
				duplicates = 50
			}
			assert.Equal(t, []int64{200 - duplicates, duplicates}, []int64{stats.Recorded, stats.Duplicates})
		})
	}
}

// The answer to COMMIT is lost.
// Failure: F96
func TestLoneMessageWhoseCommitIsInDoubtIsNotSetAside(t *testing.T) {
	t.Parallel()
	for name, rule := range harness.CommitFaults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			proxy, db := r.OpenProxied(true)
			quick := r.QuickConfig()
			quick.DB = db
			rule.Match = harness.MatchNext(faultproxy.Contains("INSERT INTO effects"), faultproxy.Commit())
			trap := proxy.Arm(rule)
			in := r.open(r.New(quick), r.spec(), testConfig())
			r.add(1, 1)
			r.start(in)
			r.waitSettled("shop")
			require.Equal(t, 1, trap.Fired())
			r.requireBooks(1, 0)
		})
	}
}

// Failure: F96
func TestNothingIsAcknowledgedBeforeItIsCommitted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proxy, db := r.OpenProxied(true)
	quick := r.QuickConfig()
	quick.DB = db
	c := r.New(quick)
	trap := proxy.Arm(faultproxy.Rule{Match: harness.MatchNext(faultproxy.Contains("INSERT INTO effects"), faultproxy.Commit()), Fault: faultproxy.DropRequest})
	cfg := testConfig()
	cfg.StopTimeout = 50 * time.Millisecond
	in := r.open(c, r.spec(), cfg)
	r.add(1, 100)
	stop := r.start(in)
	require.NoError(t, trap.Await(t.Context()))
	proxy.Refuse()
	stop()
	pending, err := r.rdb.XPendingExt(t.Context(), &redis.XPendingExtArgs{Stream: r.stream, Group: "shop", Start: "-", End: "+", Count: 1000}).Result()
	require.NoError(t, err)
	require.Len(t, pending, 100)
	assert.Zero(t, pending[0].RetryCount, "given back: its delivery does not count")
	assert.GreaterOrEqual(t, pending[0].Idle, r.spec().Idle, "other consumers can take the messages at once")
	trap.Disarm()
	proxy.Heal()
	r.start(r.open(c, r.spec(), otherType(testConfig())))
	r.waitSettled("shop")
	r.requireBooks(100, 0)
}

func otherType(cfg Config) Config {
	cfg.Type += "_2"
	return cfg
}

// Failure: F96
func TestDatabaseThatIsReadOnlyIsWaitedFor(t *testing.T) {
	t.Parallel()
	server := testservers.NewSQL(t)
	user := harness.WorldAt(t, server.Database(t))
	user.WithRedis()
	r := &rig{World: user, rdb: user.Redis, stream: user.Name + ":orders"}
	ordinary := ordinaryUser(t, user)
	quick := r.QuickConfig()
	quick.DB = ordinary
	c := r.New(quick)
	waiting := make(chan WaitingEvent, 100)
	cfg := testConfig()
	cfg.Batch = 50
	cfg.Observer.Waiting = func(e WaitingEvent) {
		select {
		case waiting <- e:
		default:
		}
	}
	in := r.open(c, r.spec(), cfg)
	r.start(in)
	r.add(1, 100)
	r.waitSettled("shop")
	r.Exec("SET GLOBAL read_only=1")
	r.add(101, 100)
	for range 2 * failuresUntilSuspect {
		e := harness.Receive(t, waiting)
		require.ErrorContains(t, e.Err, "read-only")
	}
	stats, err := in.Stats(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 100, stats.Pending+stats.Lag)
	assert.LessOrEqual(t, stats.Pending, int64(50), "one batch is held, and no other is taken")
	require.Error(t, in.Err())
	r.Exec("SET GLOBAL read_only=0")
	r.waitSettled("shop")
	r.requireBooks(200, 0)
	r.Eventually(func() bool { return in.Err() == nil }, "the Intake works again")
}

// read_only applies to an ordinary user, but not to root.
func ordinaryUser(t *testing.T, w *harness.World) *sql.DB {
	t.Helper()
	w.Exec("CREATE USER intake@'%' IDENTIFIED BY 'secret'")
	w.Exec("GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON *.* TO intake@'%'")
	config, err := mysql.ParseDSN(w.DSN)
	require.NoError(t, err)
	config.User, config.Passwd = "intake", "secret"
	return w.Open(harness.WatchedPool(config.FormatDSN()))
}

// Failure: F99
func TestProcessesThatDieDuringAnOutageCountNoMessageOut(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proxy, _ := r.OpenProxied(false)
	r.add(1, 1)
	r.given("dead", 1)
	p := program{DSN: harness.ThroughProxy(t, r.DSN, proxy), Redis: r.Redis.Options().Addr, Stream: r.stream, Gate: r.stream + ":gate"}
	for range 7 {
		kill, _ := r.child(p)
		r.Eventually(func() bool { return r.rdb.Exists(t.Context(), p.Gate).Val() == 1 }, "it is open")
		trap := proxy.Arm(faultproxy.Rule{Match: faultproxy.Contains("INSERT INTO `", "`common_process_log`"), Fault: faultproxy.DropRequest})
		require.NoError(t, r.rdb.Del(t.Context(), p.Gate).Err())
		r.Eventually(func() bool { return trap.Fired() >= 2 }, "it tries")
		kill()
		trap.Disarm()
	}
	p.Gate = ""
	r.child(p)
	r.waitSettled("shop")
	r.requireBooks(1, 0)
}

// A message that breaks the connection looks like an outage.
// Failure: F98, F101
func TestMessageThatBreaksTheConnectionIsSetAside(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proxy, db := r.OpenProxied(true)
	quick := r.QuickConfig()
	quick.DB = db
	proxy.Arm(faultproxy.Rule{Match: faultproxy.Contains("'order 7'"), Fault: faultproxy.DropRequest})
	quick.MaxContent = 2000
	cfg := testConfig()
	cfg.Work = func(ctx context.Context, tx *compensator.ScopedTx, batch []*Message) error {
		for _, m := range batch {
			if _, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO effects (what) VALUES ('order %d')", m.Value.(order).N)); err != nil {
				return err
			}
		}
		return nil
	}
	r.add(1, 6)
	r.addRaw("order", `{"n":7}`, "note", strings.Repeat("<", 1000)) // A "<" takes six bytes in JSON.
	r.add(8, 1)
	r.start(r.open(r.New(quick), r.spec(), cfg))
	r.waitSettled("shop")
	r.requireBooks(7, 1)
}

// Failure: F98
func TestConnectionThatBreaksUnderWorkIsNoMessagesFault(t *testing.T) {
	t.Parallel()
	breaksUnderWork(t, func(broken error) error { return broken })
}

func breaksUnderWork(t *testing.T, wrap func(err error) error) {
	r := newRig(t)
	cfg := testConfig()
	var broken atomic.Bool
	cfg.Work = func(ctx context.Context, tx *compensator.ScopedTx, batch []*Message) error {
		if !broken.Swap(true) {
			_, err := tx.ExecContext(ctx, "KILL CONNECTION_ID()")
			return wrap(err)
		}
		return effects(ctx, tx, batch)
	}
	r.add(1, 1)
	r.start(r.open(r.New(r.QuickConfig()), r.spec(), cfg))
	r.waitSettled("shop")
	r.requireBooks(1, 0)
}

// Failure: F98
func TestErrorOfAnotherLogIsOfItsMessage(t *testing.T) {
	t.Parallel()
	for name, theirs := range map[string]error{"closed": compensator.ErrClosed, "in doubt": compensator.ErrCommitUnknown} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			cfg := testConfig()
			cfg.Work = failing(func(m *Message) error {
				if m.Value.(order).N == 5 {
					return fmt.Errorf("their log: %w", theirs)
				}
				return nil
			})
			r.add(1, 9)
			r.start(r.open(r.New(r.QuickConfig()), r.spec(), cfg))
			r.waitSettled("shop")
			r.requireBooks(8, 1)
		})
		t.Run(name+", and ours broken", func(t *testing.T) {
			t.Parallel()
			breaksUnderWork(t, func(broken error) error { return errors.Join(broken, theirs) })
		})
	}
}

// Failure: F100
func TestGroupThatVanishesIsMadeAgain(t *testing.T) {
	t.Parallel()
	server := testservers.NewRedis(t)
	r := newRig(t)
	r.withRedis(harness.RedisClient(t, server))
	c := r.New(r.QuickConfig())
	r.start(r.open(c, r.spec(), testConfig()))
	r.add(1, 100)
	r.waitSettled("shop")
	require.NoError(t, r.rdb.XGroupDestroy(t.Context(), r.stream, "shop").Err())
	r.add(101, 100)
	r.waitSettled("shop")
	r.requireBooks(200, 0)
	require.NoError(t, r.rdb.FlushAll(t.Context()).Err())
	r.add(201, 100)
	r.waitSettled("shop")
	r.requireBooks(300, 0)
	require.NoError(t, r.rdb.Del(t.Context(), r.stream).Err())
	require.NoError(t, r.rdb.Set(t.Context(), r.stream, "no stream", 0).Err())
	require.NoError(t, r.rdb.Del(t.Context(), r.stream).Err())
	r.add(301, 100)
	r.waitSettled("shop")
	r.requireBooks(400, 0)
}

// Failure: F96
func TestRedisThatIsKilledIsWaitedFor(t *testing.T) {
	t.Parallel()
	server := testservers.NewRedis(t, "--appendonly", "yes", "--appendfsync", "always")
	r := newRig(t)
	r.withRedis(harness.RedisClient(t, server))
	c := r.New(r.QuickConfig())
	cfg := testConfig()
	cfg.Batch = 50
	var batches atomic.Int64
	held, goOn := make(chan struct{}), make(chan struct{})
	cfg.Work = func(ctx context.Context, tx *compensator.ScopedTx, batch []*Message) error {
		if batches.Add(1) == 3 {
			close(held)
			<-goOn
		}
		return effects(ctx, tx, batch)
	}
	in := r.open(c, r.spec(), cfg)
	r.add(1, 1000)
	r.start(in)
	r.Wait(held, "in mid-flow")
	server.Kill()
	close(goOn)
	r.Eventually(func() bool { err := in.Err(); return err != nil }, "Err reports that Redis is unreachable")
	server.Restart(t)
	r.waitSettled("shop")
	r.requireBooks(1000, 0)
}

func TestStreamThatMovesWithinAClusterIsFollowed(t *testing.T) {
	t.Parallel()
	cluster := testservers.NewRedisCluster(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	r := newRig(t).withRedis(client)
	cfg := testConfig()
	cfg.Batch = 10
	var moved sync.Once
	cfg.Work = failing(func(m *Message) error {
		if m.Value.(order).N >= 100 {
			moved.Do(func() { cluster.Move(t, r.stream) })
		}
		if m.Value.(order).N%50 == 0 {
			return errTest
		}
		return nil
	})
	in := r.open(r.New(r.QuickConfig()), r.spec(), cfg)
	r.add(1, 200)
	r.start(in)
	r.waitSettled("shop")
	r.requireBooks(196, 4)
	cluster.Move(t, r.stream)
	r.add(201, 49)
	r.waitSettled("shop")
	r.requireBooks(245, 4)
}

// Failure: F96
func TestAcknowledgementThatIsRefusedIsMadeUpFor(t *testing.T) {
	t.Parallel()
	server := testservers.NewRedis(t)
	r := newRig(t)
	r.withRedis(harness.RedisClient(t, server))
	rights := func(xack string) {
		require.NoError(t, r.rdb.Do(t.Context(), "ACL", "SETUSER", "intake", "on", "nopass", "~*", "+@all", xack).Err())
	}
	rights("-xack")
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "intake", Password: "any"})
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	spec := r.spec()
	spec.Redis = client
	in := r.open(r.New(r.QuickConfig()), spec, testConfig())
	r.add(1, 20)
	r.start(in)
	r.Eventually(func() bool { return r.pendingDeliveries(t) > int64(testConfig().withDefaults().MaxDeliveries)+1 }, "the messages are delivered too often")
	rights("+xack")
	r.waitSettled("shop")
	r.requireBooks(20, 0)
}

// Failure: F101
func TestMessageThatCannotBeEncodedIsHeld(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg := testConfig()
	codec := &lockedCodec{Codec: compensator.JSON, left: failuresUntilSuspect + 3}
	cfg.Aside.Codec = codec
	cfg.Observer.Settled = func(SettledEvent) { panic("a bug") }
	in := r.open(r.New(r.QuickConfig()), r.spec(), cfg)
	r.add(1, 10)
	poison := r.addRaw("order", "poison")
	r.start(in)
	r.waitSettled("shop")
	r.requireBooks(10, 1)
	var content string
	require.NoError(t, r.DB.QueryRow("SELECT content FROM common_process_log WHERE business_type='order_aside'").Scan(&content))
	assert.Contains(t, content, poison)
	assert.Contains(t, content, "poison")
}

type lockedCodec struct {
	compensator.Codec
	left int
}

func (k *lockedCodec) Marshal(v any) ([]byte, error) {
	if k.left--; k.left > 0 {
		return nil, errTest
	}
	return k.Codec.Marshal(v)
}

// mute is an error whose method Error panics, as a nil pointer in an error does.
type mute struct{}

func (*mute) Error() string { panic("nothing to say") }

// Failure: F92, F101
func TestScheduleOrErrorThatPanicsEndsNoProcess(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg := testConfig()
	cfg.Entry = func(m *Message) (compensator.NewEntry, error) {
		entry, err := decode(m)
		if m.Value.(order).N == 1 {
			err = new(mute)
		}
		return entry, err
	}
	cfg.Work = failing(func(m *Message) error {
		switch m.Value.(order).N {
		case 2:
			return new(mute)
		case 3:
			return compensator.Permanent(new(mute))
		case 4:
			return Fault(m, new(mute))
		case 5:
			return errTest
		case 7:
			runtime.Goexit()
		}
		return nil
	})
	cfg.Aside.Retry = func(int) time.Duration { panic("a bug") }
	in := r.open(r.New(r.QuickConfig()), r.spec(), cfg)
	r.add(1, 7)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() { assert.Nil(t, recover(), "Run panics") }()
		assert.NoError(t, in.Run(ctx))
	}()
	defer func() { cancel(); <-ended }()
	r.waitSettled("shop")
	r.requireBooks(1, 6)
	stats, err := in.Stats(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []int64{2, 4}, []int64{stats.SetAside, stats.Failed}, "Permanent around one is Permanent")
}

// Failure: F101
func TestScheduleLongerThanTheLogKeepsIsCut(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg := testConfig()
	cfg.Aside.Retry = compensator.Fixed(2 * processlog.MaxDelay)
	cfg.Work = func(context.Context, *compensator.ScopedTx, []*Message) error { return errTest }
	r.add(1, 1)
	r.start(r.open(r.New(r.QuickConfig()), r.spec(), cfg))
	r.waitSettled("shop")
	r.requireBooks(0, 1)
}

// Failure: F97
func TestTwoConsumersOfOneMessageRecordItOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.New(r.QuickConfig())
	cfg := testConfig()
	held, goOn := make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	cfg.Work = func(ctx context.Context, tx *compensator.ScopedTx, batch []*Message) error {
		if !first.Swap(true) {
			close(held)
			<-goOn
		}
		return effects(ctx, tx, batch)
	}
	r.add(1, 20)
	r.start(r.open(c, r.spec(), cfg))
	r.Wait(held, "the first has them")
	all, err := r.rdb.XRange(t.Context(), r.stream, "-", "+").Result()
	require.NoError(t, err)
	for _, m := range all {
		r.age("second", m.ID, 1)
	}
	spec := r.spec()
	spec.Consumer = "second"
	second := r.open(c, spec, otherType(cfg))
	r.start(second)
	r.Eventually(func() bool { return r.pendingDeliveries(t) >= 2 }, "the second has them too")
	close(goOn)
	r.waitSettled("shop")
	r.requireBooks(20, 0)
	r.Eventually(func() bool { s, err := second.Stats(t.Context()); return err == nil && s.Duplicates == 20 }, "the second finds them in the log")
}

func (r *rig) pendingDeliveries(t *testing.T) int64 {
	pending, err := r.rdb.XPendingExt(t.Context(), &redis.XPendingExtArgs{Stream: r.stream, Group: "shop", Start: "-", End: "+", Count: 1}).Result()
	if err != nil || len(pending) == 0 {
		return 0
	}
	return pending[0].RetryCount
}

// Failure: F101
func TestMessageTooLargeForTheLogIsToldAndInNobodysWay(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	quick := r.QuickConfig()
	quick.MaxContent = 1000
	c := r.New(quick)
	r.add(1, 10)
	large := r.addRaw("order", fmt.Sprintf(`{"n":11,"note":"%01000d"}`, 0))
	r.add(12, 10)
	in := r.open(c, r.spec(), testConfig())
	r.start(in)
	r.Eventually(func() bool { return r.Count("effects") == 20 }, "the other messages are processed")
	r.Eventually(func() bool {
		pending, err := r.rdb.XPending(t.Context(), r.stream, "shop").Result()
		return err == nil && pending.Count == 1 && pending.Lower == large
	}, "only this message is not acknowledged")
	r.add(22, 10)
	r.Eventually(func() bool { return r.Count("effects") == 30 }, "other messages are processed")
	stats, err := in.Stats(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 1, stats.Refused)
}

type pickyCodec struct{ compensator.Codec }

func (c pickyCodec) Marshal(v any) ([]byte, error) {
	if m, ok := v.(Message); ok && strings.Contains(fmt.Sprint(m.Fields), "refused") {
		return nil, errTest
	}
	return c.Codec.Marshal(v)
}

// A trigger refuses each row with the content, or the codec cannot encode the message.
// Failure: F101
func TestMessageWhoseRowIsRefusedIsInNobodysWay(t *testing.T) {
	t.Parallel()
	for name, try := range map[string]struct {
		content string
		codec   compensator.Codec
	}{
		"a trigger refuses its row":      {`{"n":11,"note":"refused"}`, nil},
		"the codec cannot encode it":     {`refused`, pickyCodec{compensator.JSON}},
		"a trigger refuses it set aside": {`refused`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			if try.codec == nil {
				r.Exec("CREATE TRIGGER refuses BEFORE INSERT ON common_process_log FOR EACH ROW " +
					"BEGIN IF NEW.content LIKE '%refused%' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT='not this one'; END IF; END")
			}
			cfg := testConfig()
			cfg.Aside.Codec = try.codec
			r.add(1, 10)
			refused := r.addRaw("order", try.content)
			r.add(12, 10)
			in := r.open(r.New(r.QuickConfig()), r.spec(), cfg)
			r.start(in)
			r.Eventually(func() bool { return r.Count("effects") == 20 }, "the other messages are processed")
			r.Eventually(func() bool {
				pending, err := r.rdb.XPending(t.Context(), r.stream, "shop").Result()
				return err == nil && pending.Count == 1 && pending.Lower == refused
			}, "only this message is not acknowledged")
			r.add(22, 10)
			r.Eventually(func() bool { return r.Count("effects") == 30 }, "other messages are processed")
			stats, err := in.Stats(t.Context())
			require.NoError(t, err)
			assert.EqualValues(t, 1, stats.Refused)
		})
	}
}

// The messages consist of characters that take six bytes in JSON, and the error text may contain the whole message
// once more.
// Failure: F101
func TestMessageOfHalfMaxContentIsSetAsideWhateverIsInIt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	quick := r.QuickConfig()
	quick.MaxContent = 32 << 10
	c := r.New(quick)
	cfg := testConfig()
	cfg.Entry = func(m *Message) (compensator.NewEntry, error) {
		return compensator.NewEntry{}, fmt.Errorf("no order: %q", m.Fields["order"])
	}
	in := r.open(c, r.spec(), cfg)
	texts := make(map[string]string)
	for _, piece := range []string{"x", "<a>&</a>", `"`, "\x01", "\xff", "é"} {
		text := strings.Repeat(piece, 16<<10/len(piece))
		texts[r.addRaw("order", text)] = text
	}
	r.start(in)
	r.waitSettled("shop")
	for id, text := range texts {
		e, err := c.Get(t.Context(), in.IdempotencyKey(&Message{ID: id}))
		require.NoError(t, err)
		m, err := MessageOf(e)
		require.NoError(t, err)
		assert.Equal(t, map[string]string{"order": text}, m.Fields)
		assert.Contains(t, m.SetAside, "no order")
	}
}

// Failure: F100
func TestIDsThatComeAgainWithOtherContentAreSetAside(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.New(r.QuickConfig())
	_, err := compensator.Declare[order](t.Context(), c, "take_order", &compensator.TypeConfig{RefuseOtherContent: true})
	require.NoError(t, err)
	in := r.open(c, r.spec(), testConfig())
	add := func(text string) {
		require.NoError(t, r.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: r.stream, ID: "1-1", Values: []string{"order", text}}).Err())
	}
	add(`{"n":1}`)
	r.start(in)
	r.waitSettled("shop")
	require.NoError(t, r.rdb.Del(t.Context(), r.stream).Err())
	add(`{"n":2}`)
	r.waitSettled("shop")
	r.requireBooks(1, 1)
	assert.Equal(t, 1, r.Count("effects WHERE what='order 1'"))
}

// TestConditionOfAServerThatWorkMeetsIsNoMessagesFault makes a server refuse all requests for a while, so Work fails.
// No message may be set aside because of that, however often the batch is tried. A message that itself causes a failure
// must still be set aside.
func TestConditionOfAServerThatWorkMeetsIsNoMessagesFault(t *testing.T) {
	t.Parallel()
	for _, answer := range []mysql.MySQLError{
		{Number: 1461, Message: "Can't create more than max_prepared_stmt_count statements"},
		{Number: 1040, Message: "Too many connections"},
		{Number: 1114, Message: "The table 'ledger' is full"},
		{Number: 3, Message: "Error writing file '/tmp/MLfd=25' (OS errno 28 - No space left on device)"},
	} {
		for _, messages := range []int{1, 20} {
			t.Run(fmt.Sprintf("%d, %d messages", answer.Number, messages), func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				var down atomic.Bool
				down.Store(true)
				waiting := make(chan WaitingEvent, 100)
				cfg := testConfig()
				cfg.Observer.Waiting = func(e WaitingEvent) {
					select {
					case waiting <- e:
					default:
					}
				}
				cfg.Work = failing(func(m *Message) error {
					switch n := m.Value.(order).N; {
					case down.Load():
						return Fault(m, fmt.Errorf("post: %w", errors.Join(errors.New("ledger"), &answer)))
					case n == 7:
						return errTest
					}
					return nil
				})
				in := r.open(r.New(r.QuickConfig()), r.spec(), cfg)
				r.add(1, messages)
				r.start(in)
				for range 2*failuresUntilSuspect + 2 { // After so many tries, a single message would be suspected.
					require.ErrorContains(t, harness.Receive(t, waiting).Err, answer.Message)
				}
				require.Error(t, in.Err())
				require.Zero(t, r.Count("common_process_log"))
				down.Store(false)
				r.waitSettled("shop")
				aside := 0
				if messages >= 7 {
					aside = 1
				}
				r.requireBooks(messages-aside, aside)
			})
		}
	}
}

// Work returns a verdict, such as Permanent, that wraps an error of a server. The Intake must obey the verdict and not
// treat the error as an outage.
func TestMessageWhoseWorkGivesAVerdictOfItsOwnIsSetAside(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg := testConfig()
	cfg.Work = failing(func(m *Message) error {
		full := &mysql.MySQLError{Number: 1114, Message: "The table 'ledger' is full"}
		switch m.Value.(order).N {
		case 3:
			return compensator.Unavailable(full)
		case 5:
			return compensator.Permanent(full)
		}
		return nil
	})
	r.add(1, 8)
	r.start(r.open(r.New(r.QuickConfig()), r.spec(), cfg))
	r.waitSettled("shop")
	r.requireBooks(6, 2)
}
