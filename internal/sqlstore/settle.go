package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/grouped"
	"github.com/compensator-go/compensator/internal/mysqlerr"
	"github.com/compensator-go/compensator/processlog"
)

// Settle implements Store: one statement for up to 500 successes of handlers in one epoch, one for up to 500 of
// compensations, and one for up to 100 outcomes of any other kinds, fewer where their errors are long; a short transaction
// for those among which a case opens.
func (s *Store) Settle(ctx context.Context, token processlog.Token, outcomes []processlog.Outcome) ([]processlog.Settled, error) {
	places := make([]int, len(outcomes))
	for i := range places {
		places[i] = i
	}
	groups := grouped.By(places, func(i int) settleGroup { return groupOf(outcomes[i]) })
	result := make([]processlog.Settled, len(outcomes))
	write, locked := s.updateRows, false
	ctx = s.urgently(ctx)
	for _, g := range groups.Order {
		for chunk := range s.settleChunks(g, groups.Groups[g], outcomes) {
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
				write, locked = s.updateFreeRows, true // one wait a call: many would outlast ctx, and the next try, too
			}
		}
	}
	return result, nil
}

// settleGroup is what outcomes must share to go into one statement: the fence. A success is true whoever holds the
// lease, so it asks for epoch and state (G8, G13); a failure is worth no more than its attempt, and asks for the
// version (G7). Everything else may differ from row to row, or a batch of mixed outcomes would be as many
// transactions as it has kinds.
type settleGroup struct {
	absorb bool
	epoch  uint32 // of an absorbing group
	undone bool   // of an absorbing group: successes of compensations
}

func groupOf(o processlog.Outcome) settleGroup {
	if o.Absorb {
		return settleGroup{absorb: true, epoch: o.Epoch, undone: o.To == processlog.Compensated}
	}
	return settleGroup{}
}

// rowsPerStatement: the CASE that gives each row its own version and values is walked for every row, so its cost
// grows with the square. Absorbed successes are all alike.
func (g settleGroup) rowsPerStatement() int {
	if g.absorb {
		return processlog.MaxRows
	}
	return 100
}

// maxSettleBytes is how long such a statement becomes at most, whatever the errors of its rows: a client may send less at
// once than the server takes (maxAllowedPacket), of which nothing here knows.
const maxSettleBytes = 128 << 10

// settleChunks cuts places so that each piece fits one statement.
func (s *Store) settleChunks(g settleGroup, places []int, outcomes []processlog.Outcome) func(yield func([]int) bool) {
	most, row := maxSettleBytes, 64 // its id twice, and its checksum
	if s.maxContent > 0 {
		most = min(most, 2*s.maxContent)
	}
	if !g.absorb {
		row = 320 // and all values under an id of their own
	}
	return func(yield func([]int) bool) {
		for len(places) > 0 {
			n, texts, alike := 0, 0, true // one text that all have is written once
			for ; n < min(len(places), g.rowsPerStatement()); n++ {
				text := outcomes[places[n]].LastError
				alike = alike && text == outcomes[places[0]].LastError
				texts += 2 * len(processlog.FitError(text)) // in hexadecimal digits
				if size := (n + 1) * row; n > 0 && (size > most || !alike && size+texts > most) {
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

func (g settleGroup) set(s *Store, token processlog.Token, v rowValues) string {
	counts := ""
	if !g.absorb { // those stay as they are: another attempt may have recorded a failure since
		counts = ", process_count=" + v.number(func(o *processlog.Outcome) int64 { return int64(o.ProcessCount) }) +
			", compensate_count=" + v.number(func(o *processlog.Outcome) int64 { return int64(o.CompensateCount) })
	}
	// Every value was computed from the row as claimed, not here: MySQL assigns from left to right, and a state taken
	// from a count just raised would be exhausted one early.
	return "state=" + v.number(func(o *processlog.Outcome) int64 { return int64(o.To) }) + ", version=version+1" + counts +
		", delivery_count=0, lease_until=0, ended_by=" + perRow(v, func(o *processlog.Outcome) processlog.EndedBy { return o.EndedBy }, s.d.endedBy) +
		", token=" + hexLiteral(token[:]) + ", updated_at=" + s.d.stamp +
		", next_at=" + s.d.now + "+" + v.number(func(o *processlog.Outcome) int64 { return processlog.DueAfter(o.After) }) +
		", last_error=" + perRow(v, func(o *processlog.Outcome) string { return o.LastError }, s.textLiteral)
}

// where computes with state, so that the rows are found by id: through the due index, which MySQL prefers
// when few entries are open, an UPDATE waits for every open one that somebody else holds (G14).
//
// A success needs no version: an entry comes to compensating at most once in an epoch, and leaves it for its end alone, so
// that neither a handler's success nor a compensation's can meet the other's turn (G12, G13).
func (g settleGroup) where(v rowValues) string {
	switch {
	case g.undone:
		return fmt.Sprintf("epoch=%d AND state+0=-3", g.epoch)
	case g.absorb:
		return fmt.Sprintf("epoch=%d AND state+0 IN (0,-1)", g.epoch)
	}
	return "version=" + v.number(func(o *processlog.Outcome) int64 { return int64(o.Version) }) + " AND state+0 IN (0,-1,-3)"
}

// sameEntries is the condition that the rows are the entries they were claimed as: a database that has gone back gives
// the ids of what it has lost to others.
func (s *Store) sameEntries(v rowValues) string {
	keys := make([]processlog.IdempotencyKey, len(v.ids))
	for i, id := range v.ids {
		keys[i] = v.of(id).IdempotencyKey
	}
	return " AND " + s.d.keyed(keys)
}

// rowValues writes expressions whose value depends on the row.
type rowValues struct {
	ids      []processlog.ID
	place    map[processlog.ID]int // among outcomes
	outcomes []processlog.Outcome
}

func (v rowValues) of(id processlog.ID) *processlog.Outcome { return &v.outcomes[v.place[id]] }

func (v rowValues) number(value func(o *processlog.Outcome) int64) string {
	return perRow(v, value, signed)
}

func perRow[T comparable](v rowValues, value func(o *processlog.Outcome) T, literal func(T) string) string {
	return byRow("id", v.ids, func(i int) T { return value(v.of(v.ids[i])) }, literal)
}

// writeGroup writes the outcomes at places, and reports whether some of their rows were locked. Where fewer rows changed than
// were written, it reads them: a row that carries our token was changed by us, now or in an earlier try.
func (s *Store) writeGroup(ctx context.Context, write rowUpdate, token processlog.Token, g settleGroup, outcomes []processlog.Outcome, places []int, result []processlog.Settled) (locked bool, err error) {
	ids := make([]processlog.ID, len(places))
	place := make(map[processlog.ID]int, len(places))
	for n, i := range places {
		ids[n] = outcomes[i].ID
		place[ids[n]] = i
	}
	if slices.ContainsFunc(places, func(i int) bool { return hasCase(&outcomes[i]) }) {
		write = s.updateAndOpen(token, place, outcomes)
	}
	var refused *processlog.RefusedError
	changed, busy, err := write(ctx, ids, func(ids []processlog.ID) string {
		v := rowValues{ids, place, outcomes}
		return "UPDATE " + s.byID() + " SET " + g.set(s, token, v) + " WHERE id IN (" + idList(ids) + ") AND " + g.where(v) + s.sameEntries(v)
	})
	if err != nil && !errors.As(err, &refused) {
		return false, err
	}
	// All of them, where as many rows changed as were written: nothing is read back.
	for _, i := range places {
		result[i] = processlog.Settled{Applied: true}
	}
	left := busy
	for _, id := range busy {
		result[place[id]] = processlog.Settled{Busy: true}
	}
	if refused != nil {
		for _, r := range refused.Refusals {
			result[place[r.ID]] = processlog.Settled{Refused: r.Err}
			left = append(left, r.ID)
		}
	}
	if changed < int64(len(ids)-len(left)) {
		return len(busy) > 0, s.explain(ctx, token, without(ids, left), place, outcomes, result)
	}
	return len(busy) > 0, nil
}

// textLiteral writes text from a handler: whatever it is, the column takes it, so that an odd error message
// can never keep an entry from advancing.
func (s *Store) textLiteral(text string) string {
	if text == "" {
		return s.d.empty
	}
	return s.d.text(processlog.FitError(text))
}

func (s *Store) explain(ctx context.Context, token processlog.Token, ids []processlog.ID, place map[processlog.ID]int, outcomes []processlog.Outcome, result []processlog.Settled) error {
	var rows []processlog.Row
	err := s.readLatest(ctx, func(from processlog.Tx) (err error) { // an old token would pass for somebody else's write
		rows, err = s.queryRows(ctx, from, len(ids), s.selectRows("id IN ("+idList(ids)+")"))
		return err
	})
	if err != nil {
		return fmt.Errorf("compensator: read what became of %d outcomes: %w", len(ids), err)
	}
	for _, id := range ids {
		// Until a row says otherwise: it was purged, or its id is another entry's by now (G19).
		result[place[id]] = processlog.Settled{Missing: true}
	}
	for _, row := range rows {
		if i := place[row.ID]; row.IdempotencyKey == outcomes[i].IdempotencyKey {
			// Every write to a row that an outcome fits leaves its token: ours is there if the try whose answer was lost has
			// come through, and nobody has written since (G8).
			result[i] = processlog.Settled{Applied: row.Token == token, State: row.State}
			if !result[i].Applied {
				result[i].EndedBy = row.EndedBy
			}
		}
	}
	return nil
}

// SettleTx implements Store: the last statement of the handler's own transaction, so that effect and outcome
// commit together or not at all.
func (s *Store) SettleTx(ctx context.Context, tx processlog.Tx, token processlog.Token, o processlog.Outcome) error {
	// Outside a transaction the UPDATE would commit by itself, an outcome without its effect (G5). MariaDB can be
	// asked in the UPDATE itself.
	if s.d.inTx == "" {
		if err := s.Probe(ctx, tx); err != nil {
			return fmt.Errorf("settle entry %s: the handler ended its transaction: %w", o.ID, err)
		}
	}
	o.Absorb = false // effect and outcome stand and fall with the fence
	g, v := groupOf(o), rowValues{[]processlog.ID{o.ID}, map[processlog.ID]int{o.ID: 0}, []processlog.Outcome{o}}
	changed, err := execCount(ctx, tx, "UPDATE "+s.table.quoted("")+" SET "+g.set(s, token, v)+
		" WHERE id="+o.ID.String()+" AND "+g.where(v)+s.sameEntries(v)+s.ifOpen())
	switch {
	case mysqlerr.Number(err) == mysqlerr.RecordChanged: // since this transaction's snapshot: the fence, in MariaDB's words
		return fmt.Errorf("settle entry %s: %w: %w", o.ID, processlog.ErrLeaseLost, err)
	case s.d.fault(err) == faultAborted:
		return fmt.Errorf("settle entry %s: %w: %w", o.ID, processlog.ErrTxAborted, err)
	case err != nil:
		return fmt.Errorf("compensator: settle entry %s: %w", o.ID, finished(err))
	case changed == 1:
		return nil
	}
	if s.d.inTx != "" {
		if err := s.Probe(ctx, tx); err != nil {
			return fmt.Errorf("settle entry %s: the handler ended its transaction: %w", o.ID, err)
		}
	}
	return processlog.ErrLeaseLost
}

// ifOpen makes an UPDATE change nothing outside a transaction, where the server can tell.
func (s *Store) ifOpen() string {
	if s.d.inTx == "" {
		return ""
	}
	return " AND " + s.d.inTx
}
