package bench

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// These are the library's statements without the checks of the transaction and its session.
// TestFloorsSendTheStatementsOfTheLibrary compares both.
const (
	floorNow     = "(TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(3)) DIV 1000)"
	floorColumns = "(idempotent_id, business_type, batch_id, business_id, business_ext_id, user_id, user_name, content, headers, " +
		"max_process_count, delay_second, token, next_at, lease_until, delivery_count, created_at, updated_at, state, ended_by)"
	floorByID   = "`common_process_log` FORCE INDEX (PRIMARY)"
	floorInsert = "INSERT INTO `common_process_log` " + floorColumns + " VALUES "
	floorTuple  = "(?,?,?,?,?,?,?,?,?,?,?,UNHEX(?)," + floorNow + " + ?,0,0,UTC_TIMESTAMP(3),UTC_TIMESTAMP(3),0,X'')"
	floorLeased = "(?,?,?,?,?,?,?,?,?,?,?,UNHEX(?)," + floorNow + " + ?," + floorNow + " + 30000,1,UTC_TIMESTAMP(3),UTC_TIMESTAMP(3),0,X'')"
	floorOrder  = "INSERT INTO orders (buyer, amount, note) VALUES (?,?,?)"
	floorVerify = "SELECT " + floorRow + " FROM `common_process_log` WHERE id IN (%s)"
	floorLock   = "SELECT " + floorRow + " FROM " + floorByID + " WHERE id IN (%s) ORDER BY id FOR UPDATE SKIP LOCKED"
	floorTake   = "UPDATE " + floorByID + " SET version=version+1, delivery_count=delivery_count+1, token=X'%x', lease_until=" + floorNow +
		"+30000, updated_at=UTC_TIMESTAMP(3) WHERE id IN (%s) AND version=0"
	floorSucceed = "UPDATE " + floorByID + " SET state=1, version=version+1, delivery_count=0, lease_until=0, ended_by='handler', token=X'%x', " +
		"updated_at=UTC_TIMESTAMP(3), next_at=" + floorNow + "+0, last_error=X'' WHERE id IN (%s) AND epoch=0 AND state+0 IN (0,-1) AND CRC32(idempotent_id) IN (%s)"
)

// MySQL has no INSERT … RETURNING, so newArena sets floorIDs to "" for MySQL.
var floorIDs = " RETURNING id, CAST(idempotent_id AS BINARY)"

// floorRow lists the columns that the library reads.
const floorRow = "id, CAST(idempotent_id AS BINARY), CAST(business_type AS BINARY), CAST(batch_id AS BINARY), CAST(business_id AS BINARY), " +
	"CAST(business_ext_id AS BINARY), CAST(user_id AS BINARY), CAST(user_name AS BINARY), content, headers, " +
	"state, process_count, max_process_count, compensate_count, delivery_count, version, epoch, next_at, CAST(ended_by AS BINARY), CAST(last_error AS BINARY), " +
	"COALESCE(TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',created_at) DIV 1000,0), COALESCE(TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',updated_at) DIV 1000,0), " +
	"token, lease_until, " + floorNow

// floorBatch is the library's maximum number of rows in one statement.
const floorBatch = 500

var note = []byte(strings.Repeat("n", 60))
var content = []byte(`{"k":"` + strings.Repeat("x", payload-8) + `"}`)

func floorArgs(token []byte, delay time.Duration) []any {
	return []any{newKey(), benchType, "", "", "", "", "", content, []byte{}, int64(0), (delay.Milliseconds() + 999) / 1000, hex.EncodeToString(token), delay.Milliseconds()}
}

func newKey() string { return uuid.Must(uuid.NewV7()).String() }

func floorRecord(ctx context.Context, db *sql.DB, n int, tuple string, delay time.Duration) (first int64, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, floorOrder, int64(1), int64(100), note); err != nil {
		return 0, err
	}
	if n > 0 {
		token := uuid.New()
		args := make([]any, 0, 13*n)
		for range n {
			args = append(args, floorArgs(token[:], delay)...)
		}
		if first, err = floorInserted(ctx, tx, floorInsert+strings.Repeat(tuple+",", n-1)+tuple, n, args); err != nil {
			return 0, err
		}
	}
	return first, tx.Commit()
}

// The id of a single row comes from LastInsertId. More rows are read with floorIDs, as the library does, because a
// server may leave gaps between ids.
func floorInserted(ctx context.Context, tx *sql.Tx, query string, n int, args []any) (id int64, err error) {
	if n == 1 || floorIDs == "" {
		res, err := tx.ExecContext(ctx, query, args...)
		if err != nil {
			return 0, err
		}
		return res.LastInsertId()
	}
	rows, err := tx.QueryContext(ctx, query+floorIDs, args...)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	ids := make(map[string]int64, n)
	for rows.Next() {
		var key string
		if err := rows.Scan(&id, &key); err != nil {
			return 0, err
		}
		ids[key] = id
	}
	return id, rows.Err()
}

// floorRead scans every column, as the library does, and returns a checksum of each idempotency key.
func floorRead(ctx context.Context, db querier, query string) (sums []string, err error) {
	found, err := floorRows(ctx, db, query)
	return sumsOf(found), err
}

type floorFound struct {
	id, version uint64
	sum         string // checksum of the idempotency key
}

func sumsOf(found []floorFound) []string {
	sums := make([]string, len(found))
	for i, f := range found {
		sums[i] = f.sum
	}
	return sums
}

func floorRows(ctx context.Context, db querier, query string) (found []floorFound, err error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var id uint64
	var texts [9]string
	var blobs [3][]byte
	var numbers [12]int64
	for rows.Next() {
		if err := rows.Scan(&id, &texts[0], &texts[1], &texts[2], &texts[3], &texts[4], &texts[5], &texts[6], &blobs[0], &blobs[1],
			&numbers[0], &numbers[1], &numbers[2], &numbers[3], &numbers[4], &numbers[5], &numbers[6], &numbers[7], &texts[7], &texts[8],
			&numbers[8], &numbers[9], &blobs[2], &numbers[10], &numbers[11]); err != nil {
			return nil, err
		}
		found = append(found, floorFound{id, uint64(numbers[5]), strconv.FormatUint(uint64(crc32.ChecksumIEEE([]byte(texts[0]))), 10)})
	}
	return found, rows.Err()
}

type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func idList(ids []string) string { return strings.Join(ids, ",") }

// floorClaim reads and leases rows in one READ COMMITTED transaction.
func floorClaim(ctx context.Context, conn *sql.Conn, ids []string) (sums []string, err error) {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	list := idList(ids)
	if sums, err = floorRead(ctx, tx, fmt.Sprintf(floorLock, list)); err != nil {
		return nil, err
	}
	token := uuid.New()
	if _, err := tx.ExecContext(ctx, fmt.Sprintf(floorTake, token[:], list)); err != nil {
		return nil, err
	}
	if len(sums) != len(ids) {
		return nil, fmt.Errorf("claimed %d of %d rows", len(sums), len(ids))
	}
	return sums, tx.Commit()
}

func floorSettle(ctx context.Context, db execer, ids, sums []string) error {
	token := uuid.New()
	res, err := db.ExecContext(ctx, fmt.Sprintf(floorSucceed, token[:], idList(ids), idList(sums)))
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n != int64(len(ids)) {
		return fmt.Errorf("settled %d of %d rows: %v", n, len(ids), err)
	}
	return nil
}

type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func script(name string) (*redis.Script, error) {
	text, err := os.ReadFile("../internal/redisqueue/lua/" + name + ".lua")
	return redis.NewScript(string(text)), err
}
