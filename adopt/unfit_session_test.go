package adopt

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// Another session of the pool can take the row.
// Failure: F33
func TestRefusedSessionRefusesNoRow(t *testing.T) {
	for _, field := range []string{"tx", "unique_checks"} {
		err := fmt.Errorf("adopt: %w", &processlog.SessionError{Refusal: &compensator.FieldError{Field: field, Reason: "is 0"}})
		require.False(t, isRefusal(err))
		require.False(t, isFinal(err))
	}
}
