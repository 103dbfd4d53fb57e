package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// client repeats requests, so the service must handle repetitions safely.
type client struct {
	http    *http.Client
	address func() string // returns the address of the running service
	retried atomic.Int64
}

const againAfter = 50 * time.Millisecond

func newClient(address func() string) *client {
	transport := &http.Transport{MaxIdleConnsPerHost: 1000}
	return &client{http: &http.Client{Transport: transport, Timeout: 2 * longestRequest}, address: address}
}

func (c *client) close() { c.http.CloseIdleConnections() }

func (c *client) place(ctx context.Context, wanted newOrder) (uint64, error) {
	var got order
	status, err := c.post(ctx, "/orders", wanted, &got)
	if err == nil && status != http.StatusCreated {
		err = fmt.Errorf("order %s: HTTP status %d", wanted.Key, status)
	}
	return got.ID, err
}

func (c *client) pay(ctx context.Context, id uint64) (bool, error) {
	status, err := c.post(ctx, fmt.Sprintf("/orders/%d/pay", id), nil, nil)
	switch {
	case err != nil, status == http.StatusOK:
		return err == nil, err
	case status == http.StatusConflict:
		return false, nil
	}
	return false, fmt.Errorf("pay order %d: HTTP status %d", id, status)
}

func (c *client) post(ctx context.Context, path string, body, target any) (int, error) {
	encoded, err := json.Marshal(body)
	if err != nil {
		return 0, err
	}
	for {
		status, err := c.try(ctx, path, encoded, target)
		if err == nil && status < http.StatusInternalServerError {
			return status, nil
		}
		c.retried.Add(1)
		if !pause(ctx, againAfter) {
			return status, fmt.Errorf("POST %s: %w (last: status %d, %v)", path, ctx.Err(), status, err)
		}
	}
}

func (c *client) try(ctx context.Context, path string, body []byte, target any) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.address()+path, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil || target == nil || response.StatusCode >= http.StatusBadRequest {
		return response.StatusCode, err
	}
	return response.StatusCode, json.Unmarshal(answer, target)
}

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
