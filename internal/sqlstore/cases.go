package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/processlog"
)

var _ processlog.Operations = (*Store)(nil)

var operationTables = []string{"_case", "_operation", "_setting"}

const noRows = "SELECT 1 FROM {table} WHERE 1=0" // Fails if the table is missing.

func (s *Store) checkTable(ctx context.Context, suffix string) error {
	if err := s.foreign[suffix]; err != nil {
		return err
	}
	rows, err := s.pool().QueryContext(ctx, s.sql(noRows, "table", s.fragments[suffix[1:]]))
	if err != nil {
		return err
	}
	return rows.Close()
}

// CheckOperations implements Operations.
func (s *Store) CheckOperations(ctx context.Context) error {
	var problems []error
	for _, suffix := range operationTables {
		err := s.checkTable(ctx, suffix)
		var missing *processlog.FieldError
		switch err = s.withoutTable(err, suffix, "Operations needs"); {
		case errors.As(err, &missing):
			problems = append(problems, missing)
		case err != nil:
			return fmt.Errorf("compensator: look for the tables of cases: %w", err)
		}
	}
	for _, suffix := range []string{"_slots", "_attempt", "_stat", "_instance"} { // Parts of Operations may need these tables.
		if err := s.foreign[suffix]; err != nil {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

func hasCase(o *processlog.Outcome) bool { return o.Case != nil && o.To == processlog.Dead }

// updateAndOpen returns a rowUpdate that also stores the results, faults, failed attempts and cases of the outcomes.
// One transaction writes all this, for the rows that are not locked. The statements find the changed rows by their new
// token. A second try writes the same values again.
func (s *Store) updateAndOpen(token processlog.Token, place map[processlog.ID]int, outcomes []processlog.Outcome) rowUpdate {
	open := func(ctx context.Context, ids []processlog.ID, update func(ids []processlog.ID) string) (changedRows int64, busy []processlog.ID, err error) {
		err = s.inOwn(ctx, func(tx processlog.Transaction) error {
			freeIDs, err := s.lockFree(ctx, tx, ids)
			if busy = withoutIDs(ids, freeIDs); err != nil || len(freeIDs) == 0 {
				return err
			}
			if changedRows, err = s.writeHeld(ctx, tx, update(freeIDs)); err != nil {
				return err
			}
			if err := s.writeResults(ctx, tx, freeIDs, token, func(id processlog.ID) *processlog.Outcome { return &outcomes[place[id]] }); err != nil {
				return err
			}
			faulty := slices.DeleteFunc(slices.Clone(freeIDs), func(id processlog.ID) bool { return outcomes[place[id]].Faults == nil })
			if len(faulty) > 0 {
				if err := s.writeFaults(ctx, tx, faulty, token, func(id processlog.ID) *processlog.Faults { return outcomes[place[id]].Faults }); err != nil {
					return err
				}
			}
			if err := s.writeAttempts(ctx, tx, freeIDs, token, func(id processlog.ID) *processlog.Outcome { return &outcomes[place[id]] }); err != nil {
				return err
			}
			deadIDs := slices.DeleteFunc(slices.Clone(freeIDs), func(id processlog.ID) bool { return !hasCase(&outcomes[place[id]]) })
			if len(deadIDs) == 0 {
				return nil
			}
			return s.openCases(ctx, tx, deadIDs, " AND token="+s.d.binary(token[:]), func(id processlog.ID) *processlog.CaseDraft { return outcomes[place[id]].Case })
		})
		if err != nil {
			return 0, nil, err // The transaction was rolled back, so no row changed.
		}
		return changedRows, busy, nil
	}
	return func(ctx context.Context, ids []processlog.ID, update func(ids []processlog.ID) string) (changedRows int64, busy []processlog.ID, err error) {
		return s.updateApart(ctx, ids, update, open)
	}
}

// {again} reopens a case that exists, with the new values and a higher version.
const insertCases = "INSERT INTO {case} (entry_id, epoch, kind, business_type, business_id, fingerprint, ended_by, error, amount, currency, opened_at, due_at)" +
	" SELECT id, epoch, {kind}, business_type, business_id, {fingerprint}, RTRIM(ended_by), {error}, {amount}, {currency}, {now}, {now}+{due}" +
	" FROM {log}{by id} WHERE id IN ({ids}) AND state+0=-2{and token}{again}, version={case}.version+1, closed_at=0"

// openCases opens a case for each dead entry whose id is in ids. The parameter andToken is empty, or is a condition on
// the column token that begins with AND.
func (s *Store) openCases(ctx context.Context, tx processlog.Tx, ids []processlog.ID, andToken string, draft func(id processlog.ID) *processlog.CaseDraft) error {
	each := func(of func(d *processlog.CaseDraft) string) string {
		return byRow("id", ids, func(i int) string { return of(draft(ids[i])) }, asIs)
	}
	number := func(of func(d *processlog.CaseDraft) int64) string {
		return byRow("id", ids, func(i int) int64 { return of(draft(ids[i])) }, signed)
	}
	amount := each(func(d *processlog.CaseDraft) string {
		if !d.Amount.Known() {
			return "NULL"
		}
		return strconv.FormatInt(d.Amount.Minor, 10)
	})
	currency := each(func(d *processlog.CaseDraft) string {
		if !d.Amount.Known() {
			return s.d.empty
		}
		return s.d.text(d.Amount.Currency)
	})
	lastError := each(func(d *processlog.CaseDraft) string {
		if d.Error == "" {
			return "SUBSTR(last_error,1," + strconv.Itoa(processlog.MaxCaseError) + ")"
		}
		return s.d.text(processlog.FitCaseError(d.Error))
	})
	query := s.sql(insertCases,
		"kind", number(func(d *processlog.CaseDraft) int64 { return int64(d.Kind) }),
		"fingerprint", each(func(d *processlog.CaseDraft) string { return s.d.binary(d.Fingerprint[:]) }),
		"error", lastError,
		"amount", amount,
		"currency", currency,
		"due", number(func(d *processlog.CaseDraft) int64 { return processlog.DueAfter(d.Due) }),
		"ids", idList(ids),
		"and token", andToken,
		"again", s.d.again("entry_id", "epoch", "kind", "fingerprint", "ended_by", "error", "amount", "currency", "opened_at", "due_at"))
	if _, err := s.writeHeld(ctx, tx, query); err != nil {
		return fmt.Errorf("open %d cases: %w", len(ids), err)
	}
	failpoint.Reach(failpoint.CaseOpened)
	return nil
}

const closeCasesOf = "UPDATE {case}{by id} SET closed_at={now}, version=version+1 WHERE entry_id IN ({ids}) AND closed_at=0"

func (s *Store) closeCasesOf(ctx context.Context, tx processlog.Tx, rows []changedRow) error {
	var ids []processlog.ID
	for _, r := range rows {
		if r.oldRow.State == processlog.Dead && r.newRow.State != processlog.Dead {
			ids = append(ids, r.oldRow.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	_, err := execCount(ctx, tx, s.sql(closeCasesOf, "ids", idList(ids)))
	if err != nil {
		err = fmt.Errorf("compensator: close the cases of %d entries: %w", len(ids), err)
	}
	failpoint.Reach(failpoint.CaseClosed)
	return err
}

// DeadWithoutCase implements Operations.
func (s *Store) DeadWithoutCase(ctx context.Context, since time.Duration, limit int) ([]processlog.Row, error) {
	groups, err := s.groups(ctx, nil, []processlog.State{processlog.Dead}, nil)
	if err != nil {
		return nil, fmt.Errorf("compensator: look for dead entries without a case: %w", err)
	}
	var ids []processlog.ID
	for some := range slices.Chunk(groups, 100) {
		found, err := queryIDs(ctx, s.pool(), s.withoutCase(some, since, limit-len(ids)))
		if err != nil {
			return nil, fmt.Errorf("compensator: look for dead entries without a case: %w", err)
		}
		if ids = append(ids, found...); len(ids) >= limit {
			break
		}
	}
	slices.SortFunc(ids, processlog.ID.Compare)
	rows, err := s.Load(ctx, ids)
	if err == nil {
		err = s.addFaults(ctx, s.pool(), rows)
	}
	if err != nil {
		return nil, fmt.Errorf("compensator: read dead entries without a case: %w", err)
	}
	return rows, nil
}

const (
	deadWithoutCase   = "{parts} LIMIT {limit}"
	deadWithoutCaseOf = "SELECT * FROM (SELECT l.id FROM {log} AS l{by due} LEFT JOIN {case} AS c ON c.entry_id=l.id AND c.closed_at=0" +
		" WHERE l.state=-2 AND l.business_type={type}{recent} AND c.entry_id IS NULL LIMIT {limit}) AS t{number}"
)

func (s *Store) withoutCase(groups []group, since time.Duration, limit int) string {
	recent := ""
	if since > 0 {
		recent = s.sql(" AND l.next_at>{now}-{since}", "since", signed(processlog.Millis(since)))
	}
	parts := make([]string, len(groups))
	for i, g := range groups {
		parts[i] = s.sql(deadWithoutCaseOf, "type", s.d.text(g.businessType), "recent", recent, "limit", strconv.Itoa(limit), "number", strconv.Itoa(i))
	}
	return s.sql(deadWithoutCase, "parts", strings.Join(parts, " UNION ALL "), "limit", strconv.Itoa(limit))
}

// OpenCases implements Operations. It locks the entries before it opens their cases. A transaction that requeues one of
// these entries then waits for the lock. After the wait, that transaction sees the new case and closes the case.
func (s *Store) OpenCases(ctx context.Context, rows []processlog.Row, cases []processlog.CaseDraft) (opened int, err error) {
	places := make(map[processlog.ID]int, len(rows))
	ids := make([]processlog.ID, len(rows))
	for i, row := range rows {
		places[row.ID], ids[i] = i, row.ID
	}
	err = s.casesApart(ctx, ids, func(ids []processlog.ID) error {
		var deadIDs []processlog.ID
		err := s.inOwn(ctx, func(tx processlog.Transaction) (err error) {
			deadIDs, err = s.lockDead(ctx, tx, ids, func(id processlog.ID) uint64 { return rows[places[id]].Version })
			if err != nil || len(deadIDs) == 0 {
				return err
			}
			return s.openCases(ctx, tx, deadIDs, "", func(id processlog.ID) *processlog.CaseDraft { return &cases[places[id]] })
		})
		if err == nil {
			opened += len(deadIDs)
		}
		return err
	})
	if err != nil {
		err = fmt.Errorf("compensator: %w", err)
	}
	return opened, err
}

// casesApart calls write for up to purgeStep cases at a time. A case whose statement waited too long stays for the next
// round.
func (s *Store) casesApart(ctx context.Context, ids []processlog.ID, write func(ids []processlog.ID) error) error {
	slices.SortFunc(ids, processlog.ID.Compare)
	var refusals []refusal[processlog.ID]
	for chunk := range slices.Chunk(ids, purgeStep) {
		refusedCases, _, err := writeApart(ctx, s, chunk, write)
		if err != nil {
			return s.dropReadOnly(err)
		}
		refusals = append(refusals, refusedCases...)
	}
	if len(refusals) > 0 {
		return asRefused(refusals)
	}
	return nil
}

const lockDead = "SELECT id FROM {log}{by id} WHERE id IN ({ids}) AND state+0=-2 AND version={version} ORDER BY id{lock}"

func (s *Store) lockDead(ctx context.Context, tx processlog.Tx, ids []processlog.ID, version func(id processlog.ID) uint64) ([]processlog.ID, error) {
	return readFree(ctx, s, ids, func(ids []processlog.ID, lock string) ([]processlog.ID, error) {
		versions := byRow("id", ids, func(i int) uint64 { return version(ids[i]) }, decimal)
		return queryIDs(ctx, tx, s.sql(lockDead, "ids", idList(ids), "version", versions, "lock", lock))
	})
}

// CloseCases implements Operations. A case that was reopened meanwhile stays open.
func (s *Store) CloseCases(ctx context.Context, limit int) (int, error) {
	n, err := s.closeCases(ctx, limit)
	if err != nil {
		err = fmt.Errorf("compensator: close cases: %w", err)
	}
	return n, err
}

const (
	casesToClose = "SELECT c.entry_id, c.version FROM {case} AS c LEFT JOIN {log} AS l ON l.id=c.entry_id WHERE c.closed_at=0 AND (l.id IS NULL OR l.state<>-2) LIMIT {limit}"
	closeCases   = "UPDATE {case}{by id} SET closed_at={now}, version=version+1 WHERE entry_id IN ({ids}) AND closed_at=0 AND version={version}"
)

func (s *Store) closeCases(ctx context.Context, limit int) (int, error) {
	rows, err := s.pool().QueryContext(ctx, s.sql(casesToClose, "limit", strconv.Itoa(limit)))
	if err != nil {
		return 0, err
	}
	versions := make(map[processlog.ID]uint64)
	var ids []processlog.ID
	for rows.Next() {
		var id, version uint64
		if err := rows.Scan(&id, &version); err != nil {
			return 0, errors.Join(err, rows.Close())
		}
		ids = append(ids, processlog.RowID(id))
		versions[processlog.RowID(id)] = version
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return 0, err
	}
	closed := 0
	err = s.casesApart(ctx, ids, func(ids []processlog.ID) error {
		version := byRow("entry_id", ids, func(i int) uint64 { return versions[ids[i]] }, decimal)
		n, err := s.writeHeld(ctx, s.writePool(), s.sql(closeCases, "ids", idList(ids), "version", version))
		closed += int(n)
		return err
	})
	return closed, err
}

const (
	casesToForget = "SELECT entry_id FROM {case} WHERE closed_at>0 AND closed_at<{now}-{age} ORDER BY closed_at LIMIT {limit}"
	forgetCases   = "{DELETE FROM case} WHERE entry_id IN ({ids}) AND closed_at>0 AND closed_at<{now}-{age}"
)

// ForgetCases implements Operations.
func (s *Store) ForgetCases(ctx context.Context, age time.Duration, limit int) (int, error) {
	ids, err := queryIDs(ctx, s.pool(), s.sql(casesToForget, "age", signed(processlog.Millis(age)), "limit", strconv.Itoa(limit)))
	if err != nil {
		return 0, fmt.Errorf("compensator: forget closed cases: %w", err)
	}
	forgotten := 0
	err = s.casesApart(ctx, ids, func(ids []processlog.ID) error {
		n, err := s.writeHeld(ctx, s.writePool(), s.sql(forgetCases, "ids", idList(ids), "age", signed(processlog.Millis(age))))
		forgotten += int(n)
		return err
	})
	if err != nil {
		err = fmt.Errorf("compensator: forget closed cases: %w", err)
	}
	return forgotten, err
}
