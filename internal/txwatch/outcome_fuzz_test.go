package txwatch

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/mysqlerr"
	"github.com/compensator-go/compensator/processlog"
)

type deafError struct{ err error }

func (e deafError) Error() string   { return e.err.Error() }
func (e deafError) Unwrap() error   { return e.err }
func (e deafError) Is(error) bool   { return false }
func (e deafError) As(any) bool     { return false }
func (e deafError) Timeout() bool   { return true }
func (e deafError) Temporary() bool { return true }

var dialErrors = [...]error{
	mysql.ErrInvalidConn, mysql.ErrMalformPkt, mysql.ErrPktTooLarge, mysql.ErrBusyBuffer, io.EOF, io.ErrUnexpectedEOF,
	context.Canceled, context.DeadlineExceeded, sql.ErrTxDone, sql.ErrConnDone, driver.ErrSkip, errors.New(""),
}

func wrapped(err error, ways []byte) error {
	for _, way := range ways[:min(len(ways), 16)] {
		switch way % 5 {
		case 0:
			err = fmt.Errorf("%d: %w", way, err)
		case 1:
			err = errors.Join(nil, err)
		case 2:
			err = deafError{err}
		case 3:
			err = fmt.Errorf("%w (and %w)", err, errors.New("another"))
		case 4:
			err = errors.Join(errors.New("before"), err, nil)
		}
	}
	return err
}

// Of the errors of a server, only those in commitRefusals and statementAborts count as a rollback.
func FuzzDatabaseErrors(f *testing.F) {
	for _, table := range []map[uint16]string{commitRefusals, statementAborts} {
		for number := range table {
			f.Add(number, "message", []byte{0, 1, 2, 3, 4})
		}
	}
	for _, number := range []uint16{0, 1, 1048, 1053, 1105, 1158, 1317, 1568, 1927, 2006, 2013, 3024, 3572, 4031, 65535} {
		f.Add(number, "\xff\x00 try restarting transaction", []byte{2})
		f.Add(number, "Deadlock found", []byte{})
	}
	f.Fuzz(func(t *testing.T, number uint16, message string, ways []byte) {
		var state [5]byte
		copy(state[:], message)
		answer := wrapped(&mysql.MySQLError{Number: number, SQLState: state, Message: message}, ways)
		_, refused := commitRefusals[number]
		require.Equal(t, refused, Classify(answer) == RolledBack, "%v", answer)
		require.NotEqual(t, Committed, Classify(answer))
		_, listed := statementAborts[number]
		aborts, doubtful := Aborts(answer)
		require.Equal(t, listed, aborts)
		require.Equal(t, number == mysqlerr.LockWaitTimeout || number == 0, doubtful, "no server of MySQL's kind says 0")
		require.Equal(t, number, mysqlerr.Number(answer))
		broken := wrapped(dialErrors[int(number)%len(dialErrors)], ways)
		require.Equal(t, Unknown, Classify(broken), "%v", broken)
		aborts, doubtful = Aborts(broken)
		require.False(t, aborts)
		require.Equal(t, !mysqlerr.IsBroken(broken), doubtful, "%v", broken)
		require.Equal(t, RolledBack, Classify(wrapped(driver.ErrBadConn, ways)), "nothing was sent")
	})
}

// A rollback may be reported only if the transaction certainly has no effect, and never after a successful Commit.
func FuzzWatchedTransaction(f *testing.F) {
	f.Add([]byte{1, 0, 2, 0}, "BEGIN")
	f.Add([]byte{1, 40, 2, 0, 7, 0}, "COMMIT")
	f.Add([]byte{131, 0, 3, 161}, "COMMIT") // a deadlock before the first probe
	f.Add([]byte{1, 0, 3, 9, 2, 0, 6, 1}, "SET autocommit=0")
	f.Add([]byte{9, 0, 10, 0, 11, 0, 12, 0}, "XA START 'x'")
	for _, text := range hardStatements {
		f.Add([]byte{1, 0, 0, 0, 0, 3, 2, 0}, text)
	}
	f.Fuzz(func(t *testing.T, steps []byte, text string) {
		watch := new(txWatch)
		var told *int
		for i := 0; i+1 < len(steps) && i < 64; i += 2 {
			err := stepError(steps[i+1])
			before := watch.state
			watchedStep(watch, steps[i], text, err)
			if before == txAborted && err == nil && steps[i]%13 == 0 && kindOf(text) == sqlPlain {
				require.Equal(t, txAborted, watch.state, "a plain statement revives nothing")
			}
			if steps[i] >= 128 {
				continue
			}
			w := watch.current()
			if told == nil || *told > 0 {
				ends := new(int)
				told = ends
				w.OnEnd(func(Outcome) { *ends++ })
			}
			require.LessOrEqual(t, *told, 1)
			if watch.state != txOpen {
				require.ErrorIs(t, w.Err(), processlog.ErrNoTransaction)
			}
		}
	})
}

func stepError(number byte) error {
	switch {
	case number < 128:
		return nil
	case number < 160:
		return dialErrors[int(number)%len(dialErrors)]
	}
	numbers := []uint16{1020, 1062, 1064, 1180, 1205, 1213, 1305, 1290, 1402, 1792, 3101, 65535}
	return &mysql.MySQLError{Number: numbers[int(number)%len(numbers)]}
}

func watchedStep(watch *txWatch, step byte, text string, err error) {
	switch step % 13 {
	case 0:
		_ = watch.afterStatement(kindOf(text), text, err)
	case 1:
		watch.afterBegin(err)
	case 2:
		_ = watch.committed(err, Classify(err))
	case 3:
		watch.afterError(err)
	case 4:
		watch.end(watch.afterDrop())
	case 5:
		watch.doubt()
	case 6:
		if watch.state == txDoubtful { // The library asks the server only in this state.
			watch.proven(err == nil)
		}
	case 7:
		watch.reset()
	case 8:
		watch.committedImplicitly(err)
	default:
		texts := [...]string{"XA START 'x'", "XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'"}
		known := texts[step%13-9]
		_ = watch.afterStatement(kindOf(known), known, err)
	}
}
