package intake

import (
	"context"
	_ "embed"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/compensator-go/compensator/internal/failpoint"
)

// aloneFrom is how many deliveries in vain make a message suspect: it is taken alone, so that if it ends its process, the
// delivery is counted for no other.
const aloneFrom = 2

// leftByMe takes what this consumer was given and has not acknowledged, each once: under a name that was used before, or
// after an error.
func (g *group) leftByMe(ctx context.Context, max int64) ([]Message, error) {
	for {
		start := "-"
		if g.after != "" {
			start = "(" + g.after
		}
		found, err := g.Redis.XPendingExt(ctx, &redis.XPendingExtArgs{
			Stream: g.Stream.Stream, Group: g.Group, Consumer: g.Consumer, Start: start, End: "+", Count: max,
		}).Result()
		if err != nil || len(found) == 0 {
			return nil, err
		}
		chosen := together(found)
		g.after = chosen[len(chosen)-1].ID
		if messages, err := g.claim(ctx, chosen, 0); err != nil || len(messages) > 0 {
			return messages, err
		}
	}
}

// leftByOthers takes what any consumer has been silent about for Idle. XAUTOCLAIM would count a delivery for all that it
// finds, and not say how many there were.
func (g *group) leftByOthers(ctx context.Context, max int64) ([]Message, error) {
	for {
		found, err := g.Redis.XPendingExt(ctx, &redis.XPendingExtArgs{
			Stream: g.Stream.Stream, Group: g.Group, Idle: g.Idle, Start: "-", End: "+", Count: max,
		}).Result()
		if err != nil || len(found) == 0 {
			return nil, err
		}
		if messages, err := g.claim(ctx, together(found), g.Idle); err != nil || len(messages) > 0 {
			return messages, err
		}
	}
}

// together is the first of those found, and as many after it as may share its fate.
func together(found []redis.XPendingExt) []redis.XPendingExt {
	for i := range found {
		if found[i].RetryCount >= aloneFrom {
			return found[:max(i, 1)]
		}
	}
	return found
}

// claim makes messages this consumer's, and counts their delivery. Others may have been faster.
func (g *group) claim(ctx context.Context, chosen []redis.XPendingExt, idle time.Duration) ([]Message, error) {
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
		there, err := g.Redis.XRangeN(ctx, g.Stream.Stream, p.ID, p.ID, 1).Result()
		if err != nil {
			return messages, err
		}
		if len(there) == 0 { // XCLAIM has struck it off: it was deleted while it was pending
			messages = append(messages, Message{ID: p.ID, Deliveries: int(p.RetryCount), Lost: true})
		}
	}
	return messages, nil
}

// release makes messages look as if this consumer had been silent for Idle, and takes their delivery back.
func (g *group) release(ctx context.Context, messages []Message) error {
	pipe := g.Redis.Pipeline()
	for i := range messages {
		pipe.Do(ctx, "XCLAIM", g.Stream.Stream, g.Group, g.Consumer, 0, messages[i].ID,
			"IDLE", g.Idle.Milliseconds(), "RETRYCOUNT", max(messages[i].Deliveries-1, 0), "JUSTID")
	}
	_, err := pipe.Exec(ctx)
	g.doubt()
	return err
}

// goneAfter is how many times Idle a consumer with nothing pending has not been heard of before it is removed.
const goneAfter = 10

var (
	//go:embed lua/forget.lua
	forgetSource string
	forget       = redis.NewScript(forgetSource)

	//go:embed lua/trim.lua
	trimSource string
	trim       = redis.NewScript(trimSource)
)

// tidy removes consumers that are gone, and messages that all groups are done with. Its errors keep nobody from reading.
func (g *group) tidy(ctx context.Context) {
	err := g.forgetGone(ctx)
	if err == nil && g.Trim {
		err = trim.Run(ctx, g.Redis, []string{g.Stream.Stream}).Err()
	}
	if (err == nil) == g.untidy {
		g.untidy = err != nil
		g.log.Warn("intake: tidying up a stream", "stream", g.Stream.Stream, "err", err)
	}
}

func (g *group) forgetGone(ctx context.Context) error {
	consumers, err := g.Redis.XInfoConsumers(ctx, g.Stream.Stream, g.Group).Result()
	for i := range consumers {
		consumer := &consumers[i]
		if consumer.Name != g.Consumer && consumer.Pending == 0 && consumer.Idle >= goneAfter*g.Idle {
			err = errors.Join(err, g.forget(ctx, consumer.Name))
		}
	}
	return err
}

// forget removes a consumer that has nothing pending at this very moment: with it would go what it has.
func (g *group) forget(ctx context.Context, consumer string) error {
	return forget.Run(ctx, g.Redis, []string{g.Stream.Stream}, g.Group, consumer).Err()
}

// leave takes a name that nobody will have again out of the group.
func (g *group) leave(ctx context.Context) error {
	g.made, g.looked = false, time.Time{}
	g.doubt()
	if !g.drawn {
		return nil
	}
	return g.forget(ctx, g.Consumer)
}
