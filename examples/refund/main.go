// Command refund is an HTTP service that refunds an order through a partner. A request gets the partner's answer if it
// comes within two seconds, and a link otherwise. README.md shows how to run it.
package main

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/httpcall"
	"github.com/compensator-go/compensator/serve"
	_ "github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite"
)

// Refund is what the partner gets.
type Refund struct{ Order string }

// Answer is what the partner answers. It is also the result of the entry.
type Answer struct{ Reference string }

type refundType = compensator.ResultType[Refund, Answer]

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	context.AfterFunc(ctx, stop) // A second signal ends the program at once. No entry is lost.
	if err := run(ctx); err != nil {
		slog.Error("ended", "err", err)
		os.Exit(1)
	}
}

// run opens everything, serves requests until ctx ends, and closes everything in reverse order.
func run(ctx context.Context) (err error) {
	db, err := open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	// If a process is killed, its entries wait until their leases end. Then another process runs them. On SQLite the
	// library raises the lease of a type that writes in a transaction, here to the Timeout of 5 s plus the default
	// Grace of 3 s.
	cfg := compensator.Config{DB: db, Lease: 3 * time.Second}
	if addr := os.Getenv("REDIS_ADDR"); addr != "" {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		defer func() { err = errors.Join(err, rdb.Close()) }()
		cfg.Redis, cfg.Prefix = rdb, os.Getenv("REDIS_PREFIX")
	}
	c, err := compensator.New(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	listener, err := net.Listen("tcp", cmp.Or(os.Getenv("ADDR"), "127.0.0.1:8080"))
	if err != nil {
		return err
	}
	refunds, err := register(c, cmp.Or(os.Getenv("PARTNER_URL"), "http://"+listener.Addr().String()+"/partner"))
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	slog.Info("open", "addr", listener.Addr())
	server := &http.Server{Handler: api(c, refunds), ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute}
	return serve.Run(ctx, serve.Config{Servers: []serve.Server{{Server: server, Listener: listener}}}, c)
}

func open(ctx context.Context) (*sql.DB, error) {
	driver, dsn := "sqlite", cmp.Or(os.Getenv("SQLITE_FILE"), "refund.db")
	dsn = "file:" + dsn + "?_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(10000)"
	if given := os.Getenv("MYSQL_DSN"); given != "" {
		driver, dsn = "mysql", given
	}
	db, err := compensator.Open(driver, dsn)
	if err != nil {
		return nil, err
	}
	if err = compensator.Migrate(ctx, db); err == nil {
		_, err = db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS refunds (order_id VARCHAR(64) PRIMARY KEY, reference VARCHAR(64) NOT NULL)")
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// register registers the type. All processes together make at most two calls to the partner at the same time.
func register(c *compensator.Compensator, partner string) (*refundType, error) {
	return compensator.HandleCall(context.Background(), c, "refund", func(ctx context.Context, e *compensator.Entry, r Refund) (Answer, error) {
		var answer Answer
		err := httpcall.PostJSON(ctx, http.DefaultClient, partner, e.CallKey(), r, &answer)
		return answer, err
	}, func(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry, r Refund, answer Answer) error {
		_, err := tx.ExecContext(ctx, "UPDATE refunds SET reference=? WHERE order_id=?", answer.Reference, r.Order)
		return err
	}, &compensator.HandlerConfig[Refund]{
		TypeConfig: compensator.TypeConfig{Limit: compensator.Limit{Rate: compensator.PerSecond(20), Burst: 5, Concurrent: 2}},
		Timeout:    5 * time.Second,
		MaxWait:    24 * time.Hour, // the partner may be down for a day without costing attempts
	})
}

// api serves POST and GET of /refunds/{order}. Both answer with the result or a link: see answer.
func api(c *compensator.Compensator, refunds *refundType) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /refunds/{order}", func(w http.ResponseWriter, r *http.Request) {
		order := r.PathValue("order")
		key := compensator.IdempotencyKey("refund-" + order)
		err := c.WithRetry(r.Context(), key, func(ctx context.Context) error {
			return c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
				receipt, err := refunds.Record(ctx, tx, Refund{order}, compensator.Options{IdempotencyKey: key, BusinessID: order})
				if err != nil || receipt.Duplicate() { // a repeated request finds the entry of the first one
					return err
				}
				_, err = tx.ExecContext(ctx, "INSERT INTO refunds (order_id, reference) VALUES (?, '')", order)
				return err
			})
		})
		var wrong *compensator.FieldError
		switch {
		case err == nil:
			answer(w, r, refunds)
		case errors.As(err, &wrong):
			http.Error(w, "order: "+wrong.Reason, http.StatusBadRequest)
		default:
			http.Error(w, "try again", http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("GET /refunds/{order}", func(w http.ResponseWriter, r *http.Request) {
		answer(w, r, refunds)
	})
	mux.HandleFunc("POST /partner", pretend)
	return mux
}

// answer waits up to two seconds for the result. If there is none yet, it answers with a link.
func answer(w http.ResponseWriter, r *http.Request, refunds *refundType) {
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	_, result, err := refunds.Wait(ctx, compensator.IdempotencyKey("refund-"+r.PathValue("order")))
	var ended *compensator.StateError
	switch {
	case err == nil:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(result) // an error means that the client has gone
	case errors.Is(err, compensator.ErrNoResult): // for example, a person has erased it
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, compensator.ErrNotFound):
		http.NotFound(w, r)
	case errors.As(err, &ended) && ended.State != compensator.Dead: // cancelled, compensated or settled manually
		http.Error(w, "the refund is "+ended.State.String(), http.StatusConflict)
	case ended != nil, errors.Is(err, context.DeadlineExceeded): // not ended yet, or dead until a person decides
		w.Header().Set("Location", r.URL.EscapedPath())
		w.WriteHeader(http.StatusAccepted)
	default:
		http.Error(w, "try again", http.StatusServiceUnavailable)
	}
}

// pretend takes three seconds for an order whose id begins with "slow".
func pretend(w http.ResponseWriter, r *http.Request) {
	var refund Refund
	if err := json.NewDecoder(r.Body).Decode(&refund); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if strings.HasPrefix(refund.Order, "slow") {
		select {
		case <-time.After(3 * time.Second):
		case <-r.Context().Done():
			return
		}
	}
	_ = json.NewEncoder(w).Encode(Answer{"R-" + refund.Order}) // an error means that the caller has gone
}
