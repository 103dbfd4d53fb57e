package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/grouped"
	"github.com/compensator-go/compensator/processlog"
)

const keysPerAdvance = 50

// Advance implements Store. It may miss a blocked entry whose note is not written yet, so a process calls Advance after it
// has blocked an entry.
func (s *Store) Advance(ctx context.Context, businessType string, positions []processlog.Position, deadBlocks bool) (next []processlog.ID, err error) {
	var leftovers leftOver
	byKey := grouped.By(positions, func(t processlog.Position) string { return t.Key })
	for keys := range slices.Chunk(byKey.Order, keysPerAdvance) {
		var endedPositions []processlog.Position
		for _, key := range keys {
			endedPositions = append(endedPositions, byKey.Groups[key]...)
		}
		endedPositions = slices.DeleteFunc(endedPositions, func(t processlog.Position) bool { return t.ID.IsZero() })
		nextIDs, err := s.advance(ctx, businessType, keys, endedPositions, deadBlocks, &leftovers)
		next = append(next, nextIDs...)
		if err != nil {
			return next, s.withoutOrdering(fmt.Errorf("compensator: advance %d keys: %w", len(byKey.Order), err))
		}
	}
	if err := leftovers.err(); err != nil {
		return next, fmt.Errorf("compensator: advance %d keys: %w", len(byKey.Order), err)
	}
	return next, nil
}

func (s *Store) advance(ctx context.Context, businessType string, keys []string, endedPositions []processlog.Position, deadBlocks bool, leftovers *leftOver) (next []processlog.ID, err error) {
	firsts, err := s.readFirsts(ctx, businessType, keys, deadBlocks)
	if err != nil {
		return nil, err
	}
	var blocked []firstEntry
	// cluttered lists the keys whose first note belongs to an entry that has ended, unless that note is in
	// endedPositions.
	var cluttered []string
	for _, f := range firsts {
		switch {
		case f.isWaiting:
			blocked = append(blocked, f)
		case f.isReady:
			next = append(next, f.ID)
		}
		if !f.front.IsZero() && f.front != f.ID && !slices.ContainsFunc(endedPositions, func(t processlog.Position) bool { return t.ID == f.front && t.Key == f.Key }) {
			cluttered = append(cluttered, f.Key)
		}
	}
	woken, err := s.makeDue(ctx, blocked, leftovers)
	next = append(next, woken...)
	if err == nil {
		err = s.clearNotes(ctx, businessType, cluttered, deadBlocks)
	}
	failpoint.Reach(failpoint.OrderingLeft)
	return next, err
}

// firstEntry is the first unfinished entry of a key. The field ID is its id. If the key has no unfinished entry, ID is
// zero.
type firstEntry struct {
	processlog.Position
	front     processlog.ID // entry id of the first note of the key
	version   uint64
	isReady   bool // the entry is due and has no lease
	isWaiting bool // the entry is blocked and not due, and no entry of the key has a lease
}

// firstOfKeys reads the first unfinished entry of each key. If this entry is blocked and no entry of its key has a
// lease, the query returns isWaiting as true, and Advance makes the entry due. A later entry can have a lease if the
// first entry committed late. Then the first entry must stay blocked. If it became due, a claim would find the lease
// and block the entry again.
const firstOfKeys = "SELECT f.n, f.first, f.front, l.version, CASE WHEN l.state+0 IN (0,-1,-3) AND l.lease_until<={now} AND l.next_at<={now} THEN 1 ELSE 0 END," +
	" CASE WHEN l.state+0 IN (0,-1,-3) AND p.parked>0 AND p.parked=l.version AND l.lease_until=0 AND l.next_at>{now} THEN CASE WHEN EXISTS(SELECT 1" +
	" FROM {turns} t{by k_line} {then join} {log} l{by id} ON l.id=t.entry_id AND l.business_type=t.business_type" +
	" WHERE t.business_type={type} AND t.turn_key=f.turn_key AND l.state+0 IN ({counting}) AND l.lease_until>{now}) THEN 0 ELSE 1 END ELSE 0 END" +
	" FROM (SELECT k.n, k.turn_key, {first of k.turn_key} AS first," +
	" (SELECT t.entry_id FROM {turns} t{by k_line} WHERE t.business_type={type} AND t.turn_key=k.turn_key ORDER BY t.turn_key, t.place, t.entry_id LIMIT 1) AS front" +
	" FROM ({keys}) k) f LEFT JOIN {log} l{by id} ON l.id=f.first LEFT JOIN {turns} p{by id} ON p.entry_id=f.first AND p.turn_key=f.turn_key{every row}"

func (s *Store) readFirsts(ctx context.Context, businessType string, keys []string, deadBlocks bool) (firsts []firstEntry, err error) {
	query := s.sql(firstOfKeys, "type", s.d.text(businessType), "counting", counting(deadBlocks), "first of k.turn_key", s.firstOf(businessType, "k.turn_key", deadBlocks), "keys", s.keyed(keys))
	err = s.readLatest(ctx, func(readTx processlog.Tx) error {
		rows, err := readTx.QueryContext(ctx, query)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var n int
			var first, front, version sql.NullInt64
			var f firstEntry
			if err := rows.Scan(&n, &first, &front, &version, &f.isReady, &f.isWaiting); err != nil {
				return err
			}
			f.Position = processlog.Position{BusinessType: businessType, Key: keys[n], ID: processlog.RowID(uint64(first.Int64))}
			f.front, f.version = processlog.RowID(uint64(front.Int64)), uint64(version.Int64)
			firsts = append(firsts, f)
		}
		return rows.Err()
	})
	return firsts, err
}

const frontNotes = 100

// clearNotes removes notes that a killed process has left behind. A note is a row of the _turns table and belongs to an
// entry. In each of the keys, clearNotes deletes the notes before the first unfinished entry. The entries of these
// notes have ended.
func (s *Store) clearNotes(ctx context.Context, businessType string, keys []string, deadBlocks bool) error {
	for _, key := range keys {
		for hasMore := true; hasMore; {
			notes, err := s.readNotes(ctx, businessType, key, deadBlocks)
			if err != nil {
				return err
			}
			n := slices.IndexFunc(notes, func(f note) bool { return f.isUnfinished })
			hasMore = n < 0 && len(notes) == frontNotes
			if n < 0 {
				n = len(notes)
			}
			endedPositions := make([]processlog.Position, n)
			for i := range endedPositions {
				endedPositions[i] = notes[i].Position
			}
			if err := s.forgetPositions(ctx, s.writePool(), endedPositions); err != nil {
				return err
			}
		}
	}
	return nil
}

type note struct {
	processlog.Position
	isUnfinished bool
}

const frontOfKey = "SELECT t.entry_id, t.epoch, CASE WHEN l.state+0 IN ({counting}) THEN 1 ELSE 0 END" +
	" FROM {turns} t{by k_line} LEFT JOIN {log} l{by id} ON l.id=t.entry_id AND l.business_type=t.business_type" +
	" WHERE t.business_type={type} AND t.turn_key={key} ORDER BY t.turn_key, t.place, t.entry_id LIMIT {limit}"

func (s *Store) readNotes(ctx context.Context, businessType, key string, deadBlocks bool) (notes []note, err error) {
	query := s.sql(frontOfKey, "counting", counting(deadBlocks), "type", s.d.text(businessType), "key", s.d.binary([]byte(key)), "limit", strconv.Itoa(frontNotes))
	err = s.readLatest(ctx, func(readTx processlog.Tx) error {
		rows, err := readTx.QueryContext(ctx, query)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var id uint64
			n := note{Position: processlog.Position{BusinessType: businessType, Key: key}}
			if err := rows.Scan(&id, &n.Epoch, &n.isUnfinished); err != nil {
				return err
			}
			n.ID = processlog.RowID(id)
			notes = append(notes, n)
		}
		return rows.Err()
	})
	return notes, err
}

const wakeRows = "UPDATE {log}{by id} SET version=version+1, next_at={now}, updated_at={stamp}" +
	" WHERE id IN ({ids}) AND version={version} AND lease_until=0 AND state+0 IN (0,-1,-3)"

func (s *Store) makeDue(ctx context.Context, blocked []firstEntry, leftovers *leftOver) ([]processlog.ID, error) {
	if len(blocked) == 0 {
		return nil, nil
	}
	ids := make([]processlog.ID, len(blocked))
	for i, f := range blocked {
		ids[i] = f.ID
	}
	version := byRow("id", ids, func(i int) uint64 { return blocked[i].version }, decimal) // updateRows sorts ids, so compute this now.
	_, busy, err := s.updateRows(ctx, ids, func(ids []processlog.ID) string {
		return s.sql(wakeRows, "ids", idList(ids), "version", version)
	})
	notWoken := busy
	var refusedErr *processlog.RefusedError
	if errors.As(err, &refusedErr) {
		for _, r := range refusedErr.Refusals {
			notWoken = append(notWoken, r.ID)
		}
	}
	// The entries in notWoken stay blocked, because their rows were locked or refused. A locked row is no error,
	// because the next process that calls Advance makes its entry due.
	return withoutIDs(ids, notWoken), leftovers.addResult(nil, err)
}
