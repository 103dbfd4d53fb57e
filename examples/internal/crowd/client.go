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

// Client sends the buyers' requests to the instances. It tries one instance after the other until one answers.
type Client struct {
	http      *http.Client
	addresses []func() string // return the current address of each instance
	asked     atomic.Uint64
}

// NewClient returns a Client.
func NewClient(addresses ...func() string) *Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 5000}
	return &Client{http: &http.Client{Transport: transport, Timeout: 20 * time.Second}, addresses: addresses}
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Answered is an answer of the service.
type Answered struct {
	Status int
	Order  uint64 `json:"order"`
	Ticket string `json:"ticket"`
	State  string `json:"state"`
	Code   string `json:"code"`
}

const (
	firstPause   = 100 * time.Millisecond
	longestPause = 2 * time.Second
)

// Ask sends a request until the status of the answer is below 500 or ctx ends.
func (c *Client) Ask(ctx context.Context, method, path string, body any, try func(Answered, time.Duration)) (Answered, error) {
	encoded, err := json.Marshal(body)
	if err != nil {
		return Answered{}, err
	}
	for maxPause := firstPause; ; maxPause = min(2*maxPause, longestPause) {
		startedAt := time.Now()
		answer, err := c.once(ctx, method, path, encoded)
		try(answer, time.Since(startedAt))
		if err == nil && answer.Status < http.StatusInternalServerError {
			return answer, nil
		}
		if !faults.Pause(ctx, maxPause/2+rand.N(maxPause)) {
			return answer, fmt.Errorf("%s %s: %w, last: %d %v", method, path, context.Cause(ctx), answer.Status, err)
		}
	}
}

func (c *Client) once(ctx context.Context, method, path string, body []byte) (answer Answered, err error) {
	address := c.addresses[c.asked.Add(1)%uint64(len(c.addresses))]()
	request, err := http.NewRequestWithContext(ctx, method, "http://"+address+path, bytes.NewReader(body))
	if err != nil {
		return answer, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return answer, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	if err != nil {
		return Answered{}, err // An incomplete answer counts as none.
	}
	answer.Status = response.StatusCode
	return answer, nil
}
