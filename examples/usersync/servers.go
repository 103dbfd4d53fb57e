package main

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

// poolSize is shared by requests, consumers and the log. A consumer holds a connection while it works on a user.
const poolSize = 64

// servers are a database, a Redis and a broker.
type servers struct {
	dsn   string
	redis string // empty: no Redis
	amqp  string
	name  string // starts the queue's name and every key in Redis, as usersync_ does every table
}

// queue is the durable queue that all messages go through.
func (s servers) queue() string { return s.name + ".users" }

// serversGiven are those that the environment names.
func serversGiven() servers {
	return servers{dsn: os.Getenv("MYSQL_DSN"), redis: os.Getenv("REDIS_ADDR"), amqp: os.Getenv("AMQP_URL"), name: "usersync"}
}

func (s servers) validate() error {
	switch {
	case s.dsn == "":
		return errors.New("no database: set MYSQL_DSN, as user:password@tcp(host:port)/name")
	case s.amqp == "":
		return errors.New("no broker: set AMQP_URL, as amqp://user:password@host:port/")
	}
	return nil
}

func (s servers) environment() []string {
	return []string{"MYSQL_DSN=" + s.dsn, "REDIS_ADDR=" + s.redis, "AMQP_URL=" + s.amqp}
}

// openDB opens the database on the Connector: whatever a transaction records is announced by its Commit.
func (s servers) openDB() (*sql.DB, error) {
	config, err := mysql.ParseDSN(s.dsn)
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
	db.SetMaxOpenConns(poolSize)
	db.SetMaxIdleConns(poolSize)
	return db, nil
}

// openRedis returns nil where there is no Redis: a timing wheel takes its place.
func (s servers) openRedis() *redis.Client {
	if s.redis == "" {
		return nil
	}
	return redis.NewClient(&redis.Options{Addr: s.redis})
}

// onBroker does something on a channel of its own.
func (s servers) onBroker(do func(*amqp091.Channel) error) error {
	conn, err := amqp091.Dial(s.amqp)
	if err != nil {
		return fmt.Errorf("AMQP_URL: %w", err)
	}
	defer conn.Close()
	channel, err := conn.Channel()
	if err != nil {
		return err
	}
	return do(channel)
}

// declareQueue makes the queue where it is missing. It survives a restart of the broker.
func (s servers) declareQueue() error {
	return s.onBroker(s.declare)
}

func (s servers) declare(channel *amqp091.Channel) error {
	_, err := channel.QueueDeclare(s.queue(), true, false, false, false, nil)
	return err
}

// clear removes the service's tables, queue and keys, and nothing else.
func (s servers) clear(ctx context.Context) error {
	db, err := s.openDB()
	if err != nil {
		return err
	}
	defer db.Close()
	return errors.Join(dropTables(ctx, db), s.deleteQueue(), s.forget(ctx))
}

func (s servers) deleteQueue() error {
	return s.onBroker(func(channel *amqp091.Channel) error {
		_, err := channel.QueueDelete(s.queue(), false, false, false)
		return err
	})
}

// forget removes the service's keys from Redis: the log's queue, and locks.
func (s servers) forget(ctx context.Context) error {
	rdb := s.openRedis()
	if rdb == nil {
		return nil
	}
	defer rdb.Close()
	for _, pattern := range []string{"{" + s.name + ":*", s.name + ":*"} {
		keys := rdb.Scan(ctx, 0, pattern, 1000).Iterator()
		for keys.Next(ctx) {
			if err := rdb.Unlink(ctx, keys.Val()).Err(); err != nil {
				return err
			}
		}
		if err := keys.Err(); err != nil {
			return err
		}
	}
	return nil
}
