package howto

import (
	"context"
	"database/sql"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/encrypt"
	"github.com/compensator-go/compensator/httpcall"
	"github.com/compensator-go/compensator/observe"
	"github.com/redis/go-redis/v9"
)

// Refund asks for money to be returned.
type Refund struct {
	OrderID string
	Cents   int64
}

var partner = &http.Client{Timeout: 10 * time.Second}

const partnerURL = "https://partner.example/refunds"

// CallPartner calls a partner over HTTP.
func CallPartner(c *compensator.Compensator) (*compensator.Type[Refund], error) {
	return compensator.Handle(context.Background(), c, "refund", func(ctx context.Context, e *compensator.Entry, r Refund) error {
		return httpcall.PostJSON(ctx, partner, partnerURL, e.CallKey(), r, nil)
	}, &compensator.HandlerConfig[Refund]{
		Timeout: 15 * time.Second,
		MaxWait: 24 * time.Hour, // the partner may be down for a day without costing attempts
		Breaker: compensator.Breaker{Of: 20},
	})
}

// LimitCalls allows 20 starts a second and eight calls at once over all processes, and four calls at once in each.
func LimitCalls(c *compensator.Compensator) (*compensator.Type[Refund], error) {
	return compensator.Handle(context.Background(), c, "refund", callPartner, &compensator.HandlerConfig[Refund]{
		TypeConfig: compensator.TypeConfig{Limit: compensator.Limit{
			Rate: compensator.PerSecond(20), Burst: 5, // starts a second, over all processes
			Concurrent: 8, // running at once, over all processes
		}},
		Concurrency: 4, // calls at once in this process
		MaxWait:     24 * time.Hour,
		Breaker:     compensator.Breaker{Of: 20, Share: 0.5, Pause: 5 * time.Second},
	})
}

// LimitTenants allows each tenant two calls a second.
func LimitTenants(c *compensator.Compensator) (*compensator.Type[Refund], error) {
	return compensator.Handle(context.Background(), c, "refund", callPartner, &compensator.HandlerConfig[Refund]{
		TypeConfig: compensator.TypeConfig{Limit: compensator.Limit{
			Rate: compensator.PerSecond(2), Burst: 2,
			Key: func(e *compensator.Entry) string { return e.UserID },
		}},
	})
}

// ShareALimit gives two types one common limit of 20 calls a second.
func ShareALimit(c *compensator.Compensator) (refunds, charges *compensator.Type[Refund], err error) {
	psp := compensator.TypeConfig{Limit: compensator.Limit{Rate: compensator.PerSecond(20), Burst: 5, Of: "psp"}}
	refunds, err = compensator.Handle(context.Background(), c, "refund", callPartner, &compensator.HandlerConfig[Refund]{TypeConfig: psp})
	if err != nil {
		return nil, nil, err
	}
	charges, err = compensator.Handle(context.Background(), c, "charge", callPartner, &compensator.HandlerConfig[Refund]{TypeConfig: psp})
	return refunds, charges, err
}

func callPartner(ctx context.Context, e *compensator.Entry, r Refund) error {
	return httpcall.PostJSON(ctx, partner, partnerURL, e.CallKey(), r, nil)
}

// Retries registers a handler whose attempts spread over about an hour. If a faulty release breaks the handler, an
// hour is enough to roll the release back.
func Retries(c *compensator.Compensator) (*compensator.Type[Refund], error) {
	return compensator.Handle(context.Background(), c, "refund", callPartner, &compensator.HandlerConfig[Refund]{
		MaxAttempts: 20,
		Retry:       compensator.Exponential(time.Second, 10*time.Minute),
	})
}

// Sealed encrypts the contents of a type.
func Sealed(c *compensator.Compensator) (*compensator.Type[Refund], error) {
	codec, err := encrypt.New(encrypt.Config{Keys: []encrypt.Key{{ID: "2026", Secret: []byte(os.Getenv("REFUND_KEY"))}}})
	if err != nil {
		return nil, err
	}
	return compensator.Handle(context.Background(), c, "refund", callPartner, &compensator.HandlerConfig[Refund]{TypeConfig: compensator.TypeConfig{Codec: codec}})
}

// RedisClients shows the client for each kind of Redis.
func RedisClients(db *sql.DB) []compensator.Config {
	single := redis.NewClient(&redis.Options{Addr: "redis:6379"})
	sentinel := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "shop", SentinelAddrs: []string{"s1:26379", "s2:26379", "s3:26379"}})
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"r1:6379", "r2:6379", "r3:6379"}})
	return []compensator.Config{{DB: db, Redis: single}, {DB: db, Redis: sentinel}, {DB: db, Redis: cluster}}
}

// LogFailures logs a warning for each business type whose due entries wait too long.
func LogFailures(health observe.Health) {
	for typ, late := range health.Overdue {
		slog.Warn("overdue", "type", typ, "by", late)
	}
}
