package sqlstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

type limitKey struct{ key, name string }

const (
	idleKey = "limit_key<>{no bytes} AND tat<{now}*1000000 AND granted_at<{now}-{age}"

	// idleKeys locks nothing.
	idleKeys     = "SELECT limit_key, {text limit_name} FROM {limit}{by id} WHERE limit_key>={key} AND (limit_key>{key} OR limit_name>{name}) AND " + idleKey + " ORDER BY limit_key, limit_name LIMIT {most}"
	lockIdleKeys = "SELECT limit_key, {text limit_name}, holders FROM {limit}{by id} WHERE ({keys}) AND " + idleKey + "{lock}"
	purgeKeys    = "{DELETE FROM limit} WHERE {keys}"
)

// PurgeLimitKeys implements Store.
func (s *Store) PurgeLimitKeys(ctx context.Context, age time.Duration) (deleted int, err error) {
	after := limitKey{}
	for ctx.Err() == nil {
		page, err := s.idleKeys(ctx, after, age)
		if err != nil {
			return deleted, s.withoutLimits(fmt.Errorf("compensator: find keys of limits that are not used: %w", err))
		}
		for chunk := range slices.Chunk(page, purgeStep) {
			n, err := s.purgeKeys(ctx, chunk, age)
			if err != nil {
				return deleted, fmt.Errorf("compensator: delete keys of limits that are not used: %w", err)
			}
			deleted += n
		}
		if len(page) < processlog.MaxRows {
			break
		}
		after = page[len(page)-1]
	}
	return deleted, nil
}

func (s *Store) idleKeys(ctx context.Context, after limitKey, age time.Duration) (keys []limitKey, err error) {
	rows, err := s.pool().QueryContext(ctx, s.sql(idleKeys, "key", s.d.binary([]byte(after.key)), "name", s.d.text(after.name),
		"age", signed(processlog.Millis(age)), "most", fmt.Sprint(processlog.MaxRows)))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var key []byte
		var name string
		if err := rows.Scan(&key, &name); err != nil {
			return nil, err
		}
		keys = append(keys, limitKey{string(key), name})
	}
	return keys, rows.Err()
}

// purgeKeys deletes the rows of idle keys. It leaves locked rows, and rows with a permit that has not ended. A permit
// ends when its entry is written again or is gone. The end of the lease does not end the permit here, because the
// holder may still renew the lease.
func (s *Store) purgeKeys(ctx context.Context, keys []limitKey, age time.Duration) (deleted int, err error) {
	err = s.inOwn(ctx, func(tx processlog.Transaction) error {
		free, err := s.lockIdleKeys(ctx, tx, keys, age)
		if err != nil || len(free) == 0 {
			return err
		}
		var asked []holder
		for _, holders := range free {
			asked = append(asked, holders...)
		}
		state, err := s.permitStates(ctx, tx, asked)
		if err != nil {
			return err
		}
		keys := slices.DeleteFunc(slices.Clone(keys), func(k limitKey) bool {
			holders, locked := free[k]
			return !locked || slices.ContainsFunc(holders, func(h holder) bool { return state[h] != permitEnded })
		})
		if len(keys) == 0 {
			return nil
		}
		n, err := execCount(ctx, tx, s.sql(purgeKeys, "keys", s.anyKey(keys)))
		deleted = int(n)
		return err
	})
	return deleted, err
}

func (s *Store) lockIdleKeys(ctx context.Context, tx processlog.Tx, keys []limitKey, age time.Duration) (map[limitKey][]holder, error) {
	lock := s.d.skipLocked
	if s.d.halves {
		lock = s.d.lockNow
	}
	rows, err := tx.QueryContext(ctx, s.sql(lockIdleKeys, "keys", s.anyKey(keys), "age", signed(processlog.Millis(age)), "lock", lock))
	if s.d.halves && s.d.fault(err) == faultBusy {
		return nil, nil // The next round tries again.
	}
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	free := make(map[limitKey][]holder, len(keys))
	for rows.Next() {
		var key, text []byte
		var name string
		if err := rows.Scan(&key, &name, &text); err != nil {
			return nil, err
		}
		if free[limitKey{string(key), name}], err = parseHolders(text); err != nil {
			return nil, err
		}
	}
	return free, rows.Err()
}

func (s *Store) anyKey(keys []limitKey) string {
	parts := make([]string, len(keys))
	for i, k := range keys {
		parts[i] = "limit_key=" + s.d.binary([]byte(k.key)) + " AND limit_name=" + s.d.text(k.name)
	}
	return strings.Join(parts, " OR ")
}
