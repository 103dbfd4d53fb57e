package relay_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"log"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/compensator-go/compensator"
	relay "github.com/compensator-go/compensator/relay/watermill"
)

var (
	db         *sql.DB            // opened on compensator.Connector
	brokers    message.Publisher  // a publisher of watermill-amqp, -kafka, -nats, …
	subscriber message.Subscriber // a subscriber of the same broker

	errTooLarge error // the error of your broker's client
)

type User struct {
	ID      string `json:"id"`
	Version string `json:"version"`
}

// The message is sent if, and only if, the transaction commits.
func ExampleHandleBatch() {
	ctx := context.Background()
	c, err := compensator.New(ctx, compensator.Config{DB: db})
	if err != nil {
		log.Fatal(err)
	}
	publisher, err := relay.NewPublisher(brokers, relay.Config{Judge: func(err error) error {
		if errors.Is(err, errTooLarge) {
			return compensator.Permanent(err)
		}
		return compensator.Unavailable(err)
	}})
	if err != nil {
		log.Fatal(err)
	}
	users, err := relay.HandleBatch[User](ctx, c, "user_message", publisher, relay.To("users"), nil)
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return
		}
		defer tx.Rollback()
		user := User{ID: "42", Version: "7"}
		// … change the user in tx, and then:
		if _, err := users.Record(ctx, tx, user, compensator.Options{IdempotencyKey: compensator.IdempotencyKey("user-" + user.ID + "-" + user.Version)}); err != nil {
			return
		}
		_ = tx.Commit()
	}()
	if err := c.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// The Compensator records failed messages and retries them, so they do not block the topic.
func ExampleConsume() {
	ctx := context.Background()
	c, err := compensator.New(ctx, compensator.Config{DB: db})
	if err != nil {
		log.Fatal(err)
	}
	consumer, err := relay.Consume(ctx, c, "user_received", func(msg *message.Message) error {
		var user User
		if err := json.Unmarshal(msg.Payload, &user); err != nil {
			return compensator.Permanent(err) // set aside for a person
		}
		if user.ID == "" {
			return errors.New("try again later")
		}
		return nil
	}, relay.ConsumerConfig{Type: compensator.HandlerConfig[relay.Delivery]{MaxAttempts: 5}})
	if err != nil {
		log.Fatal(err)
	}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		log.Fatal(err)
	}
	router.AddNoPublisherHandler("users", "users", subscriber, consumer.Handle) // AddConsumerHandler since watermill 1.5
	go func() { _ = c.Run(ctx) }()
	if err := router.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
