//go:build failpoints

package crashmatrix

import (
	"log/slog"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/adopt"
)

const perPage = 4

// The import skips every seventh row, as if the old system still handled these rows.
func openImport(p *process) (*adopt.Import, error) {
	return adopt.Open(p.Compensator, adopt.Config{
		Name: "old", Table: "old_rows", Key: "id", Columns: []string{"id % 7"}, Where: "state = 0", Take: "state = 9",
		Page: perPage, Rest: time.Millisecond, Every: 20 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		Map: func(row *adopt.Row) (compensator.NewEntry, error) {
			var rest int
			if err := row.Scan(&rest); err != nil {
				return compensator.NewEntry{}, err
			}
			if rest == 0 {
				return compensator.NewEntry{}, adopt.Skip("a seventh")
			}
			return compensator.NewEntry{BusinessType: ship, Content: []byte("{}")}, nil
		},
	})
}

func (w *world) addOldRows() {
	w.t.Helper()
	for range 5 * perPage {
		w.exec("INSERT INTO old_rows () VALUES ()")
	}
}

func (w *world) awaitImport() {
	w.t.Helper()
	w.eventually(func() bool { return w.count("old_rows WHERE state=0 AND id%7<>0") == 0 }, func() string { return "some old rows are not imported" })
}

func (w *world) checkRows() {
	w.t.Helper()
	const pairs = " JOIN common_process_log ON idempotent_id = CONCAT('old:', old_rows.id)"
	w.requireNone("imported rows without an entry", "old_rows LEFT"+pairs+" WHERE old_rows.state=9 AND common_process_log.id IS NULL")
	w.requireNone("entries of rows that are not imported", "old_rows"+pairs+" WHERE old_rows.state=0")
	w.requireNone("imported rows that belong to the old system", "old_rows WHERE id%7=0 AND state<>0")
	rows := w.count("old_rows WHERE state=9")
	assert.Equal(w.t, rows, w.count("common_process_log WHERE business_type=? AND state=1", ship), "entries")
	assert.NotZero(w.t, rows)
	w.t.Logf("%d rows", rows)
}
