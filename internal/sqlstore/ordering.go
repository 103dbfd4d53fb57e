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
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/grouped"
	"github.com/compensator-go/compensator/processlog"
)

const (
	keysPerAdvance   = 50  // maximum number of keys in one statement of Advance
	keysPerStatement = 250 // maximum number of keys in one statement of Firsts; SQLite joins at most 500 SELECTs
)

// Join implements Store.
func (s *Store) Join(ctx context.Context, tx processlog.Tx, positions []processlog.Position) error {
	for chunk := range slices.Chunk(positions, processlog.MaxRows) {
		notes := make([]noted, len(chunk))
		for i, position := range chunk {
			notes[i] = noted{position, notBlocked}
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

// noted is a position as it is written.
type noted struct {
	processlog.Position
	blocked uint64 // the version that Block will leave in the entry, or notBlocked
}

const notBlocked = 0 // No Block leaves this version, because Block adds 1.

const (
	notePositions = "INSERT INTO {turns} (business_type, turn_key, place, entry_id, epoch, parked) VALUES {positions}{again}"
	notePosition  = "({type},{key},{place},{entry_id},{epoch},{parked})"
)

// note writes positions in the order of the primary key. All writers of the table use that order, so that no two
// deadlock. A note that exists keeps its order id.
func (s *Store) note(ctx context.Context, tx processlog.Tx, positions []noted) error {
	slices.SortFunc(positions, func(a, b noted) int { return comparePositions(a.Position, b.Position) })
	rows := make([]string, len(positions))
	for i, position := range positions {
		orderID := position.OrderID
		if orderID.IsZero() {
			orderID = position.ID
		}
		rows[i] = s.sql(notePosition, "type", s.d.text(position.BusinessType), "key", hexLiteral([]byte(position.Key)), "place", orderID.String(),
			"entry_id", position.ID.String(), "epoch", decimal(uint64(position.Epoch)), "parked", decimal(position.blocked))
	}
	_, err := tx.ExecContext(ctx, s.sql(notePositions, "positions", strings.Join(rows, ","), "again", s.d.again("entry_id, turn_key", "epoch", "parked")))
	return err
}

func comparePositions(a, b processlog.Position) int {
	return cmp.Or(a.ID.Compare(b.ID), strings.Compare(a.Key, b.Key))
}

// firstOfKey is the id of the first entry that counts under {key}, or NULL. The server reads it at the front of the key,
// past notes of entries that have ended. The LIMIT keeps the server from turning the subquery into a join.
const firstOfKey = "(SELECT t.entry_id FROM {turns} t{by k_line} {then join} {log} l{by id} ON l.id=t.entry_id AND l.business_type=t.business_type" +
	" WHERE t.business_type={type} AND t.turn_key={key} AND l.state+0 IN ({counting}) ORDER BY t.turn_key, t.place, t.entry_id LIMIT 1)"

// firstOf returns firstOfKey. key is an expression.
func (s *Store) firstOf(businessType, key string, dead bool) string {
	return s.sql(firstOfKey, "type", s.d.text(businessType), "key", key, "counting", counting(dead))
}

// counting lists the states in which an entry counts as unfinished under its key. dead says whether dead entries count.
func counting(dead bool) string {
	if dead {
		return "0,-1,-2,-3"
	}
	return "0,-1,-3"
}

// keyed returns a query for the keys, with their numbers n in the list.
func keyed(keys []string) string {
	var b strings.Builder
	for i, key := range keys {
		if i == 0 {
			b.WriteString("SELECT 0 AS n, " + hexLiteral([]byte(key)) + " AS turn_key")
		} else {
			fmt.Fprintf(&b, " UNION ALL SELECT %d, %s", i, hexLiteral([]byte(key)))
		}
	}
	return b.String()
}

// blockedEntries compares the epochs: a note of an earlier epoch may be deleted at any time by a process that read it in
// that epoch.
const blockedEntries = "SELECT o.entry_id FROM {turns} o{by id} {then join} {log} e{by id} ON e.id=o.entry_id AND e.epoch=o.epoch" +
	" WHERE o.entry_id IN ({ids}) AND o.business_type={type} AND o.entry_id<>{first of o.turn_key}{every row}"

// Blocked implements Store.
func (s *Store) Blocked(ctx context.Context, businessType string, ids []processlog.ID, dead bool) (blocked []processlog.ID, err error) {
	for chunk := range slices.Chunk(ids, processlog.MaxRows) {
		query := s.sql(blockedEntries, "ids", idList(chunk), "type", s.d.text(businessType), "first of o.turn_key", s.firstOf(businessType, "o.turn_key", dead))
		err := s.readLatest(ctx, func(from processlog.Tx) error {
			found, err := queryIDs(ctx, from, query)
			blocked = append(blocked, found...)
			return err
		})
		if s.d.fault(err) == faultNoTable {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("compensator: find out which of %d entries are blocked: %w", len(ids), err)
		}
	}
	return blocked, nil
}

const dueFirsts = "SELECT l.id FROM (SELECT {first of k.turn_key} AS first FROM ({keys}) k) f JOIN {log} l{by id} ON l.id=f.first" +
	" WHERE l.next_at<={now} AND l.lease_until<={now} AND l.state+0 IN (0,-1,-3){every row}"

// Fronts implements Store.
func (s *Store) Fronts(ctx context.Context, businessType, after string, limit int, dead bool) (ids []processlog.ID, last string, err error) {
	err = s.readLatest(ctx, func(from processlog.Tx) error {
		keys, more, err := s.keysAfter(ctx, from, businessType, after, limit)
		if err != nil || len(keys) == 0 {
			return err
		}
		if more {
			last = keys[len(keys)-1]
		}
		ids, err = queryIDs(ctx, from, s.sql(dueFirsts, "first of k.turn_key", s.firstOf(businessType, "k.turn_key", dead), "keys", keyed(keys)))
		return err
	})
	if err != nil {
		return nil, "", s.withoutOrdering(fmt.Errorf("compensator: find the unblocked entries of %q: %w", businessType, err))
	}
	return ids, last, nil
}

const (
	keyStatements = 50  // maximum number of statements of one keysAfter call
	keyNotes      = 100 // maximum number of notes that one of them reads
)

const nextKeys = "SELECT t.turn_key FROM {turns} t{by k_line} WHERE t.business_type={type} AND t.turn_key>{after} ORDER BY t.turn_key, t.place LIMIT {limit}"

// keysAfter reads the next keys of a type, up to limit, and reports whether more may follow. No SQL that all servers
// understand jumps from key to key. So each statement reads up to keyNotes notes, and the next one begins after the
// last key that was read. Many keys with few entries take few statements. A key with many entries takes one.
func (s *Store) keysAfter(ctx context.Context, from processlog.Tx, businessType, after string, limit int) (keys []string, more bool, err error) {
	for range keyStatements {
		notes, err := queryKeys(ctx, from, s.sql(nextKeys, "type", s.d.text(businessType), "after", hexLiteral([]byte(after)), "limit", strconv.Itoa(keyNotes)))
		if err != nil {
			return nil, false, err
		}
		for _, key := range slices.Compact(notes) {
			if len(keys) == limit {
				return keys, true, nil
			}
			keys, after = append(keys, key), key
		}
		if len(notes) < keyNotes {
			return keys, false, nil
		}
	}
	return keys, true, nil
}

func queryKeys(ctx context.Context, from processlog.Tx, query string) (keys []string, err error) {
	rows, err := from.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var key []byte
		if err := rows.Scan(&key); err != nil {
			return nil, err
		}
		keys = append(keys, string(key))
	}
	return keys, rows.Err()
}

const firstsAndNotes = "SELECT k.turn_key, {first of k.turn_key}, 0, 0 FROM ({keys}) k" +
	" UNION ALL SELECT t.turn_key, t.entry_id, t.epoch, 1 FROM {turns} t{by id} WHERE t.business_type={type} AND t.entry_id IN ({ids}){every row}"

// Firsts implements Store. It takes no lock.
func (s *Store) Firsts(ctx context.Context, businessType string, positions []processlog.Position, dead bool) (map[string]processlog.KeyState, error) {
	asked := askedOf(positions)
	for keys := range slices.Chunk(asked.keys, keysPerStatement) {
		query := s.sql(firstsAndNotes, "first of k.turn_key", s.firstOf(businessType, "k.turn_key", dead), "keys", keyed(keys),
			"type", s.d.text(businessType), "ids", idList(asked.idsOf(keys)))
		err := s.readLatest(ctx, func(from processlog.Tx) error {
			rows, err := from.QueryContext(ctx, query)
			if err != nil {
				return err
			}
			defer rows.Close()
			for rows.Next() {
				var key []byte
				var id sql.NullInt64
				var epoch uint32
				var note bool
				if err := rows.Scan(&key, &id, &epoch, &note); err != nil {
					return err
				}
				if keyState, found := asked.keyStates[string(key)]; found && note {
					asked.sees(string(key), processlog.Member{ID: processlog.RowID(uint64(id.Int64)), Epoch: epoch})
				} else if found && id.Valid {
					keyState.First = processlog.RowID(uint64(id.Int64))
				}
			}
			return rows.Err()
		})
		if err != nil {
			return nil, s.withoutOrdering(fmt.Errorf("compensator: read the first entries of %d keys: %w", len(asked.keys), err))
		}
	}
	return asked.answer(), nil
}

// asked collects what is found out about the keys of some positions.
type asked struct {
	keys      []string // ascending, without duplicates
	byKey     map[string][]processlog.Position
	keyStates map[string]*processlog.KeyState
}

func askedOf(positions []processlog.Position) asked {
	byKey := grouped.By(positions, func(t processlog.Position) string { return t.Key })
	a := asked{keys: slices.Sorted(slices.Values(byKey.Order)), byKey: byKey.Groups, keyStates: make(map[string]*processlog.KeyState, len(byKey.Order))}
	for _, key := range a.keys {
		a.keyStates[key] = new(processlog.KeyState)
	}
	return a
}

func (a *asked) idsOf(keys []string) (ids []processlog.ID) {
	for _, key := range keys {
		for _, position := range a.byKey[key] {
			ids = append(ids, position.ID)
		}
	}
	return ids
}

// sees counts the positions asked for to which a note belongs.
func (a *asked) sees(key string, note processlog.Member) {
	for _, position := range a.byKey[key] {
		if position.ID == note.ID && position.Epoch == note.Epoch {
			a.keyStates[key].Known++
		}
	}
}

func (a *asked) answer() map[string]processlog.KeyState {
	keyStates := make(map[string]processlog.KeyState, len(a.keyStates))
	for key, keyState := range a.keyStates {
		keyStates[key] = *keyState
	}
	return keyStates
}

// keyStatesRead is the maximum number of entries that one statement of KeyStates reads. It has room for the members of
// several keys.
const keyStatesRead = 4 * processlog.MaxMembers

const noPositions = "SELECT place FROM {turns} WHERE 1=0" // Fails if the table is missing.

// KeyStates implements Store. It takes no lock. Each claim commits its leases before it calls KeyStates, so of two
// simultaneous claims at least one sees the other.
func (s *Store) KeyStates(ctx context.Context, businessType string, positions []processlog.Position, token processlog.Token, dead bool) (map[string]processlog.KeyState, error) {
	if len(positions) == 0 {
		_, err := queryIDs(ctx, s.pool(), s.sql(noPositions))
		return nil, s.withoutOrdering(err)
	}
	asked := askedOf(positions)
	for keys := asked.keys; len(keys) > 0; {
		read, err := s.readKeyStates(ctx, businessType, keys[:min(len(keys), processlog.MaxRows)], token, dead, &asked)
		if err != nil {
			return nil, s.withoutOrdering(fmt.Errorf("compensator: read the entries of %d keys: %w", len(asked.keys), err))
		}
		keys = keys[read:]
	}
	return asked.answer(), nil
}

// standing is an entry that counts, as KeyStates reads it.
type standing struct {
	key string
	processlog.Member
	claim int
}

// The following constants are what membersOfKeys and membersOfKey return about the claim on an entry.
const (
	unclaimed = iota // no claim, or a claim by the caller
	claimed          // claimed by another process whose lease has ended
	leased           // claimed by another process whose lease is running
)

const membersOfKeys = "SELECT t.turn_key, t.entry_id, t.epoch, CASE WHEN l.lease_until=0 OR l.token={token} THEN 0 WHEN l.lease_until>{now} THEN 2 ELSE 1 END" +
	" FROM {turns} t{by k_line} {then join} {log} l{by id} ON l.id=t.entry_id AND l.business_type=t.business_type" +
	" WHERE t.business_type={type} AND t.turn_key IN ({keys}) AND l.state+0 IN ({counting}) ORDER BY t.turn_key, t.place, t.entry_id LIMIT {limit}"

// readKeyStates reads as many of the keys as one statement can read completely, and at least one. It returns how many
// it read.
func (s *Store) readKeyStates(ctx context.Context, businessType string, keys []string, token processlog.Token, dead bool, asked *asked) (int, error) {
	list := make([]string, len(keys))
	for i, key := range keys {
		list[i] = hexLiteral([]byte(key))
	}
	rows, err := s.readStanding(ctx, s.sql(membersOfKeys, "token", hexLiteral(token[:]), "type", s.d.text(businessType), "keys", strings.Join(list, ","),
		"counting", counting(dead), "limit", strconv.Itoa(keyStatesRead)))
	if err != nil {
		return 0, err
	}
	read := len(keys)
	if len(rows) == keyStatesRead { // The last key may have more entries than were read.
		last := rows[len(rows)-1].key
		if read = slices.Index(keys, last); read == 0 {
			rows, err = s.readLong(ctx, businessType, last, token, dead)
			read = 1
		}
		rows = slices.DeleteFunc(rows, func(r standing) bool { return !slices.Contains(keys[:read], r.key) })
	}
	asked.take(rows)
	return read, err
}

// membersOfKey reads the first members of one key, and one summary row for the claims of all. The summary row has no id.
const membersOfKey = "SELECT * FROM (SELECT t.turn_key, t.entry_id, t.epoch, 0 AS claim" +
	" FROM {turns} t{by k_line} {then join} {log} l{by id} ON l.id=t.entry_id AND l.business_type=t.business_type" +
	" WHERE t.business_type={type} AND t.turn_key={key} AND l.state+0 IN ({counting}) ORDER BY t.turn_key, t.place, t.entry_id LIMIT {limit}) m" +
	" UNION ALL SELECT {key}, 0, 0, MAX(CASE WHEN l.lease_until=0 OR l.token={token} THEN 0 WHEN l.lease_until>{now} THEN 2 ELSE 1 END)" +
	" FROM {turns} t{by k_line} {then join} {log} l{by id} ON l.id=t.entry_id AND l.business_type=t.business_type" +
	" WHERE t.business_type={type} AND t.turn_key={key} AND l.state+0 IN ({counting}){every row}"

// readLong reads one key that has more entries than one statement of KeyStates reads.
func (s *Store) readLong(ctx context.Context, businessType, key string, token processlog.Token, dead bool) ([]standing, error) {
	return s.readStanding(ctx, s.sql(membersOfKey, "token", hexLiteral(token[:]), "type", s.d.text(businessType), "key", hexLiteral([]byte(key)),
		"counting", counting(dead), "limit", strconv.Itoa(processlog.MaxMembers)))
}

func (s *Store) readStanding(ctx context.Context, query string) (found []standing, err error) {
	err = s.readLatest(ctx, func(from processlog.Tx) error {
		rows, err := from.QueryContext(ctx, query)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var key []byte
			var id uint64
			var r standing
			if err := rows.Scan(&key, &id, &r.Epoch, &r.claim); err != nil {
				return err
			}
			r.key, r.ID = string(key), processlog.RowID(id)
			found = append(found, r)
		}
		return rows.Err()
	})
	return found, err
}

// take fills the key states from rows, which are in order. A row without an id says only how the key's entries are
// claimed. If another process has claimed any entry of a key, Members stays empty.
func (a *asked) take(rows []standing) {
	untold := make(map[string]bool)
	for _, r := range rows {
		keyState := a.keyStates[r.key]
		keyState.Taken = keyState.Taken || r.claim == leased
		untold[r.key] = untold[r.key] || r.claim != unclaimed
		if r.ID.IsZero() {
			continue
		}
		if keyState.First.IsZero() {
			keyState.First = r.ID
		}
		if len(keyState.Members) < processlog.MaxMembers {
			keyState.Members = append(keyState.Members, r.Member)
		}
		a.sees(r.key, r.Member)
	}
	for key, is := range untold {
		if is {
			a.keyStates[key].Members = nil
		}
	}
}

// Block implements Store. It notes the positions first, and then moves the entries. In between, a note holds a version
// that its entry does not have yet, so nothing wakes that entry.
func (s *Store) Block(ctx context.Context, blocked []processlog.BlockedEntry, token processlog.Token) error {
	if len(blocked) == 0 {
		return nil
	}
	var left leftOver
	for chunk := range slices.Chunk(blocked, 100) {
		if err := s.blockChunk(ctx, chunk, token, &left); err != nil {
			return s.withoutOrdering(fmt.Errorf("compensator: block %d entries: %w", len(blocked), err))
		}
	}
	if err := left.err(); err != nil {
		return fmt.Errorf("compensator: block %d entries: %w", len(blocked), err)
	}
	return nil
}

const blockRows = "UPDATE {log}{by id} SET version=version+1, delivery_count=delivery_count-1, lease_until=0, next_at={now}+{wait}, updated_at={stamp}" +
	" WHERE id IN ({ids}) AND token={token} AND delivery_count>0 AND lease_until>0"

func (s *Store) blockChunk(ctx context.Context, blocked []processlog.BlockedEntry, token processlog.Token, left *leftOver) error {
	blocked, err := s.noteBlocked(ctx, blocked, left)
	if err != nil || len(blocked) == 0 {
		return err
	}
	ids := make([]processlog.ID, len(blocked))
	for i, p := range blocked {
		ids[i] = p.ID
	}
	wait := byRow("id", ids, func(i int) int64 { return processlog.DueAfter(blocked[i].Wait) }, signed) // Compute this now, because updateRows sorts ids.
	failpoint.Reach(failpoint.OrderingNoted)
	_, busy, err := s.updateRows(ctx, ids, func(ids []processlog.ID) string {
		return s.sql(blockRows, "wait", wait, "ids", idList(ids), "token", hexLiteral(token[:]))
	})
	return left.take(busy, err)
}

// noteOutside is note outside the caller's transactions.
func (s *Store) noteOutside(ctx context.Context, notes []noted) error {
	if !s.boundsWaits() {
		return s.note(ctx, s.writes(), notes)
	}
	return s.inOwn(ctx, func(tx processlog.Transaction) error { return s.note(ctx, tx, notes) })
}

// noteBlocked notes the positions of entries, and returns the entries whose positions it could note.
func (s *Store) noteBlocked(ctx context.Context, blocked []processlog.BlockedEntry, left *leftOver) ([]processlog.BlockedEntry, error) {
	refused, untried, err := writeApart(ctx, s, blocked, func(some []processlog.BlockedEntry) error {
		notes := make([]noted, len(some))
		for i, p := range some {
			notes[i] = noted{p.Position, p.Version + 1}
		}
		began := time.Now()
		if err := s.noteOutside(ctx, notes); err != nil {
			return s.asWait(ctx, err, began) // Notes of other entries may have been written all the same.
		}
		return nil
	})
	if err != nil || len(refused)+len(untried) == 0 {
		return blocked, err
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
	return slices.DeleteFunc(slices.Clone(blocked), func(p processlog.BlockedEntry) bool { return not[p.ID] }), nil
}

// Advance implements Store. Unlike the check after a claim, it may come too early. So a process that has blocked an
// entry calls Advance afterwards.
func (s *Store) Advance(ctx context.Context, businessType string, left []processlog.Position, dead bool) (next []processlog.ID, err error) {
	var over leftOver
	byKey := grouped.By(left, func(t processlog.Position) string { return t.Key })
	for keys := range slices.Chunk(byKey.Order, keysPerAdvance) {
		var gone []processlog.Position
		for _, key := range keys {
			gone = append(gone, byKey.Groups[key]...)
		}
		gone = slices.DeleteFunc(gone, func(t processlog.Position) bool { return t.ID.IsZero() })
		some, err := s.advance(ctx, businessType, keys, gone, dead, &over)
		next = append(next, some...)
		if err != nil {
			return next, s.withoutOrdering(fmt.Errorf("compensator: advance %d keys: %w", len(byKey.Order), err))
		}
	}
	if err := over.err(); err != nil {
		return next, fmt.Errorf("compensator: advance %d keys: %w", len(byKey.Order), err)
	}
	return next, nil
}

func (s *Store) advance(ctx context.Context, businessType string, keys []string, gone []processlog.Position, dead bool, over *leftOver) (next []processlog.ID, err error) {
	firsts, err := s.readFirsts(ctx, businessType, keys, dead)
	if err != nil {
		return nil, err
	}
	var blocked []fronting
	var cluttered []string // keys with leftover notes in front that are not in gone
	for _, f := range firsts {
		switch {
		case f.waits:
			blocked = append(blocked, f)
		case f.ready:
			next = append(next, f.ID)
		}
		if !f.front.IsZero() && f.front != f.ID && !slices.ContainsFunc(gone, func(t processlog.Position) bool { return t.ID == f.front && t.Key == f.Key }) {
			cluttered = append(cluttered, f.Key)
		}
	}
	woken, err := s.wake(ctx, blocked, over)
	next = append(next, woken...)
	if err == nil {
		err = s.clear(ctx, businessType, cluttered, dead)
	}
	failpoint.Reach(failpoint.OrderingLeft)
	return next, err
}

// Forget implements Store.
func (s *Store) Forget(ctx context.Context, ended []processlog.Position) error {
	if err := s.forgetPositions(ctx, s.writes(), slices.Clone(ended)); err != nil {
		return s.withoutOrdering(fmt.Errorf("compensator: forget %d positions: %w", len(ended), err))
	}
	return nil
}

// fronting is the first entry that counts under a key. Its ID is zero if no entry counts.
type fronting struct {
	processlog.Position
	front   processlog.ID // entry id of the first note of the key
	version uint64
	ready   bool // the entry is due and has no lease
	waits   bool // the entry is blocked and not due, and no entry of the key has a lease
}

// firstOfKeys reads the first entry of each key, the entry id of its first note, and whether the entry is ready and
// whether it waits. See fronting.
//
// A blocked first entry is not woken while another entry of its key runs. That happens if a late commit has put an entry
// in front of a running one. A woken entry would only be blocked again. Leases of the whole key are read only for a
// blocked first entry.
const firstOfKeys = "SELECT f.n, f.first, f.front, l.version, CASE WHEN l.state+0 IN (0,-1,-3) AND l.lease_until<={now} AND l.next_at<={now} THEN 1 ELSE 0 END," +
	" CASE WHEN l.state+0 IN (0,-1,-3) AND p.parked>0 AND p.parked=l.version AND l.lease_until=0 AND l.next_at>{now} THEN NOT EXISTS(SELECT 1" +
	" FROM {turns} t{by k_line} {then join} {log} l{by id} ON l.id=t.entry_id AND l.business_type=t.business_type" +
	" WHERE t.business_type={type} AND t.turn_key=f.turn_key AND l.state+0 IN ({counting}) AND l.lease_until>{now}) ELSE 0 END" +
	" FROM (SELECT k.n, k.turn_key, {first of k.turn_key} AS first," +
	" (SELECT t.entry_id FROM {turns} t{by k_line} WHERE t.business_type={type} AND t.turn_key=k.turn_key ORDER BY t.turn_key, t.place, t.entry_id LIMIT 1) AS front" +
	" FROM ({keys}) k) f LEFT JOIN {log} l{by id} ON l.id=f.first LEFT JOIN {turns} p{by id} ON p.entry_id=f.first AND p.turn_key=f.turn_key{every row}"

// readFirsts reads the first entry of each key.
func (s *Store) readFirsts(ctx context.Context, businessType string, keys []string, dead bool) (firsts []fronting, err error) {
	query := s.sql(firstOfKeys, "type", s.d.text(businessType), "counting", counting(dead), "first of k.turn_key", s.firstOf(businessType, "k.turn_key", dead), "keys", keyed(keys))
	err = s.readLatest(ctx, func(from processlog.Tx) error {
		rows, err := from.QueryContext(ctx, query)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var n int
			var first, front, version sql.NullInt64
			var f fronting
			if err := rows.Scan(&n, &first, &front, &version, &f.ready, &f.waits); err != nil {
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

// frontNotes is how many notes of a key clear reads at once.
const frontNotes = 100

// clear deletes notes at the front of keys whose entries no longer count. Such notes remain after cancellations that no
// process here has seen, and after processes that were killed.
func (s *Store) clear(ctx context.Context, businessType string, keys []string, dead bool) error {
	for _, key := range keys {
		for more := true; more; {
			notes, err := s.readNotes(ctx, businessType, key, dead)
			if err != nil {
				return err
			}
			n := slices.IndexFunc(notes, func(f note) bool { return f.counts })
			more = n < 0 && len(notes) == frontNotes
			if n < 0 {
				n = len(notes)
			}
			gone := make([]processlog.Position, n)
			for i := range gone {
				gone[i] = notes[i].Position
			}
			if err := s.forgetPositions(ctx, s.writes(), gone); err != nil {
				return err
			}
		}
	}
	return nil
}

// note is a position as it is read.
type note struct {
	processlog.Position
	counts bool
}

const frontOfKey = "SELECT t.entry_id, t.epoch, CASE WHEN l.state+0 IN ({counting}) THEN 1 ELSE 0 END" +
	" FROM {turns} t{by k_line} LEFT JOIN {log} l{by id} ON l.id=t.entry_id AND l.business_type=t.business_type" +
	" WHERE t.business_type={type} AND t.turn_key={key} ORDER BY t.turn_key, t.place, t.entry_id LIMIT {limit}"

// readNotes reads the notes at the front of a key.
func (s *Store) readNotes(ctx context.Context, businessType, key string, dead bool) (notes []note, err error) {
	query := s.sql(frontOfKey, "counting", counting(dead), "type", s.d.text(businessType), "key", hexLiteral([]byte(key)), "limit", strconv.Itoa(frontNotes))
	err = s.readLatest(ctx, func(from processlog.Tx) error {
		rows, err := from.QueryContext(ctx, query)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var id uint64
			n := note{Position: processlog.Position{BusinessType: businessType, Key: key}}
			if err := rows.Scan(&id, &n.Epoch, &n.counts); err != nil {
				return err
			}
			n.ID = processlog.RowID(id)
			notes = append(notes, n)
		}
		return rows.Err()
	})
	return notes, err
}

const (
	forgetNotes = "{DELETE FROM turns} WHERE {notes}"
	forgetNote  = "(entry_id={entry_id} AND turn_key={key} AND epoch={epoch})"
)

// forgetPositions deletes notes exactly as they were read. A note that was written again since has another epoch, and
// stays.
func (s *Store) forgetPositions(ctx context.Context, tx processlog.Tx, gone []processlog.Position) error {
	slices.SortFunc(gone, comparePositions)
	for chunk := range slices.Chunk(gone, 100) {
		which := make([]string, len(chunk))
		for i, position := range chunk {
			which[i] = s.sql(forgetNote, "entry_id", position.ID.String(), "key", hexLiteral([]byte(position.Key)), "epoch", decimal(uint64(position.Epoch)))
		}
		if _, err := execCount(ctx, tx, s.sql(forgetNotes, "notes", strings.Join(which, " OR "))); err != nil {
			return err
		}
	}
	return nil
}

// leaveKey deletes the positions of an erased entry that has ended, because its key can no longer be computed. A log
// without a _turns table is no error.
func (s *Store) leaveKey(ctx context.Context, tx processlog.Tx, row processlog.Row) error {
	// Read first. Most entries have no note, and then take no lock on the table.
	positions, err := s.positionsOf(ctx, tx, row)
	if err == nil {
		err = s.forgetPositions(ctx, tx, positions)
	}
	if s.d.fault(err) == faultNoTable {
		return nil
	}
	if err != nil {
		return fmt.Errorf("compensator: forget the positions of the erased entry %s: %w", row.ID, err)
	}
	return nil
}

const notesOfEntry = "SELECT turn_key, epoch FROM {turns} WHERE business_type={type} AND entry_id={entry_id}{every row}"

// positionsOf reads all notes of one entry. There are several only if the type's Serial has returned different keys for
// it.
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

const wakeRows = "UPDATE {log}{by id} SET version=version+1, next_at={now}, updated_at={stamp}" +
	" WHERE id IN ({ids}) AND version={version} AND lease_until=0 AND state+0 IN (0,-1,-3)"

// wake makes blocked entries due if they still have the version that was read.
func (s *Store) wake(ctx context.Context, blocked []fronting, left *leftOver) ([]processlog.ID, error) {
	if len(blocked) == 0 {
		return nil, nil
	}
	ids := make([]processlog.ID, len(blocked))
	for i, f := range blocked {
		ids[i] = f.ID
	}
	version := byRow("id", ids, func(i int) uint64 { return blocked[i].version }, decimal) // Compute this now, because updateRows sorts ids.
	_, busy, err := s.updateRows(ctx, ids, func(ids []processlog.ID) string {
		return s.sql(wakeRows, "ids", idList(ids), "version", version)
	})
	notWoken := busy
	var refused *processlog.RefusedError
	if errors.As(err, &refused) {
		for _, r := range refused.Refusals {
			notWoken = append(notWoken, r.ID)
		}
	}
	return without(ids, notWoken), left.take(nil, err) // An entry that is locked now is woken by the next process that looks.
}

// withoutOrdering replaces err if the _turns table is missing. The new error names the table and what needs it. New
// does not require that table.
func (s *Store) withoutOrdering(err error) error {
	return s.withoutTable(err, "_turns", "TypeConfig.Serial needs")
}
