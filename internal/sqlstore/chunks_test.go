package sqlstore

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/compensator-go/compensator/processlog"
)

func TestInsertHoldsWhatAPacketTakes(t *testing.T) {
	for name, test := range map[string]struct {
		drafts     int
		draft      processlog.Draft
		maxContent int
		want       []int
	}{
		"small entries":              {drafts: 1001, want: []int{500, 500, 1}},
		"no packets":                 {drafts: 8, draft: processlog.Draft{Content: make([]byte, 256<<10)}, want: []int{3, 3, 2}},
		"large packets":              {drafts: 8, draft: processlog.Draft{Content: make([]byte, 256<<10)}, maxContent: 32 << 20, want: []int{3, 3, 2}},
		"small packets":              {drafts: 3, draft: processlog.Draft{Content: make([]byte, 256<<10)}, maxContent: 300 << 10, want: []int{1, 1, 1}},
		"a large entry stands alone": {drafts: 2, draft: processlog.Draft{Content: make([]byte, 3<<20)}, want: []int{1, 1}},
		"headers":                    {drafts: 500, draft: processlog.Draft{Headers: make([]byte, 2048)}, maxContent: 512 << 10, want: []int{227, 227, 46}},
	} {
		drafts := slices.Repeat([]processlog.Draft{test.draft}, test.drafts)
		order := make([]int, len(drafts))
		assert.Equal(t, test.want, lengths((&Store{maxContent: test.maxContent}).insertChunks(order, drafts)), name)
	}
}

// If all rows have the same error, the statement contains it once. Otherwise it contains each, in hexadecimal digits.
func TestOutcomesHoldWhatAPacketTakes(t *testing.T) {
	long := strings.Repeat("余", processlog.MaxText)
	for name, test := range map[string]struct {
		outcomes   int
		group      settleGroup
		text       func(i int) string
		maxContent int
		want       []int
	}{
		"successes":      {outcomes: 501, group: settleGroup{absorb: true}, text: func(int) string { return "" }, want: []int{500, 1}},
		"short errors":   {outcomes: 101, text: func(i int) string { return strings.Repeat("x", 100+i) }, want: []int{100, 1}},
		"one long error": {outcomes: 101, text: func(int) string { return long }, want: []int{100, 1}},
		"long errors":    {outcomes: 42, text: func(i int) string { return string(rune('a'+i)) + long }, want: []int{20, 20, 2}},
		"the last other": {outcomes: 40, text: func(i int) string { return long[:3000-i/39] }, want: []int{39, 1}},
		"small packets":  {outcomes: 5, text: func(i int) string { return string(rune('a'+i)) + long }, maxContent: 8 << 10, want: []int{2, 2, 1}},
	} {
		outcomes, places := make([]processlog.Outcome, test.outcomes), make([]int, test.outcomes)
		for i := range outcomes {
			outcomes[i].LastError, places[i] = test.text(i), i
		}
		assert.Equal(t, test.want, lengths((&Store{maxContent: test.maxContent}).settleChunks(test.group, places, outcomes)), name)
	}
}

func lengths(pieces func(yield func([]int) bool)) (found []int) {
	for piece := range pieces {
		found = append(found, len(piece))
	}
	return found
}
