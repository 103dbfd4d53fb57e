package compensator_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/compensator-go/compensator"
)

func TestPermanentIsKnownThroughWhatWrapsIt(t *testing.T) {
	why := errors.New("no use")
	assert.True(t, compensator.IsPermanent(compensator.Permanent(why)))
	assert.True(t, compensator.IsPermanent(fmt.Errorf("send: %w", compensator.Permanent(why))))
	for _, other := range []error{nil, why, compensator.Unavailable(why), compensator.RetryAfter(time.Second, why), compensator.Snooze(time.Second)} {
		assert.False(t, compensator.IsPermanent(other), "%v", other)
	}
}
