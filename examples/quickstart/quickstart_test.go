package main

import (
	"context"
	"database/sql"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/internal/testservers"
)

const asProgram = "QUICKSTART_TEST_RUNS_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(testservers.Main(m))
}

func TestQuickstartKeepsItsPromisesOnSQLite(t *testing.T) {
	t.Parallel()
	output := quickstart(t, "TMPDIR="+t.TempDir())
	assert.Contains(t, output, "SQLite")
}

func TestQuickstartKeepsItsPromisesOnServers(t *testing.T) {
	t.Parallel()
	server := testservers.SharedSQL(t)
	t.Cleanup(func() { execute(t, server.DSN(""), "DROP DATABASE "+ownName) })
	output := quickstart(t, dsnVariable+"="+server.DSN(""), redisVariable+"="+testservers.SharedRedis(t).Addr())
	assert.Contains(t, output, "database "+ownName)
	assert.Contains(t, output, "Redis at ")
}

func TestQuickstartSharesTheDatabaseOfAUserWhoMayMakeNone(t *testing.T) {
	t.Parallel()
	server := testservers.SharedSQL(t)
	dsn, err := mysql.ParseDSN(server.Database(t))
	require.NoError(t, err)
	dsn.User, dsn.Passwd = dsn.DBName[:20], "secret"
	execute(t, server.DSN(""), "CREATE USER "+dsn.User+" IDENTIFIED BY 'secret'", "GRANT ALL ON "+dsn.DBName+".* TO "+dsn.User)
	t.Cleanup(func() { execute(t, server.DSN(""), "DROP USER "+dsn.User) })
	output := quickstart(t, dsnVariable+"="+dsn.FormatDSN())
	assert.Contains(t, output, "database "+dsn.DBName)
	assert.Contains(t, output, "no Redis")
}

func quickstart(t *testing.T, environment ...string) (output string) {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(append(os.Environ(), asProgram+"=1", dsnVariable+"=", redisVariable+"="), environment...)
	combined, err := cmd.CombinedOutput()
	output = string(combined)
	require.NoError(t, err, output)
	assert.Equal(t, len(promises(books{})), strings.Count(output, "\n  ok "), output)
	assert.Regexp(t, `kill -9 worker \d+: \d+ entries are done, and these attempts are cut short: \d+ close_unpaid`, output)
	for _, line := range []string{"120 orders placed, 20 rolled back, 100 committed", "every entry has ended",
		"close_unpaid  cancelled", "close_unpaid  succeeded", "pack_parcel   succeeded", "send_by_drone compensated", "Ask again: "} {
		assert.Contains(t, output, line)
	}
	return output
}

func execute(t *testing.T, dsn string, statements ...string) {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	defer db.Close()
	for _, statement := range statements {
		_, err := db.Exec(statement)
		require.NoError(t, err, statement)
	}
}

var sabotage = map[string]string{
	"committed orders":           "DELETE FROM shop_orders WHERE id = 1",
	"entries: one per order":     "DELETE FROM shop_process_log WHERE business_id = '1' AND state = 1",
	"entries not ended":          "UPDATE shop_process_log SET state = -1 WHERE business_id = '2'",
	"entries still leased":       "UPDATE shop_process_log SET lease_until = 1 WHERE business_id = '2'",
	"close entries cancelled":    "UPDATE shop_process_log SET state = 1 WHERE state = 3",
	"close entries succeeded":    "UPDATE shop_process_log SET state = 3 WHERE state = 1",
	"unpaid orders closed":       "UPDATE shop_orders SET status = 'open' WHERE id = 1",
	"orders closed before":       "UPDATE shop_orders SET closed_at = pay_by - 1 WHERE id = 1",
	"items with a wrong stock":   "UPDATE shop_stock SET n = n + 1 WHERE item = 'bread'",
	"parcels succeeded":          "UPDATE shop_process_log SET state = -2 WHERE business_type = 'pack_parcel'",
	"parcels at the warehouse":   "INSERT INTO shop_parcels VALUES (2, 'again')",
	"parcels for orders that":    "INSERT INTO shop_parcels VALUES (6, 'rolled back')",
	"failures counted":           "UPDATE shop_process_log SET process_count = 1 WHERE business_id = '10'",
	"drones compensated":         "UPDATE shop_process_log SET process_count = 2 WHERE business_type = 'send_by_drone'",
	"orders refunded, exactly":   "UPDATE shop_orders SET refunds = 2 WHERE id = 3",
	"orders refunded more often": "UPDATE shop_orders SET refunds = 1 WHERE id = 4",
}

func TestSummarySeesEveryBrokenPromise(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	t.Setenv(redisVariable, "")
	db, err := openSQLite(filepath.Join(t.TempDir(), "shop.db"))
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, db.clear(ctx))
	s, err := openShop(ctx, db)
	require.NoError(t, err)
	defer s.Close()
	books := workedOff(ctx, t, s, cancel)
	for _, p := range promises(books) {
		got, err := p.ask(t.Context(), db)
		require.NoError(t, err)
		require.Equal(t, p.want, got, p.text)
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = tx.ExecContext(t.Context(), harmOf(t, p))
		require.NoError(t, err)
		got, err = p.ask(t.Context(), tx)
		require.NoError(t, err)
		assert.NotEqual(t, p.want, got, p.text)
		require.NoError(t, tx.Rollback())
	}
	_, err = db.ExecContext(t.Context(), sabotage["items with a wrong stock"])
	require.NoError(t, err)
	broken, err := s.summarize(t.Context(), books)
	require.NoError(t, err)
	assert.Equal(t, 1, broken)
}

func workedOff(ctx context.Context, t *testing.T, s *shop, stop func()) books {
	t.Helper()
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	b, err := s.trade(ctx)
	require.NoError(t, err)
	here := &worker{gone: make(chan struct{})}
	require.NoError(t, here.await(ctx, func() (bool, error) {
		p, err := s.progress(ctx)
		return p.open == 0, err
	}))
	stop()
	require.NoError(t, <-ran)
	return b
}

func harmOf(t *testing.T, p promise) string {
	t.Helper()
	for start, statement := range sabotage {
		if strings.HasPrefix(p.text, start) {
			return statement
		}
	}
	t.Fatalf("no sabotage of %q", p.text)
	return ""
}

func openTestShop(t *testing.T) (*shop, Order) {
	t.Setenv(redisVariable, "")
	db, err := openSQLite(filepath.Join(t.TempDir(), "shop.db"))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	require.NoError(t, db.clear(t.Context()))
	s, err := openShop(t.Context(), db)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	o := newOrder(1)
	require.NoError(t, s.place(t.Context(), o, false))
	return s, o
}

func parcels(t *testing.T, s *shop, o Order) int {
	found, err := admin.Of(s.Compensator).List(t.Context(), admin.Filter{BusinessID: o.number(), BusinessType: s.packParcel.Name()})
	require.NoError(t, err)
	return len(found.Entries)
}

func TestOrderPaidTwiceIsShippedOnce(t *testing.T) {
	s, o := openTestShop(t)
	require.NoError(t, s.pay(t.Context(), o))
	require.NoError(t, s.pay(t.Context(), o), "the first answer was lost")
	require.Equal(t, 1, parcels(t, s, o))
}

func TestOrderWhoseClosingAnOperatorHasCancelledIsPaidAndStaysSo(t *testing.T) {
	s, o := openTestShop(t)
	_, err := s.Cancel(t.Context(), o.closing())
	require.NoError(t, err)
	require.NoError(t, s.pay(t.Context(), o))
	require.Equal(t, 1, parcels(t, s, o))
	require.NoError(t, admin.Of(s.Compensator).Requeue(t.Context(), o.closing(), admin.RequeueOptions{AuditInfo: admin.AuditInfo{Actor: "ann", Reason: "a mistake"}}))
	require.Equal(t, compensator.Succeeded, compensatortest.Attempt(t, s.Compensator, o.closing()).State)
	var status string
	require.NoError(t, s.db.QueryRow("SELECT status FROM shop_orders WHERE id=?", o.ID).Scan(&status))
	require.Equal(t, "paid", status)
}
