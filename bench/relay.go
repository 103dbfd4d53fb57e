package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/bench/internal/child"
	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/relay/rabbitmq"
)

// The library uses its defaults, and the floor uses the same numbers. The floor is the hand-written program with which
// the library is compared.
const (
	relayChannels = 50  // default of a Publisher
	relayBatch    = 100 // default of a batch handler
)

type post struct {
	a      *arena
	server *testservers.RabbitMQServer
	queue  string
}

func (a *arena) newPost() *post {
	server := testservers.NewRabbitMQ(a)
	p := &post{a: a, server: server, queue: server.Name()}
	p.withChannel(func(ch *amqp091.Channel) error {
		_, err := ch.QueueDeclare(p.queue, true, false, false, false, nil)
		return err
	})
	return p
}

func (p *post) withChannel(run func(ch *amqp091.Channel) error) {
	p.a.Helper()
	conn, err := amqp091.Dial(p.server.URL())
	p.a.must(err)
	defer conn.Close()
	ch, err := conn.Channel()
	p.a.must(err)
	p.a.must(run(ch))
}

func (p *post) empty() {
	p.a.empty()
	p.withChannel(func(ch *amqp091.Channel) error {
		_, err := ch.QueuePurge(p.queue, false)
		return err
	})
}

// relayed compares a relay of the library with a floor, a hand-written program that sends the same messages. The floor
// uses amqp091 directly. It reads no log and stores no outcome.
func (p *post) relayed(n, batch int) contest {
	how := "one by one"
	if batch > 1 {
		how = "in batches"
	}
	return contest{
		work: "relay to RabbitMQ, " + how, other: fmt.Sprintf("floor: bare amqp091, %d channels", relayChannels), unit: "messages/s",
		reset: p.empty, prepare: func() { p.a.backlog(n) },
		ours:   func() float64 { return p.relay(direct, n, batch) },
		theirs: func() float64 { return p.publishBare(n, batch) },
	}
}

// relay returns how many messages a second it publishes.
func (p *post) relay(register registerRelay, n, batch int) float64 {
	p.a.Helper()
	r, err := openRelay(register, p.a.dsn, p.a.redis.Addr(), p.server.URL(), p.queue, batch)
	p.a.must(err)
	r.a = p.a
	defer r.publisher.Close()
	defer r.close()
	began := time.Now()
	r.run()
	p.a.waitUntil(func() bool { return r.settled.Load() >= int64(n) })
	return float64(n) / time.Since(began).Seconds()
}

type relaying struct {
	*library
	publisher io.Closer
}

// The returned publisher must be closed after Run.
type registerRelay func(c *compensator.Compensator, url, queue string, batch int) (io.Closer, error)

func openRelay(register registerRelay, dsn, redis, url, queue string, batch int) (*relaying, error) {
	db, err := openPool(dsn, producers+4, true)
	if err != nil {
		return nil, err
	}
	l, err := openLibrary(db, newClient(redis), compensator.HandlerConfig[raw]{}, nil, nil)
	if err != nil {
		return nil, err
	}
	publisher, err := register(l.Compensator, url, queue, batch)
	return &relaying{l, publisher}, err
}

var relayedSingly = &compensator.HandlerConfig[raw]{TypeConfig: compensator.TypeConfig{Codec: asIs{}}, Concurrency: 1000}

func relayedInBatches(size int) *compensator.BatchConfig[raw] {
	return &compensator.BatchConfig[raw]{TypeConfig: compensator.TypeConfig{Codec: asIs{}}, Concurrency: 1000 / size, BatchSize: size}
}

func direct(c *compensator.Compensator, url, queue string, batch int) (io.Closer, error) {
	publisher, err := rabbitmq.Open(rabbitmq.Config{URL: url, Channels: relayChannels, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	if batch > 1 {
		_, err = rabbitmq.HandleBatch(context.Background(), c, benchType, publisher, rabbitmq.To("", queue), relayedInBatches(batch))
	} else {
		_, err = rabbitmq.Handle(context.Background(), c, benchType, publisher, rabbitmq.To("", queue), relayedSingly)
	}
	return publisher, err
}

// Each channel publishes batch messages and then waits for their confirms.
func (p *post) publishBare(n, batch int) float64 {
	p.a.Helper()
	conn, err := amqp091.Dial(p.server.URL())
	p.a.must(err)
	defer conn.Close()
	var left atomic.Int64
	left.Store(int64(n))
	var group sync.WaitGroup
	failures := make(chan error, relayChannels)
	began := time.Now()
	for range relayChannels {
		group.Go(func() { failures <- p.bareChannel(conn, &left, batch) })
	}
	group.Wait()
	took := time.Since(began)
	for range relayChannels {
		p.a.must(<-failures)
	}
	return float64(n) / took.Seconds()
}

func (p *post) bareChannel(conn *amqp091.Connection, left *atomic.Int64, batch int) error {
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.Confirm(false); err != nil {
		return err
	}
	for {
		after := left.Add(-int64(batch))
		now := min(int64(batch), after+int64(batch))
		if now <= 0 {
			return nil
		}
		confirms := make([]*amqp091.DeferredConfirmation, now)
		for i := range confirms {
			confirms[i], err = ch.PublishWithDeferredConfirm("", p.queue, true, false, amqp091.Publishing{
				MessageId: fmt.Sprint(after, i), Type: benchType, DeliveryMode: amqp091.Persistent, Body: content})
			if err != nil {
				return err
			}
		}
		for _, confirm := range confirms {
			if !confirm.Wait() {
				return fmt.Errorf("no confirm")
			}
		}
	}
}

const relayVictimEnv = "BENCH_RELAY_VICTIM"

type relayVictim struct {
	DSN, Redis, URL, Queue string
	Batch                  int
}

func runRelayVictim() {
	text := os.Getenv(relayVictimEnv)
	if text == "" {
		return
	}
	var v relayVictim
	err := json.Unmarshal([]byte(text), &v)
	if err == nil {
		var r *relaying
		if r, err = openRelay(direct, v.DSN, v.Redis, v.URL, v.Queue, v.Batch); err == nil {
			err = r.Run(context.Background())
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

type doubled struct {
	Batch    int `json:"batch"`
	Messages int `json:"messages"`
	Kills    int `json:"kills"`
	Lost     int `json:"lost"`
	Doubled  int `json:"doubled"`
}

const doubledHead = "| messages at a time | messages | kills -9 | lost | came twice, under their id |\n| ---: | ---: | ---: | ---: | ---: |"

func (d doubled) String() string {
	return fmt.Sprintf("| %d | %d | %d | %d | %d |", d.Batch, d.Messages, d.Kills, d.Lost, d.Doubled)
}

// measureDoubled kills relays while they publish n messages, one relay after the other. Another relay then publishes
// the messages that are left.
func (p *post) measureDoubled(n, kills, batch int) doubled {
	p.a.Helper()
	p.empty()
	p.a.backlog(n)
	done := func() (k int) {
		p.a.must(p.a.admin.QueryRowContext(p.a.Context(), "SELECT COUNT(*) FROM common_process_log WHERE state=1").Scan(&k))
		return k
	}
	d := doubled{Batch: batch, Messages: n}
	for d.Kills < kills {
		before := done()
		kill := p.startVictim(batch)
		p.a.waitUntil(func() bool { return done() > before })
		time.Sleep(rand.N(200 * time.Millisecond))
		kill()
		d.Kills++
		if done() == n {
			break
		}
	}
	kill := p.startVictim(batch)
	p.a.waitUntil(func() bool { return done() == n })
	kill()
	ids := make(map[string]int)
	p.withChannel(func(ch *amqp091.Channel) error {
		for {
			m, ok, err := ch.Get(p.queue, true)
			if err != nil || !ok {
				return err
			}
			ids[m.MessageId]++
		}
	})
	d.Lost = n - len(ids)
	for _, times := range ids {
		d.Doubled += times - 1
	}
	return d
}

func (p *post) startVictim(batch int) (kill func()) {
	p.a.Helper()
	text, err := json.Marshal(relayVictim{p.a.dsn, p.a.redis.Addr(), p.server.URL(), p.queue, batch})
	p.a.must(err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), relayVictimEnv+"="+string(text))
	cmd.Stderr, cmd.SysProcAttr = os.Stderr, child.Attributes(nil, syscall.SIGKILL)
	p.a.must(cmd.Start())
	return func() {
		p.a.must(cmd.Process.Kill())
		_ = cmd.Wait()
	}
}
