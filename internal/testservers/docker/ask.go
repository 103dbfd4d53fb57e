package main

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/go-sql-driver/mysql"
)

// The password is the configured one, or empty if the image ignores the setting.
func (s *server) askSQL(ctx context.Context) error {
	var failures []error
	for _, password := range []string{s.password, officialPassword, ""} {
		err := pingSQL(ctx, s.addr, password)
		if err == nil {
			s.password = password
			return nil
		}
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

func pingSQL(ctx context.Context, address, password string) error {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	config := mysql.NewConfig()
	config.User, config.Passwd, config.Net, config.Addr = "root", password, "tcp", address
	config.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	return db.PingContext(ctx)
}

// An open port is not enough, because Docker opens it before the server does.
func (s *server) askRedis(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(askLimit)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && line != "+PONG\r\n" {
		err = fmt.Errorf("PING is answered by %q", line)
	}
	return err
}

func (s *server) askRabbit(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(askLimit)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "AMQP\x00\x00\x09\x01"); err != nil {
		return err
	}
	kind, err := bufio.NewReader(conn).ReadByte()
	if err == nil && kind != 1 {
		err = fmt.Errorf("the protocol's header is answered by %q", kind)
	}
	return err
}
