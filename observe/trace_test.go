package observe_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/compensator-go/compensator/observe"
)

func TestTraceIsKeptOnlyWhereFailedAttemptsAre(t *testing.T) {
	t.Parallel()
	asked := 0
	id := func() string { asked++; return "4bf92f3577b34da6a3ce929d0e0e4736" }
	observe.SetTrace(t.Context(), id)
	assert.Zero(t, asked, "without Operations.Attempts the id is not computed")
	assert.Empty(t, observe.TraceOf(t.Context()))
	ctx := observe.WithTrace(t.Context())
	assert.Empty(t, observe.TraceOf(ctx))
	observe.SetTrace(ctx, id)
	assert.Equal(t, id(), observe.TraceOf(ctx))
}
