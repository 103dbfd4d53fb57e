package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

// Two writers of the same rows in different orders would deadlock.
func TestPositionsAreWrittenInOneOrder(t *testing.T) {
	came := []processlog.Position{
		{BusinessType: "b", Key: "x", ID: processlog.RowID(1)}, {BusinessType: "a", Key: "y", ID: processlog.RowID(30)},
		{BusinessType: "a", Key: "x", ID: processlog.RowID(20)}, {BusinessType: "a", Key: "y", ID: processlog.RowID(4)},
		{BusinessType: "a", Key: "x", ID: processlog.RowID(100)},
	}
	want := []string{"1", "4", "20", "30", "100"}
	for name, test := range map[string]struct {
		write func(s *Store) error
		id    string // regular expression that matches each position in the statement; its group is the id
	}{
		"noted":     {func(s *Store) error { return s.Join(t.Context(), s.pool(), slices.Clone(came)) }, `',\d+,(\d+),`},
		"forgotten": {func(s *Store) error { return s.forgetPositions(t.Context(), s.pool(), slices.Clone(came)) }, `entry_id=(\d+)`},
	} {
		var sent sentTo
		s := newStore(mysqlDialect("8.4.0"), tableName{base: DefaultTable}, nil)
		s.ownPool = sql.OpenDB(&sent)
		require.NoError(t, test.write(s), name)
		require.Len(t, sent.statements, 1, name)
		var ids []string
		for _, found := range regexp.MustCompile(test.id).FindAllStringSubmatch(sent.statements[0], -1) {
			ids = append(ids, found[1])
		}
		require.Equal(t, want, ids, name)
		require.NoError(t, s.ownPool.Close())
	}
}

type sentTo struct {
	driver.Conn
	statements []string
}

func (s *sentTo) Connect(context.Context) (driver.Conn, error) { return s, nil }

func (s *sentTo) Driver() driver.Driver { return nil }

func (s *sentTo) Close() error { return nil }

func (s *sentTo) ExecContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	s.statements = append(s.statements, query)
	return driver.RowsAffected(0), nil
}
