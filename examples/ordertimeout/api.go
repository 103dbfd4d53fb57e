package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/compensator-go/compensator/observe/probe"
)

const longestRequest = 10 * time.Second

// routes returns the HTTP interface: JSON requests, and an order or {"error"} as response. A client may repeat every
// request that was answered with 5xx.
func (s *shop) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", answer(http.StatusCreated, s.placeRequest))
	mux.HandleFunc("POST /orders/{id}/pay", answer(http.StatusOK, s.payRequest))
	mux.HandleFunc("GET /orders/{id}", answer(http.StatusOK, s.findRequest))
	mux.Handle("GET /ready", probe.Ready(longestRequest, s.log)) // This is for a load balancer. A backlog does not make an instance unready.
	return mux
}

func (s *shop) placeRequest(ctx context.Context, r *http.Request) (order, error) {
	var wanted newOrder
	if err := json.NewDecoder(r.Body).Decode(&wanted); err != nil {
		return order{}, fmt.Errorf("%w: %w", errBadOrder, err)
	}
	if wanted.Key == "" {
		wanted.Key = rand.Text()
	}
	if err := wanted.validate(); err != nil {
		return order{}, err
	}
	return s.place(ctx, wanted)
}

func (s *shop) payRequest(ctx context.Context, r *http.Request) (order, error) {
	id, err := orderID(r)
	if err != nil {
		return order{}, err
	}
	return s.pay(ctx, id)
}

func (s *shop) findRequest(ctx context.Context, r *http.Request) (order, error) {
	id, err := orderID(r)
	if err != nil {
		return order{}, err
	}
	return s.find(ctx, findByID, id)
}

func orderID(r *http.Request) (uint64, error) {
	id, err := strconv.ParseUint(r.PathValue("id"), 10, 64)
	if err != nil {
		return 0, errNotFound
	}
	return id, nil
}

func answer(success int, serve func(context.Context, *http.Request) (order, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), longestRequest)
		defer cancel()
		o, err := serve(ctx, r)
		var body any = o
		status := success
		if err != nil {
			status = statusOf(err)
			body = map[string]string{"error": err.Error()}
		}
		if status == http.StatusServiceUnavailable {
			slog.Warn("request failed", "path", r.URL.Path, "err", err)
			body = map[string]string{"error": "try again"} // Hide the details from the client.
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body)
	}
}

func statusOf(err error) int {
	switch {
	case errors.Is(err, errBadOrder):
		return http.StatusBadRequest
	case errors.Is(err, errNotFound):
		return http.StatusNotFound
	case errors.Is(err, errSoldOut), errors.Is(err, errClosed):
		return http.StatusConflict
	}
	return http.StatusServiceUnavailable // For example after a deadlock or a broken connection. Either nothing or everything happened.
}
