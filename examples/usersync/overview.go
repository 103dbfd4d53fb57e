package main

import (
	"context"
	"strings"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
)

type overview struct {
	Total   standing
	Batches []batchStanding // the latest batches
	Persons []forPerson
	Faults  []fault
}

type standing struct {
	Users, Synced, Waiting, Dead int
	Again                        int // users sent again at least once
}

type batchStanding struct {
	batch
	standing
}

// Users returns the number of uploaded users.
func (b batchStanding) Users() int { return b.batch.Users }

// The bar is 1,000 wide.
func (b batchStanding) width(n int) int { return n * 1000 / max(1, b.batch.Users) }
func (b batchStanding) GoodWidth() int  { return b.width(b.Synced) }
func (b batchStanding) BadWidth() int   { return b.width(b.Dead) }
func (b batchStanding) WarnWidth() int  { return b.width(min(b.Again, b.Waiting)) }
func (b batchStanding) BadAt() int      { return 1000 - b.BadWidth() }

type forPerson struct{ Batch, User, Email, Reason string }

type fault struct {
	What string
	At   time.Time
}

const (
	batchesShown  = 12
	personsShown  = 20
	countedAtMost = 1_000_000
)

func (s *syncer) overview(ctx context.Context) (o overview, err error) {
	if o.Batches, err = s.latestBatches(ctx); err != nil {
		return o, err
	}
	counts, err := admin.Of(s.log).Count(ctx, admin.CountFilter{BusinessType: s.entries.Name(), AtMost: countedAtMost})
	if err != nil {
		return o, err
	}
	for _, count := range counts {
		o.Total.add(count.State, count.N)
	}
	if err := s.db.QueryRowContext(ctx, `SELECT COUNT(DISTINCT batch, user) FROM usersync_sendings`).Scan(&o.Total.Again); err != nil {
		return o, err
	}
	if o.Persons, err = s.persons(ctx); err != nil {
		return o, err
	}
	err = eachRow(ctx, s.db, `SELECT what, struck_at FROM usersync_faults ORDER BY id DESC LIMIT 10`, func(scan func(...any) error) error {
		var f fault
		err := scan(&f.What, &f.At)
		o.Faults = append(o.Faults, f)
		return err
	})
	return o, err
}

func (s *standing) add(state compensator.State, n int) {
	s.Users += n
	switch {
	case state == compensator.Dead:
		s.Dead += n
	case state.Terminal():
		s.Synced += n
	default:
		s.Waiting += n
	}
}

const latestBatches = `SELECT b.batch, b.operator, b.trace, b.digest, b.users, b.uploaded_at,
	(SELECT COUNT(DISTINCT s.user) FROM usersync_sendings s WHERE s.batch = b.batch)
	FROM usersync_batches b ORDER BY b.uploaded_at DESC, b.batch DESC LIMIT ?`

func (s *syncer) latestBatches(ctx context.Context) (latest []batchStanding, err error) {
	err = eachRow(ctx, s.db, latestBatches, func(scan func(...any) error) error {
		var b batchStanding
		err := scan(&b.Batch, &b.Operator, &b.Trace, &b.digest, &b.batch.Users, &b.UploadedAt, &b.Again)
		latest = append(latest, b)
		return err
	}, batchesShown)
	for i := range latest {
		if err != nil {
			return nil, err
		}
		err = s.fillIn(ctx, &latest[i])
	}
	return latest, err
}

func (s *syncer) fillIn(ctx context.Context, b *batchStanding) error {
	progress, err := s.log.Batch(b.Batch).Progress(ctx)
	for state, n := range progress.ByState {
		b.standing.add(state, n)
	}
	return err
}

func (s *syncer) persons(ctx context.Context) (waiting []forPerson, err error) {
	dead, err := admin.Of(s.log).List(ctx, admin.Filter{
		States: []compensator.State{compensator.Dead}, BusinessType: s.entries.Name(), Newest: true, Limit: personsShown})
	if err != nil {
		return nil, err
	}
	for _, e := range dead.Entries {
		p := forPerson{Batch: e.BatchID, User: e.BusinessID, Reason: strings.TrimPrefix(e.LastError, "permanent: ")}
		err := s.db.QueryRowContext(ctx, `SELECT email FROM usersync_users WHERE batch = ? AND user = ?`, p.Batch, p.User).Scan(&p.Email)
		if err != nil {
			return nil, err
		}
		waiting = append(waiting, p)
	}
	return waiting, nil
}
