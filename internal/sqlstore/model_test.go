package sqlstore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"flag"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/compensatortest/memory"
	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/processlog"
)

// The tests in this file send the same commands to two sides: a database, and the in-memory double of a store. Both
// sides have the same clock. Both must return the same values, in the same order, to the millisecond.

func init() {
	// A seed reproduces a failure, so rapid need not write a file into the repository.
	for name, value := range map[string]string{"rapid.nofailfile": "true", "rapid.checks": "40"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
}

func TestMemoryStoreAnswersAsADatabaseDoesOnConnectionsOfItsOwn(t *testing.T) {
	checkStoreTwins(t, compensator.Connector)
}

func TestMemoryStoreAnswersAsADatabaseDoesOnTheUsersConnections(t *testing.T) {
	checkStoreTwins(t, func(inner driver.Connector) driver.Connector { return inner })
}

func checkStoreTwins(t *testing.T, wrap func(driver.Connector) driver.Connector) {
	t.Parallel()
	server := testservers.SharedSQL(t)
	config, err := mysql.ParseDSN(server.Database(t))
	require.NoError(t, err)
	inner, err := mysql.NewConnector(config)
	require.NoError(t, err)
	lockWait := "0"
	if server.Flavor == "mysql" {
		lockWait = "1" // minimum that MySQL accepts
	}
	connector := wrap(clockConnector{inner, lockWait})
	migrated := sql.OpenDB(connector)
	require.NoError(t, compensator.Migrate(t.Context(), migrated))
	require.NoError(t, migrated.Close())

	program := rapid.SliceOfN(storeCommands(), 15, 40)
	rapid.Check(t, func(r *rapid.T) {
		commands := program.Draw(r, "commands")
		var failure string
		// A connection belongs to the bubble that opened it, and a panic of rapid must not leave the bubble.
		synctest.Test(t, func(t *testing.T) { failure = runStoreTwins(t, connector, commands) })
		if failure != "" {
			r.Fatal(failure)
		}
	})
}

func runStoreTwins(t *testing.T, connector driver.Connector, commands []storeCommand) (failure string) {
	db := sql.OpenDB(connector)
	defer db.Close()
	for _, table := range []string{"common_process_log", "common_process_log_audit"} {
		_, err := db.Exec("DELETE FROM " + table)
		require.NoError(t, err)
	}
	store, err := compensator.OpenStore(t.Context(), db, compensator.DefaultTable)
	require.NoError(t, err)
	defer store.Close()
	m := &storeTwins{ctx: t.Context(), database: store, memory: compensatortest.NewMemoryStore()}
	defer m.rollBackAll()
	defer func() {
		if p := recover(); p != nil {
			failure = fmt.Sprintf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	m.run(fences())
	for i, command := range commands {
		if m.failures != nil {
			return fmt.Sprintf("command %d, %#v\n%s", i, commands[i-1], strings.Join(m.failures, "\n"))
		}
		m.run(command)
	}
	return strings.Join(m.failures, "\n")
}

// storeTwins numbers the entries itself, because each side assigns its own ids. The clock stands still during a
// command, with one exception. The clock moves on while a command waits for locked rows, and the command then returns
// an error.
type storeTwins struct {
	ctx      context.Context
	database processlog.Store
	memory   *compensatortest.MemoryStore
	entries  []twinEntry
	slots    [3]*twinTx
	finished *twinTx // the latest transaction that has ended
	failures []string
}

type twinEntry struct {
	ids [2]compensator.EntryID
	key string
	by  *twinTx
}

type twinTx struct {
	sides [2]processlog.Transaction
	marks map[string]int // number of entries at each savepoint
	wrote bool
	ended bool
}

type storeCommand interface{ run(m *storeTwins) }

func (m *storeTwins) Errorf(format string, args ...any) {
	m.failures = append(m.failures, fmt.Sprintf(format, args...))
}

func (m *storeTwins) run(command storeCommand) {
	command.run(m)
	m.same("rows", func(s twinSide) any {
		var ids []compensator.EntryID
		for _, e := range m.entries {
			ids = append(ids, e.ids[s.n])
		}
		rows, err := s.store.Load(m.ctx, ids)
		return []any{s.sortedRows(rows), s.err(err)}
	})
}

func (m *storeTwins) same(problem string, ask func(s twinSide) any) {
	want := ask(m.side(0))
	got := ask(m.side(1))
	assert.Equal(m, want, got, "%s: expected is the database's answer, actual the double's", problem)
}

func (m *storeTwins) side(n int) twinSide {
	if n == 0 {
		return twinSide{m, n, m.database}
	}
	return twinSide{m, n, m.memory}
}

// fences inserts a row between every two keys, so that no insert of a command falls into a gap that InnoDB has locked. The
// memory store has no gap locks.
func fences() storeCommand {
	insert := insertCommand{Commit: true}
	for key := range storeKeys {
		insert.Drafts = append(insert.Drafts, draftOf{Key: string(keyName(key) + "~"), Type: "fence", Delay: 1000 * time.Hour})
	}
	return insert
}

func (m *storeTwins) begin() *twinTx {
	tx := &twinTx{marks: make(map[string]int)}
	m.same("begin", func(s twinSide) any {
		var err error
		tx.sides[s.n], err = s.store.Begin(m.ctx)
		return s.err(err)
	})
	return tx
}

func (m *storeTwins) open(slot int) *twinTx {
	if m.slots[slot] == nil {
		m.slots[slot] = m.begin()
	}
	return m.slots[slot]
}

func (m *storeTwins) end(slot int, commit bool) {
	tx := m.slots[slot]
	if tx == nil {
		return
	}
	m.same("end", func(s twinSide) any {
		if commit {
			return s.err(tx.sides[s.n].Commit())
		}
		return s.err(tx.sides[s.n].Rollback())
	})
	tx.ended = true
	m.slots[slot], m.finished = nil, tx
}

func (m *storeTwins) rollBackAll() {
	for _, tx := range m.slots {
		if tx == nil {
			continue
		}
		for _, side := range tx.sides {
			_ = side.Rollback()
		}
	}
}

// inTx runs a command in a transaction of both sides. If the command waited in vain for a lock, inTx rolls the
// transaction back. The server may keep locks of the failed statement, and the in-memory double does not know these
// locks.
func (m *storeTwins) inTx(slot int, problem string, ask func(s twinSide, tx compensator.Tx) (any, error)) {
	tx := m.open(slot)
	waited := false
	m.same(problem, func(s twinSide) any {
		answer, err := ask(s, tx.sides[s.n])
		waited = waited || s.err(err) == "lock wait"
		return []any{answer, s.err(err)}
	})
	if waited {
		m.end(slot, false)
	}
}

const unknownEntry = 1 << 40

func (m *storeTwins) entry(pick int) int {
	if pick == 0 || len(m.entries) == storeKeys {
		return unknownEntry
	}
	// The first storeKeys entries come from the function fences, and no command uses them.
	return len(m.entries) - 1 - (pick-1)%(len(m.entries)-storeKeys)
}

// committedOrGone returns the numbers of the picked entries, and leaves out entries of open transactions. No process
// can know the ids of such entries, and the database would make the command wait for the transaction.
func (m *storeTwins) committedOrGone(picks []int) []int {
	var numbers []int
	for _, pick := range picks {
		n := m.entry(pick)
		if n != unknownEntry && !m.entries[n].by.ended || slices.Contains(numbers, n) {
			continue
		}
		numbers = append(numbers, n)
	}
	return numbers
}

func (m *storeTwins) stored(n int) (row processlog.Row, found bool) {
	if n == unknownEntry {
		return row, false
	}
	rows, err := m.memory.Load(m.ctx, []compensator.EntryID{m.entries[n].ids[1]})
	if err != nil || len(rows) == 0 {
		return row, false
	}
	return rows[0], true
}

type twinSide struct {
	m     *storeTwins
	n     int
	store processlog.Store
}

func (s twinSide) id(n int) compensator.EntryID {
	if n == unknownEntry {
		return processlog.RowID(unknownEntry)
	}
	return s.m.entries[n].ids[s.n]
}

func (s twinSide) ids(numbers []int) []compensator.EntryID {
	var ids []compensator.EntryID
	for _, n := range numbers {
		ids = append(ids, s.id(n))
	}
	return ids
}

// numberOf returns the number of the entry with the given id. The id of an unknown entry is the number itself.
func (s twinSide) numberOf(id compensator.EntryID) int {
	for n, e := range s.m.entries {
		if e.ids[s.n] == id {
			return n
		}
	}
	return int(id.Row())
}

func (s twinSide) ourIDs(ids []compensator.EntryID) []int {
	numbers := []int{}
	for _, id := range ids {
		numbers = append(numbers, s.numberOf(id))
	}
	return numbers
}

func (s twinSide) row(row processlog.Row) processlog.Row {
	if !row.ID.IsZero() {
		row.ID = processlog.RowID(uint64(s.numberOf(row.ID)))
	}
	return row
}

func (s twinSide) rows(rows []processlog.Row) []processlog.Row {
	translated := []processlog.Row{}
	for _, row := range rows {
		translated = append(translated, s.row(row))
	}
	return translated
}

func (s twinSide) sortedRows(rows []processlog.Row) []processlog.Row {
	translated := s.rows(rows)
	slices.SortFunc(translated, func(a, b processlog.Row) int { return int(a.ID.Row()) - int(b.ID.Row()) })
	return translated
}

func (s twinSide) scheduled(list []processlog.Scheduled) []string {
	lines := []string{}
	for _, d := range list {
		lines = append(lines, fmt.Sprintf("%d in %v at %d", s.numberOf(d.ID), d.In, d.NextAt))
	}
	return lines
}

func (s twinSide) err(err error) string {
	var state *compensator.StateError
	var server *mysql.MySQLError
	switch {
	case err == nil:
		return ""
	case errors.Is(err, compensator.ErrTxAborted):
		return "aborted"
	case errors.Is(err, compensator.ErrNoTransaction):
		return "no transaction"
	case errors.Is(err, sql.ErrTxDone):
		return "done"
	case errors.Is(err, compensator.ErrNotFound):
		return "not found"
	case errors.Is(err, compensator.ErrLeaseLost):
		return "lease lost"
	case errors.Is(err, compensator.ErrBusy):
		return "busy"
	case errors.As(err, &state):
		return fmt.Sprintf("%s %d: it is %s", state.Action, s.numberOf(state.ID), state.State)
	case errors.As(err, new(*compensator.FieldError)):
		return "refused"
	case errors.As(err, &server) && server.Number == 1205, errors.Is(err, memory.ErrLockWait):
		return "lock wait"
	case errors.As(err, &server) && server.Number == 1305, strings.Contains(err.Error(), "no savepoint"):
		return "no savepoint"
	}
	return err.Error()
}
