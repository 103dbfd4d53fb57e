package txwatch

import (
	"context"
	"database/sql"
	"database/sql/driver"

	"github.com/compensator-go/compensator/internal/mysqlerr"
)

// borrower borrows connections from a pool that the user opened without a Connector. The connections of this pool are
// not watched, and a handle of database/sql does not show every error of its connection. So the library watches each
// borrowed connection while the connection is used for one transaction of the library.
type borrower struct{ db *sql.DB }

// Borrow opens a pool of connections borrowed from db. It keeps no idle connection.
func Borrow(db *sql.DB) *sql.DB {
	lent := sql.OpenDB(borrower{db})
	lent.SetMaxIdleConns(-1)
	return lent
}

func (l borrower) Driver() driver.Driver { return l.db.Driver() }

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
		// Ignore the error of Raw, because it is the value that giveBack sends, and not a failure.
		_ = conn.Raw(func(driverConn any) error {
			inner <- driverConn.(driver.Conn)
			return <-borrowed.returned
		})
	}()
	return &watchedConn{inner: <-inner, borrowed: borrowed}, nil
}

// borrowed keeps a goroutine inside Raw until the connection is given back, because database/sql allows the use of a
// driver's connection only there.
type borrowed struct {
	returned chan error
	finished chan struct{} // closed when the pool has the connection again
}

// giveBack makes the pool close the connection if sound is false.
func (l *borrowed) giveBack(sound bool) {
	var verdict error
	if !sound {
		verdict = driver.ErrBadConn
	}
	l.returned <- verdict
	// The pool may have no other connection, and the caller may need one next. So wait until the pool has this
	// connection again.
	<-l.finished
}

// ThrowAway closes a borrowed connection of the user's pool.
func ThrowAway(ctx context.Context, conn *sql.Conn, why error) {
	if mysqlerr.IsInsideTransaction(why) {
		warnLeftOpen(ctx, why)
	}
	// Raw returns the ErrBadConn of this function, which makes the pool close the connection.
	_ = conn.Raw(func(driverConn any) error {
		driverConn.(*watchedConn).discard = true
		return driver.ErrBadConn
	})
	_ = conn.Close()
}
