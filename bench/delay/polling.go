package delay

import (
	"context"
	"database/sql"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // registers the driver

	"github.com/compensator-go/compensator/internal/testservers"
)

// polling is a typical hand-written poller: it reads a page of due rows, then claims, runs and finishes each row. It
// polls every 1 s, like the libraries Oban and Solid Queue.
type polling struct{}

const (
	pollEvery = time.Second
	pollPage  = 100
)

const (
	pollTable = "CREATE TABLE timeout_task (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, n INT NOT NULL, " +
		"status TINYINT NOT NULL DEFAULT 0 COMMENT '0 waits, 1 in hand, 2 done', due_at DATETIME(3) NOT NULL, KEY k_due (status, due_at)) ENGINE=InnoDB"
	pollInsert = "INSERT INTO timeout_task (n, due_at) VALUES (?, NOW(3) + INTERVAL ? MICROSECOND)"
	pollRead   = "SELECT id, n FROM timeout_task WHERE status=0 AND due_at<=NOW(3) ORDER BY due_at LIMIT ?"
	pollClaim  = "UPDATE timeout_task SET status=1 WHERE id=? AND status=0"
	pollFinish = "UPDATE timeout_task SET status=2 WHERE id=?"
	pollLeft   = "SELECT n FROM timeout_task WHERE status<>2"
)

func (polling) prepare(tb testing.TB) (place, error) {
	p := newSQL(tb)
	db, err := sql.Open("mysql", p.SQL)
	if err != nil {
		return place{}, err
	}
	defer db.Close()
	_, err = db.ExecContext(tb.Context(), pollTable)
	return p, err
}

// newSQL starts a server that keeps every acknowledged commit, and creates a database on it.
func newSQL(tb testing.TB) place {
	server := testservers.NewSQL(tb, "--innodb-flush-log-at-trx-commit=1", "--innodb-buffer-pool-size=256M")
	return place{SQL: server.Database(tb, "interpolateParams=true"), Versions: server.Flavor + " " + server.Version}
}

func (polling) serve(ctx context.Context, p place, fire fire) (record, error) {
	db, err := sql.Open("mysql", p.SQL)
	if err != nil {
		return nil, err
	}
	db.SetMaxIdleConns(producers)
	go func() {
		ticker := time.NewTicker(pollEvery)
		for ; ; <-ticker.C {
			must(pollAll(ctx, db, fire))
		}
	}()
	return func(ctx context.Context, n int, delay time.Duration) error {
		_, err := db.ExecContext(ctx, pollInsert, n, delay.Microseconds())
		return err
	}, nil
}

func pollAll(ctx context.Context, db *sql.DB, fire fire) error {
	for {
		tasks, err := pollDue(ctx, db)
		if err != nil {
			return err
		}
		for _, task := range tasks {
			if err := pollDo(ctx, db, task, fire); err != nil {
				return err
			}
		}
		if len(tasks) < pollPage {
			return nil
		}
	}
}

type pollTask struct {
	id int64
	n  int
}

func pollDue(ctx context.Context, db *sql.DB) (tasks []pollTask, err error) {
	rows, err := db.QueryContext(ctx, pollRead, pollPage)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var t pollTask
		if err := rows.Scan(&t.id, &t.n); err != nil {
			return nil, err
		}
		tasks = append(tasks, t)
	}
	return tasks, rows.Err()
}

func pollDo(ctx context.Context, db *sql.DB, task pollTask, fire fire) error {
	res, err := db.ExecContext(ctx, pollClaim, task.id)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return err // Another instance has claimed the row.
	}
	fire(task.n, uint64(task.id))
	_, err = db.ExecContext(ctx, pollFinish, task.id)
	return err
}

func (polling) unfinished(ctx context.Context, p place) ([]int, error) {
	return numbersOf(ctx, p, pollLeft)
}

func numbersOf(ctx context.Context, p place, query string) (numbers []int, err error) {
	db, err := sql.Open("mysql", p.SQL)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var n int
		if err := rows.Scan(&n); err != nil {
			return nil, err
		}
		numbers = append(numbers, n)
	}
	return numbers, rows.Err()
}
