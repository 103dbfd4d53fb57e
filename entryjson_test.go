package compensator

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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

// FuzzEntryJSON encodes an entry with any content as JSON and decodes it. Content that is JSON must be equal
// afterwards. Other content must be the same, byte for byte.
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

// fill sets every exported field of a struct to a value that differs from its zero value and from the other fields.
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
		case f.Kind() == reflect.Struct || f.Kind() == reflect.Array: // values of a row that no Entry has
		default:
			require.Fail(t, "a field of a new kind", v.Type().Field(i).Name)
		}
	}
}

// TestEntryHasEveryFieldOfARow fails if a field is added in one place and forgotten in another. An Entry has all fields of
// a Row, except those of its lease and its Faults. entryOf copies all of them, JSON has all of them, and Draft.Row copies
// all that Row.Draft does.
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
		case "Headers", "MaxAttempts", "Delay", "Token", "Lease", "Done": // Draft.Row says that a row gets only the content and its texts
			continue
		}
		want := ofRow.FieldByName(field.Name).Interface()
		require.Equal(t, want, ofDraft.FieldByIndex(field.Index).Interface(), field.Name)
		require.Equal(t, want, ofRecorded.FieldByName(field.Name).Interface(), field.Name)
	}
}
