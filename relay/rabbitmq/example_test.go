package rabbitmq_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"log"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/relay/rabbitmq"
)

var db *sql.DB // opened on compensator.Connector

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
	publisher, err := rabbitmq.Open(rabbitmq.Config{URL: "amqp://user:password@broker/"})
	if err != nil {
		log.Fatal(err)
	}
	defer publisher.Close() // Close the publisher after Run has returned.
	users, err := rabbitmq.HandleBatch[User](ctx, c, "user_message", publisher, rabbitmq.To("users", "user.changed"), nil)
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

// The Compensator records failed messages and retries them, so they do not block the queue.
func ExampleConsume() {
	ctx := context.Background()
	c, err := compensator.New(ctx, compensator.Config{DB: db})
	if err != nil {
		log.Fatal(err)
	}
	consumer, err := rabbitmq.Consume(ctx, c, "user_received", func(ctx context.Context, d *rabbitmq.Delivery) error {
		var user User
		if err := json.Unmarshal(d.Body, &user); err != nil {
			return compensator.Permanent(err) // set aside for a person
		}
		if user.ID == "" {
			return errors.New("try again later")
		}
		return nil
	}, rabbitmq.ConsumerConfig{URL: "amqp://user:password@broker/", Queue: "users", Type: compensator.HandlerConfig[rabbitmq.Delivery]{MaxAttempts: 5}})
	if err != nil {
		log.Fatal(err)
	}
	go func() { _ = c.Run(ctx) }()
	if err := consumer.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
