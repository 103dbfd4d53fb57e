package compensator

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/processlog"
)

// hardTexts are texts that are hard to store unchanged. A layer between the caller and the column may change, cut or
// refuse these texts. The database may also consider two of these texts as equal, although they differ.
var hardTexts = []string{
	"", "a", "A", "a ", " a", "a\t", "a\u00a0", "a\u3000", "ß", "ss", "é", "e\u0301", "ı", "\u00ad", "a\u200b", "\ufeffa", "\u2028",
	"\u202e", "\x00", "a\x00", "\x01", "\x1a", "\n", "\r\n", "\x7f", "\u0085", "'", "\"", "\\", "\\'", "`", "%", "_", "?", ":x", "$1",
	"-- ", ";", "/*", "0", "-0", "1e9", "7", "007", "7.0", " 7", "0x7", "123456789012345678901234567890", "NULL", "\xff", "\xc0\x80", "\xed\xa0\x80", "half \xe8\xae", "\ufffd", "\ufffe", "\U0010ffff",
	"\U0001F469\u200d\U0001F680", "订单", "𠀀", "İ", "Ⅷ", strings.Repeat("x", 64), strings.Repeat("x", 65), strings.Repeat("\U0001F4E6", 64),
	strings.Repeat("\U0001F4E6", 65), strings.Repeat("订", 191), strings.Repeat("单", 192), strings.Repeat("\U0001F4E6", 191), "{}",
	"{x}:0:due", "a:0:due", "*", "\u0627\u0644", "\U000e0001", "\u180e",
}

// A text must be accepted exactly if every database stores it unchanged.
func FuzzTexts(f *testing.F) {
	for _, text := range hardTexts {
		f.Add(text, processlog.MaxName)
		f.Add(text, processlog.MaxIdempotencyKey)
	}
	c := &Compensator{cfg: Config{MaxContent: 100}}
	f.Fuzz(func(t *testing.T, text string, limit int) {
		storable := utf8.ValidString(text) && len([]rune(text)) <= limit && strings.IndexByte(text, 0) < 0
		require.Equal(t, storable, textProblem(text, limit) == "")
		if validateType(text) == nil {
			require.Empty(t, textProblem(text, processlog.MaxName))
			runes := []rune(text)
			require.False(t, unicode.IsSpace(runes[0]) || unicode.IsSpace(runes[len(runes)-1]))
			require.NotContains(t, text, "\n")
		}
		draft, err := c.draft(NewEntry{BusinessType: "x", Content: []byte(text), Options: Options{
			IdempotencyKey: IdempotencyKey(text), BatchID: text, BusinessID: text, BusinessExtID: text, UserID: text, UserName: text,
		}})
		padded := strings.HasSuffix(text, " ")
		name, key := textProblem(text, processlog.MaxName) == "", textProblem(text, processlog.MaxIdempotencyKey) == "" && !padded
		for field, accepted := range map[string]bool{
			"idempotency key": key, "batch id": name && !padded, "business id": name, "business ext id": name, "user id": name, "user name": name, "content": len(text) <= 100,
		} {
			require.Equal(t, !accepted, refuses(err, field), "%s of %q: %v", field, text, err)
		}
		fieldErrors(t, err)
		if err == nil {
			require.NotEmpty(t, draft.IdempotencyKey)
			require.Equal(t, []byte(text), append([]byte{}, draft.Content...))
		}
		by := processlog.AuditInfo{Actor: text, Reason: "x"}
		require.Equal(t, !processlog.IsBlank(text) && textProblem(text, processlog.MaxIdempotencyKey) == "", by.Validate() == nil)
	})
}

func FuzzDelay(f *testing.F) {
	for _, n := range []int64{0, 1, -1, 999_999, 1_000_000, 1_000_001, int64(processlog.MaxDelay), int64(processlog.MaxDelay) + 1, 1<<63 - 1, -1 << 63} {
		f.Add(n, int64(0), false)
		f.Add(int64(0), n, true)
		f.Add(n, n, true)
	}
	f.Fuzz(func(t *testing.T, delay, at int64, given bool) {
		o := Options{Delay: time.Duration(delay)}
		if given {
			o.At = time.Unix(at, 0)
		}
		got, err := o.delay()
		if err != nil {
			require.Len(t, fieldErrors(t, err), 1)
			require.Zero(t, got)
			require.True(t, given || delay < 0 || o.Delay > processlog.MaxDelay, "refused %v", o.Delay)
			return
		}
		require.Zero(t, got%time.Millisecond)
		require.LessOrEqual(t, got, processlog.MaxDelay+time.Millisecond)
		require.GreaterOrEqual(t, got, o.Delay)
		if given {
			require.Zero(t, delay)
			require.GreaterOrEqual(t, time.Now().Add(got), o.At, "early")
		}
	})
}

func TestDrawnIdsAreAcceptedAndInOrder(t *testing.T) {
	last := ""
	for range 2000 {
		id := newIdempotencyKey()
		require.Empty(t, textProblem(string(id), processlog.MaxIdempotencyKey))
		require.GreaterOrEqual(t, id[:13], last, "by milliseconds")
		last = string(id[:13])
	}
}

func TestTextsThatAreAcceptedAreStoredAsTheyAre(t *testing.T) {
	config, err := mysql.ParseDSN(testservers.Database(t))
	require.NoError(t, err)
	inner, err := mysql.NewConnector(config)
	require.NoError(t, err)
	db, plain := sql.OpenDB(Connector(inner)), sql.OpenDB(inner)
	t.Cleanup(func() { assert.NoError(t, errors.Join(db.Close(), plain.Close())) })
	require.NoError(t, Migrate(t.Context(), plain))
	c, err := New(t.Context(), Config{DB: db})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	stored := map[IdempotencyKey]EntryID{}
	for i, text := range hardTexts {
		for _, e := range []NewEntry{
			{BusinessType: "x", Options: Options{IdempotencyKey: IdempotencyKey(text)}},
			{BusinessType: text, Content: []byte(text), Options: Options{IdempotencyKey: IdempotencyKey(fmt.Sprint("of ", i)), BatchID: text, BusinessID: text, BusinessExtID: text, UserID: text, UserName: text}},
		} {
			if _, err := c.draft(e); err != nil {
				continue
			}
			got := requireStored(t, c, e)
			require.NotContains(t, stored, got.IdempotencyKey, "%q is taken for another", text)
			stored[got.IdempotencyKey] = got.ID
			failWith(t, plain, c, got, text)
		}
	}
	require.Greater(t, len(stored), len(hardTexts))
}

func requireStored(t *testing.T, c *Compensator, e NewEntry) Entry {
	t.Helper()
	var receipt *Receipt
	require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *ScopedTx) (err error) {
		receipt, err = c.Record(ctx, tx, e)
		return err
	}), "%q", e)
	got, err := c.Get(t.Context(), receipt.ID())
	require.NoError(t, err)
	want := e.Options
	if want.IdempotencyKey == "" {
		want.IdempotencyKey = got.IdempotencyKey
	}
	require.Equal(t, want, Options{
		IdempotencyKey: got.IdempotencyKey, BatchID: got.BatchID, BusinessID: got.BusinessID, BusinessExtID: got.BusinessExtID, UserID: got.UserID, UserName: got.UserName,
	})
	require.Equal(t, e.BusinessType, got.BusinessType)
	require.Equal(t, string(e.Content), string(got.Content))
	byKey, err := c.Get(t.Context(), got.IdempotencyKey)
	require.NoError(t, err)
	require.Equal(t, got.ID, byKey.ID, "%q names another entry", got.IdempotencyKey)
	for _, filter := range []processlog.Filter{{BusinessType: e.BusinessType, Limit: 1000}, {BusinessType: e.BusinessType, BatchID: e.BatchID, Limit: 1000}} {
		page, err := c.store.List(t.Context(), filter)
		require.NoError(t, err)
		found := false
		for _, listed := range page.Rows {
			require.Equal(t, e.BusinessType, listed.BusinessType, "listed under %q", e.BusinessType)
			found = found || listed.ID == got.ID
		}
		require.True(t, found, "%q is not listed", e.BusinessType)
	}
	return *got
}

func failWith(t *testing.T, plain *sql.DB, c *Compensator, e Entry, text string) {
	t.Helper()
	settled, err := c.store.Settle(t.Context(), processlog.NewToken(), []processlog.Outcome{{ID: e.ID, IdempotencyKey: e.IdempotencyKey, Version: e.Version, To: Retrying, ProcessCount: 1, After: time.Hour, LastError: text}})
	require.NoError(t, err)
	require.True(t, settled[0].Applied)
	_, err = plain.Exec("UPDATE common_process_log SET headers=? WHERE id=?", []byte(text), e.ID.Row())
	require.NoError(t, err)
	got, err := c.Get(t.Context(), e.ID)
	require.NoError(t, err)
	require.Equal(t, processlog.FitError(text), got.LastError)
}
