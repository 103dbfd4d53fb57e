package testservers

import (
	"strings"
	"time"
)

// startLimit is long, so that a loaded machine does not fail a test.
const startLimit = 5 * time.Minute

// When limit has passed, waitUntil calls isDone once more and returns the result.
func waitUntil(limit time.Duration, isDone func() bool) bool {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	ticker := time.NewTicker(3 * time.Millisecond)
	defer ticker.Stop()
	for !isDone() {
		select {
		case <-deadline.C:
			return isDone()
		case <-ticker.C:
		}
	}
	return true
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
