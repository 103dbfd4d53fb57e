package sim

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// A trigger refuses one row of a Settle, and a transaction has locked another row. The instance offers both outcomes
// again, in separate calls that run at the same time.
func TestOracleKnowsOutcomesThatAreOfferedAgainApart(t *testing.T) {
	locked, refused := processlog.RowID(1), processlog.RowID(2)
	outcome := func(id compensator.EntryID, version uint64) processlog.Outcome {
		return processlog.Outcome{ID: id, Version: version, To: compensator.Retrying}
	}
	for name, c := range map[string]struct {
		again   processlog.Outcome
		other   bool
		verdict string
	}{
		"the same outcome":                     {again: outcome(refused, 1)},
		"an outcome of another version":        {again: outcome(refused, 2), verdict: "G4: the outcome of entry 2 was retrying for version 1, but is offered again as retrying for version 2"},
		"the same outcome, of another process": {again: outcome(refused, 1), other: true, verdict: "G4: a write of instance 2 carries the token of outcomes from instance 1"},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{}
			w.oracle = newOracle(w)
			token, from := processlog.NewToken(), &instance{w: w, number: 1}
			w.oracle.noteOperation(token, &operation{kind: opSettle, from: from, outcomes: []processlog.Outcome{outcome(locked, 1), outcome(refused, 1)}})
			if c.other {
				from = &instance{w: w, number: 2}
			}

			w.oracle.noteOperation(token, &operation{kind: opSettle, from: from, outcomes: []processlog.Outcome{c.again}})

			assert.Equal(t, c.verdict, w.oracle.verdict)
			if c.verdict == "" {
				out, named := w.oracle.ops[token].outcome(locked)
				assert.True(t, named)
				assert.Equal(t, outcome(locked, 1), out)
			}
		})
	}
}

// An instance claims an entry a second time, and starts no attempt for the second claim. The oracle must report this as
// a fault, with one exception: the attempt of the first claim still waits for the BEGIN of its transaction.
func TestOracleKnowsAttemptsWhoseTransactionHasNotBegun(t *testing.T) {
	for name, c := range map[string]struct {
		kind      string
		unstarted bool // the first claim started no attempt
		answered  bool
		epoch     uint32
		forgotten bool
	}{
		"its transaction has not begun":         {kind: txType},
		"no attempt was started":                {kind: txType, unstarted: true, forgotten: true},
		"its outcome was answered":              {kind: txType, answered: true, forgotten: true},
		"it was of an earlier epoch":            {kind: txType, epoch: 1, forgotten: true},
		"its handler needs no transaction here": {kind: plainType, forgotten: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(*testing.T) {
				w := &world{}
				w.oracle = newOracle(w)
				n := &instance{w: w, number: 1, claims: make(map[compensator.EntryID]claimed)}
				id := processlog.RowID(1)
				l := &rowHistory{id: id, kind: c.kind, steps: []transition{{op: &operation{kind: opInsert, from: n}}}}
				w.oracle.histories[id] = l
				claim := func(row processlog.Row) *transition {
					l.steps = append(l.steps, transition{op: &operation{kind: opClaim, from: n}, row: row, at: time.Now()})
					n.claims[id] = claimed{row: row}
					return l.last()
				}
				claim(processlog.Row{ID: id, Version: 1, DeliveryCount: 1})
				if !c.unstarted {
					w.oracle.noteStartLocked(n, observe.AttemptEvent{ID: id})
				}
				if c.answered {
					w.oracle.checkAnswers(n, []processlog.Outcome{{ID: id, Version: 1}}, []processlog.Settled{{State: compensator.Pending}})
				}
				counts := l.unsettled(n, c.epoch)

				claim(processlog.Row{ID: id, Version: 2, DeliveryCount: 2, Epoch: c.epoch}).counts = counts

				assert.Equal(t, c.forgotten, w.oracle.hasUnstartedLocked(n, l))
			})
		})
	}
}
