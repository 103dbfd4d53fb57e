package faultproxy

import (
	"bufio"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/testservers"
)

type follower struct {
	mu           sync.Mutex // guards the fields below
	lacksEOF     bool
	currentReply *reply
	command      Request
	answers      int
	mistakes     []string
}

func (f *follower) serve(l *link) {
	l.runBoth(
		func() { f.copy(bufio.NewReader(l.client), l.server.Write, f.request) },
		func() { f.copy(bufio.NewReader(l.server), l.client.Write, f.reply) },
	)
}

func (f *follower) copy(source *bufio.Reader, write func([]byte) (int, error), look func(message, bool)) {
	for first := true; ; first = false {
		m, err := readMessage(source)
		if err != nil {
			return
		}
		look(m, first)
		if _, err := write(m.wireBytes); err != nil {
			return
		}
	}
}

func (f *follower) request(m message, first bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if first {
		f.lacksEOF = deprecatesEOF(m)
		return
	}
	if !m.isCommand() {
		return
	}
	if f.currentReply != nil {
		f.mistakes = append(f.mistakes, fmt.Sprintf("missed the end of the reply to %q", f.command))
	}
	f.command = Request{Command: m.payload[0], Text: string(m.payload[1:min(len(m.payload), 100)])}
	f.currentReply = newReply(f.command.Command, f.lacksEOF)
}

func (f *follower) reply(m message, first bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case first:
		hideTLS(m)
	case f.command == Request{}: // This is the handshake.
	case f.currentReply == nil:
		f.mistakes = append(f.mistakes, fmt.Sprintf("took the answer to %q to end too early", f.command))
	case f.currentReply.isEnd(m):
		f.currentReply = nil
		f.answers++
	}
}

func TestReplyEndsWithItsLastMessage(t *testing.T) {
	config, err := mysql.ParseDSN(testservers.SharedSQL(t).Database(t, "multiStatements=true"))
	require.NoError(t, err)
	follower := new(follower)
	proxy := new(proxy)
	require.NoError(t, proxy.start(config.Addr, follower.serve))
	t.Cleanup(func() { proxy.Close() })
	config.Addr = proxy.Addr()
	db := open(t, config)
	db.SetMaxOpenConns(1)

	run := func(query string, args ...any) {
		rows, err := db.Query(query, args...)
		if err != nil {
			return
		}
		defer rows.Close()
		for more := true; more; more = rows.NextResultSet() {
			for rows.Next() {
				require.NoError(t, rows.Scan(new(any), new(any)))
			}
		}
	}
	run("CREATE TABLE t (id BIGINT PRIMARY KEY AUTO_INCREMENT, text LONGTEXT)")
	run("INSERT INTO t (text) VALUES ('a'), ('b'), (NULL)")
	run("INSERT INTO t (text) VALUES (?), (?)", strings.Repeat("x", 300), strings.Repeat("y", 70_000))
	run("UPDATE t SET id = id + 100000000 WHERE id > ?", 3)
	run("SELECT id, text FROM t")
	run("SELECT text, id FROM t WHERE id > ? ORDER BY id", 0)
	run("SELECT id, text FROM t WHERE id < 0")
	run("SELECT id, text FROM t WHERE id < ?", 0)
	run("SELECT 1, 2; SELECT id, text FROM t; UPDATE t SET text = 'c'; SELECT 3, 4")
	run("SELECT 1, 2; SELECT * FROM missing; SELECT 3, 4")
	run("SELECT * FROM missing WHERE id = ?", 1)
	run("BEGIN; INSERT INTO t (text) VALUES ('z'); ROLLBACK")
	require.NoError(t, db.Ping())

	follower.mu.Lock()
	defer follower.mu.Unlock()
	assert.Empty(t, follower.mistakes)
	assert.Greater(t, follower.answers, 15)
}
