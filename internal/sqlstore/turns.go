package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/grouped"
	"github.com/compensator-go/compensator/processlog"
)

// linesPerStatement is how many keys one statement asks for: each is a part of it with subqueries of its own.
const linesPerStatement = 50

// Join implements Store.
func (s *Store) Join(ctx context.Context, tx processlog.Tx, turns []processlog.Turn) error {
	for chunk := range slices.Chunk(turns, processlog.MaxRows) {
		notes := make([]noted, len(chunk))
		for i, turn := range chunk {
			notes[i] = noted{turn, notParked}
		}
		if err := s.note(ctx, tx, notes); err != nil {
			if s.d.fault(err) == faultAborted {
				err = fmt.Errorf("%w: %w", processlog.ErrTxAborted, err)
			}
			return s.withoutTurns(fmt.Errorf("compensator: note %d turns: %w", len(turns), finished(err)))
		}
	}
	return nil
}

// noted is a turn as it is written.
type noted struct {
	processlog.Turn
	parked uint64 // the version that its Park leaves
}

const notParked = 0 // no Park leaves this version: it adds one

// note writes turns, ascending by key and id, as all who write here do.
func (s *Store) note(ctx context.Context, tx processlog.Tx, turns []noted) error {
	slices.SortFunc(turns, func(a, b noted) int { return compareTurns(a.Turn, b.Turn) })
	var b strings.Builder
	b.WriteString("INSERT INTO " + s.table.quoted("_turns") + " (business_type, turn_key, entry_id, epoch, parked) VALUES ")
	for i, turn := range turns {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "(%s,%s,%s,%d,%d)", s.d.text(turn.BusinessType), hexLiteral([]byte(turn.Key)), turn.ID, turn.Epoch, turn.parked)
	}
	_, err := tx.ExecContext(ctx, b.String()+s.d.again("business_type, turn_key, entry_id", "epoch", "parked"))
	return err
}

func compareTurns(a, b processlog.Turn) int {
	return cmp.Or(strings.Compare(a.BusinessType, b.BusinessType), strings.Compare(a.Key, b.Key), a.ID.Compare(b.ID))
}

// standing joins a key's turns with their entries, of those that count.
func (s *Store) standing(businessType, key string, dead bool) string {
	return s.table.quoted("_turns") + " t JOIN " + s.table.quoted("") + " l" + s.d.idIndex + " ON l.id=t.entry_id AND l.business_type=t.business_type" +
		" WHERE " + s.ofKey("t.", businessType, key) + " AND l.state+0 IN (" + standingStates(dead) + ")"
}

// taken begins the condition that somebody who stands in a line has a lease.
func (s *Store) taken(standing string) string {
	return "EXISTS(SELECT 1 FROM " + standing + " AND l.lease_until>" + s.d.now
}

func standingStates(dead bool) string {
	if dead {
		return "0,-1,-2,-3"
	}
	return "0,-1,-3"
}

func (s *Store) ofKey(alias, businessType, key string) string {
	return alias + "business_type=" + s.d.text(businessType) + " AND " + alias + "turn_key=" + hexLiteral([]byte(key))
}

// Lines implements Store. It locks nothing: the leases that it reads are committed before their claims look here, so of
// two claims at once one at least sees the other.
func (s *Store) Lines(ctx context.Context, businessType string, turns []processlog.Turn, token processlog.Token, dead bool) (map[string]processlog.Line, error) {
	if len(turns) == 0 {
		_, err := queryIDs(ctx, s.pool(), "SELECT entry_id FROM "+s.table.quoted("_turns")+" WHERE 1=0")
		return nil, s.withoutTurns(err)
	}
	byKey := grouped.By(turns, func(t processlog.Turn) string { return t.Key })
	lines := make(map[string]processlog.Line, len(byKey.Order))
	for keys := range slices.Chunk(byKey.Order, linesPerStatement) {
		parts := make([]string, len(keys))
		for i, key := range keys {
			parts[i] = s.lineOf(i, businessType, key, byKey.Groups[key], token, dead)
		}
		err := s.readLatest(ctx, func(from processlog.Tx) error {
			return readLines(ctx, from, strings.Join(parts, " UNION ALL "), keys, lines)
		})
		if err != nil {
			return nil, s.withoutTurns(fmt.Errorf("compensator: read %d lines: %w", len(byKey.Order), err))
		}
	}
	return lines, nil
}

// lineOf selects how one line stands. All but its leases is read along the primary key of the turns.
func (s *Store) lineOf(place int, businessType, key string, turns []processlog.Turn, token processlog.Token, dead bool) string {
	standing, noted := s.standing(businessType, key, dead), "SELECT COUNT(*) FROM "+s.table.quoted("_turns")+" WHERE "+s.ofKey("", businessType, key)
	asked := make([]string, len(turns))
	for i, turn := range turns {
		asked[i] = fmt.Sprintf("entry_id=%s AND epoch=%d", turn.ID, turn.Epoch)
	}
	return "SELECT " + strconv.Itoa(place) +
		", COALESCE((SELECT t.entry_id FROM " + standing + " ORDER BY t.entry_id LIMIT 1),0)" +
		", " + s.taken(standing) + " AND l.token<>" + hexLiteral(token[:]) + ")" +
		", (" + noted + " AND (" + strings.Join(asked, " OR ") + "))" +
		", (" + noted + ")"
}

func readLines(ctx context.Context, from processlog.Tx, query string, keys []string, lines map[string]processlog.Line) error {
	rows, err := from.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var place int
		var first uint64
		var line processlog.Line
		if err := rows.Scan(&place, &first, &line.Taken, &line.Known, &line.Length); err != nil {
			return err
		}
		if first > 0 {
			line.First = processlog.RowID(first)
		}
		lines[keys[place]] = line
	}
	return rows.Err()
}

// Park implements Store. The turns are noted first: a version that the entry has not yet makes nobody due.
func (s *Store) Park(ctx context.Context, parked []processlog.Parked, token processlog.Token) error {
	if len(parked) == 0 {
		return nil
	}
	var left leftOver
	for chunk := range slices.Chunk(parked, 100) {
		if err := s.parkChunk(ctx, chunk, token, &left); err != nil {
			return s.withoutTurns(fmt.Errorf("compensator: park %d entries: %w", len(parked), err))
		}
	}
	if err := left.err(); err != nil {
		return fmt.Errorf("compensator: park %d entries: %w", len(parked), err)
	}
	return nil
}

func (s *Store) parkChunk(ctx context.Context, parked []processlog.Parked, token processlog.Token, left *leftOver) error {
	parked, err := s.noteParked(ctx, parked, left)
	if err != nil || len(parked) == 0 {
		return err
	}
	ids := make([]processlog.ID, len(parked))
	for i, p := range parked {
		ids[i] = p.ID
	}
	wait := byRow("id", ids, func(i int) int64 { return processlog.DueAfter(parked[i].Wait) }, signed) // now: updateRows sorts ids
	failpoint.Reach(failpoint.TurnsNoted)
	_, busy, err := s.updateRows(ctx, ids, func(ids []processlog.ID) string {
		return fmt.Sprintf("UPDATE %s SET version=version+1, delivery_count=delivery_count-1, lease_until=0, next_at=%s+%s, updated_at=%s WHERE id IN (%s) AND token=%s AND delivery_count>0 AND lease_until>0",
			s.byID(), s.d.now, wait, s.d.stamp, idList(ids), hexLiteral(token[:]))
	})
	return left.take(busy, err)
}

// noteParked notes the turns of entries, and returns those that it could note.
func (s *Store) noteParked(ctx context.Context, parked []processlog.Parked, left *leftOver) ([]processlog.Parked, error) {
	refused, untried, err := writeApart(s, parked, func(some []processlog.Parked) error {
		notes := make([]noted, len(some))
		for i, p := range some {
			notes[i] = noted{p.Turn, p.Version + 1}
		}
		return s.note(ctx, s.pool(), notes)
	})
	if err != nil || len(refused)+len(untried) == 0 {
		return parked, err
	}
	not := make(map[processlog.ID]bool)
	for _, r := range refused {
		not[r.item.ID] = true
		left.refusals = append(left.refusals, processlog.Refusal{ID: r.item.ID, Err: r.err})
	}
	for _, p := range untried {
		not[p.ID] = true
		left.busy = true
	}
	return slices.DeleteFunc(slices.Clone(parked), func(p processlog.Parked) bool { return not[p.ID] }), nil
}

// Advance implements Store. Unlike a claim's look it may come too early: whoever parks an entry advances its line afterwards.
func (s *Store) Advance(ctx context.Context, businessType string, keys []string, dead bool) (woken []processlog.ID, err error) {
	var left leftOver
	for chunk := range slices.Chunk(distinct(keys), linesPerStatement) {
		some, err := s.advance(ctx, businessType, chunk, dead, &left)
		woken = append(woken, some...)
		if err != nil {
			return woken, s.withoutTurns(fmt.Errorf("compensator: advance %d lines: %w", len(keys), err))
		}
	}
	if err := left.err(); err != nil {
		return woken, fmt.Errorf("compensator: advance %d lines: %w", len(keys), err)
	}
	return woken, nil
}

// front is how many of a line are looked at at once for the first who counts.
const front = 10

// fronting is one who stands at the front of a line.
type fronting struct {
	processlog.Turn
	version uint64
	counts  bool
	waits   bool // parked still, beside nobody who has a lease
}

func (s *Store) advance(ctx context.Context, businessType string, keys []string, dead bool, left *leftOver) ([]processlog.ID, error) {
	var parked []fronting
	var gone []processlog.Turn
	for len(keys) > 0 {
		lines, err := s.readFronts(ctx, businessType, keys, dead)
		if err != nil {
			return nil, err
		}
		keys = keys[:0]              // of those the front is all gone, and more may stand behind
		var before []processlog.Turn // of those more must be forgotten before anybody can be woken
		for _, line := range lines {
			n := slices.IndexFunc(line, func(f fronting) bool { return f.counts })
			switch {
			case n < 0 && len(line) == front:
				keys = append(keys, line[0].Key)
			case n >= 0 && line[n].waits:
				parked = append(parked, line[n])
			}
			for i := range line {
				switch {
				case n < 0 && len(line) == front:
					before = append(before, line[i].Turn)
				case n < 0 || i < n:
					gone = append(gone, line[i].Turn)
				}
			}
		}
		if err := s.forgetTurns(ctx, s.pool(), before); err != nil {
			return nil, err
		}
	}
	// The others first: whoever is to run waits for no note to go.
	woken, err := s.wake(ctx, parked, left)
	if err == nil {
		err = s.forgetTurns(ctx, s.pool(), gone)
	}
	failpoint.Reach(failpoint.TurnsLeft)
	return woken, err
}

// readFronts reads the fronts of lines, each in the order of ids.
func (s *Store) readFronts(ctx context.Context, businessType string, keys []string, dead bool) ([][]fronting, error) {
	parts := make([]string, len(keys))
	for i, key := range keys {
		f := fmt.Sprintf("f%d", i)
		// Who is parked, and first, although another runs, as one that was committed late, would be woken in vain until that one ends.
		parts[i] = fmt.Sprintf("SELECT %[1]d, %[2]s.entry_id, %[2]s.epoch, l.version, CASE WHEN l.state IN (%[3]s) THEN 1 ELSE 0 END,"+
			" CASE WHEN %[2]s.parked>0 AND %[2]s.parked=l.version AND l.lease_until=0 THEN NOT %[4]s) ELSE 0 END"+
			" FROM (SELECT entry_id, epoch, parked FROM %[5]s WHERE %[6]s ORDER BY entry_id LIMIT %[7]d) %[2]s LEFT JOIN %[8]s l%[9]s ON l.id=%[2]s.entry_id AND l.business_type=%[10]s",
			i, f, standingStates(dead), s.taken(s.standing(businessType, key, dead)), s.table.quoted("_turns"), s.ofKey("", businessType, key), front,
			s.table.quoted(""), s.d.idIndex, s.d.text(businessType))
	}
	lines := make([][]fronting, len(keys))
	err := s.readLatest(ctx, func(from processlog.Tx) error {
		rows, err := from.QueryContext(ctx, strings.Join(parts, " UNION ALL "))
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var place int
			var id uint64
			var f fronting
			var version sql.NullInt64 // of an entry that is purged, none
			if err := rows.Scan(&place, &id, &f.Epoch, &version, &f.counts, &f.waits); err != nil {
				return err
			}
			f.version = uint64(version.Int64)
			f.BusinessType, f.Key, f.ID = businessType, keys[place], processlog.RowID(id)
			lines[place] = append(lines[place], f)
		}
		return rows.Err()
	})
	for _, line := range lines {
		slices.SortFunc(line, func(a, b fronting) int { return a.ID.Compare(b.ID) })
	}
	return lines, err
}

// forgetTurns deletes turns as they were read: one that was requeued since, and claimed, stands there under another epoch.
func (s *Store) forgetTurns(ctx context.Context, tx processlog.Tx, gone []processlog.Turn) error {
	slices.SortFunc(gone, compareTurns)
	for chunk := range slices.Chunk(gone, 100) {
		which := make([]string, len(chunk))
		for i, turn := range chunk {
			which[i] = fmt.Sprintf("(%s AND entry_id=%s AND epoch=%d)", s.ofKey("", turn.BusinessType, turn.Key), turn.ID, turn.Epoch)
		}
		if _, err := execCount(ctx, tx, "DELETE FROM "+s.table.quoted("_turns")+" WHERE "+strings.Join(which, " OR ")); err != nil {
			return err
		}
	}
	return nil
}

// leaveLine deletes the turns of an erased entry that has ended: nobody can tell its key any more. A log may be without lines.
func (s *Store) leaveLine(ctx context.Context, tx processlog.Tx, row processlog.Row) error {
	// It is read first, for a DELETE would wait for whoever records, in any line of the type.
	turns, err := s.turnsOf(ctx, tx, row)
	if err == nil {
		err = s.forgetTurns(ctx, tx, turns)
	}
	if s.d.fault(err) == faultNoTable {
		return nil
	}
	if err != nil {
		return fmt.Errorf("compensator: take the erased entry %s out of its line: %w", row.ID, err)
	}
	return nil
}

// turnsOf reads all notes of one entry: one, but of a type whose Serial has changed its mind.
func (s *Store) turnsOf(ctx context.Context, tx processlog.Tx, row processlog.Row) (turns []processlog.Turn, err error) {
	rows, err := tx.QueryContext(ctx, "SELECT turn_key, epoch FROM "+s.table.quoted("_turns")+" WHERE business_type="+s.d.text(row.BusinessType)+" AND entry_id="+row.ID.String()+everyRow)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var key []byte
		turn := processlog.Turn{BusinessType: row.BusinessType, ID: row.ID}
		if err := rows.Scan(&key, &turn.Epoch); err != nil {
			return nil, err
		}
		turn.Key = string(key)
		turns = append(turns, turn)
	}
	return turns, rows.Err()
}

// wake makes parked entries due that stand as they were read.
func (s *Store) wake(ctx context.Context, parked []fronting, left *leftOver) ([]processlog.ID, error) {
	if len(parked) == 0 {
		return nil, nil
	}
	ids := make([]processlog.ID, len(parked))
	for i, f := range parked {
		ids[i] = f.ID
	}
	version := byRow("id", ids, func(i int) uint64 { return parked[i].version }, decimal) // now: updateRows sorts ids
	_, busy, err := s.updateRows(ctx, ids, func(ids []processlog.ID) string {
		return fmt.Sprintf("UPDATE %s SET version=version+1, next_at=%s, updated_at=%s WHERE id IN (%s) AND version=%s AND lease_until=0 AND state+0 IN (0,-1,-3)",
			s.byID(), s.d.now, s.d.stamp, idList(ids), version)
	})
	notWoken := busy
	var refused *processlog.RefusedError
	if errors.As(err, &refused) {
		for _, r := range refused.Refusals {
			notWoken = append(notWoken, r.ID)
		}
	}
	return without(ids, notWoken), left.take(nil, err) // who is held is woken by whoever looks next
}

// withoutTurns names the table where it is missing: New does not insist on it.
func (s *Store) withoutTurns(err error) error {
	return s.withoutTable(err, "_turns", "TypeConfig.Serial needs")
}
