package processlog

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

// A failed comparison prints both values with %#v.
func TestStatesAndKindsAreNamedWhereGoIsWritten(t *testing.T) {
	named := map[any]string{
		Pending: "compensator.Pending", Retrying: "compensator.Retrying", Dead: "compensator.Dead", Compensating: "compensator.Compensating",
		Succeeded: "compensator.Succeeded", Compensated: "compensator.Compensated", Cancelled: "compensator.Cancelled",
		SettledManually: "compensator.SettledManually", State(9): "compensator.State(9)",
		CaseDead: "admin.CaseDead", CaseUnknown: "admin.CaseUnknown", CaseKind(9): "admin.CaseKind(9)",
	}
	for value, want := range named {
		assert.Equal(t, want, fmt.Sprintf("%#v", value))
	}
	for _, state := range States {
		assert.Contains(t, named, any(state))
	}
	assert.Contains(t, fmt.Sprintf("%#v", Row{State: Dead}), "State:compensator.Dead,")
}
