package crowd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/examples/internal/faults"
)

// Client is all buyers' way to the instances. It asks one after the other until one answers, and relies on the service
// to make asking twice harmless.
type Client struct {
	http      *http.Client
	addresses []func() string // of the instances, as they run now
	asked     atomic.Uint64
}

// NewClient takes where each instance listens now.
func NewClient(addresses ...func() string) *Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 5000}
	return &Client{http: &http.Client{Transport: transport, Timeout: 20 * time.Second}, addresses: addresses}
}

// Close ends connections that nobody uses.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Answered is what the service says; Status is of HTTP, and 0 when there was no answer.
type Answered struct {
	Status int
	Order  uint64 `json:"order"`
	Ticket string `json:"ticket"`
	State  string `json:"state"`
	Code   string `json:"code"`
}

// Pauses before the same is asked again.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = 2 * time.Second
)

// Ask tries until something below 500 is Answered, or ctx ends. Each try is told to try.
func (c *Client) Ask(ctx context.Context, method, path string, body any, try func(Answered, time.Duration)) (Answered, error) {
	encoded, err := json.Marshal(body)
	if err != nil {
		return Answered{}, err
	}
	for most := firstPause; ; most = min(2*most, longestPause) {
		began := time.Now()
		got, err := c.once(ctx, method, path, encoded)
		try(got, time.Since(began))
		if err == nil && got.Status < http.StatusInternalServerError {
			return got, nil
		}
		if !faults.Pause(ctx, most/2+rand.N(most)) {
			return got, fmt.Errorf("%s %s: %w, last: %d %v", method, path, context.Cause(ctx), got.Status, err)
		}
	}
}

func (c *Client) once(ctx context.Context, method, path string, body []byte) (got Answered, err error) {
	address := c.addresses[c.asked.Add(1)%uint64(len(c.addresses))]()
	request, err := http.NewRequestWithContext(ctx, method, "http://"+address+path, bytes.NewReader(body))
	if err != nil {
		return got, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return got, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil {
		err = json.Unmarshal(text, &got)
	}
	if err != nil {
		return Answered{}, err // half an answer is none
	}
	got.Status = response.StatusCode
	return got, nil
}
