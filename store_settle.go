package compensator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/compensator-go/compensator/internal/failpoint"
)

// Settle implements Store. Outcomes that write the same values under the same fence share a statement; all
// plain successes of a batch are one.
func (s *sqlStore) Settle(ctx context.Context, token Token, outcomes []Outcome) ([]Settled, error) {
	groups := make(map[settleGroup][]int)
	for i, o := range outcomes {
		g := groupOf(o)
		groups[g] = append(groups[g], i)
	}
	result := make([]Settled, len(outcomes))
	write := s.updateRows
	for g, places := range groups {
		for chunk := range slices.Chunk(places, g.rowsPerStatement()) {
			busy, err := s.settleGroup(ctx, write, token, g, outcomes, chunk, result)
			if err != nil {
				return nil, fmt.Errorf("compensator: settle %d entries: %w", len(outcomes), err)
			}
			failpoint.Reach(failpoint.OutcomesPart)
			if busy {
				write = s.updateFreeRows // one wait a call: many would outlast ctx, and the next try, too
			}
		}
	}
	return result, nil
}

// rowUpdate is updateRows or updateFreeRows.
type rowUpdate func(ctx context.Context, ids []EntryID, update func(ids []EntryID) string) (changed int64, busy []EntryID, err error)

// settleGroup is what outcomes must share to go into one statement.
type settleGroup struct {
	absorb          bool
	fence           uint64 // the epoch when absorb, else the version
	to              State
	processCount    int
	compensateCount int
	endedBy         EndedBy
}

func groupOf(o Outcome) settleGroup {
	if o.Absorb {
		// Counts stay as they are: another attempt may have recorded a failure since.
		return settleGroup{absorb: true, fence: uint64(o.Epoch), to: o.To, endedBy: o.EndedBy}
	}
	return settleGroup{fence: o.Version, to: o.To, processCount: o.ProcessCount, compensateCount: o.CompensateCount, endedBy: o.EndedBy}
}

// rowsPerStatement: the CASE that gives each failed row its own delay and error is walked for every row, so
// its cost grows with the square.
func (g settleGroup) rowsPerStatement() int {
	if g.to.Terminal() && g.endedBy == EndedByHandler {
		return maxStatementRows
	}
	return 100
}

func (g settleGroup) set(s *sqlStore, token Token) string {
	counts := ""
	if !g.absorb {
		counts = fmt.Sprintf(", process_count=%d, compensate_count=%d", g.processCount, g.compensateCount)
	}
	return fmt.Sprintf("state=%d, version=version+1%s, delivery_count=0, lease_until=0, ended_by='%s', token=%s, updated_at=%s",
		g.to, counts, g.endedBy, hexLiteral(token[:]), s.d.stamp)
}

// where computes with state, so that the rows are found by id: through the due index, which MySQL prefers
// when few entries are open, an UPDATE waits for every open one that somebody else holds.
func (g settleGroup) where() string {
	if g.absorb {
		return fmt.Sprintf("epoch=%d AND state+0 IN (0,-1)", g.fence)
	}
	return fmt.Sprintf("version=%d AND state+0 IN (0,-1,-3)", g.fence)
}

// settleGroup writes the outcomes at places, and reports whether some of their rows were locked. Fewer changed rows than written ones are explained by reading
// them: a row that carries our token was changed by us, now or in an earlier try.
func (s *sqlStore) settleGroup(ctx context.Context, write rowUpdate, token Token, g settleGroup, outcomes []Outcome, places []int, result []Settled) (locked bool, err error) {
	ids := make([]EntryID, len(places))
	place := make(map[EntryID]int, len(places))
	for n, i := range places {
		ids[n] = outcomes[i].ID
		place[ids[n]] = i
	}
	changed, busy, err := write(ctx, ids, func(ids []EntryID) string {
		return "UPDATE " + s.table.quoted("") + " SET " + g.set(s, token) + s.ownValues(ids, place, outcomes) +
			" WHERE id IN (" + idList(ids) + ") AND " + g.where()
	})
	if err != nil {
		return false, err
	}
	for _, i := range places {
		result[i] = Settled{Applied: true}
	}
	for _, id := range busy {
		result[place[id]] = Settled{Busy: true}
	}
	if changed < int64(len(ids)-len(busy)) {
		err = s.explain(ctx, token, without(ids, busy), place, result)
	}
	return len(busy) > 0, err
}

// ownValues assigns what differs from row to row: when it is due next, and its error.
func (s *sqlStore) ownValues(ids []EntryID, place map[EntryID]int, outcomes []Outcome) string {
	var after, text strings.Builder
	sameAfter, sameText := true, true
	first := outcomes[place[ids[0]]]
	for _, id := range ids {
		o := outcomes[place[id]]
		sameAfter = sameAfter && o.After == first.After
		sameText = sameText && o.LastError == first.LastError
		fmt.Fprintf(&after, " WHEN %d THEN %d", id.row, dueAfter(o.After))
		fmt.Fprintf(&text, " WHEN %d THEN %s", id.row, s.textLiteral(o.LastError))
	}
	due, lastError := "CASE id"+after.String()+" END", "CASE id"+text.String()+" END"
	if sameAfter {
		due = fmt.Sprint(dueAfter(first.After))
	}
	if sameText {
		lastError = s.textLiteral(first.LastError)
	}
	return ", next_at=" + s.d.now + "+" + due + ", last_error=" + lastError
}

// textLiteral writes text from a handler: whatever it is, the column takes it, so that an odd error message
// can never keep an entry from advancing.
func (s *sqlStore) textLiteral(text string) string {
	if text == "" {
		return "''"
	}
	return s.d.text([]byte(sanitizeError(text)))
}

const maxErrorRunes = 1000

func sanitizeError(text string) string {
	text = text[:min(len(text), maxErrorRunes*utf8.UTFMax)]
	text = strings.ToValidUTF8(text, "\uFFFD")
	if utf8.RuneCountInString(text) > maxErrorRunes {
		text = string([]rune(text)[:maxErrorRunes])
	}
	return text
}

func (s *sqlStore) explain(ctx context.Context, token Token, ids []EntryID, place map[EntryID]int, result []Settled) error {
	rows, err := s.Load(ctx, ids)
	if err != nil {
		return err
	}
	for _, id := range ids {
		result[place[id]] = Settled{Missing: true}
	}
	for _, row := range rows {
		result[place[row.ID]] = Settled{Applied: row.Token == token, State: row.State}
	}
	return nil
}

// SettleTx implements Store: the last statement of the handler's own transaction, so that effect and outcome
// commit together or not at all.
func (s *sqlStore) SettleTx(ctx context.Context, tx Tx, token Token, o Outcome) error {
	if s.d.settleOpen == "" {
		if err := s.Probe(ctx, tx); err != nil {
			return fmt.Errorf("settle entry %s: the handler ended its transaction: %w", o.ID, err)
		}
	}
	o.Absorb = false // effect and outcome stand and fall with the fence
	g := groupOf(o)
	changed, err := execCount(ctx, tx, "UPDATE "+s.table.quoted("")+" SET "+g.set(s, token)+
		s.ownValues([]EntryID{o.ID}, map[EntryID]int{o.ID: 0}, []Outcome{o})+
		" WHERE id="+o.ID.String()+" AND "+g.where()+s.d.settleOpen)
	switch {
	case isRecordChanged(err): // since this transaction's snapshot: the fence, in MariaDB's words
		return fmt.Errorf("settle entry %s: %w: %w", o.ID, ErrLeaseLost, err)
	case s.d.fault(err) == faultAborted:
		return fmt.Errorf("settle entry %s: %w: %w", o.ID, ErrTxAborted, err)
	case err != nil:
		return fmt.Errorf("compensator: settle entry %s: %w", o.ID, finished(err))
	case changed == 1:
		return nil
	}
	if s.d.settleOpen != "" {
		if err := s.Probe(ctx, tx); err != nil {
			return fmt.Errorf("settle entry %s: the handler ended its transaction: %w", o.ID, err)
		}
	}
	return ErrLeaseLost
}

// changeTimeout is how long a Change outside a caller's transaction tries to lock the row.
const changeTimeout = 2 * time.Second

// Change implements Store.
func (s *sqlStore) Change(ctx context.Context, tx Tx, proven bool, ch Change) (Row, error) {
	if tx != nil {
		if !proven || s.d.unseenEnd {
			if err := s.Probe(ctx, tx); err != nil {
				return Row{}, err
			}
		}
		row, err := s.change(ctx, tx, ch, s.d.lock)
		if s.d.fault(err) == faultAborted {
			err = fmt.Errorf("%s: %w: %w", ch.Action, ErrTxAborted, err)
		}
		return row, err
	}
	var row Row
	err := s.untilFree(ctx, changeTimeout, func(tx Transaction) error {
		var err error
		row, err = s.change(ctx, tx, ch, s.d.lockNow)
		return err
	})
	if errors.Is(err, ErrBusy) {
		err = fmt.Errorf("%s entry %v: %w", ch.Action, ch.Ref, err)
	}
	return row, err
}

// untilFree runs work in a transaction of ours, again and again while somebody holds what it wants to lock.
// It returns ErrBusy after patience. Nobody is waited for inside the database, where the user's sessions may
// be set to wait very long.
func (s *sqlStore) untilFree(ctx context.Context, patience time.Duration, work func(tx Transaction) error) error {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		err := s.inOwn(ctx, work)
		if f := s.d.fault(err); f != faultBusy && f != faultAborted {
			return err
		}
		select {
		case <-time.After(lockedRetry / 2):
		case <-deadline.C:
			return ErrBusy
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *sqlStore) change(ctx context.Context, tx Tx, ch Change, lock string) (Row, error) {
	before, err := s.find(ctx, tx, ch.Ref, lock)
	if err != nil {
		return before, err
	}
	after, err := ch.After(before)
	if err != nil {
		return before, err
	}
	query := "UPDATE " + s.table.quoted("") + " SET state=?, version=?, epoch=?, process_count=?, compensate_count=?, delivery_count=?, ended_by=?, token=?, " +
		"next_at=" + s.d.now + "+?, lease_until=CASE WHEN ?=0 THEN 0 ELSE lease_until END, updated_at=" + s.d.stamp + " WHERE id=? AND version=?"
	res, err := tx.ExecContext(ctx, query, int64(after.State), after.Version, int64(after.Epoch), int64(after.ProcessCount), int64(after.CompensateCount),
		int64(after.DeliveryCount), string(after.EndedBy), after.Token[:], dueAfter(after.DueIn), int64(after.LeaseLeft), before.ID.row, before.Version)
	if err != nil {
		return before, fmt.Errorf("compensator: %s entry %s: %w", ch.Action, before.ID, err)
	}
	if n, err := res.RowsAffected(); err != nil || n != 1 {
		return before, fmt.Errorf("compensator: %s entry %s: changed %d rows: %w", ch.Action, before.ID, n, err)
	}
	if !ch.Audited() {
		return before, nil
	}
	err = s.audit(ctx, tx, ch, before, after)
	failpoint.Reach(failpoint.AuditWritten)
	return before, err
}
