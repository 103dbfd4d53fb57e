package shop

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// Counter is the sale as Redis knows it: the stock, and who has bought. It answers those who get nothing, and it may be
// lost: the database is right, and rebuild.go fills it again.
//
// An edition is one filling. The database takes no ticket of another than its own, so what was taken before a filling
// and comes after it counts nowhere. Every script may be run twice. How a piece is taken is each sale's own script.
type Counter struct {
	Redis *redis.Client
	Name  string // starts every key
}

var (
	//go:embed lua/giveback.lua
	giveBackLua string
	//go:embed lua/load.lua
	loadLua string

	giveBackScript = redis.NewScript(giveBackLua)
	loadScript     = redis.NewScript(loadLua)
)

// Keys are a hash of edition and stock, a hash of buyers' tickets, and one that is each sale's own. They go together.
func (c *Counter) Keys(goods string) []string {
	tag := "{" + c.Name + ":" + goods + "}"
	return []string{tag + ":sale", tag + ":buyers", tag + ":open"}
}

// Taken reads what a script says that takes a piece, {"taken" | "again" | "sold out" | "no sale", edition}, and writes the
// edition into the ticket. ErrSoldOut, ErrAgain; ErrStale: Redis knows of no sale.
func Taken(t *Ticket, script *redis.Cmd) error {
	answer, err := script.StringSlice()
	if err != nil {
		return fmt.Errorf("take ticket %s: %w", t.ID, err)
	}
	t.Edition = answer[1]
	switch answer[0] {
	case "again":
		return ErrAgain
	case "sold out":
		return ErrSoldOut
	case "no sale":
		return ErrStale
	}
	return nil
}

// GiveBack gives a ticket's piece back, once.
func (c *Counter) GiveBack(ctx context.Context, t Ticket) error {
	return giveBackScript.Run(ctx, c.Redis, c.Keys(t.Goods), t.Buyer, t.ID).Err()
}

// load fills in what the database says.
func (c *Counter) load(ctx context.Context, goods, edition string, stock int, living []Ticket) error {
	args := make([]any, 0, 2+2*len(living))
	args = append(args, edition, stock)
	for _, t := range living {
		args = append(args, t.Buyer, t.ID)
	}
	return loadScript.Run(ctx, c.Redis, c.Keys(goods), args...).Err()
}

// Edition is empty when Redis knows of no sale.
func (c *Counter) Edition(ctx context.Context, goods string) (string, error) {
	edition, err := c.Redis.HGet(ctx, c.Keys(goods)[0], "edition").Result()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	return edition, err
}

// Counted is what the counter says of one sale.
type Counted struct {
	Stock  int
	Buyers map[string]string // to their tickets
}

// Read asks for both in one moment.
func (c *Counter) Read(ctx context.Context, goods string) (n Counted, err error) {
	keys := c.Keys(goods)
	pipe := c.Redis.TxPipeline()
	stock, buyers := pipe.HGet(ctx, keys[0], "stock"), pipe.HGetAll(ctx, keys[1])
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return n, err
	}
	n.Stock, _ = stock.Int()
	n.Buyers = buyers.Val()
	return n, nil
}
