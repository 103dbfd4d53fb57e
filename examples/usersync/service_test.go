package main

import (
	"context"
	"database/sql"
	"encoding/base64"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/examples/internal/instance"
	"github.com/compensator-go/compensator/internal/faultproxy"
)

type world struct {
	t       *testing.T
	ctx     context.Context // context of the requests. Its end stops the client, which repeats a request until an answer comes
	address string
	client  *client
	db      *sql.DB
	servers servers
}

func newWorld(t *testing.T) *world { return newWorldOn(t, throwAway(t)) }

func newWorldOn(t *testing.T, on servers) *world {
	t.Helper()
	patient, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	w := &world{t: t, ctx: patient, servers: on}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	s := service{servers: w.servers, settings: quick, address: "127.0.0.1:0"}
	lines, ended := make(lineWriter, 1), make(chan error, 1)
	go func() { ended <- s.run(ctx, lines) }()
	select {
	case line := <-lines:
		w.address = strings.TrimSpace(strings.TrimPrefix(line, instance.Greeting))
	case err := <-ended:
		require.NoError(t, err, "the service ended")
	}
	var err error
	w.db, err = s.OpenDB(poolSize)
	require.NoError(t, err)
	w.client = newClient(func() string { return w.address })
	t.Cleanup(func() {
		w.client.close()
		stop()
		require.NoError(t, <-ended)
		require.NoError(t, w.db.Close())
	})
	return w
}

type lineWriter chan string

func (w lineWriter) Write(p []byte) (int, error) {
	w <- string(p)
	return len(p), nil
}

func (w *world) upload(batch, operator, users string) answered {
	w.t.Helper()
	got, err := w.client.upload(w.ctx, batch, operator, "", []byte(users))
	require.NoError(w.t, err)
	return got
}

func (w *world) count(query string, args ...any) (n int) {
	w.t.Helper()
	require.NoError(w.t, w.db.QueryRow(query, args...).Scan(&n))
	return n
}

func (w *world) awaitSynced(user string) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		return w.count(`SELECT COUNT(*) FROM usersync_directory WHERE user = ?`, user) > 0
	}, time.Minute, 20*time.Millisecond, "user %s is synced", user)
}

func TestBatchUploadedTwiceIsSyncedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.upload("b1", "op", goodCSV)
	require.Equal(t, http.StatusCreated, first.Status)
	again := w.upload("b1", "op", goodCSV)
	require.Equal(t, first, again, "the same answer as to the first upload, with its trace")
	other := w.upload("b1", "op", goodCSV+"u3,Cid,cid@example.org\n")
	require.Equal(t, http.StatusConflict, other.Status)
	require.Equal(t, "batch", other.Field)
	require.Contains(t, other.Error, "uploaded before, by op, with 2 users")
	w.awaitSynced("u1")
	w.awaitSynced("u2")
	require.Equal(t, 2, w.count(`SELECT COUNT(*) FROM usersync_directory WHERE trace = ?`, first.Trace))
	require.Equal(t, 2, w.count(`SELECT COUNT(*) FROM usersync_log`))
}

func TestRefusedUploadLeavesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for users, field := range map[string]string{
		"user,name,email,phone\nu1,Ann,a@b.org,1\n":        "phone",
		"user,name,email\n":                                "users",
		goodCSV + "u1,Ann,ann@example.org\n":               "user",
		goodCSV + strings.Repeat("x", mostBytes):           "users",
		string(writeUsers(sample("much", mostUsers+1, 1))): "users",
	} {
		got := w.upload("b1", "op", users)
		require.Contains(t, []int{http.StatusBadRequest, http.StatusRequestEntityTooLarge}, got.Status, "%.60q", users)
		require.Equal(t, field, got.Field)
		require.NotEmpty(t, got.Error)
	}
	for _, table := range []string{"usersync_batches", "usersync_users", "usersync_log"} {
		require.Zero(t, w.count("SELECT COUNT(*) FROM "+table), table)
	}
	require.Equal(t, http.StatusCreated, w.upload("b1", "op", goodCSV).Status, "and the name is free")
}

func TestLargestBatchIsTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	got := w.upload("large", "op", string(writeUsers(sample("large", mostUsers, 1))))
	require.Equal(t, http.StatusCreated, got.Status, got.Error)
	require.Equal(t, mostUsers, got.Users)
	require.Equal(t, mostUsers, w.count(`SELECT COUNT(*) FROM usersync_log WHERE business_type = 'sync_user'`))
}

func TestUnknownBatchIsNotFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	got, err := w.client.progress(w.ctx, "nothing")
	require.NoError(t, err)
	require.Equal(t, http.StatusNotFound, got.Status)
	got, err = w.client.untilAnswered(w.ctx, http.MethodPost, "/batches/b/users/u/repair?email=a@b.org&operator=op", "", nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusNotFound, got.Status)
}

func TestRepeatedRepairSyncsNoUserTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.upload("b", "op", "user,name,email\nu,Ann,u@example.org\n")
	w.awaitSynced("u")
	got, err := w.client.untilAnswered(w.ctx, http.MethodPost, "/batches/b/users/u/repair?email=a@b.org&operator=op", "", nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusConflict, got.Status)
	require.Contains(t, got.Error, "synced already")
	require.Zero(t, w.count(`SELECT COUNT(*) FROM usersync_log WHERE business_type = 'sync_user' AND epoch > 0`))
	require.Equal(t, 1, w.count(`SELECT COUNT(*) FROM usersync_users WHERE user = 'u' AND email = 'u@example.org'`))
}

func TestMalformedMessageWaitsForAPersonAndHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.servers.OnBroker(func(channel *amqp091.Channel) error {
		return channel.Publish("", w.servers.queue(), false, false, amqp091.Publishing{MessageId: "poison", Body: []byte("{{no user}")})
	}))
	w.upload("b1", "op", goodCSV)
	w.awaitSynced("u1")
	w.awaitSynced("u2")
	require.Eventually(t, func() bool {
		return w.count(`SELECT COUNT(*) FROM usersync_log WHERE business_type = 'redelivered_user' AND state = ? AND last_error LIKE '%invalid character%' AND content LIKE ?`,
			compensator.Dead, "%"+base64.StdEncoding.EncodeToString([]byte("{{no user}"))+"%") == 1
	}, time.Minute, 20*time.Millisecond)
	left, err := w.servers.queued()
	require.NoError(t, err)
	require.Zero(t, left)
}

func TestUploadWhileTheBrokerIsDownLosesNoUser(t *testing.T) {
	t.Parallel()
	on := throwAway(t)
	broker, err := url.Parse(on.AMQP)
	require.NoError(t, err)
	proxy, err := faultproxy.NewTCP(broker.Host)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	broker.Host = proxy.Addr()
	on.AMQP = broker.String()
	w := newWorldOn(t, on)
	proxy.Refuse()
	got := w.upload("b1", "op", goodCSV)
	require.Equal(t, http.StatusCreated, got.Status, got.Error)
	require.Eventually(t, func() bool {
		return w.count(`SELECT COUNT(*) FROM usersync_log WHERE business_type = 'sync_user' AND last_error LIKE '%not connected%'`) == 2
	}, time.Minute, 20*time.Millisecond, "the entries came due while there was no broker")
	require.Zero(t, w.count(`SELECT SUM(process_count) FROM usersync_log`), "a broker that is down costs no attempt")
	proxy.Heal()
	w.awaitSynced("u1")
	w.awaitSynced("u2")
}

func TestServiceThatCannotStartSaysWhy(t *testing.T) {
	on := throwAway(t)
	require.NoError(t, on.declareQueue()) // throwAway deletes this queue.
	config, err := mysql.ParseDSN(on.DSN)
	require.NoError(t, err)
	config.User, config.Passwd = "nobody", "secret"
	broker, err := url.Parse(on.AMQP)
	require.NoError(t, err)
	broker.User = url.UserPassword("nobody", "secret")
	for _, c := range []struct {
		dsn, amqp string
		arguments []string
		want      string
	}{
		{amqp: on.AMQP, want: "set MYSQL_DSN"},
		{dsn: on.DSN, want: "set AMQP_URL"},
		{dsn: "nonsense", amqp: on.AMQP, want: "MYSQL_DSN"},
		{dsn: config.FormatDSN(), amqp: on.AMQP, want: "Access denied for user 'nobody'"},
		{dsn: on.DSN, amqp: broker.String(), want: "AMQP_URL: Exception (403) Reason: \"username or password not allowed\""},
		{dsn: on.DSN, amqp: on.AMQP, arguments: []string{"-workers", "0"}, want: "-workers"},
		{dsn: on.DSN, amqp: on.AMQP, arguments: []string{"-by-hand"}, want: "set REDIS_ADDR"},
	} {
		t.Setenv("MYSQL_DSN", c.dsn)
		t.Setenv("REDIS_ADDR", "")
		t.Setenv("AMQP_URL", c.amqp)
		err := runService(t.Context(), append(c.arguments, "-addr", "127.0.0.1:0", "-name", on.Name), io.Discard)
		require.ErrorContains(t, err, c.want)
		require.NotContains(t, err.Error(), "secret")
	}
}

func TestStoppingServiceFinishesItsUsers(t *testing.T) {
	t.Parallel()
	servers := throwAway(t)
	one := newInstance(servers, quick, false)
	require.NoError(t, one.Start(t.Context()))
	client := newClient(one.Address)
	defer client.close()
	db, err := servers.OpenDB(poolSize)
	require.NoError(t, err)
	defer db.Close()
	slow := slowUsers(4)
	_, err = client.upload(t.Context(), "b1", "op", "t", writeUsers(slow))
	require.NoError(t, err)
	uncommitted, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadUncommitted, ReadOnly: true})
	require.NoError(t, err)
	defer uncommitted.Rollback()
	// A consumer first completes the entry, and then works on the user in the same long transaction. So an uncommitted
	// read of the completed entries shows on which users the consumers have begun to work.
	begun := func() bool {
		var n int
		err := uncommitted.QueryRow(`SELECT COUNT(*) FROM usersync_log WHERE state = 1`).Scan(&n)
		return err == nil && n == len(slow)
	}
	watched, err := http.Get("http://" + one.Address() + "/live") // An open page does not keep the service from stopping.
	require.NoError(t, err)
	defer watched.Body.Close()
	require.Eventually(t, begun, time.Minute, 5*time.Millisecond, "all are worked on")
	require.NoError(t, uncommitted.Rollback())
	require.NoError(t, one.Stop(), "it stops gracefully")

	w := &world{t: t, db: db}
	require.Equal(t, len(slow), w.count(`SELECT COUNT(*) FROM usersync_directory`))
	require.Equal(t, len(slow), w.count(`SELECT COUNT(*) FROM usersync_log WHERE state = 1 AND ended_by = 'complete'`))
	left, err := servers.queued()
	require.NoError(t, err)
	require.Zero(t, left, "and nothing goes back to the queue")
}

func slowUsers(n int) (slow []user) {
	for _, u := range sample("slow", 1000, 1) {
		f := fateOf(u, 1)
		if f.slow > 400*time.Millisecond && f == (fate{slow: f.slow}) {
			slow = append(slow, u)
		}
		if len(slow) == n {
			return slow
		}
	}
	panic("no slow users")
}
