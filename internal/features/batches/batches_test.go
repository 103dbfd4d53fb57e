package batches

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/processlog"
)

// A batch that timed out may have done its work.
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

func TestBatchOfOneEntryTakesOneVerdict(t *testing.T) {
	no := errors.New("no")
	require.NoError(t, singleVerdict(nil))
	require.Equal(t, no, singleVerdict([]error{no}))
	require.ErrorContains(t, singleVerdict([]error{no, no}), "2 errors for 1 entry")
}
