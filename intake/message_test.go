package intake

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

// Failure: F101
func TestMessageIsKeptByteForByte(t *testing.T) {
	t.Parallel()
	for _, m := range []Message{
		{},
		{ID: "1-1", Fields: map[string]string{"a": "b", "": "", "<&>\u2028": "é", "b\xff": "x", "x": "\x00\xfe"}, Deliveries: 3, SetAside: "why"},
		{ID: "\xff", Body: []byte("\x00\xff"), Lost: true},
	} {
		for _, dense := range []bool{false, true} {
			kept := m
			kept.dense = dense
			text, err := json.Marshal(kept)
			require.NoError(t, err)
			var back Message
			require.NoError(t, json.Unmarshal(text, &back))
			assert.Equal(t, m, back)
		}
	}
}

// Failure: F100
func TestIdempotencyKeysOfDifferentMessagesDiffer(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("k", 200)
	seen := make(map[string][3]string)
	for _, names := range [][3]string{{"a", "c", "s"}, {"a", "c", "t"}, {"c", "", "a"}, {"s:a", "c"}, {"a:c", "s"}, {"a:b", "c"}, {"a", "b:c"}, {"a%3Ab", "c"}, {"a", "c"}, {"A", "c"}, {long, "c"}, {long + "x", "c"}, {"a\x00", "c"}, {"a\xff", "c"}, {"a", "c "}} {
		g := &group{Stream: Stream{Stream: names[0], Group: names[1], Server: names[2]}}
		for _, id := range []string{"1-1", "1-11", "1-1 ", long} {
			key := idempotencyKey(g.Name(), id)
			assert.LessOrEqual(t, len(key), processlog.MaxIdempotencyKey)
			assert.Falsef(t, strings.HasSuffix(string(key), " "), "%q", key)
			before, found := seen[string(key)]
			assert.Falsef(t, found, "%q is of %q and of %q", key, before, names)
			seen[string(key)] = names
		}
	}
	assert.Contains(t, seen, "intake:a%3Ac:1-1")
}
