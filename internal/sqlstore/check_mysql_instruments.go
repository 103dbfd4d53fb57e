package sqlstore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/compensator-go/compensator/internal/mysqlerr"
	"github.com/compensator-go/compensator/processlog"
)

// checkInstruments tries each feature that the library's statements need, because some engines and proxies accept a
// statement and do something else. If a statement does not work, checkInstruments replaces the statement, or refuses
// the server.
//
// A trial inserts rows with random keys in a transaction that never commits. So instances that start together do not
// wait for each other. The trials need only the rights of normal operation.
func checkInstruments(ctx context.Context, s *Store) []error {
	d, notes, schema := *s.d, slices.Clip(s.notes), s.schema
	for try := 1; ; try++ {
		p := &proof{s: s, key: "compensator-check-" + rand.Text()}
		err := p.run(ctx)
		switch {
		case err == nil:
			return p.problems
		case !lostConnection(err):
			return append(p.problems, fmt.Errorf("compensator: try the server's locks and transactions: %w", err))
		}
		*s.d, s.notes = d, notes
		s.setSchema(schema)
		if try == proofTries || ctx.Err() != nil {
			return []error{fmt.Errorf("compensator: try the server's locks and transactions: the connection was lost: %w", err)}
		}
	}
}

const proofTries = 3

func (p *proof) run(ctx context.Context) error {
	if err := p.inOneSession(ctx); err != nil {
		return err
	}
	return p.acrossSessions(ctx)
}

func lostConnection(err error) bool {
	number := mysqlerr.Number(err)
	return mysqlerr.IsBroken(err) || errors.Is(err, sql.ErrConnDone) || number == mysqlerr.ConnectionKilled || number == mysqlerr.SessionKilled
}

// proof makes trials. In a trial, proof runs a statement and compares the effect with the expected one. The methods of
// proof return an error only if a trial could not be made. A defect of the server goes to the method refuse or note.
type proof struct {
	s        *Store
	key      string
	problems []error
	beside   *lookout // the session that looks at the held row
}

// lookout is a second session. All its transactions have one isolation level, because on Vitess a level that was set for
// one transaction stays.
type lookout struct {
	*sql.Conn
	db    *sql.DB
	level sql.IsolationLevel
}

const (
	proofTimeout  = 15 * time.Second
	spareTimeout  = 3 * time.Second
	proofLockWait = 3
)

func (p *proof) refuse(found, remedy string) {
	p.problems = append(p.problems, &processlog.FieldError{Field: "server " + p.s.version, Reason: found + "; " + remedy})
}

func (p *proof) note(found, instead string) {
	p.s.notes = append(p.s.notes, found+"; "+instead)
}

func (p *proof) draft(suffix string) processlog.Draft {
	return processlog.Draft{BusinessType: "compensator.check", IdempotencyKey: processlog.IdempotencyKey(p.key + suffix)}
}

func (p *proof) inOneSession(ctx context.Context) error {
	conn, err := p.s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	err = p.tryIn(ctx, conn)
	// tryIn may mistake a lost connection for an answer of the server, so ask whether the session still exists.
	if _, lost := conn.ExecContext(ctx, "DO 0"); lostConnection(lost) {
		return lost
	}
	return err
}

func (p *proof) tryIn(ctx context.Context, conn *sql.Conn) error {
	outside := p.probes(ctx, conn, processlog.ErrNoTransaction)
	guarded := p.guardRefuses(ctx, conn)
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	inside := p.probes(ctx, tx, nil)
	p.chooseProbe(outside, inside)
	if err := p.tryWrites(ctx, tx, guarded); err != nil {
		return err
	}
	return p.returning(ctx, tx)
}

// mysqlProbes lists the probes, the cheapest first.
var mysqlProbes = []func(ctx context.Context, tx processlog.Tx) error{probeMySQL, probeSavepoint}

func (p *proof) probes(ctx context.Context, tx processlog.Tx, want error) []bool {
	answers := make([]bool, len(mysqlProbes))
	for i, probe := range mysqlProbes {
		answers[i] = errors.Is(probe(ctx, tx), want)
	}
	return answers
}

func (p *proof) chooseProbe(outside, inside []bool) {
	for i, probe := range mysqlProbes {
		if outside[i] && inside[i] {
			p.s.d.probe = probe
			return
		}
	}
	p.refuse("does not show whether a transaction is open: SET TRANSACTION and SAVEPOINT answer the same inside and outside one",
		"entries would become durable without their transaction; connect to the database itself")
}

// guardRefuses reports whether the server refuses a guarded INSERT outside a transaction. A guarded INSERT contains a
// condition that is true only inside a transaction. The business type is too long for its column, so that strict mode
// stores no row even if the guard does not work.
func (p *proof) guardRefuses(ctx context.Context, conn *sql.Conn) bool {
	if p.s.d.inTx == "" {
		return false
	}
	impossible := p.draft("")
	impossible.BusinessType = strings.Repeat("x", processlog.MaxName+1)
	_, err := p.s.Insert(ctx, conn, []processlog.Draft{impossible}, false)
	return errors.Is(err, processlog.ErrNoTransaction)
}

func (p *proof) tryWrites(ctx context.Context, tx processlog.Tx, guarded bool) error {
	if p.s.d.inTx != "" && !guarded {
		p.dropGuard()
	}
	// If there is a problem, maybe no probe works. An INSERT that probes first would then fail and end the trial. So
	// treat the transaction as proven to be open, and the INSERT does not probe.
	proven := len(p.problems) > 0
	id, err := p.insert(ctx, tx, "", proven)
	switch p.s.d.fault(err) {
	case faultBusy, faultAborted, faultUnreachable:
		// The server was busy, was unreachable, or has rolled the transaction back. So the INSERT did not show whether
		// its guard works, and the trial could not be made.
		return err
	}
	if err != nil && p.s.schema != "" {
		p.s.setSchema("")
		id, err = p.insert(ctx, tx, "-anywhere", proven)
	}
	if err != nil && p.s.d.fit != "" {
		p.s.d.fit, p.s.d.steady = "", ""
		p.note("the condition on the session of an INSERT is false in a correct session", "sessions that set unique_checks=0 or their own timestamp are not refused")
		id, err = p.insert(ctx, tx, "-unfit", proven)
	}
	if p.s.d.inTx != "" && (err != nil || !p.versionGuardWorks(ctx, tx, id)) {
		p.dropGuard()
		id, err = p.insert(ctx, tx, "-unguarded", proven)
	}
	if err == nil && p.s.d.inTx == "" && !p.versionGuardWorks(ctx, tx, id) {
		p.refuse("does not report how many rows an UPDATE has changed", "every guarded write depends on that number; connect to the database itself")
	}
	return err
}

func (p *proof) dropGuard() {
	p.s.d.inTx = ""
	p.note("@@in_transaction inside a statement does not show whether a transaction is open", "the library asks before, which costs one statement for each INSERT on a plain pool and each HandleTx")
}

func (p *proof) versionGuardWorks(ctx context.Context, tx processlog.Tx, id processlog.ID) bool {
	return p.update(ctx, tx, id, 1) == 0 && p.update(ctx, tx, id, 0) == 1 && p.update(ctx, tx, id, 0) == 0
}

func (p *proof) insert(ctx context.Context, tx processlog.Tx, suffix string, proven bool) (processlog.ID, error) {
	d := p.draft(suffix)
	inserted, err := p.s.Insert(ctx, tx, []processlog.Draft{d}, proven)
	if err != nil {
		return processlog.ID{}, err
	}
	ids, err := p.s.IDs(ctx, tx, []processlog.IdempotencyKey{d.IdempotencyKey})
	if err == nil && ids[d.IdempotencyKey] != inserted[0].ID {
		p.refuse(fmt.Sprintf("returned the id %s for an INSERT and stored the row as %s", inserted[0].ID, ids[d.IdempotencyKey]), "connect to the database itself")
	}
	return ids[d.IdempotencyKey], err
}

const tryUpdate = "UPDATE {log}{by id} SET version=version+1 WHERE id={id} AND version={version}{and in tx}"

func (p *proof) update(ctx context.Context, tx processlog.Tx, id processlog.ID, version int) int64 {
	changedRows, err := execCount(ctx, tx, p.s.sql(tryUpdate, "id", id.String(), "version", signed(int64(version))))
	if err != nil {
		return -1
	}
	return changedRows
}

func (p *proof) returning(ctx context.Context, tx processlog.Tx) error {
	if !p.s.d.returning {
		return nil
	}
	two := []processlog.Draft{p.draft("-1"), p.draft("-2")}
	inserted, err := p.s.Insert(ctx, tx, two, true)
	if err != nil {
		return err
	}
	ids, err := p.s.IDs(ctx, tx, []processlog.IdempotencyKey{two[0].IdempotencyKey, two[1].IdempotencyKey})
	if err == nil && (inserted[0].ID != ids[two[0].IdempotencyKey] || inserted[1].ID != ids[two[1].IdempotencyKey]) {
		p.s.d.returning = false
		p.note("INSERT … RETURNING does not return the rows", "ids of entries recorded together are read afterwards")
	}
	return err
}
