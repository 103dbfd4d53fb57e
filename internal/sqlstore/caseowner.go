package sqlstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/compensator-go/compensator/processlog"
)

// AssignCases implements Operations.
func (s *Store) AssignCases(ctx context.Context, seenCases []processlog.SeenCase, owner string, op processlog.Operation) ([]error, error) {
	var answers []error
	err := s.untilFree(ctx, changeTimeout, s.inOwn, func(tx processlog.Transaction) error {
		answers = make([]error, 0, len(seenCases))
		for chunk := range slices.Chunk(seenCases, requeueStep) {
			chunkAnswers, err := s.assignSome(ctx, tx, chunk, owner, op)
			if err != nil {
				return err
			}
			answers = append(answers, chunkAnswers...)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("compensator: assign %d cases: %w", len(seenCases), err)
	}
	return answers, nil
}

const assignCases = "UPDATE {case}{by id} SET owner={owner}, version=version+1 WHERE entry_id IN ({ids})"

func (s *Store) assignSome(ctx context.Context, tx processlog.Tx, seenCases []processlog.SeenCase, owner string, op processlog.Operation) ([]error, error) {
	now, err := s.lockCases(ctx, tx, seenCases)
	if err != nil {
		return nil, err
	}
	answers := make([]error, len(seenCases))
	var ids []processlog.ID
	var ops []processlog.Operation
	for i, v := range seenCases {
		c := now[v.EntryID]
		if answers[i] = v.Assigned(c); answers[i] == nil {
			op.EntryID, op.BusinessType = v.EntryID, c.BusinessType
			ids, ops = append(ids, v.EntryID), append(ops, op)
		}
	}
	if len(ids) == 0 {
		return answers, nil
	}
	if err := s.operate(ctx, tx, ops...); err != nil {
		return nil, err
	}
	_, err = execCount(ctx, tx, s.sql(assignCases, "owner", s.d.text(owner), "ids", idList(ids)))
	return answers, err
}

const lockCases = "SELECT entry_id, version, {text business_type}, closed_at FROM {case}{by id} WHERE entry_id IN ({ids}){lock now}"

func (s *Store) lockCases(ctx context.Context, tx processlog.Tx, seenCases []processlog.SeenCase) (map[processlog.ID]*processlog.Case, error) {
	ids := make([]processlog.ID, len(seenCases))
	for i := range seenCases {
		ids[i] = seenCases[i].EntryID
	}
	rows, err := tx.QueryContext(ctx, s.sql(lockCases, "ids", idList(ids)))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	cases := make(map[processlog.ID]*processlog.Case, len(ids))
	for rows.Next() {
		var c processlog.Case
		var id uint64
		var closed int64
		if err := rows.Scan(&id, &c.Version, &c.BusinessType, &closed); err != nil {
			return nil, err
		}
		if closed > 0 {
			c.ClosedAt = unixMilli(closed)
		}
		c.EntryID = processlog.RowID(id)
		cases[c.EntryID] = &c
	}
	return cases, rows.Err()
}
