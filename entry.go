package compensator

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/compensator-go/compensator/processlog"
)

// Entry is one row of the process log, as read from the database. A handler gets its own copy. A change of the copy
// does not change the stored row.
//
// The tags are the names of the fields in JSON. See MarshalJSON.
type Entry struct {
	ID             EntryID           `json:"id"`                        // id of the row, which the database assigns
	IdempotencyKey IdempotencyKey    `json:"idempotent_id"`             // Options.IdempotencyKey, or the key that Record drew
	BusinessType   string            `json:"business_type"`             // names the handler
	BatchID        string            `json:"batch_id,omitempty"`        // Options.BatchID
	BusinessID     string            `json:"business_id,omitempty"`     // Options.BusinessID
	BusinessExtID  string            `json:"business_ext_id,omitempty"` // Options.BusinessExtID
	UserID         string            `json:"user_id,omitempty"`         // Options.UserID
	UserName       string            `json:"user_name,omitempty"`       // Options.UserName; empty after Erase
	Content        []byte            `json:"content,omitempty"`         // input of the handler, as the codec encoded it. Decode decodes it. Empty after Erase, and in listings without content
	Headers        map[string]string `json:"headers,omitempty"`         // Options.Headers and the headers of Config.Propagator

	State           State     `json:"state"`              // how far the entry has come
	ProcessCount    int       `json:"process_count"`      // failures recorded in this epoch
	MaxAttempts     int       `json:"max_process_count"`  // overrides HandlerConfig.MaxAttempts; 0: use the type's
	CompensateCount int       `json:"compensate_count"`   // failed compensations in this epoch. A dead entry with more than 0 had a compensation that began
	DeliveryCount   int       `json:"delivery_count"`     // number of consecutive leases without a recorded outcome. The present lease counts
	Version         uint64    `json:"version,string"`     // grows by one with each write of the row, except the renewal of a lease
	Epoch           uint32    `json:"epoch"`              // 0 at first. A requeue, a manual settlement or an erasure by a person adds one
	NextAt          time.Time `json:"next_at"`            // due time, or the time at which a terminal state was reached. UTC, milliseconds, as all times here
	EndedBy         EndedBy   `json:"ended_by,omitempty"` // cause of the terminal state; empty in other states
	// LastError is the error of the last failed attempt. In the first attempt of a compensation it is the error of the
	// handler. A success clears it.
	LastError string `json:"last_error,omitempty"`
	Erased    bool   `json:"erased,omitempty"` // set by Erase of package admin
	Result    []byte `json:"result,omitempty"` // result of the handler, as the codec encoded it. Only the methods Wait of this package and Reveal of package admin read it

	CreatedAt time.Time `json:"created_at"` // time at which the entry was recorded, by the database's clock
	UpdatedAt time.Time `json:"updated_at"` // time of the last write of the row, by the database's clock

	codec Codec
	owner *Compensator    // the Compensator that gave this entry to a handler; otherwise nil
	row   *processlog.Row // row of the attempt, if a handler has this entry; otherwise nil

	beginTx func() (*ScopedTx, error) // begins the handler's transaction, if HandleCall registered the handler; nil in all other cases
}

func entryOf(row *processlog.Row, codec Codec) *Entry {
	return &Entry{
		ID: row.ID, IdempotencyKey: row.IdempotencyKey, BusinessType: row.BusinessType, BatchID: row.BatchID,
		BusinessID: row.BusinessID, BusinessExtID: row.BusinessExtID, UserID: row.UserID, UserName: row.UserName,
		Content: row.Content, Headers: row.Headers,
		State: row.State, ProcessCount: row.ProcessCount, MaxAttempts: row.MaxAttempts, CompensateCount: row.CompensateCount,
		DeliveryCount: row.DeliveryCount, Version: row.Version, Epoch: row.Epoch, NextAt: row.NextAt, EndedBy: row.EndedBy,
		LastError: row.LastError, Erased: row.Erased, Result: row.Result, CreatedAt: row.CreatedAt, UpdatedAt: row.UpdatedAt,
		codec: codec,
	}
}

func (c *Compensator) handlerEntry(row *processlog.Row, codec Codec) *Entry {
	e := entryOf(row, codec)
	e.owner, e.row = c, row
	return e
}

// Context returns parent with the values that Config.Propagator carried with the entry. The context of a plain handler
// already has them; the context of a batch does not. If no handler was given this entry, Context returns parent.
func (e *Entry) Context(parent context.Context) context.Context {
	if e.owner == nil {
		return parent
	}
	return e.owner.extract(parent, e.Headers)
}

// Attempt returns the number of this run of the handler or of the compensation, in the present epoch. It is 1 for
// the first run. Earlier runs count only if a failure was recorded.
func (e *Entry) Attempt() int {
	if e.State == Compensating {
		return e.CompensateCount + 1
	}
	return e.ProcessCount + 1
}

// CallKey returns the idempotency key to send with the calls that your handler makes to other services. All attempts
// and the compensation of an entry have the same key, until a person requeues the entry. A requeue changes the key, so
// that the services do the work again.
//
// After a requeue, a service cannot find the earlier calls by the new key. If the compensation must find the earlier
// calls, also send an id of your own with each call.
//
// Two logs may give the same id to different entries, for example in production and in a staging copy. If the handlers
// of several logs call the same service, put the name of the log in front of the key.
func (e *Entry) CallKey() string {
	return e.ID.String() + "-" + strconv.FormatUint(uint64(e.Epoch), 10)
}

// Decode decodes Content into the value that v points to, with the codec of the type. If this process does not know the
// type, Decode uses JSON. It returns the error of the codec unchanged. An erased entry has no content, and JSON refuses
// that. Decode may be called concurrently.
func (e *Entry) Decode(v any) error {
	codec := e.codec
	if codec == nil {
		codec = JSON
	}
	content := e.Content
	if sealing, ok := codec.(SealingCodec); ok {
		var err error
		if content, err = sealing.Open(content, e.BusinessType, string(e.IdempotencyKey)); err != nil {
			return err
		}
	}
	return codec.Unmarshal(content, v)
}

// Codec encodes values as content and decodes them. Its methods are called concurrently.
type Codec interface {
	// Marshal encodes a value. If Marshal returns an error, the library does not store the value. For example, Record
	// then returns an error and records nothing.
	Marshal(v any) ([]byte, error)

	// Unmarshal decodes data into v, which is a pointer. It must not keep data.
	Unmarshal(data []byte, v any) error
}

// SealingCodec is a Codec that seals content for one entry, for example by encryption. If a type was registered or
// declared with such a codec, Record seals its content and Entry.Decode opens it. See package encrypt.
type SealingCodec interface {
	Codec

	// Seal returns content in its sealed form. businessType and idempotencyKey name the entry that it belongs to.
	Seal(content []byte, businessType, idempotencyKey string) ([]byte, error)

	// Open reverses Seal. It returns an error if content was not sealed for this type and key.
	Open(content []byte, businessType, idempotencyKey string) ([]byte, error)
}

// JSON is the default Codec.
var JSON Codec = jsonCodec{}

type jsonCodec struct{}

func (jsonCodec) Marshal(v any) ([]byte, error)      { return json.Marshal(v) }
func (jsonCodec) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }

type entryFields Entry

// entryJSON is the JSON form of an Entry. Later versions may add fields, but never change a name or a format.
type entryJSON struct {
	entryFields
	Content       json.RawMessage `json:"content,omitempty"`
	ContentBase64 []byte          `json:"content_base64,omitempty"`
	Result        json.RawMessage `json:"result,omitempty"`
	ResultBase64  []byte          `json:"result_base64,omitempty"`
	NextAt        jsonTime        `json:"next_at"`
	CreatedAt     jsonTime        `json:"created_at"`
	UpdatedAt     jsonTime        `json:"updated_at"`
}

// MarshalJSON encodes the entry for other programs, under the names of the columns. These names do not change. Ids and
// the version are strings, because many readers round large numbers. States are words. Times are RFC 3339 in UTC with
// milliseconds. JSON content is under "content", and is encoded again, so its white space and escapes may differ from the stored text.
// Any other content is under "content_base64". A result is under "result" or "result_base64" in the same way.
func (e Entry) MarshalJSON() ([]byte, error) {
	v := entryJSON{entryFields: entryFields(e), NextAt: jsonTime(e.NextAt), CreatedAt: jsonTime(e.CreatedAt), UpdatedAt: jsonTime(e.UpdatedAt)}
	v.Content, v.ContentBase64 = jsonOrBytes(e.Content)
	v.Result, v.ResultBase64 = jsonOrBytes(e.Result)
	return json.Marshal(v)
}

func jsonOrBytes(text []byte) (json.RawMessage, []byte) {
	if json.Valid(text) && utf8.Valid(text) {
		return text, nil
	}
	return nil, text
}

// UnmarshalJSON reads what MarshalJSON wrote, and replaces the whole entry. After an error the entry is unchanged. An
// entry that was read this way does not know its codec, so its method Decode uses JSON.
func (e *Entry) UnmarshalJSON(data []byte) error {
	var v entryJSON
	if err := json.Unmarshal(data, &v); err != nil {
		return fmt.Errorf("compensator: read an entry: %w", err)
	}
	*e = Entry(v.entryFields)
	e.NextAt, e.CreatedAt, e.UpdatedAt = time.Time(v.NextAt), time.Time(v.CreatedAt), time.Time(v.UpdatedAt)
	if e.Content = v.Content; e.Content == nil {
		e.Content = v.ContentBase64
	}
	if e.Result = v.Result; e.Result == nil {
		e.Result = v.ResultBase64
	}
	return nil
}

// jsonTime is a time with a fixed number of characters, so that its text sorts as the time does.
type jsonTime time.Time

func (t jsonTime) MarshalText() ([]byte, error) {
	return []byte(time.Time(t).UTC().Format("2006-01-02T15:04:05.000Z07:00")), nil
}

func (t *jsonTime) UnmarshalText(text []byte) error {
	parsed, err := time.Parse(time.RFC3339, string(text))
	*t = jsonTime(parsed.UTC())
	return err
}
