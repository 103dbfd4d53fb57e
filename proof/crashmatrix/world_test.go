//go:build failpoints

package crashmatrix

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/redisqueue"
	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/processlog"
)

type world struct {
	t     *testing.T
	place place
	db    *sql.DB
	redis *redis.Client

	sent    map[string]string
	healthy *process
	stop    func()
}

type place struct {
	DSN, Redis, Prefix string
	Named              bool
}

var tables = []string{
	"CREATE TABLE ledger (`key` VARCHAR(191) COLLATE utf8mb4_bin PRIMARY KEY)",
	"CREATE TABLE effects (id BIGINT AUTO_INCREMENT PRIMARY KEY, entry BIGINT UNSIGNED, epoch INT, undoing BOOL)",
	"CREATE TABLE early (entry BIGINT UNSIGNED)",
	"CREATE TABLE taken (id BIGINT AUTO_INCREMENT PRIMARY KEY, message VARCHAR(64))",
	"CREATE TABLE old_rows (id BIGINT AUTO_INCREMENT PRIMARY KEY, state TINYINT NOT NULL DEFAULT 0)",
	`CREATE TABLE runs (id BIGINT AUTO_INCREMENT PRIMARY KEY, entry BIGINT UNSIGNED, version BIGINT UNSIGNED, epoch INT, undoing BOOL, verdict VARCHAR(16),
		at BIGINT DEFAULT (FLOOR(UNIX_TIMESTAMP(NOW(3))*1000)))`,
	`CREATE TABLE history (seq BIGINT AUTO_INCREMENT PRIMARY KEY, entry BIGINT UNSIGNED, was BIGINT, was_due BIGINT, was_leased BIGINT,
		began BIGINT, at BIGINT, version BIGINT UNSIGNED, state TINYINT, process_count INT, compensate_count INT, delivery_count INT, epoch INT,
		due BIGINT, leased BIGINT, ended_by VARCHAR(16),
		KEY (entry, version, seq))`,
	historyTrigger("INSERT", "-1, 0, 0"),
	historyTrigger("UPDATE", "OLD.version, OLD.next_at, OLD.lease_until"),
}

// historyTrigger returns the statement that creates a trigger. For each write of an entry, the trigger inserts a row
// into the table "history". The column "began" holds the time at which the statement began and computed its values. The
// column "at" holds the time of the write.
func historyTrigger(event, before string) string {
	return "CREATE TRIGGER history_" + event + " AFTER " + event + " ON common_process_log FOR EACH ROW INSERT INTO history " +
		"(entry, was, was_due, was_leased, began, at, version, state, process_count, compensate_count, delivery_count, epoch, due, leased, ended_by) VALUES " +
		"(NEW.id, " + before + ", FLOOR(UNIX_TIMESTAMP(NOW(3))*1000), FLOOR(UNIX_TIMESTAMP(SYSDATE(3))*1000), NEW.version, NEW.state, NEW.process_count, NEW.compensate_count, " +
		"NEW.delivery_count, NEW.epoch, NEW.next_at, NEW.lease_until, NEW.ended_by)"
}

func newWorld(t *testing.T) *world {
	server := testservers.SharedRedis(t)
	dsn := testservers.Database(t, "interpolateParams=true")
	w := &world{t: t, place: place{DSN: dsn, Redis: server.Addr(), Prefix: server.Prefix(t)}}
	db, err := sql.Open("mysql", w.place.DSN)
	require.NoError(t, err)
	w.db = db
	w.redis = redis.NewClient(&redis.Options{Addr: w.place.Redis})
	t.Cleanup(func() {
		_ = w.db.Close()
		_ = w.redis.Close()
	})
	return w
}

func (w *world) make() {
	w.t.Helper()
	require.NoError(w.t, compensator.Migrate(w.t.Context(), w.db))
	for _, statement := range tables {
		w.exec(statement)
	}
}

func (w *world) exec(query string, args ...any) {
	w.t.Helper()
	_, err := w.db.Exec(query, args...)
	require.NoError(w.t, err, query)
}

func (w *world) count(from string, args ...any) (n int) {
	w.t.Helper()
	require.NoError(w.t, w.db.QueryRow("SELECT COUNT(*) FROM "+from, args...).Scan(&n), from)
	return n
}

// makeWhole marks the queue as complete for all kinds: the queue holds every entry. The mark is true, because the log
// is still empty. Usually the reconciler sets the mark. The test cannot wait for the reconciler, because package
// mutants also runs this test with a library whose reconciler is removed.
func (w *world) makeWhole() {
	w.t.Helper()
	queue, err := redisqueue.Open(w.redis, w.place.Prefix)
	require.NoError(w.t, err)
	defer func() { require.NoError(w.t, queue.Close()) }()
	all, token := []string{pay, ship, slow, fail, refund, recall, hand, mail, later, wire, book, tick, sum}, processlog.NewToken()
	mine, err := queue.Rebuild(w.t.Context(), all, token, waitTimeout)
	require.NoError(w.t, err)
	require.ElementsMatch(w.t, all, mine)
	whole, err := queue.Rebuilt(w.t.Context(), all, token)
	require.NoError(w.t, err)
	require.ElementsMatch(w.t, all, whole)
}

func (w *world) prepare(in surroundings, victim int) {
	w.t.Helper()
	switch in {
	case forgotten:
		keys, err := w.redis.Keys(w.t.Context(), "*"+w.place.Prefix+"*").Result()
		require.NoError(w.t, err)
		if len(keys) > 0 {
			require.NoError(w.t, w.redis.Del(w.t.Context(), keys...).Err())
		}
	case crashed:
		w.seed(fmt.Sprintf("lost-two-%d", victim), 2, "state, delivery_count", "0, 2", 0)
		w.seed(fmt.Sprintf("lost-three-%d", victim), 3, "state, delivery_count", "0, 3", 0)
		w.seed(fmt.Sprintf("lost-four-%d", victim), 4, "state, delivery_count", "0, 4", 0)
	case counting:
		w.exec("INSERT INTO common_process_log_slots VALUES (' backlog', UNIX_TIMESTAMP()*1000-7200000) ON DUPLICATE KEY UPDATE slot=VALUES(slot)")
		w.exec("INSERT INTO common_process_log_slots VALUES (' statistics', UNIX_TIMESTAMP()*1000-7200000) ON DUPLICATE KEY UPDATE slot=VALUES(slot)")
		rows := make([]string, countedRows)
		for i := range rows {
			rows[i] = fmt.Sprintf("('V%dX%d', UNIX_TIMESTAMP() DIV 60 * 60000 - 600000 * %d, 'counted', 1)", victim, i, 2+i%1000)
		}
		w.exec("INSERT INTO common_process_log_stat (instance, `at`, business_type, recorded) VALUES " + strings.Join(rows, ","))
	case keeping:
		w.exec("INSERT INTO common_process_log_slots VALUES (' keep', UNIX_TIMESTAMP()*1000-120000) ON DUPLICATE KEY UPDATE slot=VALUES(slot)")
		w.seed(fmt.Sprintf("old-%d", victim), 400, "state, ended_by", "1, 'handler'", 7200)
		w.seed(fmt.Sprintf("young-%d", victim), 10, "state, ended_by", "1, 'handler'", 60)
	case streamed:
		w.send(victim)
		w.agePending()
	case adopting:
		w.addOldRows()
	case old:
		w.seed(fmt.Sprintf("old-%d", victim), 250, "state, ended_by", "1, 'handler'", 3600)
	}
}

func (w *world) seed(key string, n int, columns, values string, secondsAgo int) {
	w.t.Helper()
	w.seedKind(ship, key, n, columns, values, secondsAgo)
}

func (w *world) seedKind(kind, key string, n int, columns, values string, secondsAgo int) {
	w.t.Helper()
	var log, ledger []string
	for i := range n {
		log = append(log, fmt.Sprintf("('%s-%d', '%s', '{}', UNIX_TIMESTAMP()*1000-%d, NOW(), NOW(), %s)", key, i, kind, secondsAgo*1000, values))
		ledger = append(ledger, fmt.Sprintf("('%s-%d')", key, i))
	}
	w.exec("INSERT INTO common_process_log (idempotent_id, business_type, content, next_at, created_at, updated_at, " + columns + ") VALUES " +
		strings.Join(log, ","))
	w.exec("INSERT INTO ledger VALUES " + strings.Join(ledger, ","))
	w.exec(`INSERT INTO common_process_log_result (entry_id, result_epoch, result)
		SELECT id, epoch, CONCAT('"',id,'-',epoch,'"') FROM common_process_log WHERE state=1 AND idempotent_id LIKE '` + key + `-%'`)
}
