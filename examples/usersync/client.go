package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"
)

// client repeats uploads, so the service must handle repetitions safely.
type client struct {
	http      *http.Client
	addresses []func() string // return the current address of each instance
	asked     atomic.Uint64
	retried   atomic.Int64
}

const againAfter = 50 * time.Millisecond

func newClient(addresses ...func() string) *client {
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	return &client{http: &http.Client{Transport: transport, Timeout: 2 * longestRequest}, addresses: addresses}
}

func (c *client) close() { c.http.CloseIdleConnections() }

type answered struct {
	Status int
	Batch  string `json:"batch"`
	Trace  string `json:"trace"`
	Users  int    `json:"users"`
	Synced int    `json:"synced"`
	Person int    `json:"person"`
	Field  string `json:"field"`
	Error  string `json:"error"`
}

func (c *client) upload(ctx context.Context, batch, operator, trace string, users []byte) (answered, error) {
	query := url.Values{"batch": {batch}, "operator": {operator}}
	return c.untilAnswered(ctx, http.MethodPost, "/batches?"+query.Encode(), trace, users)
}

func (c *client) progress(ctx context.Context, batch string) (answered, error) {
	return c.untilAnswered(ctx, http.MethodGet, "/batches/"+url.PathEscape(batch), "", nil)
}

func (c *client) untilAnswered(ctx context.Context, method, path, trace string, body []byte) (answered, error) {
	for {
		got, err := c.once(ctx, method, path, trace, body)
		if err == nil && got.Status < http.StatusInternalServerError {
			return got, nil
		}
		if !pause(ctx, againAfter) {
			return got, fmt.Errorf("%s %s: %w, last: %d %w", method, path, context.Cause(ctx), got.Status, err)
		}
		c.retried.Add(1)
	}
}

func (c *client) once(ctx context.Context, method, path, trace string, body []byte) (got answered, err error) {
	address := c.addresses[c.asked.Add(1)%uint64(len(c.addresses))]()
	request, err := http.NewRequestWithContext(ctx, method, "http://"+address+path, bytes.NewReader(body))
	if err != nil {
		return got, err
	}
	request.Header.Set("X-Trace-Id", trace)
	response, err := c.http.Do(request)
	if err != nil {
		return got, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil {
		err = json.Unmarshal(text, &got)
	}
	got.Status = response.StatusCode
	return got, err
}
