package observe

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

func TestFailuresAreLoggedAndSuccessesAreNot(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	o := LogFailures(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})))
	event := AttemptEvent{Context: context.Background(), ID: processlog.RowID(7), IdempotencyKey: "pay-42", BusinessType: "pay", BusinessID: "o-42", Attempt: 2, Duration: time.Second}
	o.AttemptEnded(event)
	for _, state := range processlog.States {
		if state != processlog.Compensating && state != processlog.Compensated {
			o.Settled(SettledEvent{Context: context.Background(), State: state})
		}
	}
	require.Empty(t, out.String())
	event.Err = errors.New("busy")
	o.AttemptEnded(event)
	o.Settled(SettledEvent{Context: context.Background(), ID: processlog.RowID(7), IdempotencyKey: "pay-42", BusinessType: "pay", BusinessID: "o-42", Attempt: 2, State: processlog.Compensating})
	require.Equal(t, `level=INFO msg="compensator: an attempt did not succeed" entry=7 type=pay idempotent_id=pay-42 business_id=o-42 attempt=2 compensation=false took=1s err=busy
level=INFO msg="compensator: an entry is compensating" entry=7 type=pay idempotent_id=pay-42 business_id=o-42 attempt=2
`, out.String())
	require.NotPanics(t, func() { LogFailures(nil).AttemptEnded(AttemptEvent{Context: context.Background()}) })
}
