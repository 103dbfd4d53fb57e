package txwatch

import (
	"context"
	"database/sql"
	"database/sql/driver"

	"github.com/compensator-go/compensator/internal/mysqlerr"
)

// borrower opens connections by borrowing them from a pool that the user has opened without Connector, each for one
// transaction of ours. While it is lent, a connection is watched as a Connector's is: so every error is seen by which
// the server ends the transaction, also one that comes up in rows, in a prepared statement or in a single row, where
// no handle of database/sql could tell us.
type borrower struct{ db *sql.DB }

// Borrow opens a pool on what db lends. It keeps nothing: what is not in use is the user's.
func Borrow(db *sql.DB) *sql.DB {
	lent := sql.OpenDB(borrower{db})
	lent.SetMaxIdleConns(-1)
	return lent
}

func (l borrower) Driver() driver.Driver { return l.db.Driver() }

// Connect waits for a connection as the user's pool has it.
func (l borrower) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := l.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	borrowed := &borrowed{back: make(chan error), over: make(chan struct{})}
	inner := make(chan driver.Conn)
	go func() {
		defer close(borrowed.over)
		defer conn.Close()
		_ = conn.Raw(func(driverConn any) error { // what it fails with is what the loan ended with
			inner <- driverConn.(driver.Conn)
			return <-borrowed.back
		})
	}()
	return &watchedConn{inner: <-inner, borrowed: borrowed}, nil
}

// borrowed is the time a connection is lent for. Package sql wants all use of a driver's connection inside one call of
// Raw, which a goroutine holds open meanwhile.
type borrowed struct {
	back chan error
	over chan struct{} // closed once the pool has its connection again
}

// end gives the connection back. One that is not sound is thrown away by the pool.
func (l *borrowed) end(sound bool) {
	var verdict error
	if !sound {
		verdict = driver.ErrBadConn
	}
	l.back <- verdict
	// Whoever comes next finds it in the pool, which may have this one only.
	<-l.over
}

// ThrowAway closes a connection of the user's pool that was lent.
func ThrowAway(ctx context.Context, conn *sql.Conn, why error) {
	if mysqlerr.IsInsideTransaction(why) {
		warnLeftOpen(ctx, why)
	}
	_ = conn.Raw(func(driverConn any) error { // fails with what it is told to
		driverConn.(*watchedConn).discard = true
		return driver.ErrBadConn
	})
	_ = conn.Close()
}
