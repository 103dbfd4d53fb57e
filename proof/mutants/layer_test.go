package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestLongestRunStandsForAllOfItsLayer(t *testing.T) {
	assert.Equal(t, "6000", simulation.union([]string{"300", "1000", "2000", "6000", "300"}))
	assert.Equal(t, "2m", chaos.union([]string{"100s", "2m", "90s"}))
	assert.Equal(t, "TestA|TestB/x", unit.union([]string{"TestB/x|TestA", "TestA"}))
}
