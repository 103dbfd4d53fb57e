// Package servers is what the processes of a scene share: a database, a Redis and a broker, and a name on each that is
// the scene's own.
package servers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"

	"github.com/go-sql-driver/mysql"
	"github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"

	"github.com/compensator-go/compensator"
)

// Servers are where they are reached.
type Servers struct {
	DSN   string // user:password@tcp(host:port)/name
	Redis string // host:port; empty: none
	AMQP  string // amqp://user:password@host:port/
	Name  string // starts every key and every queue
}

// Given are those that the environment names.
func Given(name string) Servers {
	return Servers{DSN: os.Getenv("MYSQL_DSN"), Redis: os.Getenv("REDIS_ADDR"), AMQP: os.Getenv("AMQP_URL"), Name: name}
}

// Environment is what Given reads.
func (s Servers) Environment() []string {
	return []string{"MYSQL_DSN=" + s.DSN, "REDIS_ADDR=" + s.Redis, "AMQP_URL=" + s.AMQP}
}

// Validate says whether the database or Redis is missing.
func (s Servers) Validate() error {
	return errors.Join(missing(s.DSN, "MYSQL_DSN, as user:password@tcp(host:port)/name"), missing(s.Redis, "REDIS_ADDR, as host:port"))
}

// ValidateBroker says whether the broker is.
func (s Servers) ValidateBroker() error {
	return missing(s.AMQP, "AMQP_URL, as amqp://user:password@host:port/")
}

func missing(value, variable string) error {
	if value == "" {
		return errors.New("set " + variable)
	}
	return nil
}

// OpenDB opens the database on the Connector: whatever a transaction records is enqueued by its Commit.
func (s Servers) OpenDB(pool int) (*sql.DB, error) {
	config, err := mysql.ParseDSN(s.DSN)
	if err != nil {
		return nil, fmt.Errorf("MYSQL_DSN: %w", err)
	}
	config.ParseTime = true
	config.InterpolateParams = true // one round trip for a statement instead of two
	inner, err := mysql.NewConnector(config)
	if err != nil {
		return nil, fmt.Errorf("MYSQL_DSN: %w", err)
	}
	db := sql.OpenDB(compensator.Connector(inner))
	db.SetMaxOpenConns(pool)
	db.SetMaxIdleConns(pool)
	return db, nil
}

// OpenRedis connects when it is first asked. It returns nil where there is none.
func (s Servers) OpenRedis() *redis.Client {
	if s.Redis == "" {
		return nil
	}
	return redis.NewClient(&redis.Options{Addr: s.Redis})
}

// Forget removes every key that starts with the name, or with the name in a hash tag, and no other.
func (s Servers) Forget(ctx context.Context) error {
	keys, err := s.Keys(ctx)
	if err != nil || len(keys) == 0 {
		return err
	}
	rdb := s.OpenRedis()
	defer rdb.Close()
	return rdb.Unlink(ctx, keys...).Err()
}

// Keys are those that Forget removes.
func (s Servers) Keys(ctx context.Context) (found []string, err error) {
	rdb := s.OpenRedis()
	if rdb == nil {
		return nil, nil
	}
	defer rdb.Close()
	for _, pattern := range []string{"{" + s.Name + ":*", s.Name + ":*"} {
		keys := rdb.Scan(ctx, 0, pattern, 1000).Iterator()
		for keys.Next(ctx) {
			found = append(found, keys.Val())
		}
		if err := keys.Err(); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// Queue is the name of a queue.
func (s Servers) Queue(what string) string { return s.Name + "." + what }

// Declare makes a queue that survives a restart of the broker.
func Declare(queue string) func(*amqp091.Channel) error {
	return func(channel *amqp091.Channel) error {
		_, err := channel.QueueDeclare(queue, true, false, false, false, nil)
		return err
	}
}

// Delete removes a queue with what is in it.
func Delete(queue string) func(*amqp091.Channel) error {
	return func(channel *amqp091.Channel) error {
		_, err := channel.QueueDelete(queue, false, false, false)
		return err
	}
}

// OnBroker does things on a connection of their own.
func (s Servers) OnBroker(todo ...func(*amqp091.Channel) error) error {
	conn, err := amqp091.Dial(s.AMQP)
	if err != nil {
		return fmt.Errorf("AMQP_URL: %w", err)
	}
	defer conn.Close()
	channel, err := conn.Channel()
	if err != nil {
		return err
	}
	for _, do := range todo {
		if err := do(channel); err != nil {
			return err
		}
	}
	return nil
}

// Waiting is how many messages wait in a queue.
func (s Servers) Waiting(queue string) (n int, err error) {
	err = s.OnBroker(func(channel *amqp091.Channel) error {
		found, err := channel.QueueDeclarePassive(queue, true, false, false, false, nil)
		n = found.Messages
		return err
	})
	return n, err
}
