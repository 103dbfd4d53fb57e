package faultproxy

import (
	"context"
	"database/sql"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/testservers"
)

const waitTimeout = time.Minute

func wait(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	t.Cleanup(cancel)
	return ctx
}

func proxied(t *testing.T, params ...string) (proxy *MySQL, through, past *sql.DB) {
	return proxiedTo(t, testservers.SharedSQL(t), params...)
}

func proxiedTo(t *testing.T, server *testservers.SQLServer, params ...string) (proxy *MySQL, through, past *sql.DB) {
	config, err := mysql.ParseDSN(server.Database(t, params...))
	require.NoError(t, err)
	config.Logger = &mysql.NopLogger{}
	past = open(t, config)
	_, err = past.Exec("CREATE TABLE t (id INT PRIMARY KEY, text LONGTEXT) ENGINE=InnoDB")
	require.NoError(t, err)

	proxy, err = NewMySQL(config.Addr)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, proxy.Close()) })
	config = config.Clone()
	config.Addr = proxy.Addr()
	return proxy, open(t, config), past
}

func open(t *testing.T, config *mysql.Config) *sql.DB {
	connector, err := mysql.NewConnector(config)
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	return db
}

func count(t *testing.T, db *sql.DB) (n int) {
	require.NoError(t, db.QueryRow("SELECT COUNT(*) FROM t").Scan(&n))
	return n
}

func insertAndCommit(t *testing.T, db *sql.DB) error {
	tx, err := db.Begin()
	require.NoError(t, err)
	_, err = tx.Exec("INSERT INTO t (id) VALUES (?)", 1)
	require.NoError(t, err)
	return tx.Commit()
}

func TestDroppedCommitRequestIsNotCommitted(t *testing.T) {
	proxy, through, past := proxied(t)
	trap := proxy.Arm(Rule{Match: Commit(), Nth: 1, Fault: DropRequest})

	require.ErrorIs(t, insertAndCommit(t, through), mysql.ErrInvalidConn)
	assert.Equal(t, 1, trap.Fired())
	assert.Zero(t, count(t, past))

	require.NoError(t, insertAndCommit(t, through), "the second COMMIT was to pass")
	assert.Equal(t, 1, trap.Fired())
	assert.Equal(t, 2, trap.Matched())
	assert.Equal(t, 1, count(t, past))
}

func TestDroppedCommitReplyIsCommitted(t *testing.T) {
	proxy, through, past := proxied(t)
	trap := proxy.Arm(Rule{Match: Commit(), Fault: DropReply})
	require.ErrorIs(t, insertAndCommit(t, through), mysql.ErrInvalidConn)
	assert.Equal(t, 1, trap.Fired())
	assert.Equal(t, 1, count(t, past))
}

func TestHangingReplyKeepsTheClientWaitingUntilCut(t *testing.T) {
	proxy, through, past := proxied(t)
	trap := proxy.Arm(Rule{Match: Commit(), Fault: DropReply, Hang: true})
	ended := make(chan error, 1)
	go func() { ended <- insertAndCommit(t, through) }()
	require.NoError(t, trap.Await(wait(t)))
	assert.Equal(t, 1, count(t, past))
	assert.Empty(t, ended, "the client got an answer")

	proxy.Cut()
	require.ErrorIs(t, <-ended, mysql.ErrInvalidConn)
}

func TestHangingRequestReachesNobody(t *testing.T) {
	proxy, through, past := proxied(t, "readTimeout=2s")
	trap := proxy.Arm(Rule{Match: Commit(), Fault: DropRequest, Hang: true})
	require.ErrorIs(t, insertAndCommit(t, through), mysql.ErrInvalidConn)
	assert.Equal(t, 1, trap.Fired())
	assert.Zero(t, count(t, past))
}

func TestHangUpEndsTheTransactionAndLeavesTheClientWaiting(t *testing.T) {
	proxy, through, past := proxied(t)
	trap := proxy.Arm(Rule{Match: Commit(), Fault: DropRequest, Hang: true})
	ended := make(chan error, 1)
	go func() { ended <- insertAndCommit(t, through) }()
	require.NoError(t, trap.Await(wait(t)))
	_, err := past.Exec("SET innodb_lock_wait_timeout=1")
	require.NoError(t, err)
	proxy.HangUp()
	const innodbNews = 150 * time.Millisecond // If the table innodb_trx is read more often than every 100 ms, InnoDB returns its old content again.
	require.Eventually(t, func() bool {
		var open int
		err := past.QueryRow("SELECT COUNT(*) FROM information_schema.innodb_trx").Scan(&open)
		return err == nil && open == 0
	}, 30*time.Second, innodbNews, "the server still has the transaction")
	assert.Zero(t, count(t, past))
	assert.Empty(t, ended, "the client got an answer")
	proxy.Cut()
	require.Error(t, <-ended)
}

func TestDelaysArriveLate(t *testing.T) {
	for name, fault := range map[string]Fault{"request": DelayRequest, "reply": DelayReply} {
		t.Run(name, func(t *testing.T) {
			proxy, through, past := proxied(t)
			trap := proxy.Arm(Rule{Match: Contains("INSERT"), Fault: fault, Delay: 100 * time.Millisecond})
			start := time.Now()
			_, err := through.Exec("INSERT INTO t (id) VALUES (1)")
			require.NoError(t, err)
			assert.GreaterOrEqual(t, time.Since(start), 100*time.Millisecond)
			assert.Equal(t, 1, trap.Fired())
			assert.Equal(t, 1, count(t, past))
		})
	}
}

func TestPreparedStatementIsKnownByItsText(t *testing.T) {
	proxy, through, past := proxied(t)
	stmt, err := through.Prepare("INSERT INTO t (id) VALUES (?)")
	require.NoError(t, err)
	defer stmt.Close()
	trap := proxy.Arm(Rule{Match: Contains("INSERT INTO t"), Nth: 2, Fault: DropReply})
	for id := 1; id <= 2; id++ {
		_, err = stmt.Exec(id)
	}
	require.ErrorIs(t, err, mysql.ErrInvalidConn)
	assert.Equal(t, 1, trap.Fired())
	assert.Equal(t, 2, count(t, past))
}

func TestWholeAnswerIsDropped(t *testing.T) {
	server := testservers.NewSQL(t, "--max-allowed-packet=64M")
	for name, query := range map[string]string{
		"rows":          "WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n+1 FROM s WHERE n < 900) SELECT n, REPEAT('x', 1000) FROM s",
		"no rows":       "SELECT id, text FROM t",
		"error":         "SELECT 1 FROM missing",
		"long row":      "SELECT REPEAT('x', 17000000)",
		"result sets":   "SELECT 1; SELECT 2; INSERT INTO t (id) VALUES (1); SELECT 3",
		"error at last": "SELECT 1; SELECT 1 FROM missing",
	} {
		t.Run(name, func(t *testing.T) {
			proxy, through, _ := proxiedTo(t, server, "multiStatements=true")
			trap := proxy.Arm(Rule{Match: Contains(query), Fault: DropReply})
			_, err := through.QueryContext(wait(t), query)
			require.ErrorIs(t, err, mysql.ErrInvalidConn)
			assert.Equal(t, 1, trap.Fired())
		})
	}
}

func TestDroppedAnswerToPrepareEnds(t *testing.T) {
	for _, query := range []string{"SELECT id, text FROM t WHERE id > ?", "INSERT INTO t (id) VALUES (?)", "COMMIT", "SELECT 1"} {
		t.Run(query, func(t *testing.T) {
			proxy, through, _ := proxied(t)
			trap := proxy.Arm(Rule{Match: func(r Request) bool { return r.Command == comStmtPrepare }, Nth: 1, Fault: DropReply})
			_, err := through.PrepareContext(wait(t), query)
			require.Error(t, err)
			assert.Equal(t, 1, trap.Fired())
		})
	}
}

func TestEverythingElsePassesUnchanged(t *testing.T) {
	proxy, through, _ := proxiedTo(t, testservers.NewSQL(t, "--max-allowed-packet=64M"), "maxAllowedPacket=0")
	counter := proxy.Arm(Rule{})
	long := strings.Repeat("0123456789abcdef", 1<<20) + "!"
	_, err := through.Exec("INSERT INTO t VALUES (1, ?)", long)
	require.NoError(t, err)
	var text string
	require.NoError(t, through.QueryRow("SELECT text FROM t WHERE id = ?", 1).Scan(&text))
	assert.True(t, text == long, "the text came back different")
	assert.Positive(t, counter.Matched())
	assert.Zero(t, counter.Fired())
}

func TestRefusedUntilHealed(t *testing.T) {
	proxy, through, _ := proxied(t)
	require.NoError(t, through.Ping())
	proxy.Refuse()
	require.Error(t, through.Ping())
	trap := proxy.Arm(Rule{Fault: DropReply})
	proxy.Heal()
	require.NoError(t, through.Ping())
	assert.Zero(t, trap.Matched())
}

func TestClientIsCutWhenTheServerIsGone(t *testing.T) {
	proxy, err := NewMySQL(unusedAddress(t))
	require.NoError(t, err)
	defer proxy.Close()
	conn, err := net.Dial("tcp", proxy.Addr())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err)
}

func unusedAddress(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().String()
}
