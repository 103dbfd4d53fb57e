package watermilltest

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/testservers"
)

// broker gives tests access to a broker through its plain client, with one topic that survives a kill.
type broker interface {
	plug() plug
	addr() string
	urlAt(addr string) string
	send(ids ...string)  // sends messages with the given UUIDs, as watermill's publisher does
	ids() map[string]int // takes all messages of the topic and counts them by UUID
	left() int           // counts waiting messages; on NATS it also counts unacknowledged ones, which AMQP does not report
	kill()
	restart()
}

func onEach(t *testing.T, own bool, test func(t *testing.T, b broker)) {
	t.Run("rabbitmq", func(t *testing.T) {
		t.Parallel()
		test(t, newRabbit(t, own, plug{}))
	})
	t.Run("nats", func(t *testing.T) {
		t.Parallel()
		test(t, newNATS(t))
	})
}

// plug holds the settings of a topic that the README of relay/watermill recommends.
type plug struct {
	Kind, URL, Topic string

	// The next fields are only for RabbitMQ.
	QueueType     string // "" means classic
	DeliveryLimit int    // 0 means none
	Plain         bool   // use watermill-amqp's default marshaler, which reads only text headers
}

func (p plug) queueArguments() amqp091.Table {
	if p.QueueType == "" {
		return nil
	}
	arguments := amqp091.Table{"x-queue-type": p.QueueType}
	if p.DeliveryLimit > 0 {
		arguments["x-delivery-limit"] = p.DeliveryLimit
	}
	return arguments
}

// uuidHeader is the header in which both marshalers of watermill store the UUID.
const uuidHeader = wmamqp.DefaultMessageUUIDHeaderKey

func (p plug) amqp() wmamqp.Config {
	config := wmamqp.NewDurableQueueConfig(p.URL)
	config.Publish.ConfirmDelivery = true
	config.Connection.Reconnect = &wmamqp.ReconnectConfig{
		BackoffInitialInterval: 100 * time.Millisecond, BackoffMultiplier: 1.1, BackoffMaxInterval: time.Second}
	config.Queue.Arguments = p.queueArguments()
	if p.QueueType == "stream" {
		config.Consume.Arguments = amqp091.Table{"x-stream-offset": "first"}
	}
	if !p.Plain {
		config.Marshaler = marshaler{}
	}
	return config
}

// marshaler is the marshaler in the README of relay/watermill.
type marshaler struct{ wmamqp.DefaultMarshaler }

func (m marshaler) Unmarshal(d amqp091.Delivery) (*message.Message, error) {
	headers := make(amqp091.Table, len(d.Headers))
	for name, value := range d.Headers {
		headers[name] = fmt.Sprint(value)
	}
	d.Headers = headers
	return m.DefaultMarshaler.Unmarshal(d)
}

func (p plug) publisher() (message.Publisher, error) {
	if p.Kind == "nats" {
		return wmnats.NewPublisher(wmnats.PublisherConfig{URL: p.URL, NatsOptions: natsOptions}, watermill.NopLogger{})
	}
	config := p.amqp()
	config.Publish.ChannelPoolSize = 20 // With a smaller pool, each message would open a channel and wait for the broker's reply.
	return wmamqp.NewPublisher(config, watermill.NopLogger{})
}

func (p plug) subscriber() (message.Subscriber, error) {
	if p.Kind == "nats" {
		return wmnats.NewSubscriber(wmnats.SubscriberConfig{
			URL: p.URL, NatsOptions: natsOptions, QueueGroupPrefix: "service", AckWaitTimeout: natsTimeout,
			JetStream: wmnats.JetStreamConfig{DurablePrefix: "service", SubscribeOptions: []nats.SubOpt{
				nats.DeliverAll(), nats.AckExplicit(), nats.ManualAck(), nats.AckWait(natsTimeout)}},
		}, watermill.NopLogger{})
	}
	return wmamqp.NewSubscriber(p.amqp(), watermill.NopLogger{})
}

const natsTimeout = 5 * time.Second

var natsOptions = []nats.Option{nats.MaxReconnects(-1), nats.ReconnectWait(100 * time.Millisecond)}

type rabbit struct {
	*testservers.RabbitMQServer
	t     *testing.T
	queue string
	kind  plug // settings of the queue and its messages; Kind, URL and Topic are empty
}

func newRabbit(t *testing.T, own bool, kind plug) *rabbit {
	b := &rabbit{t: t, kind: kind}
	if own {
		b.RabbitMQServer = testservers.NewRabbitMQ(t)
	} else {
		b.RabbitMQServer = testservers.SharedRabbitMQ(t)
	}
	b.queue = b.Name()
	b.with(func(ch *amqp091.Channel) error {
		_, err := ch.QueueDeclare(b.queue, true, false, false, false, b.kind.queueArguments())
		return err
	})
	if own {
		b.Control(t, "eval", "catch mnesia:sync_log().") // RabbitMQ 3 confirms a declaration before it has written it to disk.
		return b
	}
	t.Cleanup(func() {
		b.with(func(ch *amqp091.Channel) error {
			_, err := ch.QueueDelete(b.queue, false, false, false)
			return err
		})
	})
	return b
}

func (b *rabbit) with(work func(ch *amqp091.Channel) error) {
	b.t.Helper()
	conn, err := amqp091.Dial(b.URL())
	require.NoError(b.t, err)
	defer conn.Close()
	ch, err := conn.Channel()
	require.NoError(b.t, err)
	require.NoError(b.t, work(ch))
}

func (b *rabbit) plug() plug {
	p := b.kind
	p.Kind, p.URL, p.Topic = "rabbitmq", b.URL(), b.queue
	return p
}
func (b *rabbit) addr() string             { return b.Addr() }
func (b *rabbit) urlAt(addr string) string { return b.URLAt(addr) }
func (b *rabbit) kill()                    { b.Kill() }
func (b *rabbit) restart()                 { b.Restart(b.t) }

func (b *rabbit) send(ids ...string) {
	b.t.Helper()
	b.with(func(ch *amqp091.Channel) error {
		if err := ch.Confirm(false); err != nil {
			return err
		}
		for _, id := range ids {
			confirm, err := ch.PublishWithDeferredConfirm("", b.queue, true, false, amqp091.Publishing{
				DeliveryMode: amqp091.Persistent, Headers: amqp091.Table{uuidHeader: id}, Body: []byte(id)})
			if err != nil {
				return err
			}
			if !confirm.Wait() {
				return fmt.Errorf("no confirm of %s", id)
			}
		}
		return nil
	})
}

func (b *rabbit) ids() map[string]int {
	b.t.Helper()
	ids := make(map[string]int)
	b.with(func(ch *amqp091.Channel) error {
		for {
			d, ok, err := ch.Get(b.queue, true)
			if err != nil || !ok {
				return err
			}
			id, _ := d.Headers[uuidHeader].(string)
			ids[id]++
		}
	})
	return ids
}

// left does not count messages that a consumer holds.
func (b *rabbit) left() (n int) {
	b.t.Helper()
	b.with(func(ch *amqp091.Channel) error {
		q, err := ch.QueueDeclarePassive(b.queue, true, false, false, false, nil)
		n = q.Messages
		return err
	})
	return n
}

type jetStream struct {
	t       *testing.T
	options server.Options
	server  *server.Server
	stream  string
}

func newNATS(t *testing.T) *jetStream {
	b := &jetStream{t: t, stream: "orders", options: server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true}}
	b.restart()
	b.options.Port = b.server.Addr().(*net.TCPAddr).Port
	t.Cleanup(b.kill)
	b.with(func(js nats.JetStreamContext) error {
		_, err := js.AddStream(&nats.StreamConfig{Name: b.stream, Subjects: []string{b.stream}})
		return err
	})
	return b
}

func (b *jetStream) with(work func(js nats.JetStreamContext) error) {
	b.t.Helper()
	conn, err := nats.Connect(b.server.ClientURL())
	require.NoError(b.t, err)
	defer conn.Close()
	js, err := conn.JetStream()
	require.NoError(b.t, err)
	require.NoError(b.t, work(js))
}

func (b *jetStream) plug() plug {
	return plug{Kind: "nats", URL: b.server.ClientURL(), Topic: b.stream}
}
func (b *jetStream) addr() string             { return b.server.Addr().String() }
func (b *jetStream) urlAt(addr string) string { return "nats://" + addr }

// kill ends the server as abruptly as is possible within a process: its connections break with everything in flight.
func (b *jetStream) kill() {
	b.server.Shutdown()
	b.server.WaitForShutdown()
}

func (b *jetStream) restart() {
	b.t.Helper()
	options := b.options
	var err error
	b.server, err = server.NewServer(&options)
	require.NoError(b.t, err)
	b.server.Start()
	require.True(b.t, b.server.ReadyForConnections(waitTimeout))
}

func (b *jetStream) send(ids ...string) {
	b.t.Helper()
	b.with(func(js nats.JetStreamContext) error {
		for _, id := range ids {
			if _, err := js.PublishMsg(&nats.Msg{Subject: b.stream, Header: nats.Header{uuidHeader: {id}}, Data: []byte(id)}); err != nil {
				return err
			}
		}
		return nil
	})
}

func (b *jetStream) ids() map[string]int {
	b.t.Helper()
	ids := make(map[string]int)
	b.with(func(js nats.JetStreamContext) error {
		info, err := js.StreamInfo(b.stream)
		if err != nil {
			return err
		}
		for sequence := info.State.FirstSeq; sequence <= info.State.LastSeq; sequence++ {
			m, err := js.GetMsg(b.stream, sequence)
			if err != nil {
				return err
			}
			ids[m.Header.Get(uuidHeader)]++
		}
		return js.PurgeStream(b.stream)
	})
	return ids
}

func (b *jetStream) left() (n int) {
	b.t.Helper()
	b.with(func(js nats.JetStreamContext) error {
		info, err := js.ConsumerInfo(b.stream, "service")
		if err != nil {
			return err
		}
		n = int(info.NumPending) + info.NumAckPending
		return nil
	})
	return n
}
