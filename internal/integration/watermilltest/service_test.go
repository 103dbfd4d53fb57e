package watermilltest

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/observe"
	relay "github.com/compensator-go/compensator/relay/watermill"
)

// waitTimeout is long, because a killed broker takes seconds to restart, and longer on a busy machine.
const waitTimeout = 4 * time.Minute

const serviceEnv = "WATERMILLTEST_SERVICE"

func TestMain(m *testing.M) {
	if text := os.Getenv(serviceEnv); text != "" {
		runService(text) // This process is a child that a test kills.
		return
	}
	harness.Main(m)
}

// A service records its actions in the table of effects.
type service struct {
	Plug plug
	DSN  string

	Relay   bool          // relay entries of the types single_message and batch_message
	Timeout time.Duration // limit of one Publish
	Stuck   bool          // whether to stop for good, and report "stuck", when an attempt has ended and its outcome is not stored

	Consume bool   // consume the topic as type order_received
	Fails   string // messages whose UUID has this suffix fail when they come from the topic
	Gate    bool   // whether the function waits for the effect "go"

	Deadline time.Duration // the deadline of each message in the router; none if it is 0
}

func runService(text string) {
	s := new(service)
	must(json.Unmarshal([]byte(text), s))
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0) // The parent has ended.
	}()
	must(s.run())
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func (s *service) run() error {
	db, err := harness.WatchedPool(s.DSN)()
	if err != nil {
		return err
	}
	c, err := compensator.New(context.Background(), compensator.Config{
		DB: db, Lease: 2 * time.Second, Grace: 200 * time.Millisecond, ReconcileInterval: 300 * time.Millisecond, PollInterval: 200 * time.Millisecond,
		Logger: slog.New(slog.DiscardHandler), Observer: observe.Observer{AttemptEnded: func(observe.AttemptEvent) {
			if s.Stuck {
				must(effect(db, "stuck"))
				select {}
			}
		}},
	})
	if err != nil {
		return err
	}
	if s.Relay {
		if err := s.relay(c); err != nil {
			return err
		}
	}
	if s.Consume {
		if err := s.consume(c, db); err != nil {
			return err
		}
	}
	if err := effect(db, "ready"); err != nil {
		return err
	}
	return c.Run(context.Background())
}

func (s *service) relay(c *compensator.Compensator) error {
	to, err := s.Plug.publisher()
	if err != nil {
		return err
	}
	publisher, err := relay.NewPublisher(to, relay.Config{Timeout: s.Timeout})
	if err != nil {
		return err
	}
	_, single := relay.Handle(context.Background(), c, "single_message", publisher, relay.To(s.Plug.Topic), &compensator.HandlerConfig[any]{MaxAttempts: 1, Concurrency: 20})
	_, batch := relay.HandleBatch(context.Background(), c, "batch_message", publisher, relay.To(s.Plug.Topic), &compensator.BatchConfig[any]{MaxAttempts: 1, Concurrency: 20, BatchSize: 20})
	return errors.Join(single, batch)
}

func (s *service) consume(c *compensator.Compensator, db *sql.DB) error {
	from, err := s.Plug.subscriber()
	if err != nil {
		return err
	}
	consumer, err := relay.Consume(context.Background(), c, "order_received", func(msg *message.Message) error {
		if err := effect(db, "begun:"+msg.UUID); err != nil {
			return err
		}
		if s.Gate {
			if err := awaitEffect(db, "go"); err != nil {
				return err
			}
		}
		if s.Fails != "" && strings.HasSuffix(msg.UUID, s.Fails) && relay.EntryFromCtx(msg.Context()) == nil {
			return errors.New("no luck")
		}
		return effect(db, "done:"+msg.UUID)
	}, relay.ConsumerConfig{Type: compensator.HandlerConfig[relay.Delivery]{Retry: compensator.Fixed(100 * time.Millisecond)}})
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	if s.Deadline > 0 {
		router.AddMiddleware(func(next message.HandlerFunc) message.HandlerFunc { // as watermill's middleware.Timeout does
			return func(msg *message.Message) ([]*message.Message, error) {
				ctx, cancel := context.WithTimeout(msg.Context(), s.Deadline)
				defer cancel()
				msg.SetContext(ctx)
				return next(msg)
			}
		})
	}
	router.AddConsumerHandler("orders", s.Plug.Topic, from, func(msg *message.Message) error {
		err := consumer.Handle(msg)
		if errors.Is(err, relay.ErrStream) {
			must(effect(db, "refused:"+msg.UUID))
		}
		return err
	})
	go func() { must(router.Run(context.Background())) }()
	<-router.Running()
	return nil
}

func effect(db *sql.DB, what string) error {
	_, err := db.Exec("INSERT INTO effects (what) VALUES (?)", what)
	return err
}

func awaitEffect(db *sql.DB, what string) error {
	for tick := time.NewTicker(20 * time.Millisecond); ; <-tick.C {
		var n int
		if err := db.QueryRow("SELECT COUNT(*) FROM effects WHERE what=?", what).Scan(&n); err != nil || n > 0 {
			return err
		}
	}
}

type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	kind string

	mu   sync.Mutex // guards said
	said bytes.Buffer
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.Write(b)
}

func start(w *harness.World, s service) *process {
	w.T.Helper()
	s.DSN = w.DSN
	text, err := json.Marshal(s)
	require.NoError(w.T, err)
	p := &process{t: w.T, cmd: exec.Command(os.Args[0]), kind: s.Plug.Kind}
	p.cmd.Env = append(os.Environ(), serviceEnv+"="+string(text))
	p.cmd.Stderr = p
	_, err = p.cmd.StdinPipe()
	require.NoError(w.T, err)
	before := w.Count("effects WHERE what='ready'")
	require.NoError(w.T, p.cmd.Start())
	w.T.Cleanup(p.kill)
	eventually(w.T, func() bool { return w.Count("effects WHERE what='ready'") > before }, "the service is ready")
	return p
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	if p.said.Len() == 0 {
		return
	}
	p.t.Log(p.said.String())
	if p.kind == "nats" { // Leave out RabbitMQ, because watermill-amqp reconnects without a lock, which the race detector reports.
		assert.NotContains(p.t, p.said.String(), "DATA RACE")
	}
	p.said.Reset()
}

func eventually(t *testing.T, check func() bool, what string, args ...any) {
	t.Helper()
	require.Eventually(t, check, waitTimeout, 20*time.Millisecond, fmt.Sprintf(what, args...))
}
