package relay

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
)

type endless struct{}

func (e *endless) Error() string { return "endless" }
func (e *endless) Unwrap() error { return e }

// For a chain of errors that does not end, errors.Is would never return.
func TestErrorWithoutAnEndIsAFailureAsAnyOther(t *testing.T) {
	k := &Consumer{work: func(*message.Message) ([]*message.Message, error) { return nil, new(endless) }}
	err := k.call(message.NewMessage("1", nil))
	require.EqualError(t, err, "endless")
	ended, end := context.WithCancel(t.Context())
	end()
	require.False(t, isInterrupted(ended, err))
	require.Equal(t, "endless", setAsideFor(new(endless)))

	k.cfg.Refused = func(context.Context, *message.Message, error) error { return new(endless) }
	k.cfg.RecordTimeout = 1
	err = k.handleRefused(t.Context(), &arrival{Delivery: newDelivery("orders", message.NewMessage("1", nil))}, context.Canceled)
	require.NotErrorIs(t, err, ErrRefused)

	p, err := NewPublisher(&topics{publish: func(string, *message.Message) error { return new(endless) }}, Config{})
	require.NoError(t, err)
	for n := range 2 {
		for _, outcome := range p.send(t.Context(), "orders", []*message.Message{message.NewMessage("1", nil), message.NewMessage("2", nil)}[n:]) {
			require.ErrorContains(t, outcome, "endless")
			require.NotErrorIs(t, outcome, ErrNoAnswer)
		}
	}
	p.cfg.Judge = func(error) error { return new(endless) }
	require.NotErrorIs(t, p.outcome(context.Canceled), context.Canceled)
	_, _, err = addressed(t.Context(), func(*compensator.Entry) (Destination, error) { return Destination{}, new(endless) }, new(compensator.Entry))
	require.NotErrorIs(t, err, context.Canceled)
}
