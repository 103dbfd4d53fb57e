package howto

import (
	"context"
	"database/sql"
	"errors"

	"github.com/compensator-go/compensator"
	"github.com/redis/go-redis/v9"
)

// Shards has one log for each database of a service.
type Shards []*compensator.Compensator

// OpenShards opens a log for each database. Each has its own prefix in one Redis.
func OpenShards(ctx context.Context, dbs map[string]*sql.DB, rdb redis.UniversalClient) (Shards, error) {
	var shards Shards
	for name, db := range dbs {
		c, err := compensator.New(ctx, compensator.Config{DB: db, Redis: rdb, Prefix: "shop-" + name})
		if err != nil {
			return nil, err
		}
		if _, err := compensator.Handle(ctx, c, "refund", callPartner, nil); err != nil {
			return nil, err
		}
		shards = append(shards, c)
	}
	return shards, nil
}

// Run runs every log until ctx ends, or until one of them ends.
func (s Shards) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ends := make(chan error, len(s))
	for _, c := range s {
		go func() {
			defer stop()
			ends <- c.Run(ctx)
		}()
	}
	var errs []error
	for range s {
		errs = append(errs, <-ends)
	}
	return errors.Join(errs...)
}
