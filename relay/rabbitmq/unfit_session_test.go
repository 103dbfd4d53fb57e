package rabbitmq

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// The log may refuse a message only because of the session of the pool. Another session takes the message, so the
// message must be held and not be refused.
// Failure: F33, F92
func TestMessageIsHeldIfTheLogRefusesOnlyTheSession(t *testing.T) {
	err := fmt.Errorf("record: %w", &processlog.SessionError{Refusal: &compensator.FieldError{Field: "unique_checks", Reason: "is 0"}})
	k := new(Consumer)
	require.False(t, k.refusedByTheLog(new(Delivery), err))
	require.False(t, k.refusesOnly(t.Context(), &insertError{err}))
}
