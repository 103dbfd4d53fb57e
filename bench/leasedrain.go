package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

func (a *arena) emptyLeases() {
	a.Helper()
	a.empty()
	a.exec("TRUNCATE TABLE common_process_log_lease")
}

func (a *arena) fillLeases(form leaseForm, n, size int) {
	a.Helper()
	kind := "CHAR"
	if form.varchar {
		kind = "VARCHAR"
	}
	a.exec("ALTER TABLE common_process_log MODIFY ended_by " + kind + "(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT ''")
	body := []byte(strings.Repeat("x", size))
	for left := n; left > 0; left -= floorBatch {
		rows := min(left, floorBatch)
		token := uuid.New()
		args := make([]any, 0, 13*rows)
		for range rows {
			row := floorArgs(token[:], 0)
			row[7] = body
			args = append(args, row...)
		}
		a.exec(floorInsert+strings.Repeat(floorTuple+",", rows-1)+floorTuple, args...)
	}
}

func (a *arena) leaseDrain(n, loops, size int, form, other leaseForm) contest {
	prepare := func(form leaseForm) func() {
		return func() {
			a.fillLeases(form, n, size)
			a.enqueue(0)
			a.writeBack()
		}
	}
	side := func(form leaseForm) func() float64 {
		return func() float64 {
			began := time.Now()
			a.must(a.drainLeases(form, n, loops))
			return float64(n) / time.Since(began).Seconds()
		}
	}
	goal := 0.0
	if form.row {
		goal = 1.3
	}
	return contest{
		work: fmt.Sprintf("drain, %d loops, content %d B: %s", loops, size, form.name), other: other.name, unit: "entries/s", goal: goal, entries: n,
		reset: a.emptyLeases, prepare: prepare(form), prepareThem: prepare(other), ours: side(form), theirs: side(other),
	}
}

func (a *arena) drainLeases(form leaseForm, n, loops int) error {
	own := a.openPlain(loops)
	defer own.Close()
	ctx, cancel := context.WithCancelCause(a.Context())
	defer cancel(nil)
	var done atomic.Int64
	var group sync.WaitGroup
	for range loops {
		group.Go(func() {
			if err := a.drainLeaseLoop(ctx, own, form, n, &done); err != nil {
				cancel(err)
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}

func (a *arena) drainLeaseLoop(ctx context.Context, own *sql.DB, form leaseForm, n int, done *atomic.Int64) error {
	l, q, closeBoth, err := a.leaseWorker(ctx, own, form)
	if err != nil {
		return err
	}
	defer closeBoth()
	for done.Load() < int64(n) {
		ids, err := q.claim(ctx, floorBatch)
		if err != nil {
			return err
		}
		var settled []string
		if len(ids) == 0 {
			settled, err = l.flush(ctx)
		} else {
			settled, err = l.step(ctx, ids)
		}
		if err == nil {
			err = q.ack(ctx, settled)
		}
		if err != nil || len(ids) == 0 {
			return err
		}
		done.Add(int64(len(settled)))
	}
	return nil
}

type leaseQueue struct {
	client     *redis.Client
	take, done *redis.Script
	token      any
}

func (a *arena) leaseQueue() (*leaseQueue, error) {
	take, err := script("claim")
	if err != nil {
		return nil, err
	}
	done, err := script("settle")
	return &leaseQueue{client: a.client(), take: take, done: done}, err
}

func (q *leaseQueue) claim(ctx context.Context, n int) (ids []string, err error) {
	reply, err := q.take.Run(ctx, q.client, []string{dueKey}, "whole "+dueKey, n, 30_000).Slice()
	if err != nil {
		return nil, err
	}
	q.token = reply[0]
	for _, id := range reply[2].([]any) {
		ids = append(ids, id.(string))
	}
	return ids, nil
}

func (q *leaseQueue) ack(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	args := make([]any, 0, 1+3*len(ids))
	args = append(args, "whole "+dueKey)
	for _, id := range ids {
		args = append(args, id, q.token, -1)
	}
	return q.done.Run(ctx, q.client, []string{dueKey}, args...).Err()
}

// The recording process runs no entries, because it would insert them with a lease and so need no claim.
func (a *arena) leaseSustained(n int, form leaseForm) contest {
	side := func(form leaseForm) func() float64 {
		return func() float64 {
			db, own := a.openPlain(producers), a.openPlain(4)
			defer db.Close()
			defer own.Close()
			began := time.Now()
			a.must(a.sustainLeases(db, own, n, form))
			return float64(n) / time.Since(began).Seconds()
		}
	}
	return contest{
		work: "sustained, claimed by another process: " + form.name, other: formToday.name, unit: "entries/s", entries: n,
		reset: a.emptyLeases, ours: side(form), theirs: side(formToday),
	}
}

func (a *arena) sustainLeases(db, own *sql.DB, n int, form leaseForm) error {
	ctx, cancel := context.WithCancelCause(a.Context())
	defer cancel(nil)
	ids := make(chan string, n)
	var loops sync.WaitGroup
	for range 2 {
		loops.Go(func() {
			l, err := newLeaseLoop(ctx, own, form)
			for batch := range batches(ids) {
				if err == nil {
					_, err = l.step(ctx, batch)
				}
			}
			if err == nil {
				_, err = l.flush(ctx)
			}
			if err != nil {
				cancel(err)
			}
		})
	}
	_, err := share(n, producers, func(int) error {
		id, err := floorRecord(ctx, db, 1, floorTuple, 0)
		ids <- strconv.FormatInt(id, 10)
		return err
	})
	close(ids)
	loops.Wait()
	return errors.Join(err, context.Cause(ctx))
}
