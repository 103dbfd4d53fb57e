package jitter_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/compensator-go/compensator/internal/jitter"
)

func draw() (drawn [20]time.Duration) {
	for i := range drawn {
		drawn[i] = jitter.N(time.Hour)
	}
	return drawn
}

func TestSameSeedDrawsTheSame(t *testing.T) {
	defer jitter.Unseed()
	jitter.Seed(7)
	first := draw()
	jitter.Seed(7)
	assert.Equal(t, first, draw())
	jitter.Seed(8)
	assert.NotEqual(t, first, draw())
	jitter.Unseed()
	assert.NotEqual(t, draw(), draw())
	for _, d := range draw() {
		assert.True(t, 0 <= d && d < time.Hour)
	}
}
