package compensator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/processlog"
)

// golden is the JSON that other programs read. If it changes, these programs may break.
const golden = `{
  "id": "18446744073709551615",
  "idempotent_id": "close-42",
  "business_type": "close_order",
  "batch_id": "b",
  "business_id": "o",
  "business_ext_id": "x",
  "user_id": "u7",
  "user_name": "梅",
  "headers": {
    "tenant": "A"
  },
  "state": "settled by hand",
  "process_count": 3,
  "max_process_count": 5,
  "compensate_count": 1,
  "delivery_count": 2,
  "version": "9007199254740993",
  "epoch": 4294967295,
  "ended_by": "person",
  "last_error": "sold out",
  "content": {
    "n": 9007199254740993,
    "price": 0.10
  },
  "next_at": "2026-11-23T04:05:06.700Z",
  "created_at": "2026-11-23T04:05:06.789Z",
  "updated_at": "2026-11-23T04:05:07.000Z"
}`

const goldenLeast = `{"id":"1","idempotent_id":"k","business_type":"t","state":"pending","process_count":0,"max_process_count":0,` +
	`"compensate_count":0,"delivery_count":0,"version":"0","epoch":0,"next_at":"0001-01-01T00:00:00.000Z","created_at":"0001-01-01T00:00:00.000Z","updated_at":"0001-01-01T00:00:00.000Z"}`

func goldenEntry() Entry {
	at := time.Date(2026, 11, 23, 5, 5, 6, 789e6, time.FixedZone("", 3600))
	return Entry{
		ID: processlog.RowID(math.MaxUint64), IdempotencyKey: "close-42", BusinessType: "close_order", BatchID: "b", BusinessID: "o", BusinessExtID: "x",
		UserID: "u7", UserName: "梅", Content: []byte(`{"n":9007199254740993,"price":0.10}`), Headers: map[string]string{"tenant": "A"},
		State: SettledManually, ProcessCount: 3, MaxAttempts: 5, CompensateCount: 1, DeliveryCount: 2, Version: 1<<53 + 1, Epoch: math.MaxUint32,
		NextAt: at.Truncate(100 * time.Millisecond), EndedBy: EndedByPerson, LastError: "sold out", CreatedAt: at, UpdatedAt: at.Add(211 * time.Millisecond),
	}
}

func TestEntryIsWrittenAsJSONUnderNamesThatStay(t *testing.T) {
	written, err := json.MarshalIndent(goldenEntry(), "", "  ")
	require.NoError(t, err)
	require.Equal(t, golden, string(written))
	least, err := json.Marshal(Entry{ID: processlog.RowID(1), IdempotencyKey: "k", BusinessType: "t"})
	require.NoError(t, err)
	require.Equal(t, goldenLeast, string(least), "what is not there is left out; counts and times are always there")

	erased, err := json.Marshal(Entry{ID: processlog.RowID(1), IdempotencyKey: "k", BusinessType: "t", Erased: true})
	require.NoError(t, err)
	require.Equal(t, strings.Replace(goldenLeast, `"next_at"`, `"erased":true,"next_at"`, 1), string(erased))

	var back Entry
	require.NoError(t, json.Unmarshal(written, &back))
	again, err := json.MarshalIndent(&back, "", "  ")
	require.NoError(t, err)
	require.Equal(t, golden, string(again))
	require.Error(t, json.Unmarshal([]byte(`{"state":"lost"}`), &back))
}

func TestContentTellsWhetherItIsJSON(t *testing.T) {
	for content, want := range map[string]string{
		"":                  `{}`,
		"null":              `{"content":null}`,
		` {"a" : 1} `:       `{"content":{"a":1}}`,
		`"text"`:            `{"content":"text"}`,
		"text":              `{"content_base64":"dGV4dA=="}`,
		"{} {}":             `{"content_base64":"e30ge30="}`,
		"\"\xff\"":          `{"content_base64":"Iv8i"}`,
		"\x00\x01":          `{"content_base64":"AAE="}`,
		"12345678901234567": `{"content":12345678901234567}`,
	} {
		written, err := json.Marshal(Entry{ID: processlog.RowID(1), Content: []byte(content)})
		require.NoError(t, err)
		var got map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(written, &got))
		for field := range got {
			if field != "content" && field != "content_base64" {
				delete(got, field)
			}
		}
		fields, err := json.Marshal(got)
		require.NoError(t, err)
		require.Equal(t, want, string(fields), "%q", content)
	}
}

func FuzzEntryJSON(f *testing.F) {
	for _, seed := range []string{"", "null", `{"a":"<b> \u2028"}`, "\xff", "1e999", "[1,2", "\"\\ud800\""} {
		f.Add([]byte(seed), "error", uint64(1<<60), int64(0))
	}
	f.Fuzz(func(t *testing.T, content []byte, lastError string, version uint64, ms int64) {
		at := time.UnixMilli(ms % (1 << 47)).UTC()
		e := Entry{ID: processlog.RowID(7), Content: content, LastError: processlog.FitError(lastError), Version: version, NextAt: at, State: Dead}
		written, err := json.Marshal(e)
		require.NoError(t, err)
		var back Entry
		require.NoError(t, json.Unmarshal(written, &back))
		require.Equal(t, []any{e.ID, e.LastError, e.Version, e.State}, []any{back.ID, back.LastError, back.Version, back.State})
		if at.Year() >= 0 && at.Year() <= 9999 {
			require.True(t, at.Equal(back.NextAt), "%v, %v", at, back.NextAt)
		}
		if json.Valid(content) {
			var want, got bytes.Buffer
			require.NoError(t, json.Compact(&want, content))
			require.NoError(t, json.Compact(&got, back.Content))
			var wantValue, gotValue any
			wantErr, gotErr := json.Unmarshal(want.Bytes(), &wantValue), json.Unmarshal(got.Bytes(), &gotValue)
			require.Equal(t, wantErr == nil, gotErr == nil)
			require.Equal(t, wantValue, gotValue)
			return
		}
		require.Equal(t, string(content), string(back.Content))
	})
}

func TestStatesAreWordsAndNothingElse(t *testing.T) {
	for _, state := range processlog.States {
		written, err := json.Marshal(map[State]State{state: state})
		require.NoError(t, err)
		require.Equal(t, `{"`+state.String()+`":"`+state.String()+`"}`, string(written))
		var back map[State]State
		require.NoError(t, json.Unmarshal(written, &back))
		require.Equal(t, map[State]State{state: state}, back)
		parsed, err := processlog.ParseState(state.String())
		require.NoError(t, err)
		require.Equal(t, state, parsed)
	}
	for _, word := range []string{"", "Dead", "dead ", "-2", "State(9)", "settled"} {
		_, err := processlog.ParseState(word)
		var refused *FieldError
		require.ErrorAs(t, err, &refused, word)
		require.Equal(t, "state", refused.Field)
		for _, state := range processlog.States {
			require.Contains(t, refused.Reason, state.String(), "it says what it may be")
		}
	}
	_, err := json.Marshal(State(9))
	require.Error(t, err)
}

func TestEndedByAndActionsAreWordsThatAreKnown(t *testing.T) {
	for _, by := range []EndedBy{"", EndedByHandler, EndedByComplete, EndedByCancel, EndedByPermanent, EndedByExhausted, EndedByCrash, EndedByPerson} {
		var back EndedBy
		require.NoError(t, back.UnmarshalText([]byte(by)))
		require.Equal(t, by, back)
	}
	for _, action := range []processlog.Action{processlog.ActionComplete, processlog.ActionCancel, processlog.ActionReschedule, processlog.ActionRequeue, processlog.ActionSettleManually, processlog.ActionAcceptLoss, processlog.ActionPurge} {
		var back processlog.Action
		require.NoError(t, back.UnmarshalText([]byte(action)))
		require.Equal(t, action, back)
	}
	var refused *FieldError
	by, action := EndedByCrash, processlog.ActionCancel
	require.ErrorAs(t, by.UnmarshalText([]byte("crashed")), &refused)
	require.Equal(t, "ended by", refused.Field)
	require.Contains(t, refused.Reason, string(EndedByExhausted))
	require.ErrorAs(t, action.UnmarshalText([]byte("")), &refused)
	require.Equal(t, "action", refused.Field)
	require.Contains(t, refused.Reason, string(processlog.ActionSettleManually))
	require.Equal(t, []any{EndedByCrash, processlog.ActionCancel}, []any{by, action}, "a refusal changes nothing")
}

func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	for i := range v.NumField() {
		switch f := v.Field(i); {
		case !f.CanSet():
		case f.Type() == reflect.TypeFor[time.Time]():
			f.Set(reflect.ValueOf(time.UnixMilli(int64(i + 1)).UTC()))
		case f.Type() == reflect.TypeFor[processlog.ID]():
			f.Set(reflect.ValueOf(processlog.RowID(uint64(i + 1))))
		case f.Type() == reflect.TypeFor[State]():
			f.Set(reflect.ValueOf(Dead))
		case f.Type() == reflect.TypeFor[EndedBy]():
			f.Set(reflect.ValueOf(EndedByPerson))
		case f.Kind() == reflect.String:
			f.SetString(string(rune('a' + i)))
		case f.CanInt():
			f.SetInt(int64(i + 1))
		case f.CanUint():
			f.SetUint(uint64(i + 1))
		case f.Kind() == reflect.Bool:
			f.SetBool(true)
		case f.Kind() == reflect.Slice:
			f.SetBytes([]byte{'0' + byte(i)})
		case f.Kind() == reflect.Map:
			f.Set(reflect.ValueOf(map[string]string{"k": string(rune('a' + i))}))
		case f.Kind() == reflect.Struct || f.Kind() == reflect.Array: // These fields of a Row need no value, because an Entry does not have them.
		default:
			require.Fail(t, "a field of a new kind", v.Type().Field(i).Name)
		}
	}
}

// An Entry has each field of a Row, except the fields about the lease and Faults. No copy may lose a field. The test
// checks three copies:
//
//   - entryOf copies each field from a Row to an Entry.
//   - The JSON of an Entry has each field of the Entry.
//   - Row.Draft copies some fields from a Row to a Draft. Draft.Row copies each of these fields back.
func TestEntryHasEveryFieldOfARow(t *testing.T) {
	var row processlog.Row
	fill(t, reflect.ValueOf(&row).Elem())
	e := entryOf(&row, nil)
	ofRow, ofEntry := reflect.ValueOf(row), reflect.ValueOf(*e)
	for _, field := range reflect.VisibleFields(ofRow.Type()) {
		switch field.Name {
		case "Faults", "Token", "DueIn", "LeaseLeft":
			continue
		}
		got := ofEntry.FieldByName(field.Name)
		require.True(t, got.IsValid(), "Entry has no field %s", field.Name)
		require.Equal(t, ofRow.FieldByIndex(field.Index).Interface(), got.Interface(), field.Name)
	}

	text, err := json.Marshal(e)
	require.NoError(t, err)
	var back Entry
	require.NoError(t, json.Unmarshal(text, &back))
	require.Equal(t, *e, back)

	draft := row.Draft()
	recorded := draft.Row()
	require.Equal(t, draft, recorded.Draft())
	ofDraft, ofRecorded := reflect.ValueOf(draft), reflect.ValueOf(recorded)
	for _, field := range reflect.VisibleFields(ofDraft.Type()) {
		switch field.Name {
		case "Headers", "MaxAttempts", "Delay", "Token", "Lease", "Done": // Draft.Row does not copy these fields
			continue
		}
		want := ofRow.FieldByName(field.Name).Interface()
		require.Equal(t, want, ofDraft.FieldByIndex(field.Index).Interface(), field.Name)
		require.Equal(t, want, ofRecorded.FieldByName(field.Name).Interface(), field.Name)
	}
}

func TestAuditRecordsWithoutAnEntryDecodeTheirOwnJSON(t *testing.T) {
	change := processlog.AuditRecord{Action: "accept loss", Actor: "ann", Reason: "checked"}
	written, err := json.Marshal(change)
	require.NoError(t, err)
	require.Contains(t, string(written), `"entry_id":"0"`)
	decoded := processlog.AuditRecord{EntryID: processlog.RowID(7)}
	require.NoError(t, json.Unmarshal(written, &decoded))
	require.Equal(t, change, decoded)

	operation := processlog.AuditLogRecord{Action: "export", Actor: "ann", Refused: true}
	written, err = json.Marshal(operation)
	require.NoError(t, err)
	var operationDecoded processlog.AuditLogRecord
	require.NoError(t, json.Unmarshal(written, &operationDecoded))
	require.Equal(t, operation, operationDecoded)
}

// Two spellings of one id would become two members of the queue, and an acknowledgement would remove only one.
func FuzzParseEntryID(f *testing.F) {
	for _, text := range []string{"", "0", "1", "007", "+1", "-1", " 1", "1 ", "1_000", "0x1", "1e3", "१", "18446744073709551615", "18446744073709551616"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id, err := ParseEntryID(text)
		var marshaled EntryID
		require.Equal(t, err == nil || text == "0", marshaled.UnmarshalText([]byte(text)) == nil)
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
			require.ErrorAs(t, entry.encodeErr, &refused)
			require.Equal(t, "content", refused.Field)
			require.Empty(t, entry.Content)
			return
		}
		require.NoError(t, entry.encodeErr)
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

func validJSON(text string) string {
	var b strings.Builder
	for _, r := range text {
		b.WriteRune(r)
	}
	return b.String()
}

var errMoody = errors.New("not in the mood")

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

// A failed Unmarshal must cost no attempt. A panic must fail the attempt.
func FuzzFailingCodec(f *testing.F) {
	for mood := range byte(6) {
		f.Add(mood, []byte(`{}`), false)
		f.Add(mood, []byte{}, true)
	}
	c := &Compensator{}
	f.Fuzz(func(t *testing.T, mood byte, content []byte, batch bool) {
		ran := 0
		var run func(context.Context, *processlog.Row) error
		handled := engine.Type{Name: "x", Timeout: time.Minute, MaxAttempts: 3, Retry: Fixed(time.Minute)}
		cfg := &settings{TypeConfig: TypeConfig{Codec: moodyCodec{mood}}}
		if batch {
			call := c.batchHandler(typedBatch(func(_ context.Context, items []Item[parcel]) []error {
				ran += len(items)
				return nil
			}), cfg)
			run = func(ctx context.Context, row *processlog.Row) error {
				return errors.Join(call(ctx, []*processlog.Row{row})...)
			}
		} else {
			run = c.singleHandler(typed(func(context.Context, *Entry, parcel) error { ran++; return nil }), cfg)
		}
		row := &processlog.Row{ID: processlog.RowID(7), ProcessCount: 1, DeliveryCount: 1, Content: content}
		var err error
		func() {
			defer func() {
				if p := recover(); p != nil {
					err = &PanicError{Value: p}
				}
			}()
			err = run(t.Context(), row)
		}()
		o := handled.OutcomeOf(row, err, nil)
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

func TestEntryNamesWhatItsCodecRefused(t *testing.T) {
	for mood := byte(1); mood < 4; mood++ {
		err := (&Type[parcel]{name: "x", codec: moodyCodec{mood}}).Entry(parcel{}, Options{}).encodeErr
		var refused *FieldError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, "content", refused.Field)
		require.Contains(t, refused.Reason, moodyCodec{mood}.act().Error())
		require.False(t, errors.Is(err, ErrNoTransaction))
	}
}

func TestEachTextOfAnEntryHasALimit(t *testing.T) {
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Options]()) {
		if field.Type.Kind() != reflect.String {
			continue
		}
		e := NewEntry{BusinessType: "t"}
		require.Empty(t, e.problems(1))
		reflect.ValueOf(&e.Options).Elem().FieldByIndex(field.Index).SetString(strings.Repeat("x", processlog.MaxText))
		require.NotEmpty(t, e.problems(1), field.Name)
	}
}
