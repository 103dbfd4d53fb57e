package sqlstore

import (
	"context"
	"fmt"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/processlog"
)

const (
	faultsWrite = "INSERT INTO {fault} (entry_id, epoch, compensating, server_faults, server_downs, outcome_unknown)" +
		" SELECT id, {epochs}, {compensating}, {server faults}, {server downs}, {outcome unknown} FROM {log}{by id} WHERE id IN ({ids}) AND token={token}{again}"
	faultsRead   = "SELECT entry_id, {number epoch, compensating, server_faults, server_downs, outcome_unknown} FROM {fault}{by id} WHERE entry_id IN ({ids}){every row}"
	faultsDelete = "{DELETE FROM fault} WHERE entry_id IN ({ids})"
)

// writeFaults runs in the transaction that has just written the outcomes under token.
func (s *Store) writeFaults(ctx context.Context, tx processlog.Tx, ids []processlog.ID, token processlog.Token, of func(id processlog.ID) *processlog.Faults) error {
	number := func(value func(f *processlog.Faults) int) string {
		return byRow("id", ids, func(i int) int64 { return int64(value(of(ids[i]))) }, signed)
	}
	flag := func(value func(f *processlog.Faults) bool) string {
		return number(func(f *processlog.Faults) int {
			if value(f) {
				return 1
			}
			return 0
		})
	}
	_, err := s.writeHeld(ctx, tx, s.sql(faultsWrite, "ids", idList(ids), "token", s.d.binary(token[:]),
		"epochs", number(func(f *processlog.Faults) int { return int(f.Epoch) }),
		"compensating", flag(func(f *processlog.Faults) bool { return f.Compensating }),
		"server faults", number(func(f *processlog.Faults) int { return f.ServerFaults }),
		"server downs", number(func(f *processlog.Faults) int { return f.ServerDowns }),
		"outcome unknown", flag(func(f *processlog.Faults) bool { return f.OutcomeUnknown }),
		"again", s.d.again("entry_id", "epoch", "compensating", "server_faults", "server_downs", "outcome_unknown")))
	if err != nil {
		return fmt.Errorf("store the faults of %d entries: %w", len(ids), err)
	}
	failpoint.Reach(failpoint.FaultsWritten)
	return nil
}

// addFaults sends no statement if no row has failed before.
func (s *Store) addFaults(ctx context.Context, readTx processlog.Tx, rows []processlog.Row) error {
	var ids []processlog.ID
	for i := range rows {
		if rows[i].LastError != "" {
			ids = append(ids, rows[i].ID)
		}
	}
	faults, err := s.readFaults(ctx, readTx, ids)
	for i := range rows {
		rows[i].Faults = faults[rows[i].ID]
	}
	return err
}

// FaultsOf implements Operations.
func (s *Store) FaultsOf(ctx context.Context, ids []processlog.ID) (map[processlog.ID]processlog.Faults, error) {
	faults, err := s.readFaults(ctx, s.pool(), ids)
	if err != nil {
		err = fmt.Errorf("compensator: read the faults of %d entries: %w", len(ids), err)
	}
	return faults, err
}

func (s *Store) readFaults(ctx context.Context, readTx processlog.Tx, ids []processlog.ID) (map[processlog.ID]processlog.Faults, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := readTx.QueryContext(ctx, s.sql(faultsRead, "ids", idList(ids)))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	found := make(map[processlog.ID]processlog.Faults)
	for rows.Next() {
		var id uint64
		var f processlog.Faults
		if err := rows.Scan(&id, &f.Epoch, &f.Compensating, &f.ServerFaults, &f.ServerDowns, &f.OutcomeUnknown); err != nil {
			return nil, err
		}
		found[processlog.RowID(id)] = f
	}
	return found, rows.Err()
}

func (s *Store) deleteFaults(ctx context.Context, tx processlog.Tx, ids []processlog.ID) error {
	_, err := s.writeHeld(ctx, tx, s.sql(faultsDelete, "ids", idList(ids)))
	return err
}
