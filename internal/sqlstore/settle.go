package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/grouped"
	"github.com/compensator-go/compensator/processlog"
)

// Settle implements Store. One statement writes up to 500 successes of the same epoch, either of handlers or of
// compensations. For other outcomes, one statement writes up to 100. Successes with a Result get statements of their
// own, because a Result makes the statement more expensive for all its rows. A statement runs in a transaction if one
// of its outcomes opens a case, changes Faults, or has a Result or an Attempt.
func (s *Store) Settle(ctx context.Context, token processlog.Token, outcomes []processlog.Outcome) ([]processlog.Settled, error) {
	places := make([]int, len(outcomes))
	for i := range places {
		places[i] = i
	}
	result := make([]processlog.Settled, len(outcomes))
	write, locked := s.updateRows, false
	ctx = s.urgently(ctx)
	for g, group := range grouped.Each(places, func(i int) settleGroup { return groupOf(&outcomes[i]) }) {
		for chunk := range s.settleChunks(g, group, outcomes) {
			if locked && !timeFor(ctx, rowWait) {
				for _, i := range chunk {
					result[i] = processlog.Settled{Busy: true}
				}
				continue
			}
			busy, err := s.writeGroup(ctx, write, token, g, outcomes, chunk, result)
			if err != nil {
				return nil, fmt.Errorf("compensator: settle %d entries: %w", len(outcomes), err)
			}
			failpoint.Reach(failpoint.OutcomesPart)
			if busy {
				write, locked = s.updateFreeRows, true // Wait for a lock at most once in each call. Many waits would last longer than ctx.
			}
		}
	}
	return result, nil
}

// settleGroup is the key by which Settle groups outcomes. One UPDATE writes the outcomes of one group, because its
// condition is the same for all of them. Successes and other outcomes need different conditions:
//   - A success counts even if another process has the lease by now. So its UPDATE compares the epoch and the state.
//     See promise G8.
//   - A failure counts only for its own attempt. So its UPDATE compares the version. See promise G7.
type settleGroup struct {
	absorb bool   // whether the outcomes are successes
	epoch  uint32 // epoch of the outcomes if they are successes, otherwise 0
	undone bool   // whether the outcomes are successes of compensations
	result bool   // whether the outcomes are successes that have Results
}

func groupOf(o *processlog.Outcome) settleGroup {
	if o.To.IsSuccess() {
		return settleGroup{absorb: true, epoch: o.Epoch, undone: o.To == processlog.Compensated, result: hasResult(o)}
	}
	return settleGroup{}
}

// rowsPerStatement returns the maximum number of rows in one statement. The statement has a CASE over its rows, and the
// cost of the CASE grows with the square of their number. Successes share all values except their Results, so more of
// them fit if they have no Result.
func (g settleGroup) rowsPerStatement() int {
	if g.absorb && !g.result {
		return processlog.MaxRows
	}
	return 100
}

// maxSettleBytes is the maximum length of one statement in bytes. The MySQL driver has a limit of its own,
// maxAllowedPacket. That limit may be lower than the server's, and the library cannot read it.
const maxSettleBytes = 128 << 10

func (s *Store) settleChunks(g settleGroup, places []int, outcomes []processlog.Outcome) func(yield func([]int) bool) {
	// The variable row is the number of bytes that each outcome adds to the statement. The 64 bytes have room for the
	// id, which the statement contains twice, and for the CRC32 of the idempotency key.
	most, row := maxSettleBytes, 64
	if s.maxContent > 0 {
		most = min(most, 2*s.maxContent)
	}
	if !g.absorb {
		// Outcomes that are no successes differ in more values. The statement has a CASE for each of these values, and
		// each CASE repeats the id.
		row = 320
	}
	return func(yield func([]int) bool) {
		for len(places) > 0 {
			n, texts, results, alike := 0, 0, 0, true
			for ; n < min(len(places), g.rowsPerStatement()); n++ {
				text := outcomes[places[n]].LastError
				alike = alike && text == outcomes[places[0]].LastError
				texts += 2 * len(processlog.FitError(text)) // in hexadecimal digits
				results += 2 * len(outcomes[places[n]].Result)
				if a := outcomes[places[n]].Attempt; a != nil {
					results += 2 * len(processlog.FitError(a.Error))
				}
				if size := (n+1)*row + results; n > 0 && (size > most || !alike && size+texts > most) {
					break
				}
			}
			if !yield(places[:n]) {
				return
			}
			places = places[n:]
		}
	}
}

// The caller has computed every new value from the row as it was claimed. No new value is an SQL expression with
// another column, because MySQL assigns from left to right. For example, an expression for the state would see the
// count that the same UPDATE has just raised.
//
// state+0 keeps the due index out of the plan. An UPDATE through that index would wait for every open entry that others
// have locked. See promise G14.
//
// A database that was rolled back gives the ids of lost entries to new entries. The condition {same entries} excludes
// these new entries.
//
// settleSuccesses requires the epoch and the state. An entry becomes compensating at most once in an epoch. So {from},
// the condition on the state, distinguishes a late success of a handler from that of a compensation. See promise G13.
// settleSuccesses does not change the counts, because another attempt may have recorded a failure since the claim.
//
// settleInTx requires the version, also for a success.
const (
	settleRows = "UPDATE {log}{by id} SET state={state}, version=version+1, process_count={process_count}, compensate_count={compensate_count}, delivery_count=0, lease_until=0," +
		" ended_by={ended_by}, token={token}, updated_at={stamp}, next_at={now}+{wait}, last_error={last_error}" +
		" WHERE id IN ({ids}) AND version={version} AND state+0 IN (0,-1,-3) AND {same entries}"
	settleSuccesses = "UPDATE {log}{by id} SET state={state}, version=version+1, delivery_count=0, lease_until=0," +
		" ended_by={ended_by}, token={token}, updated_at={stamp}, next_at={now}+{wait}, last_error={last_error}" +
		" WHERE id IN ({ids}) AND epoch={epoch} AND state+0{from} AND {same entries}"
	settleInTx = settleRows + "{and in tx}{and in schema}"
)

func (s *Store) settleSQL(statement string, token processlog.Token, g settleGroup, v rowValues) string {
	keys := make([]processlog.IdempotencyKey, len(v.ids))
	for i, id := range v.ids {
		keys[i] = v.of(id).IdempotencyKey
	}
	args := append(make([]string, 0, 24),
		"ids", idList(v.ids),
		"same entries", s.d.keyed(keys),
		"token", s.d.binary(token[:]),
		"state", v.number(func(o *processlog.Outcome) int64 { return int64(o.To) }),
		"ended_by", perRow(v, func(o *processlog.Outcome) processlog.EndedBy { return o.EndedBy }, s.d.endedBy),
		"wait", v.number(func(o *processlog.Outcome) int64 { return processlog.DueAfter(o.After) }),
		"last_error", perRow(v, func(o *processlog.Outcome) string { return o.LastError }, s.textLiteral))
	if g.absorb {
		from := " IN (0,-1)"
		if g.undone {
			from = "=-3"
		}
		return s.sql(statement, append(args, "epoch", decimal(uint64(g.epoch)), "from", from)...)
	}
	return s.sql(statement, append(args,
		"process_count", v.number(func(o *processlog.Outcome) int64 { return int64(o.ProcessCount) }),
		"compensate_count", v.number(func(o *processlog.Outcome) int64 { return int64(o.CompensateCount) }),
		"version", v.number(func(o *processlog.Outcome) int64 { return int64(o.Version) }))...)
}

type rowValues struct {
	ids      []processlog.ID
	place    map[processlog.ID]int // index into outcomes
	outcomes []processlog.Outcome
}

func (v rowValues) of(id processlog.ID) *processlog.Outcome { return &v.outcomes[v.place[id]] }

func (v rowValues) number(value func(o *processlog.Outcome) int64) string {
	return perRow(v, value, signed)
}

func perRow[T comparable](v rowValues, value func(o *processlog.Outcome) T, literal func(T) string) string {
	return byRow("id", v.ids, func(i int) T { return value(v.of(v.ids[i])) }, literal)
}

// writeGroup writes the outcomes of one group, and reads the rows if the statement changed fewer rows than it was
// given. A row with this token was changed by this call, or by an earlier try whose answer was lost.
func (s *Store) writeGroup(ctx context.Context, write rowUpdate, token processlog.Token, g settleGroup, outcomes []processlog.Outcome, places []int, result []processlog.Settled) (locked bool, err error) {
	ids := make([]processlog.ID, len(places))
	place := make(map[processlog.ID]int, len(places))
	for n, i := range places {
		ids[n] = outcomes[i].ID
		place[ids[n]] = i
	}
	if slices.ContainsFunc(places, func(i int) bool {
		return hasCase(&outcomes[i]) || outcomes[i].Faults != nil || hasResult(&outcomes[i]) || hasAttempt(&outcomes[i])
	}) {
		write = s.updateAndOpen(token, place, outcomes)
	}
	statement := settleRows
	if g.absorb {
		statement = settleSuccesses
	}
	var refusedErr *processlog.RefusedError
	changedRows, busy, err := write(ctx, ids, func(ids []processlog.ID) string {
		return s.settleSQL(statement, token, g, rowValues{ids, place, outcomes})
	})
	if err != nil && !errors.As(err, &refusedErr) {
		return false, err
	}
	for _, i := range places {
		result[i] = processlog.Settled{Applied: true}
	}
	remainingIDs := busy
	for _, id := range busy {
		result[place[id]] = processlog.Settled{Busy: true}
	}
	if refusedErr != nil {
		for _, r := range refusedErr.Refusals {
			result[place[r.ID]] = processlog.Settled{Refused: r.Err}
			remainingIDs = append(remainingIDs, r.ID)
		}
	}
	if changedRows < int64(len(ids)-len(remainingIDs)) {
		return len(busy) > 0, s.explain(ctx, token, withoutIDs(ids, remainingIDs), place, outcomes, result)
	}
	return len(busy) > 0, nil
}

// textLiteral returns a handler's text as an SQL literal that fits the column, so that the outcome can be stored
// whatever the text contains.
func (s *Store) textLiteral(text string) string {
	if text == "" {
		return s.d.empty
	}
	return s.d.text(processlog.FitError(text))
}

func (s *Store) explain(ctx context.Context, token processlog.Token, ids []processlog.ID, place map[processlog.ID]int, outcomes []processlog.Outcome, result []processlog.Settled) error {
	var rows []processlog.Row
	// Read the latest rows. In an old snapshot the row could still have its earlier token. Then this outcome would seem
	// to be lost, although it was written.
	err := s.readLatest(ctx, func(readTx processlog.Tx) (err error) {
		rows, err = s.queryRows(ctx, readTx, len(ids), s.sql(loadRows, "ids", idList(ids)))
		return err
	})
	if err != nil {
		return fmt.Errorf("compensator: read back %d outcomes: %w", len(ids), err)
	}
	for _, id := range ids {
		// The entry was purged, or the database was restored and gave its id to another entry.
		result[place[id]] = processlog.Settled{Missing: true}
	}
	for _, row := range rows {
		if i := place[row.ID]; row.IdempotencyKey == outcomes[i].IdempotencyKey {
			// Every UPDATE that stores an outcome also stores the token of its caller. So a row with this token was
			// written by this call, or by an earlier try of this call whose answer was lost. See promise G8.
			result[i] = processlog.Settled{Applied: row.Token == token, State: row.State}
			if !result[i].Applied {
				result[i].EndedBy = row.EndedBy
			}
		}
	}
	return nil
}

// SettleTx implements Store. It writes the outcome and the result in the transaction of the handler's own writes. So
// all of them commit together, or none does. SettleTx does not commit.
func (s *Store) SettleTx(ctx context.Context, tx processlog.Tx, token processlog.Token, o processlog.Outcome) error {
	// The handler may have ended its transaction. The UPDATE would then commit alone, without the handler's writes. See
	// promise G5. On MariaDB, the field inTx is a condition in the UPDATE that prevents this. If the field is empty,
	// ask with Probe whether the transaction is open.
	if s.d.inTx == "" {
		if err := s.Probe(ctx, tx); err != nil {
			return fmt.Errorf("settle entry %s: the handler ended its transaction: %w", o.ID, err)
		}
	}
	// The empty settleGroup makes the UPDATE require the version, also for a success. If the version has changed, the
	// handler's transaction must fail with all its writes.
	g, v := settleGroup{}, rowValues{[]processlog.ID{o.ID}, map[processlog.ID]int{o.ID: 0}, []processlog.Outcome{o}}
	changedRows, err := execCount(ctx, tx, s.settleSQL(settleInTx, token, g, v))
	switch {
	case s.d.changed != nil && s.d.changed(err): // MariaDB says that the row has changed since the snapshot of this transaction.
		return fmt.Errorf("settle entry %s: %w: %w", o.ID, processlog.ErrLeaseLost, err)
	case s.d.fault(err) == faultAborted:
		return fmt.Errorf("settle entry %s: %w: %w", o.ID, processlog.ErrTxAborted, err)
	case err != nil:
		return fmt.Errorf("compensator: settle entry %s: %w", o.ID, finished(err))
	case changedRows == 1 && hasResult(&o):
		return s.writeResultTx(ctx, tx, &o)
	case changedRows == 1:
		return nil
	}
	if s.d.inTx != "" {
		if err := s.Probe(ctx, tx); err != nil {
			return fmt.Errorf("settle entry %s: the handler ended its transaction: %w", o.ID, err)
		}
	}
	if err := s.wrongSchema(ctx, tx); err != nil {
		s.discardSession(ctx, tx, err)
		return fmt.Errorf("settle entry %s: %w", o.ID, err)
	}
	return processlog.ErrLeaseLost
}

// ifOpen returns a condition. With the condition, an UPDATE outside a transaction changes nothing. ifOpen returns "" if
// the server has no way to write this condition.
func (s *Store) ifOpen() string {
	if s.d.inTx == "" {
		return ""
	}
	return " AND " + s.d.inTx
}
