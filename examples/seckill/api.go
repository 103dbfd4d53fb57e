package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"
)

const (
	longestRequest = 10 * time.Second
	mostBytes      = 1 << 12
)

// api is the service's interface: JSON in, JSON out. An error has a code to go by, and a text. Whatever answers 5xx may
// be asked again.
type api struct {
	mux     *http.ServeMux
	db      *sql.DB
	counter *counter
	answers *answers
}

func newAPI(db *sql.DB, c *counter) *api {
	return &api{mux: http.NewServeMux(), db: db, counter: c, answers: newAnswers()}
}

// routes are those of both algorithms.
func (a *api) routes(way algorithm) {
	a.mux.HandleFunc("POST /seckill", a.answers.timed(answer(http.StatusAccepted, func(ctx context.Context, r *http.Request) (any, error) {
		return sellRequest(ctx, r, way)
	})))
	a.mux.HandleFunc("GET /seckill/{goods}/{buyer}", answer(http.StatusOK, func(ctx context.Context, r *http.Request) (any, error) {
		return way.find(ctx, purchase{Goods: r.PathValue("goods"), Buyer: r.PathValue("buyer")})
	}))
	a.mux.HandleFunc("POST /orders/{id}/pay", answer(http.StatusOK, func(ctx context.Context, r *http.Request) (any, error) {
		id, err := strconv.ParseUint(r.PathValue("id"), 10, 64)
		if err != nil {
			return nil, errNotFound
		}
		return map[string]any{"order": id, "state": statePaid}, way.pay(ctx, id)
	}))
}

// routesOfSale are those that only the library's way has.
func (a *api) routesOfSale(s *sale) {
	a.mux.HandleFunc("POST /goods/{goods}/rebuild", answer(http.StatusOK, func(ctx context.Context, r *http.Request) (any, error) {
		return a.rebuildRequest(ctx, s, r.PathValue("goods"))
	}))
	a.mux.HandleFunc("GET /health", s.health)
}

// sellRequest answers 202: the piece is the buyer's, and the order will be there in a moment, or the piece goes back.
func sellRequest(ctx context.Context, r *http.Request, way algorithm) (any, error) {
	var p purchase
	decoder := json.NewDecoder(http.MaxBytesReader(nil, r.Body, mostBytes))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&p); err != nil {
		return nil, fmt.Errorf("%w: %w", errBad, err)
	}
	if err := p.validate(); err != nil {
		return nil, err
	}
	t, err := way.sellOne(ctx, p)
	return order{ticket: t, State: "accepted"}, err
}

// rebuildRequest fills the counter whatever it says: a person knows better.
func (a *api) rebuildRequest(ctx context.Context, s *sale, goods string) (any, error) {
	edition, err := a.counter.edition(ctx, goods)
	if err != nil {
		return nil, err
	}
	if err := s.rebuild(ctx, goods, edition); err != nil {
		return nil, err
	}
	n, err := a.counter.read(ctx, goods)
	return map[string]any{"goods": goods, "stock": n.Stock, "buyers": len(n.Buyers)}, err
}

// health is for a load balancer: a backlog takes no instance out.
func (s *sale) health(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), longestRequest)
	defer cancel()
	health, status := s.log.Health(ctx), http.StatusOK
	if health.Ready() != nil {
		status = http.StatusServiceUnavailable
	}
	w.WriteHeader(status)
	_, _ = fmt.Fprintln(w, health) // who asked has gone if it fails
}

// refusal is an error as a client sees it.
type refusal struct {
	Code string `json:"code"`
	Text string `json:"error"`
}

// answer turns what serves a request into an HTTP handler.
func answer(success int, serve func(context.Context, *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), longestRequest)
		defer cancel()
		body, err := serve(ctx, r)
		status := success
		if err != nil {
			status, body = explain(err)
		}
		if status == http.StatusServiceUnavailable {
			slog.Debug("request failed", "path", r.URL.Path, "err", err)
			w.Header().Set("Retry-After", "1")
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body)
	}
}

// explanations are what a client is told, in the order in which errors are looked at.
var explanations = []struct {
	err    error
	status int
	code   string
}{
	{errNoGoods, http.StatusNotFound, "no_such_goods"},
	{errNotFound, http.StatusNotFound, "no_such_order"},
	{errBusy, http.StatusServiceUnavailable, "try_again"},
	{errSoldOut, http.StatusConflict, "sold_out"},
	{errAgain, http.StatusConflict, "bought_already"},
	{errCrowded, http.StatusConflict, "crowded"},
	{errClosed, http.StatusConflict, "order_closed"},
	{errBad, http.StatusBadRequest, "bad_request"},
}

// explain keeps the details of an error that is ours.
func explain(err error) (int, *refusal) {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return http.StatusRequestEntityTooLarge, &refusal{"too_large", fmt.Sprintf("more than %d bytes", tooLarge.Limit)}
	}
	for _, e := range explanations {
		if !errors.Is(err, e.err) {
			continue
		}
		if e.status < http.StatusInternalServerError {
			return e.status, &refusal{e.code, err.Error()}
		}
		return e.status, &refusal{e.code, e.err.Error()}
	}
	return http.StatusServiceUnavailable, &refusal{"try_again", errBusy.Error()} // nothing or everything happened
}
