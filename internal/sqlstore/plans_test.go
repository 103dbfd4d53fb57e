package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/internal/txwatch"
	"github.com/compensator-go/compensator/processlog"
)

// logbook is a server that logs every statement. The tests run EXPLAIN on the logged texts, so they check exactly what
// the store sends.
type logbook struct {
	t  *testing.T
	s  *Store
	db *sql.DB // a pool beside the store's
}

func openLogbook(t *testing.T) *logbook {
	server := testservers.NewSQL(t, "--log-output=TABLE")
	dsn := server.Database(t, "interpolateParams=true")
	var pools [2]*sql.DB
	for i := range pools {
		db, err := sql.Open("mysql", dsn)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, db.Close()) })
		db.SetMaxOpenConns(1)
		pools[i] = db
	}
	require.NoError(t, Migrate(t.Context(), pools[0], DefaultTable))
	s, err := Open(t.Context(), pools[0], DefaultTable)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	b := &logbook{t: t, s: s, db: pools[1]}
	b.exec("CREATE TABLE digits (d INT PRIMARY KEY)")
	b.exec("INSERT INTO digits VALUES (0),(1),(2),(3),(4),(5),(6),(7),(8),(9)")
	return b
}

func (b *logbook) exec(query string, args ...any) {
	b.t.Helper()
	_, err := b.db.ExecContext(b.t.Context(), query, args...)
	require.NoError(b.t, err, query)
}

func (b *logbook) fill(n int) {
	b.exec("INSERT INTO common_process_log (id, idempotent_id, business_type, content, next_at, created_at, updated_at) "+
		"SELECT i, CONCAT('key ',i), CONCAT('type ',i%4), '{}', 1000+i, NOW(), NOW() FROM "+
		"(SELECT 1 + a.d + 10*b.d + 100*c.d + 1000*d.d + 10000*e.d AS i FROM digits a, digits b, digits c, digits d, digits e) s "+
		"WHERE i<=? AND i>(SELECT COALESCE(MAX(id),0) FROM common_process_log l)", n)
}

func (b *logbook) written(work func(ctx context.Context, s *Store)) (statements []string) {
	b.t.Helper()
	b.exec("SET GLOBAL general_log=0")
	b.exec("TRUNCATE TABLE mysql.general_log")
	b.exec("SET GLOBAL general_log=1")
	work(b.t.Context(), b.s)
	b.exec("SET GLOBAL general_log=0")
	rows, err := b.db.QueryContext(b.t.Context(), "SELECT argument FROM mysql.general_log WHERE command_type IN ('Query','Execute') AND argument LIKE '%common_process_log%'")
	require.NoError(b.t, err)
	defer rows.Close()
	for rows.Next() {
		var statement string
		require.NoError(b.t, rows.Scan(&statement))
		if !strings.HasPrefix(explained(statement), "INSERT") && !strings.Contains(statement, "general_log") && !strings.Contains(statement, "information_schema") {
			statements = append(statements, statement)
		}
	}
	require.NoError(b.t, rows.Err())
	require.NotEmpty(b.t, statements, "the work touches the log")
	return statements
}

// EXPLAIN does not accept a leading SET STATEMENT … FOR.
func explained(statement string) string {
	if calm, found := strings.CutPrefix(statement, txwatch.Calm); found {
		_, statement, _ = strings.Cut(calm, " FOR ")
	}
	return statement
}

type planStep struct{ table, kind, key, extra string }

func (b *logbook) explain(statement string) (steps []planStep) {
	b.t.Helper()
	rows, err := b.db.QueryContext(b.t.Context(), "EXPLAIN FORMAT=TRADITIONAL "+explained(statement))
	require.NoError(b.t, err, statement)
	defer rows.Close()
	columns, err := rows.Columns()
	require.NoError(b.t, err)
	for rows.Next() {
		values := make(map[string]*sql.NullString, len(columns))
		into := make([]any, len(columns))
		for i, column := range columns {
			v := new(sql.NullString)
			values[strings.ToLower(column)], into[i] = v, v
		}
		require.NoError(b.t, rows.Scan(into...))
		steps = append(steps, planStep{values["table"].String, values["type"].String, values["key"].String, values["extra"].String})
	}
	require.NoError(b.t, rows.Err())
	return steps
}

// protocol lists the calls that the engine repeats all the time, with the indexes that their statements may use.
var protocol = []struct {
	name string
	keys []string
	work func(ctx context.Context, s *Store) error
}{
	{"due", []string{"k_due"}, func(ctx context.Context, s *Store) error {
		_, err := s.Due(ctx, "type 1", 500)
		return err
	}},
	{"heads", []string{"k_due"}, func(ctx context.Context, s *Store) error {
		_, err := s.Heads(ctx)
		return err
	}},
	{"scan", []string{"k_due"}, func(ctx context.Context, s *Store) error {
		_, err := s.Scan(ctx, processlog.Window{BusinessType: "type 1", From: -processlog.MaxDelay, To: time.Hour, Limit: 1000, Free: true})
		return err
	}},
	{"next page of a scan", []string{"k_due"}, func(ctx context.Context, s *Store) error {
		_, err := s.Scan(ctx, processlog.Window{BusinessType: "type 1", From: -processlog.MaxDelay, To: time.Hour, Limit: 1000, After: processlog.Scheduled{ID: processlog.RowID(401), NextAt: 1401}})
		return err
	}},
	{"slice of the backlog", []string{"k_due"}, func(ctx context.Context, s *Store) error {
		_, err := s.CountBacklog(ctx, []processlog.BacklogRange{
			{BusinessType: "type 1"}, {BusinessType: "type 2", After: processlog.Scheduled{ID: processlog.RowID(402), NextAt: 1402}}}, 100)
		return err
	}},
	{"load", []string{"PRIMARY"}, func(ctx context.Context, s *Store) error {
		_, err := s.Load(ctx, idRange(1, 500))
		return err
	}},
	{"claim", []string{"PRIMARY"}, func(ctx context.Context, s *Store) error {
		_, err := s.Claim(ctx, wanted(idRange(1, 500)), processlog.Token{1}, time.Minute, func(*processlog.Row) bool { return true })
		return err
	}},
	{"renew", []string{"PRIMARY"}, func(ctx context.Context, s *Store) error {
		var held []processlog.Held
		for _, id := range idRange(1, 500) {
			held = append(held, processlog.Held{ID: id, Version: 1})
		}
		_, err := s.Renew(ctx, held, time.Minute)
		return err
	}},
	{"release", []string{"PRIMARY"}, func(ctx context.Context, s *Store) error {
		_, err := s.Release(ctx, idRange(1, 100), processlog.Token{1})
		return err
	}},
	{"settle", []string{"PRIMARY"}, func(ctx context.Context, s *Store) error {
		var outcomes []processlog.Outcome
		for i, id := range idRange(101, 500) {
			o := processlog.Outcome{ID: id, IdempotencyKey: processlog.IdempotencyKey("key " + id.String()), Version: 1, To: processlog.Retrying, ProcessCount: 1, After: time.Duration(i) * time.Second, LastError: fmt.Sprint(i)}
			if i >= 100 {
				o = processlog.Outcome{ID: id, IdempotencyKey: processlog.IdempotencyKey("key " + id.String()), To: processlog.Succeeded, EndedBy: processlog.EndedByHandler}
			}
			if i >= 300 {
				o.To = processlog.Compensated
			}
			outcomes = append(outcomes, o)
		}
		_, err := s.Settle(ctx, processlog.Token{2}, outcomes)
		return err
	}},
	{"settle with results", []string{"PRIMARY"}, func(ctx context.Context, s *Store) error {
		_, err := s.Settle(ctx, processlog.Token{4}, successes(true, 601, 700))
		return err
	}},
	{"ends", []string{"PRIMARY"}, func(ctx context.Context, s *Store) error {
		_, err := s.Ends(ctx, idRange(401, 900))
		return err
	}},
	{"change by key", []string{"PRIMARY", "uk_idempotent_id"}, func(ctx context.Context, s *Store) error {
		_, err := s.Change(ctx, nil, false, processlog.Change{Ref: processlog.IdempotencyKey("key 501"), Action: processlog.ActionReschedule})
		if errors.Is(err, processlog.ErrNotFound) {
			return nil // The log is empty.
		}
		return err
	}},
	{"requeue of many", []string{"PRIMARY"}, func(ctx context.Context, s *Store) error {
		seenVersions, err := s.Versions(ctx, idRange(101, 450))
		if err != nil {
			return err
		}
		_, err = s.RequeueAll(ctx, seenVersions, processlog.Change{Action: processlog.ActionRequeue, Delay: time.Hour, Actor: "ann", Reason: "because"})
		return err
	}},
	{"erasure", []string{"PRIMARY", "uk_idempotent_id"}, func(ctx context.Context, s *Store) error {
		key := processlog.IdempotencyKey("key 502")
		for _, action := range []processlog.Action{processlog.ActionCancel, processlog.ActionErase} {
			_, err := s.Change(ctx, nil, false, processlog.Change{Ref: key, Action: action, Token: processlog.Token{3}, Actor: "ann", Reason: "because"})
			if err != nil && !errors.Is(err, processlog.ErrNotFound) && !errors.As(err, new(*processlog.StateError)) {
				return err
			}
		}
		return nil // In a log without this entry the call sends fewer statements, and the test checks only those.
	}},
	{"narrowed page", []string{"k_due"}, func(ctx context.Context, s *Store) error {
		_, err := s.List(ctx, processlog.Filter{BusinessType: "type 1", States: []processlog.State{processlog.Pending}, LastError: "down", MaxRead: 2000})
		return err
	}},
	{"ids by keys", []string{"uk_idempotent_id"}, func(ctx context.Context, s *Store) error {
		_, err := s.IDs(ctx, nil, []processlog.IdempotencyKey{"key 1", "key 2", "key none"})
		return err
	}},
	{"purge", []string{"PRIMARY", "uk_idempotent_id", "k_due"}, func(ctx context.Context, s *Store) error {
		_, err := s.Purge(ctx, "", processlog.Succeeded, 0, 1000)
		return err
	}},
	{"purge of a type", []string{"PRIMARY", "uk_idempotent_id", "k_due"}, func(ctx context.Context, s *Store) error {
		_, err := s.Purge(ctx, "type 1", processlog.Succeeded, 0, 100)
		return err
	}},
}

func successes(results bool, from, to uint64) (outcomes []processlog.Outcome) {
	for _, id := range idRange(from, to) {
		o := processlog.Outcome{ID: id, IdempotencyKey: processlog.IdempotencyKey("key " + id.String()), To: processlog.Succeeded, EndedBy: processlog.EndedByHandler}
		if results {
			o.Result = []byte(id.String())
		}
		outcomes = append(outcomes, o)
	}
	return outcomes
}

// If no success has a result, Settle sends two statements, and none of them names the table of results. Successes with
// a result get statements of their own.
func TestSuccessesWithoutResultsCostNothingMore(t *testing.T) {
	b := openLogbook(t)
	b.fill(600)
	settle := func(outcomes []processlog.Outcome) []string {
		return b.written(func(ctx context.Context, s *Store) {
			settled, err := s.Settle(ctx, processlog.NewToken(), outcomes)
			require.NoError(t, err)
			for _, answer := range settled {
				require.True(t, answer.Applied)
			}
		})
	}
	plain := settle(successes(false, 1, 300))
	require.Len(t, plain, 2)
	require.Zero(t, b.count("mysql.general_log WHERE argument LIKE '%_result%' AND argument NOT LIKE '%general_log%'"))
	mixed := settle(append(successes(false, 301, 320), successes(true, 321, 340)...))
	require.Len(t, mixed, 4, "two statements for each kind, beside the INSERT")
	require.Equal(t, 1, b.count("mysql.general_log WHERE argument LIKE '%INTO `common_process_log_result`%' AND argument NOT LIKE '%general_log%'"))
	for i, statement := range mixed {
		require.Equal(t, i < 2, strings.Contains(statement, "(301,"), statement)
		require.Equal(t, i >= 2, strings.Contains(statement, "(321,"), statement)
	}
	require.Equal(t, 20, b.count("common_process_log_result"))
}

func (b *logbook) count(from string) (n int) {
	b.t.Helper()
	require.NoError(b.t, b.db.QueryRowContext(b.t.Context(), "SELECT COUNT(*) FROM "+from).Scan(&n))
	return n
}

func idRange(from, to uint64) (ids []processlog.ID) {
	for id := from; id <= to; id++ {
		ids = append(ids, processlog.RowID(id))
	}
	return ids
}

func wanted(ids []processlog.ID) (want []processlog.Wanted) {
	for _, id := range ids {
		want = append(want, processlog.Wanted{ID: id})
	}
	return want
}

// The statements run on logs of different sizes: an empty one, small ones, and a large one. They run four times on the
// large log: before most entries have ended and after. Both times, they run first with outdated statistics of the
// table, and then with fresh ones.
// Failure: F26, F29, F34
func TestStatementsKeepToTheirIndexHoweverTheTableLooks(t *testing.T) {
	b := openLogbook(t)
	b.plansHold("empty")
	b.fill(8)
	b.plansHold("tiny")
	b.fill(1000)
	b.plansHold("small")
	b.fill(50_000)
	b.plansHold("grown")
	b.exec("ANALYZE TABLE common_process_log")
	b.plansHold("large")
	b.exec("UPDATE common_process_log SET state=1, ended_by='handler' WHERE id>2000")
	b.plansHold("after a mass change")
	b.exec("ANALYZE TABLE common_process_log")
	b.plansHold("mostly ended")
}

func (b *logbook) plansHold(table string) {
	b.t.Helper()
	var rows int
	require.NoError(b.t, b.db.QueryRowContext(b.t.Context(), "SELECT COUNT(*) FROM common_process_log").Scan(&rows))
	for _, step := range protocol {
		statements := b.written(func(ctx context.Context, s *Store) { require.NoError(b.t, step.work(ctx, s), step.name) })
		for _, statement := range statements {
			for _, plan := range b.explain(statement) {
				problem := fmt.Sprintf("%s log, %s: %+v of %.300s", table, step.name, plan, statement)
				assert.NotContains(b.t, plan.extra, "filesort", problem)
				if plan.table == DefaultTable {
					plan.requireIndex(b.t, statement, step.keys, rows, problem)
				}
			}
		}
	}
}

// A statement that waits for locks must not read the whole log, because others may have locked rows that it does not need.
func (p planStep) requireIndex(t *testing.T, statement string, keys []string, rows int, problem string) {
	t.Helper()
	switch {
	case rows == 0:
	case waits(statement):
		assert.Contains(t, []string{"PRIMARY", "uk_idempotent_id"}, p.key, problem)
		assert.Contains(t, []string{"range", "const"}, p.kind, problem)
	case rows >= 10_000:
		assert.Contains(t, keys, p.key, problem)
		assert.NotContains(t, []string{"ALL", "index"}, p.kind, problem)
	case rows >= 1000:
		assert.Contains(t, append(keys, ""), p.key, problem)
	}
}

func waits(statement string) bool {
	return strings.HasPrefix(statement, "UPDATE") || strings.HasPrefix(statement, "DELETE") ||
		strings.HasSuffix(statement, " FOR UPDATE") || strings.HasSuffix(statement, " LOCK IN SHARE MODE")
}

// Failure: F29
func TestHeadsAreFoundByJumpingOverTheEntries(t *testing.T) {
	b := openLogbook(t)
	b.fill(20_000)
	b.exec("ANALYZE TABLE common_process_log")
	statements := b.written(func(ctx context.Context, s *Store) {
		cost := s.cost(t, func() {
			heads, err := s.Heads(ctx)
			require.NoError(t, err)
			assert.Len(t, heads, 4)
		})
		assert.Less(t, cost.read, 100, "20,000 entries of 4 types")
	})
	jumps := slices.DeleteFunc(b.explain(statements[0]), func(p planStep) bool { return p.table != DefaultTable })
	require.NotEmpty(t, jumps)
	assert.Contains(t, jumps[0].extra, "Using index for group-by")
}

// Failure: F29
func TestDueReadsNoMoreThanItAnswers(t *testing.T) {
	b := openLogbook(t)
	b.fill(20_000)
	b.exec("ANALYZE TABLE common_process_log")
	cost := b.s.cost(t, func() {
		ids, err := b.s.Due(t.Context(), "type 1", 100)
		require.NoError(t, err)
		assert.Len(t, ids, 100)
	})
	assert.Less(t, cost.read, 1000, "5,000 entries are due")
	assert.Zero(t, cost.sorted)
}

// The type has 5,000 entries. CountBacklog counts 500 of them, and begins in the middle.
// Failure: F29
func TestSliceOfTheBacklogReadsNoMoreThanItCounts(t *testing.T) {
	b := openLogbook(t)
	b.fill(20_000)
	b.exec("ANALYZE TABLE common_process_log")
	cost := b.s.cost(t, func() {
		counted, err := b.s.CountBacklog(t.Context(), []processlog.BacklogRange{{BusinessType: "type 1", After: processlog.Scheduled{ID: processlog.RowID(10_001), NextAt: 11_001}}}, 500)
		require.NoError(t, err)
		assert.Equal(t, 500, counted[0].N)
		assert.Equal(t, 500, counted[0].Overdue, "the entries have been due since 1970")
		assert.Equal(t, int64(13_001), counted[0].Last.NextAt)
	})
	assert.Less(t, cost.read, 2000)
	assert.Zero(t, cost.sorted)
}

func TestIDsOfAllThatMatchComeFromAnIndexAlone(t *testing.T) {
	b := openLogbook(t)
	b.fill(45_000)
	b.exec("ANALYZE TABLE common_process_log")
	pending := []processlog.State{processlog.Pending}
	for key, match := range map[string]processlog.Match{
		"k_due":         {Filter: processlog.Filter{States: pending, BusinessType: "type 1"}, After: processlog.RowID(100), UpTo: processlog.RowID(44_000)},
		"k_business_id": {Filter: processlog.Filter{States: pending, BusinessID: "order", Prefix: true}},
		"k_created_at":  {Filter: processlog.Filter{States: []processlog.State{processlog.Succeeded}, CreatedFrom: time.Now().Add(-time.Minute)}},
		"k_group":       {Filter: processlog.Filter{States: pending, BusinessType: "type 1"}, Fingerprint: processlog.Fingerprint{1}},
	} {
		match.Limit = 10_000
		for _, statement := range b.written(func(ctx context.Context, s *Store) {
			_, err := s.MatchingIDs(ctx, match)
			require.NoError(t, err)
		}) {
			for _, step := range b.explain(statement) {
				assert.Equal(t, key, step.key, statement)
				assert.Contains(t, step.extra, "Using index", statement)
				assert.NotContains(t, []string{"ALL", "index"}, step.kind, statement)
			}
		}
	}
}
