package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/observe/probe"
)

const (
	longestRequest = 10 * time.Second
)

// A client that got no answer may upload the same batch again.
func uploadRequest(up func(context.Context, *upload) (batch, error)) func(context.Context, *http.Request) (any, error) {
	return func(ctx context.Context, r *http.Request) (any, error) {
		users, err := readUsers(http.MaxBytesReader(nil, r.Body, mostBytes))
		if err != nil {
			return nil, err
		}
		query := r.URL.Query()
		u := upload{Batch: query.Get("batch"), Operator: query.Get("operator"), Trace: r.Header.Get("X-Trace-Id"), Users: users}
		if u.Trace == "" {
			u.Trace = rand.Text()
		}
		if err := u.validate(); err != nil {
			return nil, err
		}
		return up(ctx, &u)
	}
}

// A client may repeat every request that was answered with 5xx.
func (s *syncer) routes(mux *http.ServeMux) {
	mux.HandleFunc("POST /batches", answer(http.StatusCreated, uploadRequest(s.upload)))
	mux.HandleFunc("GET /batches/{batch}", answer(http.StatusOK, s.progressRequest))
	mux.HandleFunc("POST /batches/{batch}/users/{user}/repair", answer(http.StatusOK, s.repairRequest))
	mux.Handle("GET /ready", probe.Ready(longestRequest, s.log)) // For a load balancer. A backlog does not make an instance unready.
}

func (s *syncer) progressRequest(ctx context.Context, r *http.Request) (any, error) {
	b, err := findBatch(ctx, s.db, r.PathValue("batch"))
	if err != nil {
		return nil, err
	}
	found := batchStanding{batch: b}
	if err := s.fillIn(ctx, &found); err != nil {
		return nil, err
	}
	return map[string]any{"batch": b.Batch, "operator": b.Operator, "trace": b.Trace, "users": b.Users,
		"synced": found.Synced, "waiting": found.Waiting, "person": found.Dead}, nil
}

func (s *syncer) repairRequest(ctx context.Context, r *http.Request) (any, error) {
	actor := repair{Batch: r.PathValue("batch"), User: r.PathValue("user"), Email: r.FormValue("email"), Operator: r.FormValue("operator")}
	return actor, s.repair(ctx, actor)
}

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
			slog.Warn("request failed", "path", r.URL.Path, "err", err)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body)
	}
}

// explain hides the details of server errors.
func explain(err error) (int, *refusal) {
	var bad *refusal
	var tooLarge *http.MaxBytesError
	var state *compensator.StateError
	switch {
	case errors.Is(err, errOtherBatch), errors.Is(err, errSynced), errors.Is(err, admin.ErrChanged), errors.As(err, &state):
		status := http.StatusConflict
		if errors.As(err, &bad) {
			return status, bad
		}
		return status, &refusal{Field: "user", Reason: err.Error()}
	case errors.As(err, &bad):
		return http.StatusBadRequest, bad
	case errors.As(err, &tooLarge):
		return http.StatusRequestEntityTooLarge, &refusal{Field: "users", Reason: fmt.Sprintf("more than %d bytes", tooLarge.Limit)}
	case errors.Is(err, errNotFound):
		return http.StatusNotFound, &refusal{Field: "batch", Reason: err.Error()}
	}
	return http.StatusServiceUnavailable, &refusal{Reason: "try again"} // The outcome is unknown: nothing or everything happened.
}
