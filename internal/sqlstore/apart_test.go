package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
)

type pretend struct {
	refused    func(int) bool
	written    []int
	statements int
}

func (p *pretend) write(items []int) error {
	p.statements++
	if slices.ContainsFunc(items, p.refused) {
		return fmt.Errorf("update: %w", &mysql.MySQLError{Number: 1644, Message: "no"})
	}
	p.written = append(p.written, items...)
	return nil
}

func numbers(n int) (items []int) {
	for i := range n {
		items = append(items, i)
	}
	return items
}

// Failure: F75
func TestRefusedItemsAreFoundByHalving(t *testing.T) {
	s := &Store{d: mysqlDialect("")}
	for name, tc := range map[string]struct {
		items, most int
		refused     func(int) bool
	}{
		"none":            {500, 1, func(int) bool { return false }},
		"the only one":    {1, 1, func(int) bool { return true }},
		"three of 40":     {40, 30, func(i int) bool { return i == 3 || i == 4 || i == 39 }},
		"one of 500":      {500, 20, func(i int) bool { return i == 250 }},
		"three of 500":    {500, 1 + splitStatements, func(i int) bool { return i%200 == 7 }},
		"every other one": {500, 1 + splitStatements, func(i int) bool { return i%2 == 0 }},
		"all":             {500, 1 + splitStatements, func(int) bool { return true }},
	} {
		t.Run(name, func(t *testing.T) {
			p := &pretend{refused: tc.refused}
			refused, left, err := writeApart(t.Context(), s, numbers(tc.items), p.write)
			require.NoError(t, err)
			require.LessOrEqual(t, p.statements, tc.most)
			all := slices.Concat(p.written, left)
			for _, r := range refused {
				require.True(t, tc.refused(r.item))
				require.ErrorContains(t, r.err, "Error 1644")
				all = append(all, r.item)
			}
			require.False(t, slices.ContainsFunc(p.written, tc.refused))
			slices.Sort(all)
			require.Equal(t, numbers(tc.items), all, "each item has one result")
			if tc.most <= splitStatements {
				require.Empty(t, left)
			}
		})
	}
}

// Each round offers only the items that are left, so no refused item is offered again. All rounds together must take
// fewer than three statements for each refused item.
func TestWhatIsLeftComesToItsEnd(t *testing.T) {
	s, items, refused := &Store{d: mysqlDialect("")}, numbers(500), 0
	p := &pretend{refused: func(i int) bool { return i%5 != 0 }}
	for rounds := 0; len(items) > 0; rounds++ {
		require.Less(t, rounds, 30)
		some, left, err := writeApart(t.Context(), s, items, p.write)
		require.NoError(t, err)
		refused, items = refused+len(some), left
	}
	require.Equal(t, 400, refused)
	require.Len(t, p.written, 100)
	require.Less(t, p.statements, 3*400)
}

func TestErrorOfNoRowIsReturnedAtOnce(t *testing.T) {
	name, err := parseTable(DefaultTable)
	require.NoError(t, err)
	s := &Store{d: mysqlDialect(""), table: name}
	for _, err := range []error{
		&mysql.MySQLError{Number: 1205}, &mysql.MySQLError{Number: 1213}, &mysql.MySQLError{Number: 1040}, &mysql.MySQLError{Number: 1969},
		&mysql.MySQLError{Number: 1142, Message: "UPDATE command denied to user 'shop'@'%' for table 'common_process_log'"},
		&mysql.MySQLError{Number: 1146, Message: "Table 'shop.common_process_log' doesn't exist"},
		mysql.ErrInvalidConn, driver.ErrBadConn, context.DeadlineExceeded, context.Canceled, errors.New("any"),
	} {
		tries := 0
		refused, left, got := writeApart(t.Context(), s, numbers(40), func([]int) error { tries++; return err })
		require.Equal(t, err, got)
		require.Empty(t, refused)
		require.Empty(t, left)
		require.Equal(t, 1, tries, "%v", err)
	}
	// A trigger may raise any of these errors for some rows.
	for _, number := range []uint16{1048, 1062, 1142, 1146, 1172, 1264, 1366, 1406, 1442, 1449, 1451, 1452, 1644, 3819, 4025} {
		require.True(t, s.refusesRow(&mysql.MySQLError{Number: number, Message: "Table 'shop.audit' doesn't exist"}), "%d", number)
	}
	s.d = sqliteDialect()
	require.False(t, s.refusesRow(errors.New("UNIQUE constraint failed")), "no driver's")
}

func TestErrorThatNamesAnotherTableIsNotAboutTheLog(t *testing.T) {
	log := tableName{"shop", "Process_log"}
	for text, is := range map[string]bool{
		"Error 1146 (42S02): Table 'shop.Process_log' doesn't exist":                               true,
		"Error 1146 (42S02): Table 'shop.process_log' doesn't exist":                               true, // the name in lower case, as under lower_case_table_names
		"Error 1142 (42000): UPDATE command denied to user 'x'@'y' for table `shop`.`Process_log`": true,
		"Error 1146 (42S02): Table 'shop.Process_log_case' doesn't exist":                          true,
		"Error 1146 (42S02): Table 'shop.Process_log_history' doesn't exist":                       false,
		"Error 1146 (42S02): Table 'shop.old_Process_log' doesn't exist":                           false,
		"Error 1146 (42S02): Table 'shop.Process_log$' doesn't exist":                              false,
		"Error 1146 (42S02): Table 'shop.history' doesn't exist":                                   false,
		"main.Process_log_history":                                                                 false,
	} {
		require.Equal(t, is, log.isIn(text), text)
	}
}

func TestItemsThatWaitHoldUpNoOther(t *testing.T) {
	s := &Store{d: mysqlDialect("")}
	for name, waits := range map[string]func(int) bool{
		"none of 500":  func(int) bool { return false },
		"one of 500":   func(i int) bool { return i == 250 },
		"three of 500": func(i int) bool { return i%200 == 7 },
		"every fifth":  func(i int) bool { return i%5 == 0 },
		"the first 50": func(i int) bool { return i < 50 },
	} {
		t.Run(name, func(t *testing.T) {
			items, rounds := numbers(500), 0
			var written []int
			for ; slices.ContainsFunc(items, func(i int) bool { return !waits(i) }); rounds++ {
				require.Less(t, rounds, 1000)
				inVain := 0
				refused, left, err := writeApart(t.Context(), s, items, func(some []int) error {
					require.True(t, slices.IsSorted(some), "so that two calls lock rows in one order")
					if slices.ContainsFunc(some, waits) {
						inVain++
						return &waitError{&mysql.MySQLError{Number: 1205}, 0}
					}
					written = append(written, some...)
					return nil
				})
				require.NoError(t, err)
				require.Empty(t, refused)
				require.LessOrEqual(t, inVain, 1+splitWaits)
				slices.Sort(left)
				items = left
			}
			require.False(t, slices.ContainsFunc(written, waits))
			all := slices.Concat(written, items)
			slices.Sort(all)
			require.Equal(t, numbers(500), all, "each item has one result")
			t.Logf("%d rounds", rounds)
		})
	}
}

func TestNoTimeForAnotherWaitEndsTheCall(t *testing.T) {
	s := &Store{d: mysqlDialect("")}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tries := 0
	refused, left, err := writeApart(ctx, s, numbers(40), func([]int) error {
		tries++
		return &waitError{&mysql.MySQLError{Number: 1205}, time.Minute}
	})
	require.NoError(t, err)
	require.Empty(t, refused)
	require.Equal(t, 1, tries)
	slices.Sort(left)
	require.Equal(t, numbers(40), left)
}
