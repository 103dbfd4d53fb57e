package shop

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// Counter keeps the sale's stock and buyers in Redis. Redis may lose the counter, and rebuild.go then fills it from the
// database.
//
// An edition names one filling of the counter. The database accepts only tickets of its current edition. Every script
// may run twice.
type Counter struct {
	Redis *redis.Client
	Name  string // prefix of every key
}

var (
	//go:embed lua/giveback.lua
	giveBackLua string
	//go:embed lua/load.lua
	loadLua string

	giveBackScript = redis.NewScript(giveBackLua)
	loadScript     = redis.NewScript(loadLua)
)

// Keys returns three keys of a sale: a hash with edition and stock, a hash of the buyers' tickets, and a key for the
// sale's own data. All share one hash slot.
func (c *Counter) Keys(goods string) []string {
	tag := "{" + c.Name + ":" + goods + "}"
	return []string{tag + ":sale", tag + ":buyers", tag + ":open"}
}

// Taken reads the answer of a script that takes a piece, {"taken" | "again" | "sold out" | "no sale", edition}. It
// writes the edition into the ticket. The answer "taken" is nil, "again" is ErrAgain, "sold out" is ErrSoldOut, and "no
// sale" is ErrStale.
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

// GiveBack returns a ticket's piece to the counter. A repeated call has no effect.
func (c *Counter) GiveBack(ctx context.Context, t Ticket) error {
	return giveBackScript.Run(ctx, c.Redis, c.Keys(t.Goods), t.Buyer, t.ID).Err()
}

func (c *Counter) load(ctx context.Context, goods, edition string, stock int, living []Ticket) error {
	args := make([]any, 0, 2+2*len(living))
	args = append(args, edition, stock)
	for _, t := range living {
		args = append(args, t.Buyer, t.ID)
	}
	return loadScript.Run(ctx, c.Redis, c.Keys(goods), args...).Err()
}

// Edition returns the counter's edition. It is empty when Redis does not know the sale.
func (c *Counter) Edition(ctx context.Context, goods string) (string, error) {
	edition, err := c.Redis.HGet(ctx, c.Keys(goods)[0], "edition").Result()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	return edition, err
}

// Counted is the content of the counter of one sale.
type Counted struct {
	Stock  int
	Buyers map[string]string // tickets by buyer
}

// Read reads the stock and the buyers at the same moment.
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
