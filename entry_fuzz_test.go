package compensator

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/processlog"
)

// FuzzParseEntryID parses any text. Only a text that String returns may be accepted as an id. Two spellings of one id
// would become two members of the queue, and an acknowledgement would remove only one.
func FuzzParseEntryID(f *testing.F) {
	for _, text := range []string{"", "0", "1", "007", "+1", "-1", " 1", "1 ", "1_000", "0x1", "1e3", "१", "18446744073709551615", "18446744073709551616"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id, err := ParseEntryID(text)
		var marshaled EntryID
		require.Equal(t, err == nil, marshaled.UnmarshalText([]byte(text)) == nil)
		require.Equal(t, id, marshaled)
		if err != nil {
			var refused *FieldError
			require.ErrorAs(t, err, &refused)
			require.Equal(t, "entry id", refused.Field)
			require.True(t, id.IsZero())
			return
		}
		require.False(t, id.IsZero())
		require.Equal(t, text, id.String())
		encoded, err := json.Marshal(id)
		require.NoError(t, err)
		require.Equal(t, `"`+text+`"`, string(encoded), "JSON carries it as a string")
	})
}

// parcel is content with a field of each common kind.
type parcel struct {
	Text   string             `json:"text"`
	Bytes  []byte             `json:"bytes"`
	Number int64              `json:"number"`
	Big    uint64             `json:"big"`
	Weight float64            `json:"weight"`
	Ref    EntryID            `json:"ref"`
	Tags   map[string]float64 `json:"tags,omitempty"`
	Next   *parcel            `json:"next,omitempty"`
}

// FuzzContentRoundTrip records any content. Accepted content must be decoded to the same value. Content that cannot be
// encoded must be refused with a *FieldError before any statement is sent.
func FuzzContentRoundTrip(f *testing.F) {
	f.Add("", []byte(nil), int64(0), uint64(0), 0.0, "")
	f.Add("订单 \x00 \u2028 <&> \U0001F4E6", []byte{0xff, 0}, int64(math.MinInt64), uint64(math.MaxUint64), -0.1, "tag")
	f.Add("half a rune \xe8", []byte("x"), int64(1<<53+1), uint64(1<<53+1), math.MaxFloat64, "\xff")
	f.Add("", []byte{}, int64(-1), uint64(1), math.NaN(), "nan")
	f.Add("", []byte{}, int64(-1), uint64(1), math.Inf(-1), "inf")
	parcels := &Type[parcel]{name: "send_parcel", codec: JSON}
	f.Fuzz(func(t *testing.T, text string, raw []byte, number int64, big uint64, weight float64, tag string) {
		sent := parcel{Text: text, Bytes: raw, Number: number, Big: big, Weight: weight, Ref: processlog.RowID(max(big, 1)), Tags: map[string]float64{tag: weight}}
		sent.Next = &parcel{Text: tag, Number: -number, Ref: processlog.RowID(1)}
		entry := parcels.Entry(sent, Options{BusinessID: "42"})
		if math.IsNaN(weight) || math.IsInf(weight, 0) {
			var refused *FieldError
			require.ErrorAs(t, entry.err, &refused)
			require.Equal(t, "content", refused.Field)
			require.Empty(t, entry.Content)
			return
		}
		require.NoError(t, entry.err)
		require.Equal(t, "send_parcel", entry.BusinessType)
		require.Equal(t, "42", entry.BusinessID)
		var got parcel
		require.NoError(t, (&Entry{Content: entry.Content, codec: JSON}).Decode(&got))
		var plain parcel
		require.NoError(t, (&Entry{Content: entry.Content}).Decode(&plain), "JSON is the codec of an entry nobody claims")
		require.Equal(t, got, plain)
		want := sent
		want.Text, want.Tags = validJSON(text), map[string]float64{validJSON(tag): weight}
		next := *sent.Next
		next.Text = validJSON(tag)
		want.Next = &next
		require.Equal(t, want, got)
	})
}

// validJSON returns a text as JSON stores it. Each byte that is not UTF-8 becomes the replacement character.
func validJSON(text string) string {
	var b strings.Builder
	for _, r := range text {
		b.WriteRune(r)
	}
	return b.String()
}

var errMoody = errors.New("not in the mood")

// moodyCodec fails or panics, as its mood says.
type moodyCodec struct{ mood byte }

func (c moodyCodec) Marshal(any) ([]byte, error) { return []byte{c.mood}, c.act() }

func (c moodyCodec) Unmarshal([]byte, any) error { return c.act() }

func (c moodyCodec) act() error {
	switch c.mood % 6 {
	case 1:
		return errMoody
	case 2:
		return Permanent(errMoody)
	case 3:
		return &FieldError{Field: "content", Reason: "too moody"}
	case 4:
		panic("moody")
	case 5:
		var none *parcel
		none.Text = "a run-time error"
	}
	return nil
}

// FuzzFailingCodec runs a codec that fails on stored content. A failure must cost no attempt, whatever its error is,
// because a newer version of the code may decode the content. A panic must fail the attempt. In both cases the entry
// must get an outcome.
func FuzzFailingCodec(f *testing.F) {
	for mood := range byte(6) {
		f.Add(mood, []byte(`{}`), false)
		f.Add(mood, []byte{}, true)
	}
	c := &Compensator{}
	f.Fuzz(func(t *testing.T, mood byte, content []byte, batch bool) {
		ran := 0
		handled := engine.Type{Name: "x", Timeout: time.Minute, MaxAttempts: 3, Retry: Fixed(time.Minute)}
		cfg := &settings{TypeConfig: TypeConfig{Codec: moodyCodec{mood}}}
		if batch {
			call := c.batch(typedBatch(func(_ context.Context, items []Item[parcel]) []error {
				ran += len(items)
				return nil
			}), cfg)
			handled.Run = func(ctx context.Context, row *processlog.Row) error {
				return errors.Join(call(ctx, []*processlog.Row{row})...)
			}
		} else {
			handled.Run = c.single(typed(func(context.Context, *Entry, parcel) error { ran++; return nil }), cfg)
		}
		row := &processlog.Row{ID: processlog.RowID(7), ProcessCount: 1, DeliveryCount: 1, Content: content}
		o, err := handled.Attempt(t.Context(), row)
		switch mood % 6 {
		case 0:
			require.Equal(t, 1, ran)
			require.Equal(t, Succeeded, o.To)
		case 4, 5:
			var panicked *PanicError
			require.ErrorAs(t, err, &panicked)
			require.Equal(t, 2, o.ProcessCount)
			require.Equal(t, Retrying, o.To)
		default:
			require.Equal(t, 1, o.ProcessCount, "spends no attempt")
			require.Equal(t, Pending, o.To)
			require.GreaterOrEqual(t, o.After, 2*time.Second)
		}
		if mood%6 != 0 {
			require.Zero(t, ran, "a handler got a value nobody decoded")
		}
	})
}

// TestEntryNamesWhatItsCodecRefused requires that the error for refused content contains the text of the codec's error.
func TestEntryNamesWhatItsCodecRefused(t *testing.T) {
	for mood := byte(1); mood < 4; mood++ {
		err := (&Type[parcel]{name: "x", codec: moodyCodec{mood}}).Entry(parcel{}, Options{}).err
		var refused *FieldError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, "content", refused.Field)
		require.Contains(t, refused.Reason, moodyCodec{mood}.act().Error())
		require.False(t, errors.Is(err, ErrNoTransaction))
	}
}
