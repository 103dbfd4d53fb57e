package intake

import (
	"context"
	_ "embed"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/compensator-go/compensator/internal/failpoint"
)

// aloneFrom is a number of deliveries. A message that was delivered so often without success may have crashed its
// process, and is therefore claimed in a batch of its own. So if it crashes its process again, the other messages have
// no more deliveries than before.
const aloneFrom = 2

func (g *group) leftByMe(ctx context.Context, max int64) ([]Message, error) {
	for {
		start := "-"
		if g.lastID != "" {
			start = "(" + g.lastID
		}
		found, err := g.Redis.XPendingExt(ctx, &redis.XPendingExtArgs{
			Stream: g.Stream.Stream, Group: g.Group, Consumer: g.Consumer, Start: start, End: "+", Count: max,
		}).Result()
		if err != nil || len(found) == 0 {
			return nil, err
		}
		chosen := claimableIDs(found)
		g.lastID = chosen[len(chosen)-1].ID
		if messages, err := g.claimMessages(ctx, chosen, 0); err != nil || len(messages) > 0 {
			return messages, err
		}
	}
}

// leftByOthers does not use XAUTOCLAIM, which counts a delivery for all messages that it finds and does not return the
// counts.
func (g *group) leftByOthers(ctx context.Context, max int64) ([]Message, error) {
	for {
		found, err := g.Redis.XPendingExt(ctx, &redis.XPendingExtArgs{
			Stream: g.Stream.Stream, Group: g.Group, Idle: g.Idle, Start: "-", End: "+", Count: max,
		}).Result()
		if err != nil || len(found) == 0 {
			return nil, err
		}
		if messages, err := g.claimMessages(ctx, claimableIDs(found), g.Idle); err != nil || len(messages) > 0 {
			return messages, err
		}
	}
}

// claimableIDs returns the messages at the beginning of the list found that this consumer claims together. A message
// with aloneFrom or more deliveries is claimed alone. If the list begins with such a message, the result has only this
// message. Otherwise the result has the messages before the first such message.
func claimableIDs(found []redis.XPendingExt) []redis.XPendingExt {
	for i := range found {
		if found[i].RetryCount >= aloneFrom {
			return found[:max(i, 1)]
		}
	}
	return found
}

// claimMessages returns fewer messages if other consumers were faster.
func (g *group) claimMessages(ctx context.Context, chosen []redis.XPendingExt, idle time.Duration) ([]Message, error) {
	args := &redis.XClaimArgs{Stream: g.Stream.Stream, Group: g.Group, Consumer: g.Consumer, MinIdle: idle}
	for i := range chosen {
		args.Messages = append(args.Messages, chosen[i].ID)
	}
	claimed, err := g.Redis.XClaim(ctx, args).Result()
	if err != nil {
		return nil, err
	}
	failpoint.Reach(failpoint.MessagesClaimed)
	byID := make(map[string]*redis.XMessage, len(claimed))
	for i := range claimed {
		byID[claimed[i].ID] = &claimed[i]
	}
	var messages []Message
	for i := range chosen {
		p := &chosen[i]
		if m := byID[p.ID]; m != nil {
			messages = append(messages, newMessage(m, p.RetryCount+1))
			continue
		}
		exists, err := g.Redis.XRangeN(ctx, g.Stream.Stream, p.ID, p.ID, 1).Result()
		if err != nil {
			return messages, err
		}
		if len(exists) == 0 {
			messages = append(messages, Message{ID: p.ID, Deliveries: int(p.RetryCount), Lost: true})
		}
	}
	return messages, nil
}

// release gives messages back that this process has not settled. It sets their idle time to Idle, so that other
// consumers can take the messages at once. It also reduces their number of deliveries by one, as if this process had
// not received them.
func (g *group) release(ctx context.Context, messages []Message) error {
	pipe := g.Redis.Pipeline()
	for i := range messages {
		pipe.Do(ctx, "XCLAIM", g.Stream.Stream, g.Group, g.Consumer, 0, messages[i].ID,
			"IDLE", g.Idle.Milliseconds(), "RETRYCOUNT", max(messages[i].Deliveries-1, 0), "JUSTID")
	}
	_, err := pipe.Exec(ctx)
	g.recheckPending()
	return err
}

// A consumer that has no pending message, and that was silent for goneAfter times Idle, is removed from the group.
const goneAfter = 10

var (
	//go:embed lua/forget.lua
	forgetSource       string
	deleteIdleConsumer = redis.NewScript(forgetSource)

	//go:embed lua/trim.lua
	trimSource string
	trim       = redis.NewScript(trimSource)
)

// tidy removes consumers that are gone, and trims the stream. It returns no error, because the group can read messages
// all the same. It logs when the cleanup begins to fail, and when the cleanup works again.
func (g *group) tidy(ctx context.Context) {
	err := g.forgetGone(ctx)
	if err == nil && g.Trim {
		err = trim.Run(ctx, g.Redis, []string{g.Stream.Stream}).Err()
	}
	if (err == nil) == g.cleanupFailed {
		g.cleanupFailed = err != nil
		g.log.Warn("intake: cleanup of the stream fails or works again", "stream", g.Stream.Stream, "err", err)
	}
}

func (g *group) forgetGone(ctx context.Context) error {
	consumers, err := g.Redis.XInfoConsumers(ctx, g.Stream.Stream, g.Group).Result()
	for i := range consumers {
		consumer := &consumers[i]
		if consumer.Name != g.Consumer && consumer.Pending == 0 && consumer.Idle >= goneAfter*g.Idle {
			err = errors.Join(err, g.deleteConsumer(ctx, consumer.Name))
		}
	}
	return err
}

// deleteConsumer first checks for pending messages, because XGROUP DELCONSUMER would delete them.
func (g *group) deleteConsumer(ctx context.Context, consumer string) error {
	return deleteIdleConsumer.Run(ctx, g.Redis, []string{g.Stream.Stream}, g.Group, consumer).Err()
}

// leaveGroup removes this consumer from the group if its name was generated. No other process uses a generated name, so
// the group needs this consumer no longer.
func (g *group) leaveGroup(ctx context.Context) error {
	g.isCreated, g.lastTakeover = false, time.Time{}
	g.recheckPending()
	if !g.nameDrawn {
		return nil
	}
	return g.deleteConsumer(ctx, g.Consumer)
}
