package intake

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/processlog"
)

func newRecorder(w *harness.World) *Recorder[harness.Order] {
	c := w.New(w.QuickConfig())
	entries, err := compensator.Declare[harness.Order](w.T.Context(), c, "received", nil)
	require.NoError(w.T, err)
	r, err := NewRecorder(c, entries, RecorderConfig[harness.Order]{})
	require.NoError(w.T, err)
	return r
}

func TestMessageThatTheLogAlwaysRefusesIsErrRefused(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	r := newRecorder(w)
	w.Exec("CREATE TRIGGER refuses BEFORE INSERT ON common_process_log FOR EACH ROW " +
		"BEGIN IF NEW.content LIKE '%4711%' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT='not this one'; END IF; END")
	refused := r.Attempts(harness.Order{Number: 4711})
	for range enoughRefusals - 1 {
		require.NotErrorIs(t, refused.Record(t.Context(), compensator.Options{}), ErrRefused)
	}
	err := refused.Record(t.Context(), compensator.Options{})
	require.ErrorIs(t, err, ErrRefused)
	require.ErrorContains(t, err, "not this one")
	require.NoError(t, r.Attempts(harness.Order{Number: 1}).Record(t.Context(), compensator.Options{IdempotencyKey: "a"}))
	require.NoError(t, r.Record(t.Context(), harness.Order{Number: 1}, compensator.Options{IdempotencyKey: "a"}), "it has its entry")
	require.Equal(t, 1, w.Count("common_process_log"))
}

// Failure: F33, F92
func TestMessageIsHeldIfTheLogRefusesOnlyTheSession(t *testing.T) {
	err := fmt.Errorf("record: %w", &processlog.SessionError{Refusal: &compensator.FieldError{Field: "unique_checks", Reason: "is 0"}})
	r := &Recorder[int]{cfg: RecorderConfig[int]{Codec: compensator.JSON}}
	require.False(t, r.cannotHold(1, err))
	require.False(t, r.refusesOnly(t.Context(), &insertError{err}))
}

func TestRecorderNamesInvalidFields(t *testing.T) {
	_, err := NewRecorder[int](nil, nil, RecorderConfig[int]{Timeout: 1})
	for _, field := range []string{"c: is nil", "entries: is nil", "Timeout"} {
		require.ErrorContains(t, err, field)
	}
}
