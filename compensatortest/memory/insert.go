package memory

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/compensator-go/compensator/processlog"
)

// Insert implements processlog.Store. If another transaction holds one of the keys, Insert waits up to 50 seconds for
// it. If a draft is a duplicate, tx shares the existing row: no other transaction can write the row until tx ends.
// Insert ignores its last parameter, because the store always knows whether tx is open.
func (s *Store) Insert(ctx context.Context, tx processlog.Tx, drafts []processlog.Draft, _ bool) ([]processlog.Inserted, error) {
	ownTx, err := s.unwrap(ctx, tx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ownTx.refusalLocked(); err != nil {
		return nil, err
	}
	if err := s.freeKeysLocked(ctx, ownTx, drafts); err != nil {
		return nil, fmt.Errorf("insert %d entries: %w", len(drafts), err)
	}
	now := s.nowLocked()
	results := make([]processlog.Inserted, len(drafts))
	for _, i := range orderByKey(drafts) {
		results[i] = s.insertLocked(ownTx, drafts[i], now)
	}
	return results, nil
}

func orderByKey(drafts []processlog.Draft) []int {
	order := make([]int, len(drafts))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(drafts[a].IdempotencyKey, drafts[b].IdempotencyKey) })
	return order
}

// freeKeysLocked checks all keys again after every wait, because another transaction may have taken a free one.
func (s *Store) freeKeysLocked(ctx context.Context, tx *Tx, drafts []processlog.Draft) error {
	ctx, cancel := withLockWait(ctx, tx)
	defer cancel()
	for i := 0; i < len(drafts); i++ {
		row := s.keys[drafts[i].IdempotencyKey]
		if row == nil || row.sharedFor(tx) {
			continue
		}
		if err := s.awaitLocked(ctx, tx, row); err != nil {
			return err
		}
		i = -1
	}
	return nil
}

func (s *Store) insertLocked(tx *Tx, draft processlog.Draft, now int64) processlog.Inserted {
	if row := s.keys[draft.IdempotencyKey]; row != nil {
		tx.shareLocked(row)
		entry := &row.seenBy(tx).entry
		return processlog.Inserted{
			ID: row.id, Duplicate: true, BusinessType: entry.BusinessType, State: entry.State, ContentMatches: entry.Erased || bytes.Equal(entry.Content, draft.Content),
		}
	}
	s.lastID++
	row := &storedRow{id: processlog.RowID(s.lastID), key: draft.IdempotencyKey}
	s.addLocked(row)
	s.writeLocked(tx, row, newVersion(row.id, draft, now), nil)
	return processlog.Inserted{ID: row.id}
}

// IDs implements processlog.Store.
func (s *Store) IDs(ctx context.Context, tx processlog.Tx, idempotencyKeys []processlog.IdempotencyKey) (map[processlog.IdempotencyKey]processlog.ID, error) {
	ownTx, err := s.unwrapOptional(ctx, tx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ownTx.refusalLocked(); err != nil {
		return nil, err
	}
	ids := make(map[processlog.IdempotencyKey]processlog.ID, len(idempotencyKeys))
	for _, key := range idempotencyKeys {
		if row := s.keys[key]; row != nil && row.seenBy(ownTx) != nil {
			ids[key] = row.id
		}
	}
	return ids, nil
}

func (s *Store) unwrapOptional(ctx context.Context, tx processlog.Tx) (*Tx, error) {
	if tx == nil {
		return nil, ctx.Err()
	}
	return s.unwrap(ctx, tx)
}

// Load implements processlog.Store.
func (s *Store) Load(ctx context.Context, ids []processlog.ID) ([]processlog.Row, error) {
	return s.readRows(ctx, ids, (*version).row)
}

// Ends implements processlog.Store.
func (s *Store) Ends(ctx context.Context, ids []processlog.ID) ([]processlog.Row, error) {
	return s.readRows(ctx, ids, (*version).rowAtEnd)
}

// readRows calls build with now in unix ms.
func (s *Store) readRows(ctx context.Context, ids []processlog.ID, build func(v *version, now int64) processlog.Row) ([]processlog.Row, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.nowLocked()
	var rows []processlog.Row
	for _, version := range s.committedOfLocked(ids) {
		rows = append(rows, build(version, now))
	}
	return rows, nil
}

// Versions implements processlog.Store.
func (s *Store) Versions(ctx context.Context, ids []processlog.ID) ([]processlog.Version, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	versions := make([]processlog.Version, 0, len(ids))
	for _, v := range s.committedOfLocked(ids) {
		e := &v.entry
		versions = append(versions, processlog.Version{ID: e.ID, IdempotencyKey: e.IdempotencyKey, State: e.State, Number: e.Version, Epoch: e.Epoch, Token: v.token})
	}
	return versions, nil
}

// committedOfLocked lists each version once, in id order.
func (s *Store) committedOfLocked(ids []processlog.ID) []*version {
	versions := make([]*version, 0, len(ids))
	seenIDs := make(map[processlog.ID]bool, len(ids))
	for _, id := range ids {
		if row := s.rows[id]; row != nil && row.committed != nil && !seenIDs[id] {
			versions = append(versions, row.committed)
			seenIDs[id] = true
		}
	}
	return versions
}

// Resolve implements processlog.Store. It waits up to 10 seconds for a transaction that holds the row.
func (s *Store) Resolve(ctx context.Context, ref processlog.Ref) (processlog.Row, error) {
	if err := ctx.Err(); err != nil {
		return processlog.Row{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, resolveWait, processlog.ErrBusy)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	row, err := s.untilLocked(ctx, nil, s.finderOf(ref), (*storedRow).sharedFor)
	if err == nil && row == nil {
		err = processlog.ErrNotFound
	}
	if err != nil {
		return processlog.Row{}, fmt.Errorf("resolve entry %v: %w", ref, err)
	}
	return row.committed.row(s.nowLocked()), nil
}
