package intake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
)

var errTest = errors.New("no luck")

type rig struct {
	*harness.World
	rdb    redis.UniversalClient
	stream string
}

func newRig(t *testing.T) *rig {
	w := harness.NewWorld(t).WithRedis()
	return &rig{World: w, rdb: w.Redis, stream: w.Name + ":orders"}
}

// withRedis makes the rig use another Redis than the one that all tests share. Use it if the test breaks or configures
// the server, because that would affect the other tests.
func (r *rig) withRedis(client redis.UniversalClient) *rig {
	r.rdb = client
	return r
}

// A message of the kind poison does not contain an order.
type order struct {
	N int `json:"n"`
}

func decode(m *Message) (compensator.NewEntry, error) {
	var o order
	if err := json.Unmarshal([]byte(m.Fields["order"]), &o); err != nil {
		return compensator.NewEntry{}, err
	}
	m.Value = o
	return compensator.NewEntry{BusinessType: "take_order", Content: []byte(m.Fields["order"]), Options: compensator.Options{Delay: time.Hour}}, nil
}

func effects(ctx context.Context, tx *compensator.ScopedTx, batch []*Message) error {
	marks, args := make([]string, len(batch)), make([]any, len(batch))
	for i, m := range batch {
		marks[i], args[i] = "(?)", fmt.Sprint("order ", m.Value.(order).N)
	}
	_, err := tx.ExecContext(ctx, "INSERT INTO effects (what) VALUES "+strings.Join(marks, ","), args...)
	return err
}

// failing returns a Work that writes nothing if answer returns an error for a message.
func failing(answer func(m *Message) error) func(context.Context, *compensator.ScopedTx, []*Message) error {
	return func(ctx context.Context, tx *compensator.ScopedTx, batch []*Message) error {
		for _, m := range batch {
			if err := answer(m); err != nil {
				return err
			}
		}
		return effects(ctx, tx, batch)
	}
}

func testConfig() Config {
	return Config{
		Type: "order_aside", Entry: decode, Work: effects, Timeout: 5 * time.Second, Logger: slog.New(slog.DiscardHandler),
		Aside: compensator.HandlerConfig[Message]{Retry: compensator.Fixed(50 * time.Millisecond), MaxAttempts: 3},
	}
}

func (r *rig) spec() Stream {
	return Stream{Redis: r.rdb, Stream: r.stream, Group: "shop", Block: 20 * time.Millisecond, Idle: 10 * time.Minute}
}

func (r *rig) open(c *compensator.Compensator, s Stream, cfg Config) *Intake {
	r.T.Helper()
	in, err := s.Open(context.Background(), c, cfg)
	require.NoError(r.T, err)
	return in
}

// Stream.Open does not allow such a short Idle, because on a slow machine a batch would take longer than that.
func (r *rig) openSoon(c *compensator.Compensator, s Stream, idle time.Duration, cfg Config) *Intake {
	r.T.Helper()
	in, err := openSoon(c, s, idle, cfg)
	require.NoError(r.T, err)
	return in
}

func openSoon(c *compensator.Compensator, s Stream, idle time.Duration, cfg Config) (*Intake, error) {
	drawn := s.Consumer == ""
	s.Idle = idle
	return Open(context.Background(), c, &group{Stream: s.withDefaults(), nameDrawn: drawn, log: cfg.Logger, isOwn: true}, cfg)
}

func (r *rig) start(in *Intake) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- in.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		assert.NoError(r.T, <-result)
	})
	r.T.Cleanup(stop)
	return stop
}

func (r *rig) add(first, n int) {
	r.T.Helper()
	for from := first; from < first+n; from += 500 {
		pipe := r.rdb.Pipeline()
		for i := from; i < min(from+500, first+n); i++ {
			pipe.XAdd(r.T.Context(), &redis.XAddArgs{Stream: r.stream, Values: []string{"order", fmt.Sprintf(`{"n":%d}`, i)}})
		}
		_, err := pipe.Exec(r.T.Context())
		assert.NoError(r.T, err)
	}
}

func (r *rig) addAs(id string, n int) {
	r.T.Helper()
	assert.NoError(r.T, r.rdb.XAdd(r.T.Context(), &redis.XAddArgs{Stream: r.stream, ID: id, Values: []string{"order", fmt.Sprintf(`{"n":%d}`, n)}}).Err())
}

func (r *rig) addRaw(values ...string) string {
	r.T.Helper()
	id, err := r.rdb.XAdd(r.T.Context(), &redis.XAddArgs{Stream: r.stream, Values: values}).Result()
	assert.NoError(r.T, err)
	return id
}

func (r *rig) waitSettled(group string) {
	r.T.Helper()
	r.Eventually(func() bool { return r.atRest(group) }, "group %s has acknowledged everything", group)
}

func (r *rig) atRest(group string) bool {
	stream, err := r.rdb.XInfoStream(r.T.Context(), r.stream).Result()
	if err != nil {
		return false
	}
	groups, err := r.rdb.XInfoGroups(r.T.Context(), r.stream).Result()
	if err != nil {
		return false
	}
	for _, g := range groups {
		if g.Name == group {
			return g.Pending == 0 && g.LastDeliveredID == stream.LastGeneratedID
		}
	}
	return false
}

func (r *rig) requireBooks(n, aside int) {
	r.T.Helper()
	require.Equal(r.T, n, r.Count("common_process_log WHERE business_type='take_order'"), "entries")
	require.Equal(r.T, n, r.Count("effects"), "effects")
	var distinct int
	require.NoError(r.T, r.DB.QueryRow("SELECT COUNT(DISTINCT what) FROM effects").Scan(&distinct))
	require.Equal(r.T, n, distinct, "effects of different orders")
	require.Equal(r.T, aside, r.Count("common_process_log WHERE business_type='order_aside'"), "set aside")
}
