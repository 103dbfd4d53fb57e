package sqlstore

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func never(ctx context.Context, sent *atomic.Int32) func() error {
	return func() error {
		sent.Add(1)
		<-ctx.Done()
		return ctx.Err()
	}
}

// Failure: F30
func TestStatementsThatAServerDoesNotAnswerAreTriedOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var u unanswered
		var sent atomic.Int32
		end := time.Now().Add(time.Hour)
		done := make(chan bool)
		for range mostUnanswered {
			go func() {
				for time.Now().Before(end) {
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
					assert.ErrorIs(t, u.send(ctx, mysqlDialect(""), writing, never(ctx, &sent)), context.DeadlineExceeded)
					cancel()
				}
				done <- true
			}()
		}
		for range mostUnanswered {
			<-done
		}
		assert.Less(t, sent.Load(), int32(200), "in an hour, of 1,440")
		answered := false
		assert.NoError(t, u.send(t.Context(), mysqlDialect(""), reading, func() error { answered = true; return nil }), "a statement of a kind that the server answers is sent at once")
		assert.True(t, answered)
	})
}

// Failure: F30
func TestAnyAnswerLetsStatementsOfItsKindThrough(t *testing.T) {
	for name, answer := range map[string]error{"success": nil, "an error of the server": &mysql.MySQLError{Number: 1205}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var u unanswered
				var sent atomic.Int32
				for range mostUnanswered {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					require.Error(t, u.send(ctx, mysqlDialect(""), writing, never(ctx, &sent)))
					cancel()
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				release := make(chan bool)
				go func() {
					assert.Equal(t, answer, u.send(ctx, mysqlDialect(""), writing, func() error { <-release; return answer }))
				}()
				synctest.Wait()
				brief, end := context.WithTimeout(t.Context(), time.Second)
				defer end()
				require.ErrorContains(t, u.send(brief, mysqlDialect(""), writing, func() error { return errors.New("sent while another one is tried") }), "unanswered")
				close(release)
				synctest.Wait()
				for range 3 {
					require.NoError(t, u.send(ctx, mysqlDialect(""), writing, func() error { return nil }))
				}
			})
		})
	}
}

// A statement whose connection breaks holds no session on the server.
// Failure: F30
func TestBrokenConnectionHoldsNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var u unanswered
		for range 10 * mostUnanswered {
			require.ErrorIs(t, u.send(t.Context(), mysqlDialect(""), writing, func() error { return mysql.ErrInvalidConn }), mysql.ErrInvalidConn)
		}
	})
}

func TestStatementsOfOursAreCalm(t *testing.T) {
	assert.NotContains(t, calmHints, "timestamp", "prepared, it would stop the session's clock")
	assert.Equal(t, "UPDATE /*+ "+calmHints+" */ t SET a=1", calmMySQL("UPDATE t SET a=1"))
	assert.Equal(t, "SELECT /*+ MAX_EXECUTION_TIME(2000) "+calmHints+" */ a FROM t", calmMySQL(mysqlEnded(2, "SELECT a FROM t")))
	d := mysqlDialect("10.11.19-MariaDB")
	assert.Regexp(t, `^SET STATEMENT timestamp=0, .* FOR UPDATE t SET a=1$`, d.calm("UPDATE t SET a=1"))
	assert.Regexp(t, `^SET STATEMENT timestamp=0, .*, max_statement_time=2 FOR SELECT 1$`, d.calm(d.ended(2, "SELECT 1")))
}
