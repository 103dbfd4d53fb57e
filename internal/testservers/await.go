package testservers

import (
	"strings"
	"time"
)

// startLimit is generous: a loaded machine must not turn into a failed test.
const startLimit = 5 * time.Minute

// await asks every few milliseconds until done says yes, and reports whether it did before the limit.
func await(limit time.Duration, done func() bool) bool {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	ticker := time.NewTicker(3 * time.Millisecond)
	defer ticker.Stop()
	for !done() {
		select {
		case <-deadline.C:
			return done()
		case <-ticker.C:
		}
	}
	return true
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
