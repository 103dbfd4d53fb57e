package intake

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// group is the Source of a stream. One goroutine calls all methods except Measure, which is safe for concurrent use.
type group struct {
	Stream
	nameDrawn bool // the consumer's name is generated and unique
	log       *slog.Logger

	isCreated     bool      // the group exists, as far as this process knows
	isOwn         bool      // whether this consumer may have pending messages of its own
	lastID        string    // id up to which this consumer's pending messages have been checked
	lastTakeover  time.Time // time of the last search in which no other consumer had messages to take over
	cleanupFailed bool
}

var (
	_ Source   = (*group)(nil)
	_ Measurer = (*group)(nil)
	_ releaser = (*group)(nil)
	_ leaver   = (*group)(nil)
)

// Name returns server:stream:group, or stream:group without a server. It escapes each ":" inside these three names. So
// two groups have the same Name only if all three names are the same.
func (g *group) Name() string {
	name := separated.Replace(g.Stream.Stream) + ":" + separated.Replace(g.Group)
	if g.Server != "" {
		name = separated.Replace(g.Server) + ":" + name
	}
	return name
}

// Next returns the pending messages of this consumer first. Then it returns pending messages of silent consumers, and
// then new messages.
func (g *group) Next(ctx context.Context, max int) ([]Message, error) {
	if err := g.make(ctx); err != nil {
		return nil, err
	}
	messages, err := g.nextMessages(ctx, int64(max))
	if err != nil {
		g.recheckPending()
	}
	if err != nil && strings.HasPrefix(err.Error(), "NOGROUP") {
		g.log.Warn("intake: the consumer group does not exist and is created again", "stream", g.Stream.Stream, "group", g.Group)
		g.isCreated, err = false, nil
	}
	return messages, err
}

func (g *group) nextMessages(ctx context.Context, max int64) ([]Message, error) {
	if g.isOwn {
		if left, err := g.leftByMe(ctx, max); err != nil || len(left) > 0 {
			return left, err
		}
		g.isOwn = false
	}
	if g.lastTakeover.IsZero() || time.Since(g.lastTakeover) >= g.Idle/4 {
		if left, err := g.leftByOthers(ctx, max); err != nil || len(left) > 0 {
			return left, err
		}
		g.lastTakeover = time.Now()
		g.tidy(ctx)
	}
	return g.readMessages(ctx, max)
}

// recheckPending is called after an error, because Redis may have assigned messages to this consumer.
func (g *group) recheckPending() { g.isOwn, g.lastID = true, "" }

// The method make creates the group if it does not exist, also if Redis has lost it. After a loss, Redis delivers
// acknowledged messages again. The Intake then finds the entries of these messages in the log.
func (g *group) make(ctx context.Context) error {
	if g.isCreated {
		return nil
	}
	err := g.Redis.XGroupCreateMkStream(ctx, g.Stream.Stream, g.Group, "0").Err()
	if err != nil && !strings.HasPrefix(err.Error(), "BUSYGROUP") {
		return fmt.Errorf("create group %s: %w", g.Group, err)
	}
	g.isCreated = true
	return nil
}

func (g *group) readMessages(ctx context.Context, max int64) ([]Message, error) {
	streams, err := g.Redis.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: g.Group, Consumer: g.Consumer, Streams: []string{g.Stream.Stream, ">"}, Count: max, Block: g.Block,
	}).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var messages []Message
	for _, s := range streams {
		for i := range s.Messages {
			messages = append(messages, newMessage(&s.Messages[i], 1))
		}
	}
	return messages, nil
}

func newMessage(from *redis.XMessage, deliveries int64) Message {
	fields := make(map[string]string, len(from.Values))
	for name, value := range from.Values {
		fields[name] = fmt.Sprint(value)
	}
	return Message{ID: from.ID, Fields: fields, Deliveries: int(deliveries)}
}

// Ack removes messages from the group's pending list.
func (g *group) Ack(ctx context.Context, messages []Message) error {
	err := g.Redis.XAck(ctx, g.Stream.Stream, g.Group, ids(messages)...).Err()
	if err != nil {
		g.recheckPending()
	}
	return err
}

func ids(messages []Message) []string {
	list := make([]string, len(messages))
	for i := range messages {
		list[i] = messages[i].ID
	}
	return list
}

// Measure returns how many messages the group has not received, and how many it has not acknowledged.
func (g *group) Measure(ctx context.Context) (Backlog, error) {
	pipe := g.Redis.Pipeline()
	stream, groups := pipe.XInfoStream(ctx, g.Stream.Stream), pipe.XInfoGroups(ctx, g.Stream.Stream)
	pending, now := pipe.XPending(ctx, g.Stream.Stream, g.Group), pipe.Time(ctx)
	if _, err := pipe.Exec(ctx); err != nil {
		return Backlog{}, err
	}
	b := Backlog{Lag: -1, Pending: pending.Val().Count}
	for _, info := range groups.Val() {
		// go-redis returns 0 for an unknown lag too.
		if info.Name == g.Group && (info.Lag > 0 || info.LastDeliveredID == stream.Val().LastGeneratedID || stream.Val().Length == 0) {
			b.Lag = info.Lag
		}
	}
	if b.Pending > 0 {
		ms, _, _ := strings.Cut(pending.Val().Lower, "-")
		since, _ := strconv.ParseInt(ms, 10, 64) // The id begins with the time at which the message was added. Redis keeps this time nowhere else.
		b.OldestPending = max(now.Val().Sub(time.UnixMilli(since)), 1)
	}
	return b, nil
}
