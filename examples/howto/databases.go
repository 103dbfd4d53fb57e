package howto

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/observe/probe"
	"github.com/compensator-go/compensator/serve"
	"github.com/compensator-go/compensator/ui"
	"github.com/redis/go-redis/v9"
)

// OpenLog opens the log in one database. It runs entries of type "refund".
func OpenLog(ctx context.Context, name string, db *sql.DB, rdb redis.UniversalClient) (*compensator.Compensator, *compensator.Type[Refund], error) {
	c, err := compensator.New(ctx, compensator.Config{
		Name: name, DB: db,
		Redis: rdb, Prefix: "shop-" + name, // one Redis for all logs
		Operations: &compensator.Operations{}, // for the pages
	})
	if err != nil {
		return nil, nil, err
	}
	refunds, err := compensator.Handle(ctx, c, "refund", callPartner, nil)
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	return c, refunds, nil
}

// Service serves the API, a readiness probe and the admin pages, and runs the logs of two databases.
func Service(ctx context.Context, orders, stock *compensator.Compensator, api http.Handler, rights admin.Access, session func(*http.Request) (admin.Actor, bool)) error {
	ordersAdmin, err := admin.New(orders, admin.Options{Access: rights})
	if err != nil {
		return err
	}
	stockAdmin, err := admin.New(stock, admin.Options{Access: rights})
	if err != nil {
		return err
	}
	pages, err := ui.New(ui.Options{Identify: session, Base: "/ops/"}, ordersAdmin, stockAdmin)
	if err != nil {
		return err
	}
	inside := http.NewServeMux()
	inside.Handle("GET /readyz", probe.Ready(1500*time.Millisecond, orders, stock))
	inside.Handle("/ops/", pages) // /ops/orders/ and /ops/stock/
	err = serve.Run(ctx, serve.Config{
		Servers: []serve.Server{{Server: &http.Server{Addr: ":8080", Handler: api, ReadTimeout: time.Minute, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute}}},
		Inside:  []serve.Server{{Server: &http.Server{Addr: ":8081", Handler: inside, ReadTimeout: time.Minute, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute}}},
	}, orders, stock)
	return errors.Join(err, orders.Close(), stock.Close())
}

// RunShards runs several logs in one process, for example one log for each shard of a database.
func RunShards(ctx context.Context, shards []*compensator.Compensator) error {
	logs := make([]serve.Log, 0, len(shards))
	for _, c := range shards {
		logs = append(logs, c)
	}
	return serve.Run(ctx, serve.Config{}, logs...)
}
