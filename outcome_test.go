package compensator_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/observe"
)

func TestVerdictIsKnownThroughWhatWrapsIt(t *testing.T) {
	why := errors.New("no use")
	for want, errs := range map[observe.Verdict][]error{
		observe.Success:     {nil},
		observe.Failure:     {why, compensator.RetryAfter(time.Second, why)},
		observe.Permanent:   {compensator.Permanent(why)},
		observe.Snooze:      {compensator.Snooze(time.Second)},
		observe.Unavailable: {compensator.Unavailable(why)},
	} {
		for _, err := range errs {
			assert.Equal(t, want, compensator.VerdictOf(err), "%v", err)
			if err != nil {
				assert.Equal(t, want, compensator.VerdictOf(fmt.Errorf("send: %w", err)), "%v", err)
			}
		}
	}
}

func TestMustReturnsOrPanics(t *testing.T) {
	assert.Equal(t, 1, compensator.Must(1, nil))
	why := errors.New("no such thing")
	assert.PanicsWithError(t, why.Error(), func() { compensator.Must(1, why) })
}

// Failure: F54
func TestExponentialStaysWithinItsLimitHoweverManyFailures(t *testing.T) {
	for _, c := range []struct{ base, limit time.Duration }{
		{time.Second, 10 * time.Minute},
		{time.Nanosecond, math.MaxInt64 - 1},
		{time.Hour, time.Second},
		{math.MaxInt64 / 2, math.MaxInt64 - 1},
		{time.Second, math.MaxInt64},
	} {
		schedule := compensator.Exponential(c.base, c.limit)
		for _, failures := range []int{math.MinInt, -1, 0, 1, 2, 30, 62, 63, 64, 70, 1 << 20} {
			wait := schedule(failures)
			require.GreaterOrEqual(t, wait, time.Duration(0), "%v after %d failures", c, failures)
			require.LessOrEqual(t, wait, c.limit, "%v after %d failures", c, failures)
		}
	}
}

func TestExponentialGrowsUntilItsLimit(t *testing.T) {
	schedule := compensator.Exponential(time.Second, time.Minute)
	for failures, most := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second, 6: 32 * time.Second, 7: time.Minute, 70: time.Minute} {
		var longest time.Duration
		for range 2000 {
			wait := schedule(failures)
			require.LessOrEqual(t, wait, most, "after %d failures", failures)
			longest = max(longest, wait)
		}
		require.Greater(t, longest, most*3/4, "after %d failures the whole range is used", failures)
	}
}

func TestExponentialOfNothingWaitsNothing(t *testing.T) {
	require.Zero(t, compensator.Exponential(0, time.Minute)(5))
	require.Zero(t, compensator.Exponential(-time.Second, time.Minute)(5))
	require.Zero(t, compensator.Exponential(time.Second, 0)(5))
	require.Zero(t, compensator.Exponential(time.Second, -time.Minute)(5))
}

func TestStepsKeepTheirLastDelay(t *testing.T) {
	schedule := compensator.Steps(time.Second, time.Minute, time.Hour)
	for failures, want := range map[int]time.Duration{
		-1: time.Second, 0: time.Second, 1: time.Second, 2: time.Minute, 3: time.Hour, 4: time.Hour, 70: time.Hour, math.MaxInt: time.Hour,
	} {
		require.Equal(t, want, schedule(failures), "after %d failures", failures)
	}
	require.Zero(t, compensator.Steps()(1))
}

func TestFixedWaitsTheSameAlways(t *testing.T) {
	for _, failures := range []int{-1, 0, 1, 70, math.MaxInt} {
		require.Equal(t, 7*time.Second, compensator.Fixed(7*time.Second)(failures))
	}
}

func TestRocketMQLevelsAreItsEighteen(t *testing.T) {
	schedule, err := compensator.ParseDelayLevels(compensator.RocketMQLevels)
	require.NoError(t, err)
	minutes := []time.Duration{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120}
	want := []time.Duration{time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second}
	for _, m := range minutes {
		want = append(want, m*time.Minute)
	}
	require.Len(t, want, 18)
	for i, delay := range want {
		require.Equal(t, delay, schedule(i+1), "level %d", i+1)
	}
	require.Equal(t, 2*time.Hour, schedule(19), "the last level stays")
}

var badDelayLevels = map[string]string{
	"":                       "none given",
	" \t ":                   "none given",
	"s":                      "no number",
	"5":                      "no unit",
	"1s 5":                   "no unit at the end",
	"0s":                     "no delay",
	"-1s":                    "a negative delay",
	"+1s":                    "a sign",
	"1.5s":                   "a fraction",
	"1ms":                    "an unknown unit",
	"1S":                     "a unit in the wrong case",
	"1 s":                    "a number apart from its unit",
	"1s,5s":                  "commas",
	"1s５":                    "a digit of another script",
	"36501d":                 "more than 100 years",
	"876001h":                "more than 100 years",
	"4294967296s":            "more than 32 bits",
	"99999999999999999999d":  "more than 64 bits",
	"18446744073709551616s":  "2^64",
	"9223372036854775807d":   "a product that overflows",
	strings.Repeat("9", 400): "a very long number",
}

// Failure: F54
func TestBadDelayLevelsAreRefused(t *testing.T) {
	for levels, why := range badDelayLevels {
		_, err := compensator.ParseDelayLevels(levels)
		var refused *compensator.FieldError
		require.ErrorAs(t, err, &refused, "%q has %s", levels, why)
		require.Equal(t, "delay levels", refused.Field)
	}
	schedule, err := compensator.ParseDelayLevels("  36500d\t876000h\n1s ")
	require.NoError(t, err)
	require.Equal(t, 100*365*24*time.Hour, schedule(1))
	require.Equal(t, 100*365*24*time.Hour, schedule(2))
	require.Equal(t, time.Second, schedule(3))
}

// Failure: F54
func FuzzParseDelayLevels(f *testing.F) {
	for levels := range badDelayLevels {
		f.Add(levels)
	}
	f.Add(compensator.RocketMQLevels)
	f.Add("1d 2h 3m 4s")
	f.Fuzz(func(t *testing.T, levels string) {
		schedule, err := compensator.ParseDelayLevels(levels)
		if err != nil {
			require.Nil(t, schedule)
			return
		}
		n := len(strings.Fields(levels))
		for failures := 1; failures <= n+1; failures++ {
			wait := schedule(failures)
			require.GreaterOrEqual(t, wait, time.Second)
			require.LessOrEqual(t, wait, 100*365*24*time.Hour)
		}
		require.Equal(t, schedule(n), schedule(n+1))
	})
}
