package sqlstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/compensator-go/compensator/processlog"
)

// requeueStep is the maximum number of rows of one UPDATE. The UPDATE has a CASE over its rows, and the server
// evaluates the CASE for each row. So the cost grows with the square of the number of rows.
const requeueStep = 200

// RequeueAll implements Store.
func (s *Store) RequeueAll(ctx context.Context, seenVersions []processlog.Version, ch processlog.Change) ([]processlog.Changed, error) {
	return s.changeSeen(ctx, seenVersions, ch, s.apply, nil, nil)
}

// ChangeAll implements Operations.
func (s *Store) ChangeAll(ctx context.Context, seenVersions []processlog.Version, ch processlog.Change) ([]processlog.Changed, error) {
	return s.changeSeen(ctx, seenVersions, ch, s.applyAndClose, nil, nil)
}

func (s *Store) applyAndClose(ctx context.Context, tx processlog.Tx, ch processlog.Change, rows []changedRow) error {
	if err := s.apply(ctx, tx, ch, rows); err != nil {
		return err
	}
	return s.closeCasesOf(ctx, tx, rows)
}

func (s *Store) applyBatch(ctx context.Context, tx processlog.Tx, ch processlog.Change, rows []changedRow) error {
	if err := s.applyRecorded(ctx, tx, ch, rows, true); err != nil {
		return err
	}
	return s.closeCasesOf(ctx, tx, rows)
}

type applying func(ctx context.Context, tx processlog.Tx, ch processlog.Change, rows []changedRow) error

// changeSeen changes the entries in one transaction. It calls the function begin before it locks a row, and the
// function finish with the answers for all entries. Each of the two functions may be nil.
func (s *Store) changeSeen(ctx context.Context, seenVersions []processlog.Version, ch processlog.Change, apply applying, begin func(tx processlog.Tx) error, finish func(tx processlog.Tx, answers []processlog.Changed) error) ([]processlog.Changed, error) {
	places := make([]int, len(seenVersions))
	for i := range places {
		places[i] = i
	}
	// Lock rows in id order, so that no two transactions deadlock. See promise G14.
	slices.SortFunc(places, func(a, b int) int { return seenVersions[a].ID.Compare(seenVersions[b].ID) })
	var answers []processlog.Changed
	err := s.untilFree(ctx, changeTimeout, s.inOwn, func(tx processlog.Transaction) error {
		answers = make([]processlog.Changed, len(seenVersions))
		if begin != nil {
			if err := begin(tx); err != nil {
				return err
			}
		}
		for chunk := range slices.Chunk(places, requeueStep) {
			if err := s.changeChunk(ctx, tx, seenVersions, ch, apply, chunk, answers); err != nil {
				return err
			}
		}
		if finish != nil {
			return finish(tx, answers)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("compensator: %s %d entries: %w", ch.Action, len(seenVersions), err)
	}
	return answers, nil
}

func (s *Store) changeChunk(ctx context.Context, tx processlog.Tx, seenVersions []processlog.Version, ch processlog.Change, apply applying, places []int, answers []processlog.Changed) error {
	ids := make([]processlog.ID, len(places))
	place := make(map[processlog.ID]int, len(places))
	for n, i := range places {
		ids[n], place[seenVersions[i].ID] = seenVersions[i].ID, i
	}
	rows, err := s.lockSeen(ctx, tx, ids)
	if err != nil {
		return err
	}
	var changes []changedRow
	var read []processlog.ID
	for _, oldRow := range rows {
		i := place[oldRow.ID]
		newRow, err := ch.AfterSeen(oldRow, seenVersions[i])
		answers[i] = processlog.Changed{Before: oldRow, Err: err}
		read = append(read, oldRow.ID)
		if err == nil && newRow.Version != oldRow.Version {
			changes = append(changes, changedRow{oldRow, newRow})
		}
	}
	unread := withoutIDs(ids, read)
	if err := s.whyUnread(ctx, tx, unread, place, answers); err != nil || len(changes) == 0 {
		return err
	}
	return apply(ctx, tx, ch, changes)
}

const seenRows = "SELECT {outline} FROM {log}{by id} WHERE id IN ({ids}) ORDER BY id{lock}"

func (s *Store) lockSeen(ctx context.Context, tx processlog.Tx, ids []processlog.ID) ([]processlog.Row, error) {
	return readFree(ctx, s, ids, func(ids []processlog.ID, lock string) ([]processlog.Row, error) {
		return s.queryRows(ctx, tx, len(ids), s.sql(seenRows, "ids", idList(ids), "lock", lock))
	})
}

const unreadRows = "SELECT id FROM {log} WHERE id IN ({ids})"

func (s *Store) whyUnread(ctx context.Context, tx processlog.Tx, unread []processlog.ID, place map[processlog.ID]int, answers []processlog.Changed) error {
	if len(unread) == 0 {
		return nil
	}
	held, err := queryIDs(ctx, tx, s.sql(unreadRows, "ids", idList(unread)))
	for _, id := range unread {
		answers[place[id]].Err = processlog.ErrNotFound
	}
	for _, id := range held {
		answers[place[id]].Err = processlog.ErrBusy
	}
	return err
}
