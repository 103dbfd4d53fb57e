package sqlstore

import (
	"context"
	"database/sql"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/backlog"
	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/processlog"
)

type countedStore struct {
	*Store
	statements int
	busy       time.Duration
}

func (s *countedStore) Count(ctx context.Context, tx processlog.Tx, filter processlog.CountFilter) ([]processlog.Count, error) {
	s.statements += 2 // One statement finds the types and states, and one finds those with entries.
	return s.Store.Count(ctx, tx, filter)
}

func (s *countedStore) CountBacklog(ctx context.Context, ranges []processlog.BacklogRange, limit int) ([]processlog.BacklogSlice, error) {
	s.statements++
	began := time.Now()
	defer func() { s.busy += time.Since(began) }()
	return s.Store.CountBacklog(ctx, ranges, limit)
}

func (s *countedStore) WriteBacklog(ctx context.Context, slot time.Time, backlog []processlog.Backlog) error {
	s.statements += 2 // One statement stores the backlog, and one deletes the previous one.
	return s.Store.WriteBacklog(ctx, slot, backlog)
}

func openMillion(b *testing.B) (*sql.DB, *Store) {
	db, err := sql.Open("mysql", testservers.NewSQL(b).Database(b, "interpolateParams=true"))
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, db.Close()) })
	require.NoError(b, Migrate(b.Context(), db, DefaultTable))
	s, err := Open(b.Context(), db, DefaultTable)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, s.Close()) })
	for n := range 10 {
		_, err = db.ExecContext(b.Context(), "INSERT INTO common_process_log (idempotent_id, business_type, content, next_at, created_at, updated_at) "+
			"WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i+1 FROM n WHERE i<317) SELECT CONCAT(?, ' ', a.i, ' ', b.i), CONCAT('type ', b.i%4), '{}', 1000*a.i+b.i, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3) FROM n a, n b LIMIT 100000", n)
		require.NoError(b, err)
	}
	return db, s
}

// BenchmarkRunningEntriesOfAMillion measures List for the running entries of a type. In the first case, the entries
// that were due first are running, so List finds them at once. In the second case no entry runs, so List reads 10,000
// rows.
func BenchmarkRunningEntriesOfAMillion(b *testing.B) {
	db, s := openMillion(b)
	for _, running := range []int{100, 0} {
		_, err := db.ExecContext(b.Context(), "UPDATE common_process_log SET lease_until=0")
		require.NoError(b, err)
		_, err = db.ExecContext(b.Context(), "UPDATE common_process_log SET lease_until=9000000000000, token=REPEAT('a', 16) WHERE business_type='type 1' ORDER BY next_at, id LIMIT ?", running)
		require.NoError(b, err)
		b.Run(strconv.Itoa(running), func(b *testing.B) {
			for b.Loop() {
				page, err := s.List(b.Context(), processlog.Filter{BusinessType: "type 1", Leased: true, Outline: true})
				require.NoError(b, err)
				require.Len(b, page.Rows, min(running, defaultPage))
				b.ReportMetric(float64(page.Read), "rows/page")
			}
		})
	}
}

func BenchmarkBacklogOfAMillionEntries(b *testing.B) {
	db, s := openMillion(b)
	var rows int
	require.NoError(b, db.QueryRowContext(b.Context(), "SELECT COUNT(*) FROM common_process_log").Scan(&rows))
	store := &countedStore{Store: s}
	slot := time.Now().Truncate(time.Minute)
	for b.Loop() {
		slot = slot.Add(time.Minute)
		require.NoError(b, backlog.Round(b.Context(), store, slot, backlog.Slice))
	}
	reading, err := s.ReadBacklog(b.Context())
	require.NoError(b, err)
	sum := 0
	for _, t := range reading.Types {
		sum += t.Pending
	}
	require.Equal(b, rows, sum)
	b.ReportMetric(float64(rows), "entries")
	b.ReportMetric(float64(store.statements)/float64(b.N), "statements/round")
	b.ReportMetric(float64(store.busy.Milliseconds())/float64(b.N), "busy-ms/round")
}
