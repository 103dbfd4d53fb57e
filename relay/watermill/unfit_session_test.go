package relay

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/harness"
)

// Failure: F33, F92
func TestMessageIsRecordedInAnotherSessionOfThePool(t *testing.T) {
	t.Parallel()
	for pool, open := range harness.Pools {
		for name, spoil := range harness.UnfitSessions(t) {
			t.Run(name+", "+pool, func(t *testing.T) {
				t.Parallel()
				w := harness.NewWorld(t)
				cfg := w.QuickConfig()
				cfg.DB = w.Open(open(w.DSN))
				k := consumer(t, w.New(cfg), func(*message.Message) error { return errTest }, ConsumerConfig{Topic: "orders",
					Refused: func(_ context.Context, _ *message.Message, reason error) error {
						assert.NoError(t, reason, "refused")
						return nil
					}})
				w.Spoil(cfg.DB, spoil)
				for _, uuid := range []string{"grün", "blau", "rot"} {
					require.NoError(t, k.Handle(message.NewMessage(uuid, nil)))
				}
				require.Equal(t, 3, w.Count("common_process_log WHERE last_error=''"))
			})
		}
	}
}
