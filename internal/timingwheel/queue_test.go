package timingwheel_test

import (
	"testing"

	"github.com/compensator-go/compensator/compensatortest/suite"
	"github.com/compensator-go/compensator/internal/timingwheel"
	"github.com/compensator-go/compensator/processlog"
)

func TestWheelKeepsTheQueuesPromises(t *testing.T) {
	t.Parallel()
	suite.TestQueue(t, func(*testing.T) processlog.Queue { return timingwheel.New() })
}
