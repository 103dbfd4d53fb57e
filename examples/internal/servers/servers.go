// Package servers holds the addresses that all processes of an example share: the database, Redis and the broker. A
// name prefix keeps several runs apart on the same servers.
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

// Servers holds the addresses of the servers.
type Servers struct {
	DSN   string // user:password@tcp(host:port)/name
	Redis string // host:port; empty means no Redis
	AMQP  string // amqp://user:password@host:port/
	Name  string // prefix of every key and every queue
}

// Given returns the servers that the environment variables name.
func Given(name string) Servers {
	return Servers{DSN: os.Getenv("MYSQL_DSN"), Redis: os.Getenv("REDIS_ADDR"), AMQP: os.Getenv("AMQP_URL"), Name: name}
}

// Environment returns the variables that Given reads.
func (s Servers) Environment() []string {
	return []string{"MYSQL_DSN=" + s.DSN, "REDIS_ADDR=" + s.Redis, "AMQP_URL=" + s.AMQP}
}

// Validate returns an error if the database or Redis is missing.
func (s Servers) Validate() error {
	return errors.Join(missing(s.DSN, "MYSQL_DSN, as user:password@tcp(host:port)/name"), missing(s.Redis, "REDIS_ADDR, as host:port"))
}

// ValidateBroker returns an error if the broker is missing.
func (s Servers) ValidateBroker() error {
	return missing(s.AMQP, "AMQP_URL, as amqp://user:password@host:port/")
}

func missing(value, variable string) error {
	if value == "" {
		return errors.New("set " + variable)
	}
	return nil
}

// OpenDB opens the database through the Connector, so that Commit enqueues what the transaction has recorded.
func (s Servers) OpenDB(pool int) (*sql.DB, error) {
	config, err := mysql.ParseDSN(s.DSN)
	if err != nil {
		return nil, fmt.Errorf("MYSQL_DSN: %w", err)
	}
	config.ParseTime = true
	config.InterpolateParams = true // one round trip per statement instead of two
	inner, err := mysql.NewConnector(config)
	if err != nil {
		return nil, fmt.Errorf("MYSQL_DSN: %w", err)
	}
	db := sql.OpenDB(compensator.Connector(inner))
	db.SetMaxOpenConns(pool)
	db.SetMaxIdleConns(pool)
	return db, nil
}

// OpenRedis returns nil if no Redis was given.
func (s Servers) OpenRedis() *redis.Client {
	if s.Redis == "" {
		return nil
	}
	return redis.NewClient(&redis.Options{Addr: s.Redis})
}

// Forget removes every key in Redis that starts with the name, or with the name in a hash tag.
func (s Servers) Forget(ctx context.Context) error {
	keys, err := s.Keys(ctx)
	if err != nil || len(keys) == 0 {
		return err
	}
	rdb := s.OpenRedis()
	defer rdb.Close()
	return rdb.Unlink(ctx, keys...).Err()
}

// Keys returns the keys that Forget removes.
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

// Queue returns the full name of a queue.
func (s Servers) Queue(subject string) string { return s.Name + "." + subject }

// Declare declares a queue that survives a restart of the broker.
func Declare(queue string) func(*amqp091.Channel) error {
	return func(channel *amqp091.Channel) error {
		_, err := channel.QueueDeclare(queue, true, false, false, false, nil)
		return err
	}
}

// Delete deletes a queue with its messages.
func Delete(queue string) func(*amqp091.Channel) error {
	return func(channel *amqp091.Channel) error {
		_, err := channel.QueueDelete(queue, false, false, false)
		return err
	}
}

// OnBroker runs functions on a new connection.
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

// Waiting returns the number of messages in a queue.
func (s Servers) Waiting(queue string) (n int, err error) {
	err = s.OnBroker(func(channel *amqp091.Channel) error {
		found, err := channel.QueueDeclarePassive(queue, true, false, false, false, nil)
		n = found.Messages
		return err
	})
	return n, err
}
