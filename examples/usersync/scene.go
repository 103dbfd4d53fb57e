package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/compensator-go/compensator/examples/internal/faults"
	"github.com/compensator-go/compensator/examples/internal/instance"
)

type scene struct {
	servers
	settings
	kills    int            // kills of instances, in rotation
	faults   []faults.Fault // faults of servers
	manual   bool
	wheel    bool // whether the library runs without Redis
	users    int
	perBatch int
	rate     float64              // users a second
	watched  func(address string) // called with a page address once everything is uploaded

	db        *sql.DB
	instances []*instance.Instance
	client    *client
	uploaded  map[message]user
	batches   []string
}

const (
	instances      = 3
	restAtMost     = 3 * time.Minute // maximum time from the last upload until nothing changes any more
	operatorOfLoad = "the scene"
)

// run removes the scene's tables, queue and keys before and after the run.
func (s *scene) run(ctx context.Context) (*books, error) {
	if err := s.clear(ctx); err != nil {
		return nil, err
	}
	db, err := s.OpenDB(poolSize)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	s.db = db
	if err := createTables(ctx, db); err != nil {
		return nil, err
	}
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	defer s.client.close()
	b, err := s.day(ctx)
	stopped := s.stop()
	if err = errors.Join(err, stopped); err != nil {
		return nil, err
	}
	if err := s.read(ctx, b); err != nil {
		return nil, err
	}
	return b, s.clear(ctx)
}

func (s *scene) start(ctx context.Context) error {
	given := s.servers
	if s.wheel && !s.manual {
		given.Redis = ""
	}
	addresses := make([]func() string, instances)
	for i := range instances {
		one := newInstance(given, s.settings, s.manual)
		if err := one.Start(ctx); err != nil {
			return errors.Join(err, s.stop())
		}
		s.instances = append(s.instances, one)
		addresses[i] = one.Address
	}
	s.client = newClient(addresses...)
	return nil
}

func newInstance(on servers, cfg settings, manual bool) *instance.Instance {
	arguments := append(cfg.arguments(), "-name", on.Name)
	if manual {
		arguments = append(arguments, "-by-hand")
	}
	return &instance.Instance{Arguments: arguments, Environment: on.Environment()}
}

func (s *scene) stop() (err error) {
	for _, one := range s.instances {
		err = errors.Join(err, one.Stop())
	}
	s.instances = nil
	return err
}

// day asks the running service for the figures that only the service knows.
func (s *scene) day(ctx context.Context) (*books, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.uploading()+restAtMost, fmt.Errorf("not at rest after %v", s.uploading()+restAtMost))
	defer cancel()
	var acknowledged int
	var uploading error
	var operators sync.WaitGroup
	operators.Go(func() { acknowledged, uploading = s.upload(ctx) })
	err := s.strike(ctx, s.uploading()+s.delay)
	operators.Wait()
	if s.watched != nil && !s.manual {
		s.watched(s.instances[0].Address())
	}
	if err = errors.Join(err, uploading); err != nil {
		return nil, err
	}
	if err := s.awaitRest(ctx); err != nil {
		return nil, err
	}
	b := &books{settings: s.settings, uploaded: s.uploaded, acknowledged: acknowledged, retried: int(s.client.retried.Load())}
	if s.manual {
		return b, nil
	}
	for _, name := range s.batches {
		answers, err := s.client.progress(ctx, name)
		if err != nil {
			return nil, err
		}
		b.toldSynced += answers.Synced
		b.toldPerson += answers.Person
	}
	return b, nil
}

func (s *scene) uploading() time.Duration {
	return time.Duration(float64(s.users) / s.rate * float64(time.Second))
}

// upload uploads batches at a fixed rate without waiting for answers.
func (s *scene) upload(ctx context.Context) (acknowledged int, err error) {
	var operators sync.WaitGroup
	var mu sync.Mutex // guards acknowledged and err
	s.uploaded, s.batches = make(map[message]user), nil
	startedAt := time.Now()
	for first := 0; first < s.users; first += s.perBatch {
		dueAt := startedAt.Add(time.Duration(float64(first) / s.rate * float64(time.Second)))
		if !pause(ctx, time.Until(dueAt)) {
			break
		}
		name := fmt.Sprintf("b%03d", first/s.perBatch+1)
		users := sample(name, min(s.perBatch, s.users-first), s.seed)
		s.batches = append(s.batches, name)
		for _, one := range users {
			s.uploaded[message{Batch: name, User: one.ID}] = one
		}
		operators.Go(func() {
			answers, failed := s.client.upload(ctx, name, operatorOfLoad, "trace-"+name, writeUsers(users))
			mu.Lock()
			defer mu.Unlock()
			acknowledged += answers.Users
			err = errors.Join(err, failed)
		})
	}
	operators.Wait()
	return acknowledged, errors.Join(err, context.Cause(ctx))
}

// awaitRest returns when the log has nothing to do, the queue is empty, and no user was synced for a while.
func (s *scene) awaitRest(ctx context.Context) error {
	previous, startedAt := -1, time.Now()
	for pause(ctx, 100*time.Millisecond) {
		moving, err := s.moving(ctx)
		if err != nil {
			continue // for example because the broker is restarting
		}
		if moving.left > 0 || moving.synced != previous {
			previous, startedAt = moving.synced, time.Now()
		}
		if time.Since(startedAt) > s.limit {
			return nil
		}
	}
	return context.Cause(ctx)
}

type moving struct{ left, synced int }

func (s *scene) moving(ctx context.Context) (m moving, err error) {
	left := `SELECT COUNT(*) FROM usersync_log WHERE state IN (0, -1, -3)`
	if s.manual {
		left = `SELECT COUNT(*) FROM usersync_hand_log WHERE status = 0`
	}
	queued, err := s.queued()
	if err != nil {
		return m, err
	}
	err = errors.Join(
		s.db.QueryRowContext(ctx, left).Scan(&m.left),
		s.db.QueryRowContext(ctx, `SELECT COUNT(*) FROM usersync_directory`).Scan(&m.synced))
	m.left += queued
	return m, err
}
