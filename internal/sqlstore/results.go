package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/processlog"
)

func hasResult(o *processlog.Outcome) bool { return o.Result != nil && o.To == processlog.Succeeded }

const (
	resultsWrite  = "INSERT INTO {result} (entry_id, result_epoch, result) SELECT id, epoch, {results} FROM {log}{by id} WHERE id IN ({ids}) AND token={token}{again}"
	resultWrite   = "INSERT INTO {result} (entry_id, result_epoch, result) VALUES ({entry_id}, {epoch}, {results}){again}"
	resultsDelete = "{DELETE FROM result} WHERE entry_id IN ({ids})"
)

// writeResults runs in the transaction that has just written the outcomes under token.
func (s *Store) writeResults(ctx context.Context, tx processlog.Tx, ids []processlog.ID, token processlog.Token, of func(id processlog.ID) *processlog.Outcome) error {
	ids = slices.DeleteFunc(slices.Clone(ids), func(id processlog.ID) bool { return !hasResult(of(id)) })
	if len(ids) == 0 {
		return nil
	}
	results := byRow("id", ids, func(i int) string { return string(of(ids[i]).Result) }, func(result string) string { return s.d.binary([]byte(result)) })
	_, err := s.writeHeld(ctx, tx, s.sql(resultsWrite, "ids", idList(ids), "token", s.d.binary(token[:]), "results", results,
		"again", s.d.again("entry_id", "result_epoch", "result")))
	if err != nil {
		return fmt.Errorf("store the results of %d entries: %w", len(ids), err)
	}
	failpoint.Reach(failpoint.ResultsWritten)
	return nil
}

func (s *Store) writeResultTx(ctx context.Context, tx processlog.Tx, o *processlog.Outcome) error {
	_, err := tx.ExecContext(ctx, s.sql(resultWrite, "entry_id", o.ID.String(), "epoch", decimal(uint64(o.Epoch)), "results", s.d.binary(o.Result),
		"again", s.d.again("entry_id", "result_epoch", "result")))
	switch {
	case s.d.fault(err) == faultAborted:
		return fmt.Errorf("store the result of entry %s: %w: %w", o.ID, processlog.ErrTxAborted, err)
	case err != nil:
		return fmt.Errorf("compensator: store the result of entry %s: %w", o.ID, finished(err))
	}
	failpoint.Reach(failpoint.ResultInTx)
	return nil
}

func (s *Store) deleteResults(ctx context.Context, tx processlog.Tx, ids []processlog.ID) error {
	_, err := s.writeHeld(ctx, tx, s.sql(resultsDelete, "ids", idList(ids)))
	return err
}

// A result counts only in its epoch. Content is left out until the entry has ended, because a caller that polls would read
// it again and again.
const readEnds = "SELECT {columns and result} FROM {log} LEFT JOIN {result} ON entry_id=id AND result_epoch=epoch AND state+0=1 WHERE id IN ({ids})"

// Ends implements Store.
func (s *Store) Ends(ctx context.Context, ids []processlog.ID) ([]processlog.Row, error) {
	found := make([]processlog.Row, 0, len(ids))
	columns := s.d.columns("CASE WHEN state+0 IN (0,-1,-3) THEN "+s.d.binary(nil)+" ELSE content END") + ", result_epoch, result"
	for chunk := range slices.Chunk(ids, processlog.MaxRows) {
		err := s.readLatest(ctx, func(readTx processlog.Tx) error {
			rows, err := readTx.QueryContext(ctx, s.sql(readEnds, "columns and result", columns, "ids", idList(chunk)))
			if err == nil {
				found, err = scanEnds(rows, found)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("compensator: read the ends of %d entries: %w", len(ids), err)
		}
	}
	return found, nil
}

func scanEnds(rows *sql.Rows, found []processlog.Row) ([]processlog.Row, error) {
	defer rows.Close()
	scan := newRowScanner()
	var epoch sql.NullInt64 // Some drivers return an empty result as nil, so only the epoch says whether there is one.
	scan.destinations = append(scan.destinations, &epoch, &scan.Result)
	for rows.Next() {
		row, err := scan.row(rows)
		if err != nil {
			return nil, err
		}
		if !row.State.Terminal() {
			row.Content = nil
		}
		if epoch.Valid && row.Result == nil {
			row.Result = []byte{}
		}
		found = append(found, row)
	}
	return found, rows.Err()
}
