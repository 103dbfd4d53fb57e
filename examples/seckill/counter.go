package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// counter is the sale as Redis knows it: the stock, who has bought, and the tickets that the database has not confirmed
// yet. It answers those who get nothing, and it may be lost: the database is right, and rebuild.go fills it again.
//
// An edition is one filling. The database takes no ticket of another than its own, so what was taken before a filling
// and comes after it counts nowhere. Every script may be run twice.
type counter struct {
	redis *redis.Client
	name  string
}

var (
	//go:embed lua/take.lua
	takeLua string
	//go:embed lua/giveback.lua
	giveBackLua string
	//go:embed lua/confirm.lua
	confirmLua string
	//go:embed lua/abandoned.lua
	abandonedLua string
	//go:embed lua/load.lua
	loadLua string

	takeScript      = redis.NewScript(takeLua)
	giveBackScript  = redis.NewScript(giveBackLua)
	confirmScript   = redis.NewScript(confirmLua)
	abandonedScript = redis.NewScript(abandonedLua)
	loadScript      = redis.NewScript(loadLua)
)

func (c *counter) keys(goods string) []string {
	tag := "{" + c.name + ":" + goods + "}"
	return []string{tag + ":sale", tag + ":buyers", tag + ":open"}
}

// take takes a piece and writes the edition into the ticket. errSoldOut, errAgain; errStale: Redis knows of no sale.
func (c *counter) take(ctx context.Context, t *ticket) error {
	answer, err := takeScript.Run(ctx, c.redis, c.keys(t.Goods), t.Buyer, t.ID).StringSlice()
	if err != nil {
		return fmt.Errorf("take ticket %s: %w", t.ID, err)
	}
	t.Edition = answer[1]
	switch answer[0] {
	case "again":
		return errAgain
	case "sold out":
		return errSoldOut
	case "no sale":
		return errStale
	}
	return nil
}

// refused: Redis alone has answered, and has taken nothing.
func refused(err error) bool {
	return errors.Is(err, errSoldOut) || errors.Is(err, errAgain) || errors.Is(err, errStale)
}

func (c *counter) giveBack(ctx context.Context, t ticket) error {
	return giveBackScript.Run(ctx, c.redis, c.keys(t.Goods), t.Buyer, t.ID).Err()
}

func (c *counter) confirm(ctx context.Context, t ticket) error {
	return confirmScript.Run(ctx, c.redis, c.keys(t.Goods), t.Buyer, t.ID).Err()
}

// atOnce bounds the tickets that one look finds.
const atOnce = 500

// abandoned are tickets that were taken longer than age ago, and neither confirmed nor given back.
func (c *counter) abandoned(ctx context.Context, goods string, age time.Duration) ([]ticket, error) {
	found, err := abandonedScript.Run(ctx, c.redis, c.keys(goods), age.Milliseconds(), atOnce).StringSlice()
	if err != nil {
		return nil, err
	}
	tickets := make([]ticket, 0, len(found)/2)
	for i := 0; i+1 < len(found); i += 2 {
		tickets = append(tickets, ticket{ID: found[i+1], Goods: goods, Buyer: found[i]})
	}
	return tickets, nil
}

// load fills in what the database says.
func (c *counter) load(ctx context.Context, goods, edition string, stock int, living []ticket) error {
	args := make([]any, 0, 2+2*len(living))
	args = append(args, edition, stock)
	for _, t := range living {
		args = append(args, t.Buyer, t.ID)
	}
	return loadScript.Run(ctx, c.redis, c.keys(goods), args...).Err()
}

// edition is empty when Redis knows of no sale.
func (c *counter) edition(ctx context.Context, goods string) (string, error) {
	edition, err := c.redis.HGet(ctx, c.keys(goods)[0], "edition").Result()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	return edition, err
}

// counted is what the counter says of one sale.
type counted struct {
	Stock  int
	Buyers map[string]string // to their tickets
	Open   int
}

func (c *counter) read(ctx context.Context, goods string) (n counted, err error) {
	keys := c.keys(goods)
	pipe := c.redis.TxPipeline()
	stock, buyers, open := pipe.HGet(ctx, keys[0], "stock"), pipe.HGetAll(ctx, keys[1]), pipe.ZCard(ctx, keys[2])
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return n, err
	}
	n.Stock, _ = stock.Int()
	n.Buyers, n.Open = buyers.Val(), int(open.Val())
	return n, nil
}
