package encrypt_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/encrypt"
)

func key(id string, b byte) encrypt.Key {
	return encrypt.Key{ID: id, Secret: bytes.Repeat([]byte{b}, 32)}
}

func newCodec(t testing.TB, keys ...encrypt.Key) *encrypt.Codec {
	t.Helper()
	codec, err := encrypt.New(encrypt.Config{Keys: keys})
	require.NoError(t, err)
	return codec
}

func seal(t testing.TB, codec *encrypt.Codec, content string) []byte {
	t.Helper()
	sealed, err := codec.Seal([]byte(content), "letter", "letter-1")
	require.NoError(t, err)
	return sealed
}

// Failure: F76
func TestSealedContentOpensForItsEntryAlone(t *testing.T) {
	codec := newCodec(t, key("a", 1))
	for _, content := range []string{"", "x", `"Chen Street 1"`, string(make([]byte, 1<<20))} {
		sealed := seal(t, codec, content)
		require.False(t, content != "" && len(content) > 1 && bytes.Contains(sealed, []byte(content)))
		opened, err := codec.Open(sealed, "letter", "letter-1")
		require.NoError(t, err)
		require.Equal(t, content, string(opened))
		for _, other := range [][2]string{{"letter", "letter-2"}, {"mail", "letter-1"}, {"letterl", "etter-1"}, {"", ""}} {
			_, err := codec.Open(sealed, other[0], other[1])
			require.ErrorIs(t, err, encrypt.ErrGarbled, "%q", other)
		}
	}
}

// Failure: F76
func TestAnyChangedByteIsNoticed(t *testing.T) {
	codec := newCodec(t, key("2026-11", 1), key("2026-10", 2))
	sealed := seal(t, codec, `"Chen Street 1"`)
	for i := range sealed {
		for bit := range 8 {
			garbled := bytes.Clone(sealed)
			garbled[i] ^= 1 << bit
			_, err := codec.Open(garbled, "letter", "letter-1")
			require.True(t, errors.Is(err, encrypt.ErrGarbled) || errors.Is(err, encrypt.ErrUnknownKey), "byte %d, bit %d: %v", i, bit, err)
		}
		_, err := codec.Open(sealed[:i], "letter", "letter-1")
		require.Error(t, err, "cut after %d", i)
	}
	_, err := codec.Open(append(bytes.Clone(sealed), 0), "letter", "letter-1")
	require.ErrorIs(t, err, encrypt.ErrGarbled)
}

func TestOldKeysOpenAndTheFirstSeals(t *testing.T) {
	old, rotated := newCodec(t, key("a", 1)), newCodec(t, key("b", 2), key("a", 1))
	before, after := seal(t, old, "x"), seal(t, rotated, "x")
	for _, sealed := range [][]byte{before, after} {
		opened, err := rotated.Open(sealed, "letter", "letter-1")
		require.NoError(t, err)
		require.Equal(t, "x", string(opened))
	}
	_, err := old.Open(after, "letter", "letter-1")
	require.ErrorIs(t, err, encrypt.ErrUnknownKey)
	require.Contains(t, err.Error(), `"b"`, "it names the key that is missing")
	_, err = newCodec(t, key("a", 9)).Open(before, "letter", "letter-1")
	require.ErrorIs(t, err, encrypt.ErrGarbled, "another secret under the same name")
}

// If an event is recorded again, Record compares its content with the stored content and reports the result in the
// receipt. So the same event must have the same sealed content, and other events must have other contents.
func TestSameEventHasTheSameContent(t *testing.T) {
	codec := newCodec(t, key("a", 1))
	require.Equal(t, seal(t, codec, "x"), seal(t, newCodec(t, key("a", 1)), "x"))
	tail := func(sealed []byte) []byte { return sealed[len("\x00cs\x01")+2:] }
	other, err := codec.Seal([]byte("x"), "letter", "letter-2")
	require.NoError(t, err)
	for name, sealed := range map[string][]byte{"content": seal(t, codec, "y"), "entry": other, "key": seal(t, newCodec(t, key("a", 2)), "x")} {
		require.NotEqual(t, tail(seal(t, codec, "x"))[:12], tail(sealed)[:12], "another %s, another nonce", name)
	}
}

func TestContentFromBeforeIsReadWhereItMayBe(t *testing.T) {
	_, err := newCodec(t, key("a", 1)).Open([]byte(`"x"`), "letter", "letter-1")
	require.ErrorIs(t, err, encrypt.ErrGarbled)
	lenient, err := encrypt.New(encrypt.Config{Keys: []encrypt.Key{key("a", 1)}, ReadPlain: true})
	require.NoError(t, err)
	opened, err := lenient.Open([]byte(`"x"`), "letter", "letter-1")
	require.NoError(t, err)
	require.Equal(t, `"x"`, string(opened))
	_, err = lenient.Open([]byte("\x00cs\x01"), "letter", "letter-1")
	require.ErrorIs(t, err, encrypt.ErrGarbled, "cut short, it is not taken for plain")
}

func TestConfigIsChecked(t *testing.T) {
	good := key("a", 1)
	for name, cfg := range map[string]encrypt.Config{
		"no key":       {},
		"no id":        {Keys: []encrypt.Key{key("", 1)}},
		"a long id":    {Keys: []encrypt.Key{key(string(make([]byte, 256)), 1)}},
		"a short one":  {Keys: []encrypt.Key{{ID: "a", Secret: make([]byte, 16)}}},
		"one id twice": {Keys: []encrypt.Key{good, key("a", 2)}},
		"twice sealed": {Keys: []encrypt.Key{good}, Inner: newCodec(t, good)},
	} {
		_, err := encrypt.New(cfg)
		require.ErrorAs(t, err, new(*compensator.FieldError), name)
	}
}

// Open must not panic for any input. It must accept only content that was sealed for the entry.
func FuzzOpen(f *testing.F) {
	codec := newCodec(f, key("a", 1))
	f.Add([]byte("\x00cs\x01"))
	f.Add([]byte("\x00cs\x01\x01a"))
	f.Add([]byte("\x00cs\x01\xffa"))
	f.Add(seal(f, codec, "x"))
	f.Fuzz(func(t *testing.T, data []byte) {
		opened, err := codec.Open(data, "letter", "letter-1")
		if err == nil {
			again, err := codec.Seal(opened, "letter", "letter-1")
			require.NoError(t, err)
			require.Equal(t, data, again)
		}
		sealed, err := codec.Seal(data, "letter", "letter-1")
		require.NoError(t, err)
		opened, err = codec.Open(sealed, "letter", "letter-1")
		require.NoError(t, err)
		require.True(t, bytes.Equal(data, opened))
	})
}

type address struct{ Street string }

// service returns a Compensator with a type whose contents are sealed.
func service(t *testing.T, store *compensatortest.MemoryStore, codec compensator.Codec) (*compensator.Compensator, *compensator.Type[address], *atomic.Pointer[address]) {
	t.Helper()
	c, err := compensator.New(t.Context(), compensator.Config{Store: store, PollInterval: 100 * time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	got := new(atomic.Pointer[address])
	letters, err := compensator.Handle(t.Context(), c, "letter", func(_ context.Context, _ *compensator.Entry, v address) error {
		got.Store(&v)
		return nil
	}, &compensator.HandlerConfig[address]{TypeConfig: compensator.TypeConfig{Codec: codec, RefuseOtherContent: true}})
	require.NoError(t, err)
	return c, letters, got
}

func record(t *testing.T, c *compensator.Compensator, entries ...compensator.NewEntry) (*compensator.Receipt, error) {
	t.Helper()
	var receipt *compensator.Receipt
	err := c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) (err error) {
		receipt, err = c.Record(ctx, tx, entries...)
		return err
	})
	return receipt, err
}

func TestHandlerIsGivenWhatTheTableDoesNotShow(t *testing.T) {
	store := compensatortest.NewMemoryStore()
	c, letters, got := service(t, store, newCodec(t, key("a", 1)))
	entry := letters.Entry(address{"Chen Street 1"}, compensator.Options{IdempotencyKey: "letter-1"})
	drawn := letters.Entry(address{"Chen Street 1"}, compensator.Options{}) // Record chooses the idempotency key of this entry.
	again := entry
	receipt, err := record(t, c, entry, drawn, again)
	require.NoError(t, err)
	require.True(t, receipt.Entries[2].Duplicate)
	require.True(t, receipt.Entries[2].ContentMatches, "in the same call")
	drawnID := receipt.Entries[1].IdempotencyKey
	for _, e := range compensatortest.RequireRecorded(t, c, "letter", 2) {
		require.NotContains(t, string(e.Content), "Chen")
	}
	receipt, err = record(t, c, entry)
	require.NoError(t, err, "an event that comes again is the same, though the type refuses other content")
	require.True(t, receipt.Entries[0].ContentMatches)
	other := letters.Entry(address{"Main Street 1"}, compensator.Options{IdempotencyKey: "letter-1"})
	_, err = record(t, c, other)
	require.ErrorIs(t, err, compensator.ErrOtherContent)

	read, err := c.Get(t.Context(), compensator.IdempotencyKey("letter-1"))
	require.NoError(t, err)
	var v address
	require.NoError(t, read.Decode(&v))
	require.Equal(t, "Chen Street 1", v.Street)
	stop := compensatortest.Run(t, c)
	defer stop()
	for _, key := range []string{"letter-1", string(drawnID)} {
		require.Eventually(t, func() bool {
			e, err := c.Get(t.Context(), compensator.IdempotencyKey(key))
			return err == nil && e.State == compensator.Succeeded
		}, 30*time.Second, 5*time.Millisecond)
	}
	require.Equal(t, "Chen Street 1", got.Load().Street)
}

// A process that only declares a type must be able to read its contents, too. If a process has a handler, it must use
// the handler's codec.
func TestDeclaredTypeIsReadWithItsCodec(t *testing.T) {
	store := compensatortest.NewMemoryStore()
	codec := newCodec(t, key("a", 1))
	c, letters, _ := service(t, store, codec)
	_, err := record(t, c, letters.Entry(address{"Chen Street 1"}, compensator.Options{IdempotencyKey: "letter-1"}))
	require.NoError(t, err)
	admin, err := compensator.New(t.Context(), compensator.Config{Store: store, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer admin.Close()
	_, err = compensator.Declare[address](t.Context(), admin, "letter", &compensator.TypeConfig{Codec: codec})
	require.NoError(t, err)
	_, err = compensator.Declare[address](t.Context(), c, "letter", nil)
	require.NoError(t, err)
	for _, reader := range []*compensator.Compensator{admin, c} {
		e, err := reader.Get(t.Context(), compensator.IdempotencyKey("letter-1"))
		require.NoError(t, err)
		var v address
		require.NoError(t, e.Decode(&v))
		require.Equal(t, "Chen Street 1", v.Street)
	}
}

// A process was deployed without the key. It must leave the entry to a process that has the key, without counting an
// attempt.
// Failure: F76
func TestEntryWhoseKeyIsMissingWaitsForIt(t *testing.T) {
	store := compensatortest.NewMemoryStore()
	newer, letters, _ := service(t, store, newCodec(t, key("b", 2), key("a", 1)))
	entry := letters.Entry(address{"Chen Street 1"}, compensator.Options{IdempotencyKey: "letter-1"})
	_, err := record(t, newer, entry)
	require.NoError(t, err)
	older, _, got := service(t, store, newCodec(t, key("a", 1)))
	stop := compensatortest.Run(t, older)
	seen := func() *compensator.Entry {
		e, err := older.Get(t.Context(), compensator.IdempotencyKey("letter-1"))
		require.NoError(t, err)
		return e
	}
	require.Eventually(t, func() bool { return seen().LastError != "" }, 30*time.Second, 5*time.Millisecond)
	stop()
	e := seen()
	require.Contains(t, e.LastError, `the key is not here: "b"`)
	require.Zero(t, e.ProcessCount, "it spends no attempt")
	require.False(t, e.State.Terminal())
	require.Nil(t, got.Load())
	require.NoError(t, older.Reschedule(t.Context(), e.ID, 0))
	stop = compensatortest.Run(t, newer)
	defer stop()
	require.Eventually(t, func() bool { return seen().State == compensator.Succeeded }, 30*time.Second, 5*time.Millisecond)
}
