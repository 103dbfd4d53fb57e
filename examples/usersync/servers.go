package main

import (
	"context"
	"errors"

	"github.com/rabbitmq/amqp091-go"

	shared "github.com/compensator-go/compensator/examples/internal/servers"
)

// poolSize is large, because each consumer holds a connection while it works on a user.
const poolSize = 64

// servers holds the addresses of the database, Redis and the broker. The prefix of the queue and of all Redis keys is
// "usersync".
type servers struct{ shared.Servers }

func serversGiven() servers { return servers{shared.Given("usersync")} }

func (s servers) validate() error {
	switch {
	case s.DSN == "":
		return errors.New("no database: set MYSQL_DSN, as user:password@tcp(host:port)/name")
	case s.AMQP == "":
		return errors.New("no broker: set AMQP_URL, as amqp://user:password@host:port/")
	}
	return nil
}

func (s servers) queue() string { return s.Queue("users") }

func (s servers) declare(channel *amqp091.Channel) error { return shared.Declare(s.queue())(channel) }

func (s servers) declareQueue() error { return s.OnBroker(s.declare) }

func (s servers) deleteQueue() error { return s.OnBroker(shared.Delete(s.queue())) }

func (s servers) queued() (int, error) { return s.Waiting(s.queue()) }

// clear removes the service's tables, queue and keys, and nothing else.
func (s servers) clear(ctx context.Context) error {
	db, err := s.OpenDB(poolSize)
	if err != nil {
		return err
	}
	defer db.Close()
	return errors.Join(dropTables(ctx, db), s.deleteQueue(), s.Forget(ctx))
}
