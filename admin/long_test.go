package admin_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
)

// Scrub sees only the beginning of a long error. If the cut splits a secret, no part of it may be stored.
func TestLongErrorIsScrubbedInPart(t *testing.T) {
	t.Parallel()
	store := compensatortest.NewMemoryStore()
	var longest atomic.Int64
	c, err := compensator.New(t.Context(), compensator.Config{Store: store, Logger: slog.New(slog.DiscardHandler), Queue: compensatortest.NewMemoryQueue().Client(),
		Operations: &compensator.Operations{Scrub: func(text string) string {
			longest.Store(max(longest.Load(), int64(len(text))))
			return text
		}}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	var said string
	typ, err := compensator.Handle(t.Context(), c, "dies", func(context.Context, *compensator.Entry, string) error {
		return compensator.Permanent(errors.New(said))
	}, nil)
	require.NoError(t, err)
	kept := func(text string) string {
		said = text
		e := compensatortest.Call(t, c, typ, "x", compensator.Options{})
		cases, err := store.CasesOf(t.Context(), []compensator.EntryID{e.ID})
		require.NoError(t, err)
		require.Len(t, cases, 1)
		return cases[0].Error
	}
	page := strings.Repeat("502 <p>card 4111111111111111</p>\n", 1<<15)
	assert.True(t, strings.HasPrefix(kept(page), "502 <p>card …1111</p>\n"), "a megabyte")
	assert.LessOrEqual(t, longest.Load(), int64(8000))
	for _, secret := range []string{"4111111111111111 and more", "eyJ" + strings.Repeat("h", 1000), "\"password\":\"hunter2"} {
		for at := 3900; at <= 4000; at += 10 { // These texts are too long before Scrub and short enough after it.
			text := kept("password=" + strings.Repeat("长", at/3) + " and " + secret + strings.Repeat(".", 5000))
			assert.NotRegexp(t, "411111|hhh|hunter", text, "%d", at)
			assert.True(t, utf8.ValidString(text))
		}
	}
}
