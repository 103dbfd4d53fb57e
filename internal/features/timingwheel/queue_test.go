package timingwheel_test

import (
	"testing"

	"github.com/compensator-go/compensator/compensatortest/suite"
	"github.com/compensator-go/compensator/internal/features/timingwheel"
)

func TestWheelKeepsTheQueuesPromises(t *testing.T) {
	t.Parallel()
	suite.TestQueue(t, func(*testing.T) suite.QueueHarness { return suite.QueueHarness{Queue: timingwheel.New()} })
}
