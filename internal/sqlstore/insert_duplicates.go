package sqlstore

import (
	"bytes"
	"context"
	"slices"
	"strconv"

	"github.com/compensator-go/compensator/processlog"
)

// existing reads the committed rows that have the idempotency key of a draft. Only a locking read finds rows that the
// caller's snapshot hides. But a locking read of a key without a row locks a gap in the index, and this makes other
// inserts wait. So a plain read first finds out which keys have rows.
func (in *insertion) existing(ctx context.Context, places []int) (map[processlog.IdempotencyKey]processlog.Row, error) {
	keys := make([]processlog.IdempotencyKey, len(places))
	for n, i := range places {
		keys[n] = in.drafts[i].IdempotencyKey
	}
	if in.s.d.snapshots {
		return in.existingUnlocked(ctx, keys)
	}
	visible, err := in.s.IDs(ctx, in.tx, keys)
	if err != nil {
		return nil, err
	}
	// Lock only keys whose rows are visible. If no row is visible, an older snapshot may hide all of them, so try all
	// keys.
	if len(visible) > 0 {
		keys = slices.DeleteFunc(keys, func(key processlog.IdempotencyKey) bool { return visible[key].IsZero() })
	}
	byKey := make(map[processlog.IdempotencyKey]processlog.Row, len(keys))
	return byKey, in.readKeys(ctx, in.tx, keys, in.s.d.share, byKey)
}

// existingUnlocked does the same work as the method existing, on a server with innodb_snapshot_isolation. With this
// setting, a lock on a row newer than the snapshot aborts the caller's transaction. So existingUnlocked first reads
// without a lock. The snapshot may hide a row that another transaction has just committed. existingUnlocked reads these
// hidden rows through the library's own pool, also without a lock.
//
// Without an own pool, existingUnlocked tries hidden rows only if it has found no other row. It then reads them with a
// lock, which may abort the transaction. ErrTxAborted tells the caller to run the transaction again.
func (in *insertion) existingUnlocked(ctx context.Context, keys []processlog.IdempotencyKey) (map[processlog.IdempotencyKey]processlog.Row, error) {
	byKey := make(map[processlog.IdempotencyKey]processlog.Row, len(keys))
	if err := in.readKeys(ctx, in.tx, keys, "", byKey); err != nil || len(byKey) == len(keys) {
		return byKey, err
	}
	if in.s.ownPool == nil && len(byKey) > 0 {
		return byKey, nil
	}
	hidden := slices.DeleteFunc(keys, func(key processlog.IdempotencyKey) bool { _, found := byKey[key]; return found })
	if in.s.ownPool == nil {
		return byKey, in.readKeys(ctx, in.tx, hidden, in.s.d.share, byKey)
	}
	return byKey, in.readKeys(ctx, in.s.pool(), hidden, "", byKey)
}

// existingRows names the index of the keys, because a scan of the table would wait for locks on unrelated rows.
const existingRows = "SELECT {columns} FROM {log}{by uk_idempotent_id} WHERE idempotent_id IN ({keys}) LIMIT {limit}{lock}"

func (in *insertion) readKeys(ctx context.Context, tx processlog.Tx, keys []processlog.IdempotencyKey, lock string, byKey map[processlog.IdempotencyKey]processlog.Row) error {
	literals, args := in.s.d.params(keys)
	query := in.s.sql(existingRows, "keys", literals, "limit", strconv.Itoa(len(keys)), "lock", lock)
	rows, err := in.s.queryRows(ctx, tx, len(keys), in.s.placeholders(query), args...)
	for _, row := range rows {
		byKey[row.IdempotencyKey] = row
	}
	return err
}

func (in *insertion) answerDuplicates(places []int, existing map[processlog.IdempotencyKey]processlog.Row) []int {
	var rest []int
	for _, i := range places {
		row, found := existing[in.drafts[i].IdempotencyKey]
		if !found {
			rest = append(rest, i)
			continue
		}
		in.result[i] = processlog.Inserted{
			ID: row.ID, Duplicate: true, BusinessType: row.BusinessType, State: row.State, ContentMatches: row.Erased || bytes.Equal(row.Content, in.drafts[i].Content),
		}
	}
	return rest
}
