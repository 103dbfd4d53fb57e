package delay

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// rabbitMQ delays messages as RabbitMQ's documentation on TTL and on dead letter exchanges describes. With mixed delays
// in one queue, a message waits for all messages before it.
type rabbitMQ struct{}

const (
	rabbitExchange = "delay.due"
	rabbitWaiting  = "delay.waiting"
	rabbitDue      = "delay.due"
)

func (rabbitMQ) prepare(tb testing.TB) (place, error) {
	url, err := startRabbitMQ(tb)
	if err != nil {
		return place{}, err
	}
	conn, err := amqp.Dial(url)
	if err != nil {
		return place{}, err
	}
	defer conn.Close()
	version, _ := conn.Properties["version"].(string)
	return place{RabbitMQ: url, Versions: "RabbitMQ " + version}, rabbitTopology(conn)
}

func rabbitTopology(conn *amqp.Connection) error {
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.ExchangeDeclare(rabbitExchange, "direct", true, false, false, false, nil); err != nil {
		return err
	}
	if _, err := ch.QueueDeclare(rabbitDue, true, false, false, false, nil); err != nil {
		return err
	}
	if err := ch.QueueBind(rabbitDue, rabbitDue, rabbitExchange, false, nil); err != nil {
		return err
	}
	_, err = ch.QueueDeclare(rabbitWaiting, true, false, false, false, amqp.Table{
		"x-dead-letter-exchange":    rabbitExchange,
		"x-dead-letter-routing-key": rabbitDue,
	})
	return err
}

func (rabbitMQ) serve(ctx context.Context, p place, fire fire) (record, error) {
	conn, err := amqp.Dial(p.RabbitMQ)
	if err != nil {
		return nil, err
	}
	if err := rabbitConsume(conn, fire); err != nil {
		return nil, err
	}
	// Each call of the returned function takes a channel for itself. According to the client's documentation, only one
	// goroutine may use a channel.
	channels := make(chan *amqp.Channel, producers)
	for range producers {
		ch, err := conn.Channel()
		if err != nil {
			return nil, err
		}
		// In this mode, RabbitMQ confirms each persistent message after it has stored the message.
		if err := ch.Confirm(false); err != nil {
			return nil, err
		}
		channels <- ch
	}
	return func(ctx context.Context, n int, delay time.Duration) error {
		ch := <-channels
		defer func() { channels <- ch }()
		return rabbitPublish(ctx, ch, n, delay)
	}, nil
}

func rabbitPublish(ctx context.Context, ch *amqp.Channel, n int, delay time.Duration) error {
	confirm, err := ch.PublishWithDeferredConfirmWithContext(ctx, "", rabbitWaiting, false, false, amqp.Publishing{
		DeliveryMode: amqp.Persistent,
		Expiration:   strconv.FormatInt(delay.Milliseconds(), 10),
		Body:         []byte(strconv.Itoa(n)),
	})
	if err != nil {
		return err
	}
	acked, err := confirm.WaitContext(ctx)
	if err == nil && !acked {
		err = errors.New("RabbitMQ did not confirm the message")
	}
	return err
}

// rabbitConsume acknowledges each message after its handler. RabbitMQ's page on confirms recommends a prefetch of 100
// to 300.
func rabbitConsume(conn *amqp.Connection, fire fire) error {
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.Qos(100, 0, false); err != nil {
		return err
	}
	due, err := ch.Consume(rabbitDue, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	go func() {
		for message := range due {
			n, err := strconv.Atoi(string(message.Body))
			must(err)
			fire(n, 0)
			must(message.Ack(false))
		}
		must(errors.New("RabbitMQ has closed the channel"))
	}()
	return nil
}

// unfinished reads all messages of both queues and returns the messages to the queues.
func (rabbitMQ) unfinished(_ context.Context, p place) (numbers []int, err error) {
	conn, err := amqp.Dial(p.RabbitMQ)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return nil, err
	}
	for _, queue := range []string{rabbitWaiting, rabbitDue} {
		for {
			message, found, err := ch.Get(queue, false)
			if err != nil {
				return nil, err
			}
			if !found {
				break
			}
			n, err := strconv.Atoi(string(message.Body))
			if err != nil {
				return nil, err
			}
			numbers = append(numbers, n)
		}
	}
	return numbers, nil
}
