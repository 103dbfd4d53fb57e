package compensator_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/compensator-go/compensator"
)

func TestVerdictIsKnownThroughWhatWrapsIt(t *testing.T) {
	why := errors.New("no use")
	for want, errs := range map[compensator.Verdict][]error{
		compensator.VerdictSuccess:     {nil},
		compensator.VerdictFailure:     {why, compensator.RetryAfter(time.Second, why)},
		compensator.VerdictPermanent:   {compensator.Permanent(why)},
		compensator.VerdictSnooze:      {compensator.Snooze(time.Second)},
		compensator.VerdictUnavailable: {compensator.Unavailable(why)},
	} {
		for _, err := range errs {
			assert.Equal(t, want, compensator.VerdictOf(err), "%v", err)
			if err != nil {
				assert.Equal(t, want, compensator.VerdictOf(fmt.Errorf("send: %w", err)), "%v", err)
			}
		}
	}
}

func TestMustReturnsOrPanics(t *testing.T) {
	assert.Equal(t, 1, compensator.Must(1, nil))
	why := errors.New("no such thing")
	assert.PanicsWithError(t, why.Error(), func() { compensator.Must(1, why) })
}
