package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/compensator-go/compensator/internal/grouped"
	"github.com/compensator-go/compensator/processlog"
)

// keysPerStatement is how many keys one statement of Firsts reads. Each key is a SELECT in a UNION. SQLite refuses more
// than 500 of them, so 250 leaves a margin.
const keysPerStatement = 250

// blockedEntries finds blocked entries by their notes, which are rows of the _turns table. It ignores a note whose
// epoch is not the current epoch of the entry. Another process may delete such an old note at any time, and makes no
// entry due when it does so. If an old note could block an entry, the entry could stay blocked forever.
const blockedEntries = "SELECT o.entry_id FROM {turns} o{by id} {then join} {log} e{by id} ON e.id=o.entry_id AND e.epoch=o.epoch" +
	" WHERE o.entry_id IN ({ids}) AND o.business_type={type} AND o.entry_id<>{first of o.turn_key}{every row}"

// Blocked implements Store.
func (s *Store) Blocked(ctx context.Context, businessType string, ids []processlog.ID, deadBlocks bool) (blocked []processlog.ID, err error) {
	for chunk := range slices.Chunk(ids, processlog.MaxRows) {
		query := s.sql(blockedEntries, "ids", idList(chunk), "type", s.d.text(businessType), "first of o.turn_key", s.firstOf(businessType, "o.turn_key", deadBlocks))
		err := s.readLatest(ctx, func(readTx processlog.Tx) error {
			found, err := queryIDs(ctx, readTx, query)
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

const blockedBy = "SELECT {first of o.turn_key} FROM {turns} o{by id} {then join} {log} e{by id} ON e.id=o.entry_id AND e.epoch=o.epoch" +
	" WHERE o.entry_id={entry_id} AND o.business_type={type}{every row}"

// BlockedBy implements Operations.
func (s *Store) BlockedBy(ctx context.Context, businessType string, id processlog.ID, deadBlocks bool) (by processlog.ID, err error) {
	query := s.sql(blockedBy, "first of o.turn_key", s.firstOf(businessType, "o.turn_key", deadBlocks), "entry_id", id.String(), "type", s.d.text(businessType))
	err = s.readLatest(ctx, func(readTx processlog.Tx) error {
		firsts, err := queryFirsts(ctx, readTx, query)
		for _, first := range firsts {
			if first != id {
				by = first
			}
		}
		return err
	})
	if s.d.fault(err) == faultNoTable {
		return by, nil
	}
	if err != nil {
		err = fmt.Errorf("compensator: find the entry that blocks entry %s: %w", id, err)
	}
	return by, err
}

func queryFirsts(ctx context.Context, readTx processlog.Tx, query string) (firsts []processlog.ID, err error) {
	rows, err := readTx.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var first sql.NullInt64
		if err := rows.Scan(&first); err != nil {
			return nil, err
		}
		if first.Valid {
			firsts = append(firsts, processlog.RowID(uint64(first.Int64)))
		}
	}
	return firsts, rows.Err()
}

const dueFirsts = "SELECT l.id FROM (SELECT {first of k.turn_key} AS first FROM ({keys}) k) f JOIN {log} l{by id} ON l.id=f.first" +
	" WHERE l.next_at<={now} AND l.lease_until<={now} AND l.state+0 IN (0,-1,-3){every row}"

// Fronts implements Store.
func (s *Store) Fronts(ctx context.Context, businessType, after string, limit int, deadBlocks bool) (ids []processlog.ID, last string, err error) {
	err = s.readLatest(ctx, func(readTx processlog.Tx) error {
		keys, more, err := s.keysAfter(ctx, readTx, businessType, after, limit)
		if err != nil || len(keys) == 0 {
			return err
		}
		if more {
			last = keys[len(keys)-1]
		}
		ids, err = queryIDs(ctx, readTx, s.sql(dueFirsts, "first of k.turn_key", s.firstOf(businessType, "k.turn_key", deadBlocks), "keys", s.keyed(keys)))
		return err
	})
	if err != nil {
		return nil, "", s.withoutOrdering(fmt.Errorf("compensator: find the unblocked entries of %q: %w", businessType, err))
	}
	return ids, last, nil
}

const (
	keyStatements = 50  // maximum number of statements of one keysAfter call
	keyNotes      = 100 // maximum number of notes that one of these statements reads
)

const nextKeys = "SELECT t.turn_key FROM {turns} t{by k_line} WHERE t.business_type={type} AND t.turn_key>{after} ORDER BY t.turn_key, t.place LIMIT {limit}"

// keysAfter returns the keys that follow the key after, at most limit keys. It also reports whether more keys may
// follow. A key may have many notes. No query that all servers accept goes from one key directly to the next. So each
// statement reads up to keyNotes notes in the order of their keys, and the next statement begins after the last of
// these keys.
func (s *Store) keysAfter(ctx context.Context, readTx processlog.Tx, businessType, after string, limit int) (keys []string, more bool, err error) {
	for range keyStatements {
		notes, err := queryKeys(ctx, readTx, s.sql(nextKeys, "type", s.d.text(businessType), "after", s.d.binary([]byte(after)), "limit", strconv.Itoa(keyNotes)))
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

func queryKeys(ctx context.Context, readTx processlog.Tx, query string) (keys []string, err error) {
	rows, err := readTx.QueryContext(ctx, query)
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

func (s *Store) Firsts(ctx context.Context, businessType string, positions []processlog.Position, deadBlocks bool) (map[string]processlog.KeyState, error) {
	lookup := keyQueryOf(positions)
	for keys := range slices.Chunk(lookup.keys, keysPerStatement) {
		query := s.sql(firstsAndNotes, "first of k.turn_key", s.firstOf(businessType, "k.turn_key", deadBlocks), "keys", s.keyed(keys),
			"type", s.d.text(businessType), "ids", idList(lookup.idsOf(keys)))
		err := s.readLatest(ctx, func(readTx processlog.Tx) error {
			rows, err := readTx.QueryContext(ctx, query)
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
				if keyState, found := lookup.keyStates[string(key)]; found && note {
					lookup.countMatch(string(key), processlog.Member{ID: processlog.RowID(uint64(id.Int64)), Epoch: epoch})
				} else if found && id.Valid {
					keyState.First = processlog.RowID(uint64(id.Int64))
				}
			}
			return rows.Err()
		})
		if err != nil {
			return nil, s.withoutOrdering(fmt.Errorf("compensator: read the first entries of %d keys: %w", len(lookup.keys), err))
		}
	}
	return lookup.results(), nil
}

type keyQuery struct {
	keys      []string // ascending, without duplicates
	byKey     map[string][]processlog.Position
	keyStates map[string]*processlog.KeyState
}

func keyQueryOf(positions []processlog.Position) keyQuery {
	byKey := grouped.By(positions, func(t processlog.Position) string { return t.Key })
	a := keyQuery{keys: slices.Sorted(slices.Values(byKey.Order)), byKey: byKey.Groups, keyStates: make(map[string]*processlog.KeyState, len(byKey.Order))}
	for _, key := range a.keys {
		a.keyStates[key] = new(processlog.KeyState)
	}
	return a
}

func (a *keyQuery) idsOf(keys []string) (ids []processlog.ID) {
	for _, key := range keys {
		for _, position := range a.byKey[key] {
			ids = append(ids, position.ID)
		}
	}
	return ids
}

func (a *keyQuery) countMatch(key string, note processlog.Member) {
	for _, position := range a.byKey[key] {
		if position.ID == note.ID && position.Epoch == note.Epoch {
			a.keyStates[key].Known++
		}
	}
}

func (a *keyQuery) results() map[string]processlog.KeyState {
	keyStates := make(map[string]processlog.KeyState, len(a.keyStates))
	for key, keyState := range a.keyStates {
		keyStates[key] = *keyState
	}
	return keyStates
}

const keyStatesRead = 4 * processlog.MaxMembers

// KeyStates implements Store. Each claim commits its leases before it calls KeyStates, so of two claims at the same time
// at least one sees the lease of the other.
func (s *Store) KeyStates(ctx context.Context, businessType string, positions []processlog.Position, token processlog.Token, deadBlocks bool) (map[string]processlog.KeyState, error) {
	if len(positions) == 0 {
		return nil, s.withoutOrdering(s.checkTable(ctx, "_turns"))
	}
	lookup := keyQueryOf(positions)
	for keys := lookup.keys; len(keys) > 0; {
		readCount, err := s.readKeyStates(ctx, businessType, keys[:min(len(keys), processlog.MaxRows)], token, deadBlocks, &lookup)
		if err != nil {
			return nil, s.withoutOrdering(fmt.Errorf("compensator: read the entries of %d keys: %w", len(lookup.keys), err))
		}
		keys = keys[readCount:]
	}
	return lookup.results(), nil
}

type unfinishedEntry struct {
	key string
	processlog.Member
	claim int
}

const (
	unclaimed = iota // no process has claimed the entry, or only the caller has
	claimed          // another process has claimed the entry, and the lease of that claim has ended
	leased           // another process has claimed the entry, and the lease of that claim has not ended
)

const membersOfKeys = "SELECT t.turn_key, t.entry_id, t.epoch, CASE WHEN l.lease_until=0 OR l.token={token} THEN 0 WHEN l.lease_until>{now} THEN 2 ELSE 1 END" +
	" FROM {turns} t{by k_line} {then join} {log} l{by id} ON l.id=t.entry_id AND l.business_type=t.business_type" +
	" WHERE t.business_type={type} AND t.turn_key IN ({keys}) AND l.state+0 IN ({counting}) ORDER BY t.turn_key, t.place, t.entry_id LIMIT {limit}"

// readKeyStates returns how many keys it read completely, at least one.
func (s *Store) readKeyStates(ctx context.Context, businessType string, keys []string, token processlog.Token, deadBlocks bool, lookup *keyQuery) (int, error) {
	list := make([]string, len(keys))
	for i, key := range keys {
		list[i] = s.d.binary([]byte(key))
	}
	rows, err := s.readUnfinished(ctx, s.sql(membersOfKeys, "token", s.d.binary(token[:]), "type", s.d.text(businessType), "keys", strings.Join(list, ","),
		"counting", counting(deadBlocks), "limit", strconv.Itoa(keyStatesRead)))
	if err != nil {
		return 0, err
	}
	readCount := len(keys)
	if len(rows) == keyStatesRead { // The last key may be incomplete.
		last := rows[len(rows)-1].key
		if readCount = slices.Index(keys, last); readCount == 0 {
			rows, err = s.readLongKey(ctx, businessType, last, token, deadBlocks)
			readCount = 1
		}
		rows = slices.DeleteFunc(rows, func(r unfinishedEntry) bool { return !slices.Contains(keys[:readCount], r.key) })
	}
	lookup.fillStates(rows)
	return readCount, err
}

// membersOfKey reads the first entries of a key that has very many entries. It reads only unfinished entries, and dead
// entries if these block later ones. The last row of the result has the id 0. In this row, the column claim describes
// all of these entries, also those that are not read. The value 0 means that all are unclaimed, 2 means that at least
// one is leased, and 1 means claimed. In the other rows, the column claim is always 0.
const membersOfKey = "SELECT * FROM (SELECT t.turn_key, t.entry_id, t.epoch, 0 AS claim" +
	" FROM {turns} t{by k_line} {then join} {log} l{by id} ON l.id=t.entry_id AND l.business_type=t.business_type" +
	" WHERE t.business_type={type} AND t.turn_key={key} AND l.state+0 IN ({counting}) ORDER BY t.turn_key, t.place, t.entry_id LIMIT {limit}) m" +
	" UNION ALL SELECT {key}, 0, 0, MAX(CASE WHEN l.lease_until=0 OR l.token={token} THEN 0 WHEN l.lease_until>{now} THEN 2 ELSE 1 END)" +
	" FROM {turns} t{by k_line} {then join} {log} l{by id} ON l.id=t.entry_id AND l.business_type=t.business_type" +
	" WHERE t.business_type={type} AND t.turn_key={key} AND l.state+0 IN ({counting}){every row}"

func (s *Store) readLongKey(ctx context.Context, businessType, key string, token processlog.Token, deadBlocks bool) ([]unfinishedEntry, error) {
	return s.readUnfinished(ctx, s.sql(membersOfKey, "token", s.d.binary(token[:]), "type", s.d.text(businessType), "key", s.d.binary([]byte(key)),
		"counting", counting(deadBlocks), "limit", strconv.Itoa(processlog.MaxMembers)))
}

func (s *Store) readUnfinished(ctx context.Context, query string) (found []unfinishedEntry, err error) {
	err = s.readLatest(ctx, func(readTx processlog.Tx) error {
		rows, err := readTx.QueryContext(ctx, query)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var key []byte
			var id uint64
			var r unfinishedEntry
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

// fillStates reads rows in order. If another process has claimed any entry of a key, Members stays empty.
func (a *keyQuery) fillStates(rows []unfinishedEntry) {
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
		a.countMatch(r.key, r.Member)
	}
	for key, is := range untold {
		if is {
			a.keyStates[key].Members = nil
		}
	}
}
