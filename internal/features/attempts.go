package features

import (
	"fmt"
	"os"

	"github.com/compensator-go/compensator/internal/features/attempts"
)

func init() {
	features = append(features, func(s *Set) {
		if s.cfg.ScrubAttempt == nil {
			return // no attempts are kept
		}
		host, _ := os.Hostname() // Ignore the error: without a host, the process id is still a hint.
		attempts.Attach(s.Engine, fmt.Sprintf("%s:%d", host, os.Getpid()), s.cfg.ScrubAttempt)
	})
}
