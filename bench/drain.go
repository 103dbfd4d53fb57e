package bench

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const dueKey = "{compensator:v1:0}:" + benchType + ":0:due"

func (a *arena) drain(n, loops int) contest {
	goal := 0.85
	if loops > 2 {
		goal = 0.8
	}
	return contest{
		work: "drain a due backlog", other: fmt.Sprintf("floor: %d loops", loops), unit: "entries/s", goal: goal, entries: n,
		prepare: func() { a.backlog(n) },
		ours: func() float64 {
			l := a.newLibrary(1000, nothing)
			defer l.close()
			began := time.Now()
			l.run()
			a.waitUntil(func() bool { return l.settled.Load() >= int64(n) })
			return float64(n) / time.Since(began).Seconds()
		},
		theirs: func() float64 {
			own := a.openPlain(loops)
			defer own.Close()
			client := a.client()
			defer client.Close()
			began := time.Now()
			a.must(a.floorDrain(own, client, n, loops))
			return float64(n) / time.Since(began).Seconds()
		},
	}
}

func (a *arena) backlog(n int) {
	a.Helper()
	var last uint64
	a.must(a.admin.QueryRowContext(a.Context(), "SELECT COALESCE(MAX(id),0) FROM common_process_log").Scan(&last))
	a.insert(n)
	a.enqueue(last)
}

// insert does not add the rows to Redis.
func (a *arena) insert(n int) {
	a.Helper()
	for left := n; left > 0; left -= floorBatch {
		_, err := floorRecord(a.Context(), a.admin, min(left, floorBatch), floorTuple, 0)
		a.must(err)
	}
}

// enqueue adds to Redis the rows whose ids are greater than the parameter after.
func (a *arena) enqueue(after uint64) {
	a.Helper()
	rows, err := a.admin.QueryContext(a.Context(), "SELECT id, next_at FROM common_process_log WHERE id>?", after)
	a.must(err)
	defer rows.Close()
	var members []redis.Z
	for rows.Next() {
		var id uint64
		var due float64
		a.must(rows.Scan(&id, &due))
		members = append(members, redis.Z{Score: due, Member: id})
	}
	a.must(rows.Err())
	client := a.client()
	defer client.Close()
	for len(members) > 0 {
		k := min(len(members), 1000)
		a.must(client.ZAdd(a.Context(), dueKey, members[:k]...).Err())
		members = members[k:]
	}
}

func (a *arena) floorDrain(own *sql.DB, client *redis.Client, n, loops int) error {
	claim, err := script("claim")
	if err != nil {
		return err
	}
	ack, err := script("settle")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(a.Context())
	defer cancel(nil)
	var done atomic.Int64
	var group sync.WaitGroup
	for range loops {
		group.Go(func() {
			if err := floorDrainLoop(ctx, own, client, claim, ack, n, &done); err != nil {
				cancel(err)
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}

func floorDrainLoop(ctx context.Context, own *sql.DB, client *redis.Client, claim, ack *redis.Script, n int, done *atomic.Int64) error {
	conn, err := own.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"); err != nil {
		return err
	}
	for done.Load() < int64(n) {
		reply, err := claim.Run(ctx, client, []string{dueKey}, "whole "+dueKey, floorBatch, 30_000).Slice()
		if err != nil {
			return err
		}
		var ids []string
		for _, id := range reply[2].([]any) {
			ids = append(ids, id.(string))
		}
		if len(ids) == 0 {
			return nil
		}
		sums, err := floorClaim(ctx, conn, ids)
		if err != nil {
			return err
		}
		if err := floorSettle(ctx, conn, ids, sums); err != nil {
			return err
		}
		args := make([]any, 0, 1+3*len(ids))
		args = append(args, "whole "+dueKey)
		for _, id := range ids {
			args = append(args, id, reply[0], -1)
		}
		if err := ack.Run(ctx, client, []string{dueKey}, args...).Err(); err != nil {
			return err
		}
		done.Add(int64(len(ids)))
	}
	return nil
}
