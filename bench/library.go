package bench

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/observe"
)

const benchType = "bench"

type library struct {
	*compensator.Compensator
	a       *arena
	db      *sql.DB
	client  *redis.Client
	settled atomic.Int64
	stop    func()
}

// If handler is nil, the library only records.
func (a *arena) newLibrary(concurrency int, handler func(context.Context, *compensator.Entry) error) *library {
	a.Helper()
	return a.newLibraryWith(compensator.HandlerConfig[raw]{Concurrency: concurrency}, handler)
}

func (a *arena) newLibraryWith(cfg compensator.HandlerConfig[raw], handler func(context.Context, *compensator.Entry) error) *library {
	a.Helper()
	return a.oursOn(a.openWatched(producers+4), cfg, handler)
}

func (a *arena) oursOn(db *sql.DB, cfg compensator.HandlerConfig[raw], handler func(context.Context, *compensator.Entry) error) *library {
	a.Helper()
	l, err := openLibrary(db, a.client(), cfg, a.operations, handler)
	a.must(err)
	l.a = a
	return l
}

func openLibrary(db *sql.DB, client *redis.Client, cfg compensator.HandlerConfig[raw], operations *compensator.Operations, handler func(context.Context, *compensator.Entry) error) (*library, error) {
	l := &library{db: db, client: client, stop: func() {}}
	var err error
	config := compensator.Config{
		DB: l.db, Logger: slog.New(slog.DiscardHandler), Operations: operations,
		Observer: observe.Observer{Settled: func(observe.SettledEvent) { l.settled.Add(1) }},
	}
	if client != nil {
		config.Redis = client
	}
	l.Compensator, err = compensator.New(context.Background(), config)
	if err == nil && handler != nil {
		cfg.Codec = asIs{}
		_, err = compensator.Handle(context.Background(), l.Compensator, benchType, func(ctx context.Context, e *compensator.Entry, _ raw) error { return handler(ctx, e) }, &cfg)
	}
	return l, err
}

func (l *library) addTypes(n int, handler func(context.Context, *compensator.Entry) error) error {
	for i := range n {
		_, err := compensator.Handle(context.Background(), l.Compensator, numberedType(i), func(ctx context.Context, e *compensator.Entry, _ raw) error { return handler(ctx, e) },
			&compensator.HandlerConfig[raw]{TypeConfig: compensator.TypeConfig{Codec: asIs{}}})
		if err != nil {
			return err
		}
	}
	return nil
}

func numberedType(i int) string { return fmt.Sprintf("%s %d", benchType, i) }

// run starts the library's scanners. close stops them.
func (l *library) run() {
	ctx, cancel := context.WithCancel(l.a.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	l.stop = func() {
		cancel()
		l.a.must(<-done)
	}
}

func (l *library) close() {
	l.a.Helper()
	l.stop()
	l.a.must(l.Close())
	l.a.must(l.db.Close())
	l.a.must(l.client.Close())
}

func (l *library) record(ctx context.Context, n int, opts compensator.Options) (*compensator.Receipt, error) {
	return l.recordType(ctx, benchType, n, opts)
}

func (l *library) recordType(ctx context.Context, name string, n int, opts compensator.Options) (*compensator.Receipt, error) {
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, floorOrder, int64(1), int64(100), note); err != nil {
		return nil, err
	}
	entries := make([]compensator.NewEntry, n)
	for i := range entries {
		entries[i] = compensator.NewEntry{BusinessType: name, Content: content, Options: opts}
	}
	receipt, err := l.Record(ctx, tx, entries...)
	if err != nil {
		return nil, err
	}
	return receipt, tx.Commit()
}

// The codec of raw does nothing, so that no figure measures JSON.
type raw []byte

type asIs struct{}

func (asIs) Marshal(v any) ([]byte, error) { return v.(raw), nil }

func (asIs) Unmarshal(data []byte, v any) error {
	*v.(*raw) = data
	return nil
}

func nothing(context.Context, *compensator.Entry) error { return nil }
