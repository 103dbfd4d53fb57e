package txwatch

import (
	"context"
	"database/sql"
	"database/sql/driver"

	"github.com/compensator-go/compensator/internal/mysqlerr"
)

// borrower opens connections by borrowing them from a pool that the user opened without Connector. Each connection is
// borrowed for one transaction of the library. During that time it is watched like a connection of a Connector. So this
// package sees every error with which the server ends the transaction. It also sees errors that a handle of
// database/sql does not show: errors in rows, in prepared statements and of QueryRow.
type borrower struct{ db *sql.DB }

// Borrow opens a pool of connections borrowed from db. The pool keeps no idle connection: every connection goes back to
// db after its use.
func Borrow(db *sql.DB) *sql.DB {
	lent := sql.OpenDB(borrower{db})
	lent.SetMaxIdleConns(-1)
	return lent
}

func (l borrower) Driver() driver.Driver { return l.db.Driver() }

// Connect waits for a connection from the user's pool.
func (l borrower) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := l.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	borrowed := &borrowed{returned: make(chan error), finished: make(chan struct{})}
	inner := make(chan driver.Conn)
	go func() {
		defer close(borrowed.finished)
		defer conn.Close()
		_ = conn.Raw(func(driverConn any) error { // Ignore the result of Raw, because it is the error that giveBack has passed to the goroutine.
			inner <- driverConn.(driver.Conn)
			return <-borrowed.returned
		})
	}()
	return &watchedConn{inner: <-inner, borrowed: borrowed}, nil
}

// borrowed is a connection that was borrowed from the user's pool. database/sql allows the use of a driver's connection
// only inside a call of Raw. So a goroutine stays inside Raw until the connection is given back.
type borrowed struct {
	returned chan error
	finished chan struct{} // closed when the pool has the connection again
}

// giveBack gives the connection back. If its argument is false, the pool closes the connection.
func (l *borrowed) giveBack(sound bool) {
	var verdict error
	if !sound {
		verdict = driver.ErrBadConn
	}
	l.returned <- verdict
	// Wait until the pool has the connection again, because the pool may have only this connection.
	<-l.finished
}

// ThrowAway closes a borrowed connection of the user's pool.
func ThrowAway(ctx context.Context, conn *sql.Conn, why error) {
	if mysqlerr.IsInsideTransaction(why) {
		warnLeftOpen(ctx, why)
	}
	_ = conn.Raw(func(driverConn any) error { // Ignore the result of Raw, because it is the error that the function returns.
		driverConn.(*watchedConn).discard = true
		return driver.ErrBadConn
	})
	_ = conn.Close()
}
