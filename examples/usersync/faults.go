package main

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	blows "github.com/compensator-go/compensator/examples/internal/faults"
	"github.com/compensator-go/compensator/examples/internal/instance"
)

// faults are what strikes while users are synced. What may not be done to a server that is somebody's own is nil.
type faults struct {
	kills         int // of instances, in turn
	restartBroker func()
	flushRedis    func(context.Context) error
}

// plan lists the blows in their order: the broker is restarted after the first kill, Redis emptied after the second.
func (f faults) plan(instances []*instance.Instance) []blows.Blow {
	var others, planned []blows.Blow
	if f.restartBroker != nil {
		others = append(others, blows.Blow{What: "RabbitMQ restarted", Strike: func(context.Context) error { f.restartBroker(); return nil }})
	}
	if f.flushRedis != nil {
		others = append(others, blows.Blow{What: "Redis emptied", Strike: f.flushRedis})
	}
	for i := range f.kills {
		number := i % len(instances)
		planned = append(planned, blows.Kill(fmt.Sprintf("of instance %d", number+1), instances[number]))
		if i < len(others) {
			planned = append(planned, others[i])
		}
	}
	return append(planned, others[min(f.kills, len(others)):]...)
}

// strike lets the blows loose, spread over a span, and writes each down for the page.
func (f faults) strike(ctx context.Context, db *sql.DB, instances []*instance.Instance, span time.Duration) error {
	planned, began := f.plan(instances), time.Now()
	for i, b := range planned {
		due := began.Add(span * time.Duration(i+1) / time.Duration(len(planned)+1))
		if !pause(ctx, time.Until(due)) {
			return ctx.Err()
		}
		_, err := db.ExecContext(ctx, `INSERT INTO usersync_faults (what, struck_at) VALUES (?, UTC_TIMESTAMP(3))`, b.What)
		if err != nil {
			return err
		}
		if err := b.Strike(ctx); err != nil {
			return fmt.Errorf("%s: %w", b.What, err)
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) bool { return blows.Pause(ctx, d) }
