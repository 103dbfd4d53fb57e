// Package invalidrows reports rows that cannot run: rows that are never due, that are leased without an owner, or whose
// state does not exist. Other programs may record entries by plain SQL.
package invalidrows

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/grouped"
	"github.com/compensator-go/compensator/internal/jitter"
	"github.com/compensator-go/compensator/internal/sleep"
	"github.com/compensator-go/compensator/processlog"
)

const (
	problemRows   = "entries do not run as they stand: something else than this library has written them so"
	problemSearch = "rows that cannot run could not be looked for"
)

const (
	interval = 10 * time.Minute
	timeout  = time.Minute // time limit of a search; some servers read many rows during a search

	maxRows   = 100
	rowsNamed = 3
)

// Watch searches the log for invalid rows until ctx ends: at once, and then every ten minutes. Watch returns at once if
// the store cannot search.
func Watch(ctx context.Context, e *engine.Engine) {
	finder, ok := e.Store.(processlog.InvalidRowFinder)
	if !ok {
		return
	}
	for sleep.For(ctx, search(ctx, e, finder)) {
	}
}

func search(ctx context.Context, e *engine.Engine, finder processlog.InvalidRowFinder) (pause time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	pause = interval + jitter.N(interval/5)
	found, err := finder.InvalidRows(ctx, maxRows)
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return 0
	// The search failed before its time limit, so repeat it soon. A search that used up its time limit costs the server
	// a lot, so the long pause stays.
	case err != nil && ctx.Err() == nil:
		pause = e.ReconcileInterval
	}
	e.NoteResult(problemSearch, err)
	if err == nil {
		e.NoteResult(problemRows, describe(found))
	}
	return pause
}

func describe(found []processlog.InvalidRow) error {
	if len(found) == 0 {
		return nil
	}
	var lines []string
	for why, rows := range grouped.Each(found, func(row processlog.InvalidRow) string { return row.Why }) {
		var names []string
		for _, row := range rows[:min(rowsNamed, len(rows))] {
			names = append(names, fmt.Sprintf("entry %s of type %q", row.ID, row.BusinessType))
		}
		if more := len(rows) - len(names); more > 0 {
			names = append(names, fmt.Sprintf("%d more", more))
		}
		lines = append(lines, strings.Join(names, ", ")+": "+why)
	}
	return errors.New(strings.Join(lines, "; "))
}
