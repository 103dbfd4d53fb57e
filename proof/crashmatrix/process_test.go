//go:build failpoints

package crashmatrix

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/adopt"
	"github.com/compensator-go/compensator/intake"
	"github.com/compensator-go/compensator/processlog"
)

type process struct {
	*compensator.Compensator
	*kinds
	watched *sql.DB // pool on compensator.Connector
	plain   *sql.DB
	redis   *redis.Client
	store   processlog.Store
	intake  *intake.Intake
	adopted *adopt.Import
	admin   *admin.Admin
}

const lease = time.Second

func newProcess(ctx context.Context, at place, in surroundings) (*process, error) {
	cfg, err := mysql.ParseDSN(at.DSN)
	if err != nil {
		return nil, err
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	p := &process{watched: sql.OpenDB(compensator.Connector(connector)), plain: sql.OpenDB(connector)}
	config := compensator.Config{
		DB: p.watched, Prefix: at.Prefix, Lease: lease, Grace: 100 * time.Millisecond,
		ReconcileInterval: 300 * time.Millisecond, PollInterval: 200 * time.Millisecond, StopTimeout: 20 * time.Second,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError + 1})),
	}
	if in.staffed() {
		config.Operations = &compensator.Operations{Attempts: true}
	}
	if in == counting {
		config.Operations = &compensator.Operations{Statistics: true}
	}
	if in == listed {
		config.Operations = &compensator.Operations{Instances: true}
	}
	if in == keeping {
		config.Keep = time.Hour
	}
	if in != wheel {
		p.redis = redis.NewClient(&redis.Options{Addr: at.Redis})
		config.Redis = p.redis
	}
	if in == bulkBlind {
		if p.store, err = compensator.OpenStore(ctx, p.watched, compensator.DefaultTable); err != nil {
			return nil, err
		}
		config.DB, config.Store = nil, storeWithoutIDs{p.store}
	}
	if p.Compensator, err = compensator.New(ctx, config); err != nil {
		return nil, errors.Join(err, p.close())
	}
	var limit compensator.Limit
	if in.limited() { // A permit that a killed victim held must become free again.
		limit = compensator.Limit{Rate: compensator.PerSecond(500), Burst: 20, Concurrent: 4, Of: "plain"}
	}
	if in == rated {
		limit.Concurrent = 0
	}
	if in == tenants || in == rated {
		limit.Key = func(e *compensator.Entry) string {
			return "tenant" + string(e.IdempotencyKey[len(e.IdempotencyKey)-1:])
		}
	}
	p.kinds, err = register(p.Compensator, p.plain, limit)
	if err == nil && in == streamed {
		p.intake, err = openIntake(p, at)
	}
	if err == nil && in == adopting {
		p.adopted, err = openImport(p)
	}
	if err == nil && in == inLine {
		err = p.kinds.takeOrdering(p.Compensator)
	}
	if err == nil && in.staffed() {
		p.admin, err = admin.New(p.Compensator, admin.Options{Access: admin.AccessFunc(func(context.Context, admin.Actor, admin.Right, admin.Subject) bool { return true })})
	}
	if err == nil && in == periodic {
		err = p.kinds.tick(ctx)
	}
	return p, err
}

func (p *process) Run(ctx context.Context) error {
	taken := make(chan error, 1)
	switch {
	case p.intake != nil:
		go func() { taken <- p.intake.Run(ctx) }()
	case p.adopted != nil:
		go func() { taken <- p.adopted.Run(ctx) }()
	default:
		taken <- nil
	}
	return errors.Join(p.Compensator.Run(ctx), <-taken)
}

func (p *process) close() error {
	var problems []error
	if p.Compensator != nil {
		problems = append(problems, p.Close())
	}
	if p.redis != nil {
		problems = append(problems, p.redis.Close())
	}
	return errors.Join(append(problems, p.watched.Close(), p.plain.Close())...)
}

type storeWithoutIDs struct{ processlog.Store }

func (b storeWithoutIDs) Insert(ctx context.Context, tx compensator.Tx, drafts []processlog.Draft, proven bool) ([]processlog.Inserted, error) {
	inserted, err := b.Store.Insert(ctx, tx, drafts, proven)
	for i := range inserted {
		if len(drafts) > 1 && !inserted[i].Duplicate {
			inserted[i].ID = compensator.EntryID{}
		}
	}
	return inserted, err
}
