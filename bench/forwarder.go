package bench

import (
	"context"
	"database/sql"
	"io"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/compensator-go/compensator"
	relay "github.com/compensator-go/compensator/relay/watermill"
)

const forwarderTopic = "bench_forwarder"

// The forwarder uses the newest version of watermill-sql. Its table has the same settings as the one in watermill.go.
var (
	forwarderSchema  = watermillsql.DefaultMySQLSchema{GeneratePayloadType: func(string) string { return "MEDIUMBLOB" }}
	forwarderOffsets = watermillsql.DefaultMySQLOffsetsAdapter{}
)

// amqpPublisher publishes persistent messages with confirms, on relayChannels channels.
func amqpPublisher(url string) (message.Publisher, error) {
	config := wmamqp.NewDurableQueueConfig(url)
	config.Publish.ConfirmDelivery, config.Publish.ChannelPoolSize = true, relayChannels
	return wmamqp.NewPublisher(config, watermill.NopLogger{})
}

func byWatermill(c *compensator.Compensator, url, queue string, batch int) (io.Closer, error) {
	to, err := amqpPublisher(url)
	if err != nil {
		return nil, err
	}
	publisher, err := relay.NewPublisher(to, relay.Config{Concurrency: relayChannels})
	if err != nil {
		return nil, err
	}
	if batch > 1 {
		_, err = relay.HandleBatch(context.Background(), c, benchType, publisher, relay.To(queue), relayedInBatches(batch))
	} else {
		_, err = relay.Handle(context.Background(), c, benchType, publisher, relay.To(queue), relayedSingly)
	}
	return to, err
}

// All sides use the same database and the same broker.
func (p *post) throughWatermill(n, batch int) []contest {
	work := "relay by watermill, one by one"
	if batch > 1 {
		work = "relay by watermill, in batches"
	}
	of := func(other string, theirs func() float64) contest {
		return contest{
			work: work, other: other, unit: "messages/s", reset: p.empty, prepare: func() { p.a.backlog(n) },
			ours: func() float64 { return p.relay(byWatermill, n, batch) }, theirs: theirs,
		}
	}
	return []contest{
		of("relay/rabbitmq", func() float64 { return p.relay(direct, n, batch) }),
		of("watermill's forwarder", func() float64 { return p.forwarded(n) }),
	}
}

// The forwarder has one subscriber, its default, which forwards message by message.
func (p *post) forwarded(n int) float64 {
	p.a.Helper()
	db := p.a.openPlain(4)
	p.fillForwarder(db, n)
	from, err := watermillsql.NewSubscriber(watermillsql.BeginnerFromStdSQL(db), watermillsql.SubscriberConfig{
		ConsumerGroup: "bench", PollInterval: 10 * time.Millisecond, SchemaAdapter: forwarderSchema, OffsetsAdapter: forwarderOffsets}, nil)
	p.a.must(err)
	to, err := amqpPublisher(p.server.URL())
	p.a.must(err)
	f, err := forwarder.NewForwarder(from, to, watermill.NopLogger{}, forwarder.Config{ForwarderTopic: forwarderTopic})
	p.a.must(err)
	ended := make(chan error, 1)
	began := time.Now()
	go func() { ended <- f.Run(p.a.Context()) }()
	p.awaitDepth(n)
	took := time.Since(began)
	p.a.must(f.Close())
	p.a.must(<-ended)
	return float64(n) / took.Seconds()
}

// The messages carry the same payload as the entries.
func (p *post) fillForwarder(db *sql.DB, n int) {
	p.a.Helper()
	config := watermillsql.PublisherConfig{SchemaAdapter: forwarderSchema}
	for _, table := range []string{forwarderSchema.MessagesTable(forwarderTopic), forwarderOffsets.MessagesOffsetsTable(forwarderTopic)} {
		p.a.exec("DROP TABLE IF EXISTS " + table)
	}
	tables, err := forwarderSchema.SchemaInitializingQueries(watermillsql.SchemaInitializingQueriesParams{Topic: forwarderTopic})
	p.a.must(err)
	offsets, err := forwarderOffsets.SchemaInitializingQueries(watermillsql.OffsetsSchemaInitializingQueriesParams{Topic: forwarderTopic})
	p.a.must(err)
	for _, q := range append(tables, offsets...) {
		p.a.exec(q.Query, q.Args...)
	}
	for left := n; left > 0; left -= floorBatch {
		tx, err := db.BeginTx(p.a.Context(), nil)
		p.a.must(err)
		publisher, err := watermillsql.NewPublisher(watermillsql.TxFromStdSQL(tx), config, nil)
		p.a.must(err)
		messages := make([]*message.Message, min(left, floorBatch))
		for i := range messages {
			messages[i] = message.NewMessage(watermill.NewUUID(), content)
		}
		p.a.must(forwarder.NewPublisher(publisher, forwarder.PublisherConfig{ForwarderTopic: forwarderTopic}).Publish(p.queue, messages...))
		p.a.must(tx.Commit())
	}
}

func (p *post) awaitDepth(n int) {
	p.a.Helper()
	p.withChannel(func(ch *amqp091.Channel) error {
		p.a.waitUntil(func() bool {
			time.Sleep(10 * time.Millisecond)
			q, err := ch.QueueDeclarePassive(p.queue, true, false, false, false, nil)
			p.a.must(err)
			return q.Messages >= n
		})
		return nil
	})
}
