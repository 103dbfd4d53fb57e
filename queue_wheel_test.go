package compensator_test

import (
	"testing"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
)

func TestWheelKeepsTheQueuesPromises(t *testing.T) {
	t.Parallel()
	compensatortest.TestQueue(t, func(*testing.T) compensator.Queue { return compensator.OpenWheel() })
}
