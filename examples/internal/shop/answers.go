package shop

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"

	"crypto/rand"
)

// Element n of a spread counts answers of up to 0.1 ms · 1.3^n.
type spread [60]int

const spreadBase = 1.3

func (s *spread) add(d time.Duration) {
	n := math.Ceil(math.Log(float64(d)/float64(100*time.Microsecond)) / math.Log(spreadBase))
	s[min(max(0, int(n)), len(s)-1)]++
}

func (s *spread) merge(other spread) {
	for i, n := range other {
		s[i] += n
	}
}

func (s *spread) count() (n int) {
	for _, some := range s {
		n += some
	}
	return n
}

func (s *spread) percentile(p float64) time.Duration {
	rank := int(math.Ceil(float64(s.count()) * p))
	for i, n := range s {
		if rank -= n; n > 0 && rank <= 0 {
			return time.Duration(float64(100*time.Microsecond) * math.Pow(spreadBase, float64(i)))
		}
	}
	return 0
}

// answers counts the answers of this instance in the current second, by how long they took. Each instance writes its
// last second to Redis, so that any instance can show the page.
type answers struct {
	instance string
	mu       sync.Mutex // guards second
	second   spread
}

func newAnswers() *answers { return &answers{instance: strings.ToLower(rand.Text()[:8])} }

func (a *answers) timed(handler http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		startedAt := time.Now()
		handler(w, r)
		took := time.Since(startedAt)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.second.add(took)
	}
}

type report struct {
	At     int64  `json:"at"` // Unix time in ms
	Spread spread `json:"spread"`
}

const freshFor = 3 * time.Second

func answersKey(name string) string { return name + ":answers" }

// Ignore a failed write: only the page is wrong.
func (a *answers) share(ctx context.Context, c *Counter) {
	for pause(ctx, time.Second) {
		a.mu.Lock()
		second := a.second
		a.second = spread{}
		a.mu.Unlock()
		text, _ := json.Marshal(report{At: time.Now().UnixMilli(), Spread: second}) // Ignore the error, because numbers can always be encoded.
		_ = c.Redis.HSet(ctx, answersKey(c.Name), a.instance, text).Err()
	}
	_ = c.Redis.HDel(context.WithoutCancel(ctx), answersKey(c.Name), a.instance).Err()
}

func lastSecond(ctx context.Context, c *Counter) (all spread, err error) {
	texts, err := c.Redis.HGetAll(ctx, answersKey(c.Name)).Result()
	for _, text := range texts {
		var one report
		if json.Unmarshal([]byte(text), &one) == nil && time.Since(time.UnixMilli(one.At)) < freshFor {
			all.merge(one.Spread)
		}
	}
	return all, err
}
