package features

import (
	"github.com/compensator-go/compensator/internal/features/timingwheel"
	"github.com/compensator-go/compensator/processlog"
)

func init() {
	localQueue = func() processlog.Queue { return timingwheel.New() }
}
