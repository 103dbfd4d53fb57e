package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/processlog"
)

const (
	// row_version is one less than the row's version, which the same transaction has already raised.
	attemptsWrite = "INSERT INTO {attempt} (entry_id, slot, row_version, epoch, attempt, compensating, verdict, timed_out, lost_leases, instance, due_at, started_at, took_ms, next_at, trace, error)" +
		" SELECT id, ((version-1)>>1)%{kept}, version-1, {epochs}, {numbers}, {compensating}, {verdicts}, {timed out}, {lost leases}, {instances}, {due}, {started}, {took}," +
		" CASE WHEN state+0 IN (0,-1,-3) THEN next_at ELSE 0 END, {traces}, {errors} FROM {log}{by id} WHERE id IN ({ids}) AND token={token}{again}"
	attemptsRead = "SELECT {number row_version, epoch, attempt, compensating, timed_out, lost_leases, due_at, started_at, took_ms, next_at}, {text verdict, instance, error}, trace" +
		" FROM {attempt} WHERE entry_id={entry_id} ORDER BY row_version LIMIT {limit}"
	attemptsAny    = "SELECT entry_id FROM {attempt} LIMIT 1"
	attemptsDelete = "{DELETE FROM attempt} WHERE entry_id IN ({ids})"
	attemptsErase  = "UPDATE {attempt}{by id} SET error={empty} WHERE entry_id={entry_id}"
)

var attemptColumns = []string{"row_version", "epoch", "attempt", "compensating", "verdict", "timed_out", "lost_leases", "instance",
	"due_at", "started_at", "took_ms", "next_at", "trace", "error"}

func hasAttempt(o *processlog.Outcome) bool {
	return o.Attempt != nil && !o.To.IsSuccess()
}

// KeepAttempts implements Operations.
func (s *Store) KeepAttempts(ctx context.Context) error {
	if err := s.checkTable(ctx, "_attempt"); err != nil {
		return s.withoutTable(fmt.Errorf("compensator: read the table %s: %w", s.table.quoted("_attempt"), err), "_attempt", "Operations.Attempts needs")
	}
	s.attempts.Store(true)
	return nil
}

// writeAttempts runs in the transaction that has just written the outcomes under token.
func (s *Store) writeAttempts(ctx context.Context, tx processlog.Tx, ids []processlog.ID, token processlog.Token, of func(id processlog.ID) *processlog.Outcome) error {
	ids = slices.DeleteFunc(slices.Clone(ids), func(id processlog.ID) bool { return !hasAttempt(of(id)) })
	if len(ids) == 0 {
		return nil
	}
	number := func(value func(a *processlog.FailedAttempt) int64) string {
		return byRow("id", ids, func(i int) int64 { return value(of(ids[i]).Attempt) }, signed)
	}
	flag := func(value func(a *processlog.FailedAttempt) bool) string {
		return number(func(a *processlog.FailedAttempt) int64 {
			if value(a) {
				return 1
			}
			return 0
		})
	}
	text := func(value func(a *processlog.FailedAttempt) string, literal func(string) string) string {
		return byRow("id", ids, func(i int) string { return value(of(ids[i]).Attempt) }, literal)
	}
	_, err := s.writeHeld(ctx, tx, s.sql(attemptsWrite, "ids", idList(ids), "token", s.d.binary(token[:]), "kept", strconv.Itoa(processlog.MaxAttemptsKept),
		"epochs", number(func(a *processlog.FailedAttempt) int64 { return int64(a.Epoch) }),
		"numbers", number(func(a *processlog.FailedAttempt) int64 { return int64(a.Number) }),
		"compensating", flag(func(a *processlog.FailedAttempt) bool { return a.Compensating }),
		"verdicts", text(func(a *processlog.FailedAttempt) string { return string(a.Verdict) }, s.d.text),
		"timed out", flag(func(a *processlog.FailedAttempt) bool { return a.TimedOut }),
		"lost leases", number(func(a *processlog.FailedAttempt) int64 { return int64(a.LostLeases) }),
		"instances", text(func(a *processlog.FailedAttempt) string { return a.Instance }, func(name string) string { return s.textLiteral(processlog.FitActor(name)) }),
		"due", number(func(a *processlog.FailedAttempt) int64 { return a.DueAt.UnixMilli() }),
		"started", number(func(a *processlog.FailedAttempt) int64 { return a.StartedAt.UnixMilli() }),
		"took", number(func(a *processlog.FailedAttempt) int64 { return a.Took.Milliseconds() }),
		"traces", text(func(a *processlog.FailedAttempt) string { return a.Trace }, func(trace string) string { return s.d.binary([]byte(trace)) }),
		"errors", s.attemptErrors(ids, of),
		"again", s.d.again("entry_id, slot", attemptColumns...)))
	if err != nil {
		return fmt.Errorf("store %d failed attempts: %w", len(ids), err)
	}
	failpoint.Reach(failpoint.AttemptsWritten)
	return nil
}

// attemptErrors returns an expression for the errors of the attempts. If the error of an attempt is also the last error
// of its entry, the expression copies the column last_error, so that the text is not sent twice.
func (s *Store) attemptErrors(ids []processlog.ID, of func(id processlog.ID) *processlog.Outcome) string {
	return byRow("id", ids, func(i int) string {
		o := of(ids[i])
		if text := processlog.FitError(o.Attempt.Error); text != processlog.FitError(o.LastError) {
			return s.textLiteral(text)
		}
		return "last_error"
	}, asIs)
}

// AttemptsOf implements Operations.
func (s *Store) AttemptsOf(ctx context.Context, id processlog.ID) ([]processlog.FailedAttempt, error) {
	rows, err := s.read(ctx, s.sql(attemptsRead, "entry_id", id.String(), "limit", strconv.Itoa(processlog.MaxAttemptsKept)))
	var attempts []processlog.FailedAttempt
	if err == nil {
		attempts, err = scanAttempts(rows)
	}
	if err != nil {
		return nil, fmt.Errorf("compensator: read the failed attempts of entry %s: %w", id, err)
	}
	return attempts, nil
}

func scanAttempts(rows *sql.Rows) ([]processlog.FailedAttempt, error) {
	defer rows.Close()
	var attempts []processlog.FailedAttempt
	for rows.Next() {
		var a processlog.FailedAttempt
		var dueAt, started, took, nextAt int64
		var trace []byte
		err := rows.Scan(&a.Version, &a.Epoch, &a.Number, &a.Compensating, &a.TimedOut, &a.LostLeases, &dueAt, &started, &took, &nextAt,
			(*string)(&a.Verdict), &a.Instance, &a.Error, &trace)
		if err != nil {
			return nil, err
		}
		a.DueAt, a.StartedAt, a.Took, a.Trace = unixMilli(dueAt), unixMilli(started), time.Duration(took)*time.Millisecond, string(trace)
		if a.Verdict = processlog.AttemptVerdict(strings.TrimSpace(string(a.Verdict))); nextAt > 0 {
			a.NextAt = unixMilli(nextAt)
		}
		attempts = append(attempts, a)
	}
	return attempts, rows.Err()
}

// lookForAttempts must run after the entries to purge were read.
func (s *Store) lookForAttempts(ctx context.Context) error {
	if s.attempts.Load() {
		return nil
	}
	found, err := queryIDs(ctx, s.pool(), s.sql(attemptsAny))
	if _, absent := s.d.absent(err); absent {
		return nil // A service that keeps no attempts may lack the table, or the rights to it.
	}
	if len(found) > 0 {
		s.attempts.Store(true)
	}
	return err
}

func (s *Store) deleteAttempts(ctx context.Context, tx processlog.Tx, ids []processlog.ID) error {
	if !s.attempts.Load() {
		return nil
	}
	_, err := s.writeHeld(ctx, tx, s.sql(attemptsDelete, "ids", idList(ids)))
	return err
}
