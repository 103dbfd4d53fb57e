package sqlstore

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

func deaths(attempts bool, from, to uint64) (outcomes []processlog.Outcome) {
	for _, id := range idRange(from, to) {
		o := processlog.Outcome{ID: id, IdempotencyKey: processlog.IdempotencyKey("key " + id.String()), To: processlog.Dead, EndedBy: processlog.EndedByExhausted, LastError: "why"}
		if attempts {
			o.Attempt = &processlog.FailedAttempt{Verdict: processlog.AttemptExhausted, DueAt: time.UnixMilli(1), StartedAt: time.UnixMilli(int64(id.Row())), Error: "why"}
		}
		outcomes = append(outcomes, o)
	}
	return outcomes
}

// naming leaves out the test's own statements.
func (b *logbook) naming(table string) (statements []string) {
	b.t.Helper()
	rows, err := b.db.QueryContext(b.t.Context(), "SELECT argument FROM mysql.general_log WHERE argument LIKE ? AND argument NOT LIKE '%general_log%'", "%"+table+"`%")
	require.NoError(b.t, err)
	defer rows.Close()
	for rows.Next() {
		var statement string
		require.NoError(b.t, rows.Scan(&statement))
		statements = append(statements, statement)
	}
	require.NoError(b.t, rows.Err())
	return statements
}

// TestFailuresWithoutAttemptsCostNothingMore settles failures with and without attempts, and purges their entries
// before and after KeepAttempts. Failures without attempts must send no statement about attempts. Before KeepAttempts,
// a purge may only check, once for each type, whether another process has stored attempts.
func TestFailuresWithoutAttemptsCostNothingMore(t *testing.T) {
	t.Parallel()
	b := openLogbook(t)
	b.fill(200)
	settle := func(outcomes []processlog.Outcome) (statements, attempts []string) {
		statements = b.written(func(ctx context.Context, s *Store) {
			settled, err := s.Settle(ctx, processlog.NewToken(), outcomes)
			require.NoError(t, err)
			for _, answer := range settled {
				require.True(t, answer.Applied)
			}
		})
		return statements, b.naming("_attempt")
	}
	purge := func() (attempts []string) {
		b.exec("UPDATE common_process_log SET next_at=1")
		b.written(func(ctx context.Context, s *Store) {
			n, err := s.Purge(ctx, "", processlog.Dead, 0, 1000)
			require.NoError(t, err)
			require.Equal(t, 100, n)
		})
		return b.naming("_attempt")
	}
	plain, none := settle(deaths(false, 1, 100))
	require.Empty(t, none)
	looks := purge()
	require.LessOrEqual(t, len(looks), b.count("(SELECT DISTINCT business_type FROM common_process_log) types"))
	for _, look := range looks {
		want := "SELECT entry_id FROM `common_process_log_attempt` LIMIT 1"
		require.Contains(t, []string{want, calmMySQL(want)}, explained(look))
	}
	kept, inserts := settle(deaths(true, 101, 200))
	require.Len(t, kept, len(plain), "one INSERT more, and no other statement")
	require.Len(t, inserts, 1)
	require.True(t, strings.HasPrefix(explained(inserts[0]), "INSERT"), inserts[0])
	assert.Contains(t, inserts[0], ", last_error FROM", "an error that the row has is not sent again")
	require.Equal(t, 100, b.count("common_process_log_attempt WHERE error='why' AND slot=0 AND started_at=entry_id"))
	require.NoError(t, b.s.KeepAttempts(t.Context()))
	deletes := purge()
	require.NotEmpty(t, deletes)
	for _, statement := range deletes {
		require.True(t, strings.HasPrefix(explained(statement), "DELETE"), statement)
	}
	require.Zero(t, b.count("common_process_log_attempt"))
}
