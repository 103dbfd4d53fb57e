package main

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// faults are what strikes while users are synced. What may not be done to a server that is somebody's own is nil.
type faults struct {
	kills         int // of instances, in turn
	restartBroker func()
	flushRedis    func(context.Context) error
}

// blow is one of them.
type blow struct {
	what   string
	strike func(context.Context) error
}

const downFor = 500 * time.Millisecond // a killed instance, before it is started again

// plan lists the blows in their order: the broker is restarted after the first kill, Redis emptied after the second.
func (f faults) plan(instances []*child) []blow {
	var others, blows []blow
	if f.restartBroker != nil {
		others = append(others, blow{"RabbitMQ restarted", func(context.Context) error { f.restartBroker(); return nil }})
	}
	if f.flushRedis != nil {
		others = append(others, blow{"Redis emptied", f.flushRedis})
	}
	for i := range f.kills {
		number := i % len(instances)
		blows = append(blows, blow{fmt.Sprintf("kill -9 of instance %d", number+1), func(ctx context.Context) error { return revive(ctx, instances[number]) }})
		if i < len(others) {
			blows = append(blows, others[i])
		}
	}
	return append(blows, others[min(f.kills, len(others)):]...)
}

func revive(ctx context.Context, instance *child) error {
	if err := instance.kill(); err != nil {
		return err
	}
	pause(ctx, downFor)
	return instance.start(ctx)
}

// strike lets the blows loose, spread over a span, and writes each down for the page.
func (f faults) strike(ctx context.Context, db *sql.DB, instances []*child, span time.Duration) error {
	blows, began := f.plan(instances), time.Now()
	for i, b := range blows {
		due := began.Add(span * time.Duration(i+1) / time.Duration(len(blows)+1))
		if !pause(ctx, time.Until(due)) {
			return ctx.Err()
		}
		_, err := db.ExecContext(ctx, `INSERT INTO usersync_faults (what, struck_at) VALUES (?, UTC_TIMESTAMP(3))`, b.what)
		if err != nil {
			return err
		}
		if err := b.strike(ctx); err != nil {
			return fmt.Errorf("%s: %w", b.what, err)
		}
	}
	return nil
}
