package sleep

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// A select with two ready cases takes either of them at random. So the test calls For many times.
func TestRestIsCutShortIfItsContextHasEnded(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	synctest.Test(t, func(t *testing.T) {
		for range 64 {
			require.False(t, For(ended, 0))
		}
	})
}
