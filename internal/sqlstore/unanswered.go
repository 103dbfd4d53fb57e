package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// unanswered limits how many sessions hold statements that the library has given up, because the server did not answer.
// After mostUnanswered such statements, the library sends only one statement at a time, with growing pauses. It does
// this until the server answers a statement of the same kind.
type unanswered struct {
	mu              sync.Mutex // guards the fields below
	unansweredCount [kinds]int // per kind: number of statements that were given up since the server last answered that kind
	probing         bool       // whether a single statement is being tried
	nextProbe       time.Time  // earliest time of the next try
	pause           time.Duration
	stateChanged    chan struct{} // closed when a field changes that callers wait for
}

// statementKind is the kind of a statement. A server may answer the statements of one kind while it blocks those of
// another kind.
type statementKind int

const (
	reading statementKind = iota
	writing               // a statement that writes outside a transaction, and so also commits
	transacting
	kinds
)

const (
	mostUnanswered = 4
	longestPause   = 30 * time.Second
	// silence is a limit for the time between sending a statement and the break of its connection:
	//   - If less time has passed, the server or the network has ended the connection together with its session.
	//   - If more time has passed, the client may have given up, and the session may still run the statement.
	silence = time.Second
)

func (u *unanswered) send(ctx context.Context, d *dialect, kind statementKind, run func() error) error {
	isProbe, err := u.admitOrWait(ctx, kind)
	if err != nil {
		return err
	}
	startedAt := time.Now()
	err = run()
	u.recordEnd(kind, isProbe, err == nil || d.answered(err), ctx.Err() != nil || d.fault(err) == faultUnreachable && time.Since(startedAt) > silence)
	return err
}

// admitOrWait waits until a statement may be sent. The result isProbe is true if this statement is the only one that is
// tried now.
func (u *unanswered) admitOrWait(ctx context.Context, kind statementKind) (isProbe bool, err error) {
	for {
		stateChanged, wait, isProbe := u.admit(kind)
		if stateChanged == nil {
			return isProbe, nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-stateChanged:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return false, fmt.Errorf("compensator: not sent, because the server has left %d statements unanswered and holds their sessions: %w", mostUnanswered, ctx.Err())
		}
		timer.Stop()
	}
}

// admit returns a nil channel if a statement may be sent now. Otherwise the caller waits until the channel is closed or
// the duration is over, and calls admit again.
func (u *unanswered) admit(kind statementKind) (stateChanged chan struct{}, wait time.Duration, isProbe bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	total := 0
	for _, n := range u.unansweredCount {
		total += n
	}
	if total < mostUnanswered || u.unansweredCount[kind] == 0 {
		return nil, 0, false
	}
	if wait = time.Until(u.nextProbe); wait <= 0 && !u.probing {
		u.probing = true
		return nil, 0, true
	}
	if u.stateChanged == nil {
		u.stateChanged = make(chan struct{})
	}
	return u.stateChanged, max(wait, silence), false
}

func (u *unanswered) recordEnd(kind statementKind, isProbe, answered, givenUp bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !isProbe && answered && u.unansweredCount[kind] == 0 {
		return // usual case
	}
	switch {
	case answered:
		u.unansweredCount[kind], u.pause, u.nextProbe = 0, 0, time.Time{}
	case givenUp:
		u.unansweredCount[kind]++
	}
	if isProbe {
		u.probing = false
		if !answered {
			u.pause = min(max(2*u.pause, silence), longestPause)
			u.nextProbe = time.Now().Add(u.pause)
		}
	}
	if u.stateChanged != nil {
		close(u.stateChanged)
		u.stateChanged = nil
	}
}

type bounded struct{ ownStatements }

var _ processlog.Tx = bounded{}

func (b bounded) ExecContext(ctx context.Context, query string, args ...any) (result sql.Result, err error) {
	err = b.s.send(ctx, writing, func() (err error) {
		result, err = b.ownStatements.ExecContext(ctx, query, args...)
		return err
	})
	return result, err
}

// QueryContext counts a query as unanswered only if the library gives it up before the first row arrives. If the
// library gives up a query later, it closes the connection. The server then ends the query, because it cannot write
// more rows to the connection.
func (b bounded) QueryContext(ctx context.Context, query string, args ...any) (rows *sql.Rows, err error) {
	err = b.s.send(ctx, reading, func() (err error) {
		rows, err = b.ownStatements.QueryContext(ctx, query, args...) //nolint:sqlclosecheck // the caller closes them
		return err
	})
	return rows, err
}

// send runs a statement, and counts it if the library gives it up before the server answers. On SQLite, which has no
// sessions, send counts nothing. It also counts nothing while the user's pool is exhausted, because the statement may
// wait for a connection and not for the server.
func (s *Store) send(ctx context.Context, kind statementKind, run func() error) error {
	if s.OneWriter() {
		return run()
	}
	if s.ownPool == nil {
		if stats := s.db.Stats(); stats.MaxOpenConnections > 0 && stats.InUse >= stats.MaxOpenConnections {
			return run()
		}
	}
	return s.unanswered.send(ctx, s.d, kind, run)
}
