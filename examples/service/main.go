// Command service is a minimal program around the log. It shows what starts in which order, what can be queried from
// outside, and how the program stops. It closes an order that is not paid within ten seconds.
//
// MYSQL_DSN selects a MySQL or MariaDB database. Without it, the program uses SQLite in service.db. REDIS_ADDR adds a
// Redis.
package main

import (
	"cmp"
	"context"
	"crypto/subtle"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/observe/probe"
	"github.com/compensator-go/compensator/serve"
	"github.com/compensator-go/compensator/ui"
	_ "github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	context.AfterFunc(ctx, stop) // A second signal ends the program at once. No entry is lost.
	if err := run(ctx); err != nil {
		slog.Error("ended", "err", err)
		os.Exit(1)
	}
	slog.Info("stopped in good order")
}

// run opens everything, runs the program, and closes everything in reverse order.
func run(ctx context.Context) (err error) {
	db, err := open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	cfg := compensator.Config{DB: db, Keep: 90 * 24 * time.Hour, StopTimeout: 15 * time.Second, Operations: &compensator.Operations{}}
	if addr := os.Getenv("REDIS_ADDR"); addr != "" {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		defer func() { err = errors.Join(err, rdb.Close()) }()
		cfg.Redis = rdb
	}
	log, err := compensator.New(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	orders, err := newShop(log)
	if err != nil {
		return err
	}
	pages, err := operatorPages(log)
	if err != nil {
		return err
	}
	return serveAll(ctx, log, orders, pages)
}

func open(ctx context.Context) (*sql.DB, error) {
	driver, dsn := "sqlite", "file:service.db?_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(10000)"
	if given := os.Getenv("MYSQL_DSN"); given != "" {
		driver, dsn = "mysql", given
	}
	db, err := compensator.Open(driver, dsn)
	if err != nil {
		return nil, err
	}
	if driver == "mysql" {
		db.SetMaxOpenConns(60) // 50 for close_order and some for requests; multiplied by the number of processes it must stay below the server's max_connections
	}
	err = compensator.Migrate(ctx, db) // Several processes may call it at the same time. One of them does the work.
	if err == nil {
		_, err = db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS orders (id VARCHAR(64) PRIMARY KEY, state VARCHAR(16) NOT NULL)")
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

type shop struct {
	log   *compensator.Compensator
	close *compensator.Type[order]
}

type order struct{ ID string }

func newShop(log *compensator.Compensator) (http.Handler, error) {
	s := &shop{log: log}
	var err error
	s.close, err = compensator.HandleTx(context.Background(), log, "close_order", s.closeUnpaid, nil)
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /orders/{id}", s.place)
	return mux, err
}

func (s *shop) closeUnpaid(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry, o order) error {
	_, err := tx.ExecContext(ctx, "UPDATE orders SET state='closed' WHERE id=? AND state='unpaid'", o.ID)
	return err
}

// place may be called twice for an order. The second call changes nothing.
func (s *shop) place(w http.ResponseWriter, r *http.Request) {
	o := order{ID: r.PathValue("id")}
	closing := compensator.IdempotencyKey("close-" + o.ID)
	err := s.log.WithRetry(r.Context(), closing, func(ctx context.Context) error {
		return s.log.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
			receipt, err := s.close.Record(ctx, tx, o, compensator.Options{IdempotencyKey: closing, BusinessID: o.ID, Delay: 10 * time.Second})
			if err != nil || receipt.Duplicate() {
				return err
			}
			_, err = tx.ExecContext(ctx, "INSERT INTO orders (id, state) VALUES (?, 'unpaid')", o.ID)
			return err
		})
	})
	var wrong *compensator.FieldError
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.As(err, &wrong):
		http.Error(w, "order id: "+wrong.Reason, http.StatusBadRequest) // The error's Field is a name of the library, so do not show it to the client.
	default:
		slog.ErrorContext(r.Context(), "place an order", "err", err)
		http.Error(w, "try again", http.StatusServiceUnavailable)
	}
}

// operatorPages returns the pages for operators and probes. Serve them on an address that the public cannot reach.
func operatorPages(log *compensator.Compensator) (http.Handler, error) {
	may := admin.AccessFunc(func(_ context.Context, _ admin.Actor, right admin.Right, _ admin.Subject) bool {
		return right != admin.SeeContent && right != admin.Export // Your service decides here who may do what.
	})
	d, err := admin.New(log, admin.Options{Access: may})
	if err != nil {
		return nil, err
	}
	pages, err := ui.New(ui.Options{Base: "/log/", Realm: "operators", Identify: func(r *http.Request) (admin.Actor, bool) {
		name, ok := identify(r)
		return admin.Actor{ID: name}, ok
	}}, d)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /readyz", probe.Ready(0, log)) // shows no names, so it may also be public
	mux.Handle("GET /health", probe.Health(0, log))
	mux.Handle("/log/", pages)
	return mux, nil
}

// identify stands for your company's login.
func identify(r *http.Request) (name string, ok bool) {
	name, password, _ := r.BasicAuth()
	wanted := cmp.Or(os.Getenv("OPERATOR_PASSWORD"), "try")
	return name, name != "" && subtle.ConstantTimeCompare([]byte(password), []byte(wanted)) == 1
}

// serveAll works until ctx ends or an address cannot be opened. It stops the public server first, so that nothing is
// recorded any more. Then it waits for the handlers. It stops the operators' pages last, so that operators can watch.
func serveAll(ctx context.Context, log *compensator.Compensator, public, operators http.Handler) error {
	outside, err := listen("orders", cmp.Or(os.Getenv("ADDR"), "127.0.0.1:8080"), public)
	if err != nil {
		return err
	}
	inside, err := listen("operators", cmp.Or(os.Getenv("OPERATORS_ADDR"), "127.0.0.1:8081"), operators)
	if err != nil {
		return errors.Join(err, outside.Listener.Close())
	}
	return serve.Run(ctx, serve.Config{Servers: []serve.Server{outside}, Inside: []serve.Server{inside}}, log)
}

// listen opens an address and logs it. With port 0 the system chooses the port, and the log shows which one. With a
// fixed port serve.Run could open the address instead.
func listen(subject, addr string, handler http.Handler) (serve.Server, error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return serve.Server{}, fmt.Errorf("%s: %w", subject, err)
	}
	slog.Info("open", "what", subject, "addr", listener.Addr())
	return serve.Server{Server: &http.Server{Handler: handler, ReadTimeout: time.Minute, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute}, Listener: listener}, nil
}
