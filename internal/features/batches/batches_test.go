package batches

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/processlog"
)

// A batch that timed out may have done its work. If one of its entries then fails alone, the entry's outcome must say
// so. A success need not say so.
// Failure: F74
func TestEntryThatFailsAloneAfterALateBatchSaysSo(t *testing.T) {
	timedOut := &engine.Attempt{Type: &engine.Type{Timeout: 30 * time.Second}, Row: processlog.Row{ID: processlog.RowID(1), ProcessCount: 2, DeliveryCount: 1}}
	failed := processlog.Outcome{To: processlog.Retrying, LastError: "downstream said no"}
	markTimedOut(timedOut, &failed)
	require.True(t, failed.TimedOut && failed.Faults.OutcomeUnknown)
	require.Equal(t, "compensator: handler timed out after 30s in its batch; then, alone: downstream said no", failed.LastError)

	success := processlog.Outcome{To: processlog.Succeeded, EndedBy: processlog.EndedByHandler}
	markTimedOut(timedOut, &success)
	require.False(t, success.TimedOut || success.Faults != nil)
}

// A crash costs each entry of the call a lease. An entry must run alone before it can lose its last lease. Otherwise an
// entry is dead-lettered because another entry of its call crashes the process.
func TestEntryRunsAloneBeforeItsLastLease(t *testing.T) {
	c := &batchCalls{lingerState: lingerState{batchSize: 8}}
	shared := 0 // calls that an entry shares although each of them crashes
	for c.SharingClass(processlog.Pending, shared) != engine.NotShared {
		shared++
	}
	require.LessOrEqual(t, shared, engine.MaxSharedLosses)
	require.Equal(t, engine.NotShared, c.SharingClass(processlog.Retrying, engine.MaxSharedLosses))
	require.Equal(t, engine.NotShared, c.SharingClass(processlog.Compensating, 0))
}

func TestBatchOfOneEntryTakesOneVerdict(t *testing.T) {
	no := errors.New("no")
	require.NoError(t, singleVerdict(nil))
	require.Equal(t, no, singleVerdict([]error{no}))
	require.ErrorContains(t, singleVerdict([]error{no, no}), "2 errors for 1 entry")
}
