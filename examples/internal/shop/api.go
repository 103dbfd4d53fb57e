package shop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/compensator-go/compensator/observe/probe"
)

const (
	LongestRequest = 10 * time.Second
	MostBytes      = 1 << 12
)

// API is the HTTP interface of the service. A client may repeat every request that was answered with 5xx.
type API struct {
	Mux     *http.ServeMux
	counter *Counter
	answers *answers
}

// NewAPI returns an API without routes.
func NewAPI(c *Counter) *API {
	return &API{Mux: http.NewServeMux(), counter: c, answers: newAnswers()}
}

// Routes adds the routes that both versions have, the library's and the hand-written one.
func (a *API) Routes(way Way) {
	a.Mux.HandleFunc("POST /seckill", a.answers.timed(answer(http.StatusAccepted, func(ctx context.Context, r *http.Request) (any, error) {
		return sellRequest(ctx, r, way)
	})))
	a.Mux.HandleFunc("GET /seckill/{goods}/{buyer}", answer(http.StatusOK, func(ctx context.Context, r *http.Request) (any, error) {
		return way.Find(ctx, Purchase{Goods: r.PathValue("goods"), Buyer: r.PathValue("buyer")})
	}))
	a.Mux.HandleFunc("POST /orders/{id}/pay", answer(http.StatusOK, func(ctx context.Context, r *http.Request) (any, error) {
		id, err := strconv.ParseUint(r.PathValue("id"), 10, 64)
		if err != nil {
			return nil, ErrNotFound
		}
		return map[string]any{"order": id, "state": StatePaid}, way.Pay(ctx, id)
	}))
}

// RoutesOfShop adds the routes that only the version with the library has.
func (a *API) RoutesOfShop(s *Shop) {
	a.Mux.HandleFunc("POST /goods/{goods}/rebuild", answer(http.StatusOK, func(ctx context.Context, r *http.Request) (any, error) {
		return a.rebuildRequest(ctx, s, r.PathValue("goods"))
	}))
	a.Mux.Handle("GET /ready", probe.Ready(LongestRequest, s.Log)) // This is for a load balancer. A backlog does not make an instance unready.
}

// Way is a version of the service: with the library, or hand-written.
type Way interface {
	Sell(ctx context.Context, p Purchase) (Ticket, error)
	Find(ctx context.Context, p Purchase) (Order, error)
	Pay(ctx context.Context, id uint64) error
	Run(ctx context.Context) error // runs until ctx ends and finishes what it has begun
	End()                          // called after Run
}

func sellRequest(ctx context.Context, r *http.Request, way Way) (any, error) {
	var p Purchase
	decoder := json.NewDecoder(http.MaxBytesReader(nil, r.Body, MostBytes))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&p); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBad, err)
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	t, err := way.Sell(ctx, p)
	return Order{Ticket: t, State: "accepted"}, err
}

// rebuildRequest always fills the counter, because a person asked for it.
func (a *API) rebuildRequest(ctx context.Context, s *Shop, goods string) (any, error) {
	edition, err := a.counter.Edition(ctx, goods)
	if err != nil {
		return nil, err
	}
	if err := s.Rebuild(ctx, goods, edition); err != nil {
		return nil, err
	}
	n, err := a.counter.Read(ctx, goods)
	return map[string]any{"goods": goods, "stock": n.Stock, "buyers": len(n.Buyers)}, err
}

type refusal struct {
	Code string `json:"code"`
	Text string `json:"error"`
}

func answer(success int, serve func(context.Context, *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), LongestRequest)
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

// The first match in explanations counts.
var explanations = []struct {
	err    error
	status int
	code   string
}{
	{ErrNoGoods, http.StatusNotFound, "no_such_goods"},
	{ErrNotFound, http.StatusNotFound, "no_such_order"},
	{ErrBusy, http.StatusServiceUnavailable, "try_again"},
	{ErrSoldOut, http.StatusConflict, "sold_out"},
	{ErrAgain, http.StatusConflict, "bought_already"},
	{ErrCrowded, http.StatusConflict, "crowded"},
	{ErrClosed, http.StatusConflict, "order_closed"},
	{ErrBad, http.StatusBadRequest, "bad_request"},
}

// explain hides the details of server errors.
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
	return http.StatusServiceUnavailable, &refusal{"try_again", ErrBusy.Error()} // The outcome is unknown: either nothing or everything has happened.
}
