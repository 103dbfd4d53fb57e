//go:build failpoints

package crashmatrix

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/intake"
)

const (
	good     = "good"
	failing  = "failing"  // fails until the entry in the log is retried
	hopeless = "hopeless" // fails permanently, with an error that identifies the message
	poison   = "poison"   // cannot be turned into an entry
)

const (
	aside    = "aside"
	takers   = "takers"
	taker    = "taker"
	gone     = "gone"
	perBatch = 4
)

func (p place) stream() string { return p.Prefix + ":messages" }

// MaxDeliveries is high, because each kill counts as a delivery of the messages in progress.
func openIntake(p *process, at place) (*intake.Intake, error) {
	stream := intake.Stream{Redis: p.redis, Stream: at.stream(), Group: takers, Block: 20 * time.Millisecond, Idle: 2 * time.Second, Trim: true}
	if at.Named {
		stream.Consumer = taker
	}
	return stream.Open(context.Background(), p.Compensator, intake.Config{
		Type: aside, Entry: entryOf, Work: writeTaken, Batch: perBatch, Timeout: time.Second, MaxDeliveries: 1000, Logger: slog.New(slog.DiscardHandler),
		Aside: compensator.HandlerConfig[intake.Message]{Retry: compensator.Fixed(retryAfter)},
	})
}

func entryOf(m *intake.Message) (compensator.NewEntry, error) {
	if m.Fields["says"] == poison {
		return compensator.NewEntry{}, errors.New("poison")
	}
	return compensator.NewEntry{BusinessType: ship, Content: []byte("{}")}, nil
}

func writeTaken(ctx context.Context, tx *compensator.ScopedTx, batch []*intake.Message) error {
	for _, m := range batch {
		if _, err := tx.ExecContext(ctx, "INSERT INTO taken (message) VALUES (?)", m.ID); err != nil {
			return err
		}
		switch {
		case m.Fields["says"] == failing && m.Entry == nil:
			return errors.New("not yet")
		case m.Fields["says"] == hopeless:
			return intake.Fault(m, compensator.Permanent(errors.New("not like this")))
		}
	}
	return nil
}

// One and a half of the four batches are already pending for a consumer that no longer exists.
func (w *world) send(victim int) {
	w.t.Helper()
	if w.sent == nil {
		w.sent = make(map[string]string)
		require.NoError(w.t, w.redis.XGroupCreateMkStream(w.t.Context(), w.place.stream(), takers, "0").Err())
	}
	w.place.Named = victim%2 == 1
	says := slices.Repeat([]string{good}, 4*perBatch)
	says[1], says[7], says[9], says[12] = poison, failing, hopeless, failing
	for _, what := range says {
		id, err := w.redis.XAdd(w.t.Context(), &redis.XAddArgs{Stream: w.place.stream(), Values: []string{"says", what}}).Result()
		require.NoError(w.t, err)
		w.sent[id] = what
	}
	require.NoError(w.t, w.redis.XReadGroup(w.t.Context(), &redis.XReadGroupArgs{
		Group: takers, Consumer: gone, Streams: []string{w.place.stream(), ">"}, Count: perBatch * 3 / 2, Block: -1}).Err())
}

func (w *world) agePending() {
	w.t.Helper()
	for _, p := range w.pending() {
		require.NoError(w.t, w.redis.Do(w.t.Context(), "XCLAIM", w.place.stream(), takers, p.Consumer, 0, p.ID,
			"IDLE", time.Hour.Milliseconds(), "JUSTID").Err())
	}
}

func (w *world) pending() []redis.XPendingExt {
	w.t.Helper()
	pending, err := w.redis.XPendingExt(w.t.Context(), &redis.XPendingExtArgs{
		Stream: w.place.stream(), Group: takers, Start: "-", End: "+", Count: 100_000}).Result()
	require.NoError(w.t, err)
	return pending
}

func (w *world) awaitIntake() {
	w.t.Helper()
	length := func() int64 { return w.redis.XLen(w.t.Context(), w.place.stream()).Val() }
	w.eventually(func() bool { return length() == 0 && len(w.pending()) == 0 }, func() string {
		return "some messages are still in the stream or pending"
	})
}

func (w *world) checkMessages() {
	w.t.Helper()
	type entry struct {
		kind  string
		state compensator.State
	}
	entries, rows := make(map[string]entry), make(map[string]int)
	w.each("SELECT idempotent_id, business_type, state FROM common_process_log", func(scan func(...any)) {
		var id string
		var e entry
		scan(&id, &e.kind, &e.state)
		entries[id] = e
	})
	w.each("SELECT message FROM taken", func(scan func(...any)) {
		var id string
		scan(&id)
		rows[id]++
	})
	worked, apart := 0, 0
	for id, says := range w.sent {
		e, found := entries[string(w.healthy.intake.IdempotencyKey(&intake.Message{ID: id}))]
		assert.True(w.t, found, "%s message %s has no entry", says, id)
		if e.kind == aside { // If the machine stalls, a good message may be set aside, too.
			apart++
		}
		if says == poison || says == hopeless {
			assert.Equal(w.t, compensator.Dead, e.state, "%s message %s", says, id)
			continue
		}
		worked++
		assert.Equal(w.t, compensator.Succeeded, e.state, "%s message %s", says, id)
		assert.Equal(w.t, 1, rows[id], "rows of %s message %s", says, id)
	}
	assert.Equal(w.t, worked, w.count("taken"), "rows")
	assert.Equal(w.t, worked, w.count("common_process_log WHERE business_type=?", ship), "entries made from messages")
	assert.Equal(w.t, apart, w.count("common_process_log WHERE business_type=?", aside), "entries of messages set aside")
	w.t.Logf("%d messages, %d of them set aside", len(w.sent), apart)
}
