package sqlstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/processlog"
)

// Join implements Store.
func (s *Store) Join(ctx context.Context, tx processlog.Tx, positions []processlog.Position) error {
	for chunk := range slices.Chunk(positions, processlog.MaxRows) {
		notes := make([]positionNote, len(chunk))
		for i, position := range chunk {
			notes[i] = positionNote{position, notBlocked}
		}
		if err := s.note(ctx, tx, notes); err != nil {
			if s.d.fault(err) == faultAborted {
				err = fmt.Errorf("%w: %w", processlog.ErrTxAborted, err)
			}
			return s.withoutOrdering(fmt.Errorf("compensator: note %d positions: %w", len(positions), finished(err)))
		}
	}
	return nil
}

// positionNote is a row for the _turns table, called a note.
type positionNote struct {
	processlog.Position
	blockedVersion uint64 // version that the entry has after Block has blocked it, or notBlocked
}

const notBlocked = 0 // No version is 0 after a Block, which adds 1.

const (
	notePositions = "INSERT INTO {turns} (business_type, turn_key, place, entry_id, epoch, parked) VALUES {positions}{again}"
	notePosition  = "({type},{key},{place},{entry_id},{epoch},{parked})"
)

// note writes positions into the _turns table. A position stands for an entry and a key. note sorts the positions by
// the primary key, as all writers do, so that no two writers deadlock. If the table already has the position, note
// changes only its epoch and its blockedVersion.
func (s *Store) note(ctx context.Context, tx processlog.Tx, positions []positionNote) error {
	slices.SortFunc(positions, func(a, b positionNote) int { return comparePositions(a.Position, b.Position) })
	rows := make([]string, len(positions))
	for i, position := range positions {
		orderID := position.OrderID
		if orderID.IsZero() {
			orderID = position.ID
		}
		rows[i] = s.sql(notePosition, "type", s.d.text(position.BusinessType), "key", s.d.binary([]byte(position.Key)), "place", orderID.String(),
			"entry_id", position.ID.String(), "epoch", decimal(uint64(position.Epoch)), "parked", decimal(position.blockedVersion))
	}
	_, err := tx.ExecContext(ctx, s.sql(notePositions, "positions", strings.Join(rows, ","), "again", s.d.again("entry_id, turn_key", "epoch", "parked")))
	return err
}

func comparePositions(a, b processlog.Position) int {
	return cmp.Or(a.ID.Compare(b.ID), strings.Compare(a.Key, b.Key))
}

// firstOfKey is the first unfinished entry of {key}, or NULL. The LIMIT keeps the server from turning the subquery into a
// join.
const firstOfKey = "(SELECT t.entry_id FROM {turns} t{by k_line} {then join} {log} l{by id} ON l.id=t.entry_id AND l.business_type=t.business_type" +
	" WHERE t.business_type={type} AND t.turn_key={key} AND l.state+0 IN ({counting}) ORDER BY t.turn_key, t.place, t.entry_id LIMIT 1)"

// firstOf takes key as an SQL expression.
func (s *Store) firstOf(businessType, key string, deadBlocks bool) string {
	return s.sql(firstOfKey, "type", s.d.text(businessType), "key", key, "counting", counting(deadBlocks))
}

func counting(deadBlocks bool) string {
	if deadBlocks {
		return "0,-1,-2,-3"
	}
	return "0,-1,-3"
}

func (s *Store) keyed(keys []string) string {
	var b strings.Builder
	for i, key := range keys {
		if i == 0 {
			b.WriteString("SELECT 0 AS n, " + s.d.binary([]byte(key)) + " AS turn_key")
		} else {
			fmt.Fprintf(&b, " UNION ALL SELECT %d, %s", i, s.d.binary([]byte(key)))
		}
	}
	return b.String()
}

// Block implements Store. It writes the notes first, and then the entries. In a note, blockedVersion is the version
// that the entry has after Block has written the entry. Advance makes an entry due only if its version equals
// blockedVersion. So no Advance makes an entry due between the two writes.
func (s *Store) Block(ctx context.Context, blocked []processlog.BlockedEntry, token processlog.Token) error {
	if len(blocked) == 0 {
		return nil
	}
	var leftovers leftOver
	for chunk := range slices.Chunk(blocked, 100) {
		if err := s.blockChunk(ctx, chunk, token, &leftovers); err != nil {
			return s.withoutOrdering(fmt.Errorf("compensator: block %d entries: %w", len(blocked), err))
		}
	}
	if err := leftovers.err(); err != nil {
		return fmt.Errorf("compensator: block %d entries: %w", len(blocked), err)
	}
	return nil
}

const blockRows = "UPDATE {log}{by id} SET version=version+1, delivery_count=delivery_count-1, lease_until=0, next_at={now}+{wait}, updated_at={stamp}" +
	" WHERE id IN ({ids}) AND token={token} AND delivery_count>0 AND lease_until>0"

func (s *Store) blockChunk(ctx context.Context, blocked []processlog.BlockedEntry, token processlog.Token, leftovers *leftOver) error {
	blocked, err := s.noteBlocked(ctx, blocked, leftovers)
	if err != nil || len(blocked) == 0 {
		return err
	}
	ids := make([]processlog.ID, len(blocked))
	for i, p := range blocked {
		ids[i] = p.ID
	}
	wait := byRow("id", ids, func(i int) int64 { return processlog.DueAfter(blocked[i].Wait) }, signed) // updateRows sorts ids, so compute this now.
	failpoint.Reach(failpoint.OrderingNoted)
	_, busy, err := s.updateRows(ctx, ids, func(ids []processlog.ID) string {
		return s.sql(blockRows, "wait", wait, "ids", idList(ids), "token", s.d.binary(token[:]))
	})
	return leftovers.addResult(busy, err)
}

func (s *Store) noteOutside(ctx context.Context, notes []positionNote) error {
	if !s.boundsWaits() {
		return s.note(ctx, s.writePool(), notes)
	}
	return s.inOwn(ctx, func(tx processlog.Transaction) error { return s.note(ctx, tx, notes) })
}

func (s *Store) noteBlocked(ctx context.Context, blocked []processlog.BlockedEntry, leftovers *leftOver) ([]processlog.BlockedEntry, error) {
	refusals, untried, err := writeApart(ctx, s, blocked, func(some []processlog.BlockedEntry) error {
		notes := make([]positionNote, len(some))
		for i, p := range some {
			notes[i] = positionNote{p.Position, p.Version + 1}
		}
		startedAt := time.Now()
		if err := s.noteOutside(ctx, notes); err != nil {
			// After a wait, writeApart tries again with fewer entries. A note that was already written is then written
			// again with the same values.
			return s.asWait(ctx, err, startedAt)
		}
		return nil
	})
	if err != nil || len(refusals)+len(untried) == 0 {
		return blocked, err
	}
	unwritten := make(map[processlog.ID]bool)
	for _, r := range refusals {
		unwritten[r.item.ID] = true
		leftovers.refusals = append(leftovers.refusals, processlog.Refusal{ID: r.item.ID, Err: r.err})
	}
	for _, p := range untried {
		unwritten[p.ID] = true
		leftovers.busy = true
	}
	return slices.DeleteFunc(slices.Clone(blocked), func(p processlog.BlockedEntry) bool { return unwritten[p.ID] }), nil
}

// Forget implements Store.
func (s *Store) Forget(ctx context.Context, ended []processlog.Position) error {
	if err := s.forgetPositions(ctx, s.writePool(), slices.Clone(ended)); err != nil {
		return s.withoutOrdering(fmt.Errorf("compensator: forget %d positions: %w", len(ended), err))
	}
	return nil
}

const (
	forgetNotes = "{DELETE FROM turns} WHERE {notes}"
	forgetNote  = "(entry_id={entry_id} AND turn_key={key} AND epoch={epoch})"
)

// forgetPositions deletes the notes of the given positions. If an entry has begun a new epoch since its note was read,
// the note has this epoch now, and stays.
func (s *Store) forgetPositions(ctx context.Context, tx processlog.Tx, endedPositions []processlog.Position) error {
	slices.SortFunc(endedPositions, comparePositions)
	for chunk := range slices.Chunk(endedPositions, 100) {
		conditions := make([]string, len(chunk))
		for i, position := range chunk {
			conditions[i] = s.sql(forgetNote, "entry_id", position.ID.String(), "key", s.d.binary([]byte(position.Key)), "epoch", decimal(uint64(position.Epoch)))
		}
		if _, err := execCount(ctx, tx, s.sql(forgetNotes, "notes", strings.Join(conditions, " OR "))); err != nil {
			return err
		}
	}
	return nil
}

// leaveKey deletes the positions of an erased entry, whose key can no longer be computed. A log without a _turns table is
// no error.
func (s *Store) leaveKey(ctx context.Context, tx processlog.Tx, row processlog.Row) error {
	// First read which notes the entry has, without a lock. Most entries have none, so forgetPositions then sends no
	// statement and locks nothing in the _turns table.
	err := s.mayFail(ctx, tx, func() error {
		positions, err := s.positionsOf(ctx, tx, row)
		if err != nil {
			return err
		}
		return s.forgetPositions(ctx, tx, positions)
	})
	if s.d.fault(err) == faultNoTable {
		return nil
	}
	if err != nil {
		return fmt.Errorf("compensator: forget the positions of the erased entry %s: %w", row.ID, err)
	}
	return nil
}

const notesOfEntry = "SELECT turn_key, epoch FROM {turns} WHERE business_type={type} AND entry_id={entry_id}{every row}"

func (s *Store) positionsOf(ctx context.Context, tx processlog.Tx, row processlog.Row) (positions []processlog.Position, err error) {
	rows, err := tx.QueryContext(ctx, s.sql(notesOfEntry, "type", s.d.text(row.BusinessType), "entry_id", row.ID.String()))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var key []byte
		position := processlog.Position{BusinessType: row.BusinessType, ID: row.ID}
		if err := rows.Scan(&key, &position.Epoch); err != nil {
			return nil, err
		}
		position.Key = string(key)
		positions = append(positions, position)
	}
	return positions, rows.Err()
}

func (s *Store) withoutOrdering(err error) error {
	return s.withoutTable(err, "_turns", "TypeConfig.Serial needs")
}
