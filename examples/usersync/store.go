package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

type batch struct {
	Batch      string    `json:"batch"`
	Operator   string    `json:"operator"`
	Trace      string    `json:"trace"`
	Users      int       `json:"users"`
	UploadedAt time.Time `json:"uploaded_at"`
	digest     string
}

var (
	errNotFound   = errors.New("no such batch, or no such user in it")
	errOtherBatch = errors.New("another batch has this name")
)

const duplicateKey = 1062

const rowsAtOnce = 500

// insertBatch inserts a batch and its users. If the batch exists already, the first INSERT returns a duplicate key
// error, and the transaction stores nothing.
func insertBatch(ctx context.Context, tx *sql.Tx, u *upload) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO usersync_batches (batch, operator, trace, digest, users, uploaded_at) VALUES (?, ?, ?, ?, ?, UTC_TIMESTAMP(3))`,
		u.Batch, u.Operator, u.Trace, u.digest(), len(u.Users))
	if err != nil {
		return fmt.Errorf("insert batch %s: %w", u.Batch, err)
	}
	for users := range slices.Chunk(u.Users, rowsAtOnce) {
		args := make([]any, 0, 4*len(users))
		for _, one := range users {
			args = append(args, u.Batch, one.ID, one.Name, one.Email)
		}
		rows := strings.TrimSuffix(strings.Repeat("(?, ?, ?, ?), ", len(users)), ", ")
		if _, err := tx.ExecContext(ctx, `INSERT INTO usersync_users (batch, user, name, email) VALUES `+rows, args...); err != nil {
			return fmt.Errorf("insert users of batch %s: %w", u.Batch, err)
		}
	}
	return nil
}

// sameBatch returns the stored batch that has the name of the upload. If the operators or the users of the upload and
// of the stored batch differ, sameBatch refuses the upload.
func sameBatch(ctx context.Context, db *sql.DB, u *upload) (batch, error) {
	b, err := findBatch(ctx, db, u.Batch)
	if err == nil && (b.digest != u.digest() || b.Operator != u.Operator) {
		err = errors.Join(refuse("batch", "%q was uploaded before, by %s, with %d users, and this one differs", b.Batch, b.Operator, b.Users), errOtherBatch)
	}
	return b, err
}

func isDuplicate(err error) bool {
	var refused *mysql.MySQLError
	return errors.As(err, &refused) && refused.Number == duplicateKey
}

func findBatch(ctx context.Context, db *sql.DB, name string) (b batch, err error) {
	err = db.QueryRowContext(ctx, `SELECT batch, operator, trace, digest, users, uploaded_at FROM usersync_batches WHERE batch = ?`, name).
		Scan(&b.Batch, &b.Operator, &b.Trace, &b.digest, &b.Users, &b.UploadedAt)
	if errors.Is(err, sql.ErrNoRows) {
		err = errNotFound
	}
	return b, err
}

type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// findUser reads a user's current data, because a person may have repaired it since the upload.
func findUser(ctx context.Context, db querier, m message) (u user, err error) {
	u.ID = m.User
	err = db.QueryRowContext(ctx, `SELECT name, email FROM usersync_users WHERE batch = ? AND user = ?`, m.Batch, m.User).Scan(&u.Name, &u.Email)
	if errors.Is(err, sql.ErrNoRows) {
		err = errNotFound
	}
	return u, err
}

func enter(ctx context.Context, db querier, m message, trace string) error {
	_, err := db.ExecContext(ctx, `INSERT INTO usersync_directory (batch, user, trace, synced_at) VALUES (?, ?, ?, UTC_TIMESTAMP(3))`, m.Batch, m.User, trace)
	return err
}

// noteFailure stores why a consumer failed, for the function sendAgain.
func noteFailure(ctx context.Context, db querier, m message, failure error) error {
	_, err := db.ExecContext(ctx, `UPDATE usersync_users SET failures = failures + 1, refused = ?, reason = LEFT(?, 255) WHERE batch = ? AND user = ?`,
		errors.Is(failure, errRefused), failure.Error(), m.Batch, m.User)
	return err
}

func findFailure(ctx context.Context, db querier, m message) (refused bool, reason string, err error) {
	err = db.QueryRowContext(ctx, `SELECT refused, reason FROM usersync_users WHERE batch = ? AND user = ?`, m.Batch, m.User).Scan(&refused, &reason)
	return refused, cmp.Or(reason, "no consumer has reported a failure"), err
}

// noteSending stores that a user was sent. Only the final check reads these rows.
func noteSending(ctx context.Context, db querier, m message, sending int) error {
	_, err := db.ExecContext(ctx, `INSERT INTO usersync_sendings (batch, user, sending, sent_at) VALUES (?, ?, ?, UTC_TIMESTAMP(3))`, m.Batch, m.User, sending)
	return err
}

func changeEmail(ctx context.Context, db querier, m message, email string) error {
	_, err := db.ExecContext(ctx, `UPDATE usersync_users SET email = ?, refused = FALSE, reason = '' WHERE batch = ? AND user = ?`, email, m.Batch, m.User)
	return err
}

func eachRow(ctx context.Context, db *sql.DB, query string, read func(scan func(...any) error) error, args ...any) error {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := read(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
