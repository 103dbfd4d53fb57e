package admin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// UncheckedError says that Change did nothing, because a person must check these entries first.
type UncheckedError struct {
	Unknown  []compensator.EntryID // entries with an attempt that may have had an effect. When a person has checked the effects, set Change.Checked
	Finished []compensator.EntryID // entries whose work is finished. To run them again, set Change.Again
}

const maxNamedUnchecked = 10

// Error counts the entries and names the first ten of each kind.
func (e *UncheckedError) Error() string {
	var parts []string
	if n := len(e.Unknown); n > 0 {
		parts = append(parts, fmt.Sprintf("the outcome of %s is unknown (%s), and Checked is not set", processlog.EntryCount(n), NameEntries(e.Unknown)))
	}
	if n := len(e.Finished); n > 0 {
		parts = append(parts, fmt.Sprintf("%s ended already (%s), and Again is not set", processlog.EntryCount(n), NameEntries(e.Finished)))
	}
	return "admin: nothing was done: " + strings.Join(parts, "; ")
}

// NameEntries lists the first ten ids and counts the others: "7, 9, 12 and 46 more".
func NameEntries(ids []compensator.EntryID) string {
	names := make([]string, min(len(ids), maxNamedUnchecked))
	for i := range names {
		names[i] = ids[i].String()
	}
	text := strings.Join(names, ", ")
	if unnamed := len(ids) - len(names); unnamed > 0 {
		text += fmt.Sprintf(" and %d more", unnamed)
	}
	return text
}

// Unchecked returns the *UncheckedError with which Change would refuse these entries, or nil. It reads neither the log
// nor Access. It ignores entries that the log's rules refuse anyway.
func (ch Change) Unchecked(lines []Line) *UncheckedError {
	var e UncheckedError
	for _, line := range lines {
		if !changesContent(ch.Action, line.Entry) {
			continue
		}
		if !ch.Checked && line.OutcomeUnknown && ch.Action != Reschedule {
			e.Unknown = append(e.Unknown, line.Entry.ID)
		}
		if !ch.Again && repeatsWork(ch.Action, line.Entry.State) {
			e.Finished = append(e.Finished, line.Entry.ID)
		}
	}
	if len(e.Unknown)+len(e.Finished) == 0 {
		return nil
	}
	return &e
}

func changesContent(action Right, e compensator.Entry) bool {
	row := processlog.Row{State: e.State, Version: e.Version, CompensateCount: e.CompensateCount, Erased: e.Erased}
	rowAfter, err := processlog.Change{Action: actions[action], Compensate: action == Compensate, Actor: "anybody"}.After(row)
	return err == nil && rowAfter.Version != row.Version
}

// repeatsWork returns false for a dead entry.
func repeatsWork(action Right, state compensator.State) bool {
	return (action == Requeue || action == Compensate) && state.Terminal() && state != compensator.Dead
}

// outcomesUnknown sends a query only for entries whose state, case and last error do not give the answer.
func (d *Admin) outcomesUnknown(ctx context.Context, entries []compensator.Entry, cases []Case) (map[compensator.EntryID]bool, error) {
	unknownOutcomes := make(map[compensator.EntryID]bool)
	candidates := make(map[compensator.EntryID]processlog.Row)
	for _, e := range entries {
		isUnknown, known := outcomeUnknown(e, cases)
		unknownOutcomes[e.ID] = isUnknown
		if !known {
			candidates[e.ID] = processlog.Row{State: e.State, Epoch: e.Epoch}
		}
	}
	if len(candidates) == 0 {
		return unknownOutcomes, nil
	}
	ids := slices.SortedFunc(maps.Keys(candidates), compensator.EntryID.Compare)
	faults, err := runQuery(ctx, d, func(ctx context.Context) (map[compensator.EntryID]processlog.Faults, error) {
		return d.log.Operations().FaultsOf(ctx, ids)
	})
	for id, f := range faults {
		row := candidates[id]
		unknownOutcomes[id] = f.In(&row).OutcomeUnknown
	}
	return unknownOutcomes, err
}

// outcomeUnknown reports whether the outcome of an entry is unknown. It looks at the state, the cases and the last
// error of the entry. If these do not give the answer, the result known is false, and the entry's Faults give the
// answer.
func outcomeUnknown(e compensator.Entry, cases []Case) (unknown, known bool) {
	switch e.State {
	case compensator.Succeeded, compensator.Compensated, compensator.SettledManually:
		return false, true
	case compensator.Dead, compensator.Cancelled:
		for _, c := range cases {
			if c.EntryID == e.ID && c.Epoch == e.Epoch { // Look at closed cases too. A cancelled entry has a closed case, and its outcome is still unknown.
				return c.Kind == CaseUnknown, true
			}
		}
	default:
		if e.DeliveryCount > 0 { // An attempt is running, or its process ended during the attempt.
			return true, true
		}
	}
	if e.EndedBy == compensator.EndedByCrash {
		return true, true
	}
	return false, e.LastError == ""
}
