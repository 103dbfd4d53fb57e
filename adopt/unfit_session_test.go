package adopt

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// TestRefusedSessionRefusesNoRow checks an error by which the log refuses only one session of the pool, and not the
// row. The row must not count as refused, and Run must go on, because another session takes the row.
// Failure: F33
func TestRefusedSessionRefusesNoRow(t *testing.T) {
	for _, field := range []string{"tx", "unique_checks"} {
		err := fmt.Errorf("adopt: %w", &processlog.SessionError{Refusal: &compensator.FieldError{Field: field, Reason: "is 0"}})
		require.False(t, isRefusal(err))
		require.False(t, isFinal(err))
	}
}
