package jitter_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/compensator-go/compensator/internal/jitter"
)

func draw(t *testing.T) (drawn [20]time.Duration) {
	synctest.Test(t, func(*testing.T) {
		for i := range drawn {
			drawn[i] = jitter.N(time.Hour)
			time.Sleep(time.Nanosecond)
		}
	})
	return drawn
}

func TestSameSeedDrawsTheSameAtTheSameMoments(t *testing.T) {
	defer jitter.Unseed()
	jitter.Seed(7)
	first := draw(t)
	jitter.Seed(7)
	assert.Equal(t, first, draw(t))
	assert.NotEqual(t, first[0], first[1])
	jitter.Seed(8)
	assert.NotEqual(t, first, draw(t))
	jitter.Unseed()
	assert.NotEqual(t, draw(t), draw(t))
	for _, d := range draw(t) {
		assert.True(t, 0 <= d && d < time.Hour)
	}
}
