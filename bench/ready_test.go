package bench

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/observe/probe"
)

// A prober sends a request every 2 s and accepts an answer within 1.5 s.
func TestReady(t *testing.T) {
	const tries, every, deadline = 20, 2 * time.Second, 1500 * time.Millisecond
	a := newArena(t)
	client := a.client()
	t.Cleanup(func() { _ = client.Close() })
	c, err := compensator.New(t.Context(), compensator.Config{DB: a.openWatched(4), Redis: client, Logger: slog.New(slog.DiscardHandler)})
	a.must(err)
	t.Cleanup(func() { _ = c.Close() })
	server := httptest.NewServer(probe.Ready(deadline, c))
	t.Cleanup(server.Close)
	a.redis.Pause()
	t.Cleanup(a.redis.Resume)
	prober := &http.Client{Timeout: every}
	ready, took := 0, make([]time.Duration, tries)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for i := range tries {
		began := time.Now()
		answer, err := prober.Get(server.URL)
		took[i] = time.Since(began)
		if err == nil {
			body, _ := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK && took[i] <= deadline {
				ready++
			} else {
				fmt.Printf("try %d after %v: %d %s", i+1, took[i].Round(time.Millisecond), answer.StatusCode, body)
			}
		}
		<-ticker.C
	}
	ms := quantiles(took)
	fmt.Printf("\nready within %v in %d of %d tries while Redis is silent; answered after p50 %.0f ms, p95 %.0f ms\n", deadline, ready, tries, ms[0], ms[1])
}
