package compensator

import (
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/compensator-go/compensator/processlog"
)

// entryJSON is an Entry as JSON. Names and forms stay as they are; later versions may add fields.
type entryJSON struct {
	ID              EntryID           `json:"id"`
	IdempotentID    string            `json:"idempotent_id"`
	BusinessType    string            `json:"business_type"`
	BatchID         string            `json:"batch_id,omitempty"`
	BusinessID      string            `json:"business_id,omitempty"`
	BusinessExtID   string            `json:"business_ext_id,omitempty"`
	UserID          string            `json:"user_id,omitempty"`
	UserName        string            `json:"user_name,omitempty"`
	Content         json.RawMessage   `json:"content,omitempty"`
	ContentBase64   []byte            `json:"content_base64,omitempty"`
	Headers         map[string]string `json:"headers,omitempty"`
	State           State             `json:"state"`
	ProcessCount    int               `json:"process_count"`
	MaxProcessCount int               `json:"max_process_count"`
	CompensateCount int               `json:"compensate_count"`
	DeliveryCount   int               `json:"delivery_count"`
	Version         uint64            `json:"version,string"`
	Epoch           uint32            `json:"epoch"`
	NextAt          jsonTime          `json:"next_at"`
	EndedBy         EndedBy           `json:"ended_by,omitempty"`
	LastError       string            `json:"last_error,omitempty"`
	CreatedAt       jsonTime          `json:"created_at"`
	UpdatedAt       jsonTime          `json:"updated_at"`
	Erased          bool              `json:"erased,omitempty"`
}

// MarshalJSON writes the entry for other programs, under names that stay: those of the columns. Ids and the version are
// strings, since many readers round numbers; states are words, times RFC 3339 in UTC with milliseconds. Content that is
// JSON stands under "content", the same value, but maybe other spaces and escapes; any other under "content_base64";
// none, under neither.
func (e Entry) MarshalJSON() ([]byte, error) {
	v := entryJSON{
		ID: e.ID, IdempotentID: e.IdempotentID, BusinessType: e.BusinessType, BatchID: e.BatchID, BusinessID: e.BusinessID,
		BusinessExtID: e.BusinessExtID, UserID: e.UserID, UserName: e.UserName, Headers: e.Headers,
		State: e.State, ProcessCount: e.ProcessCount, MaxProcessCount: e.MaxProcessCount, CompensateCount: e.CompensateCount,
		DeliveryCount: e.DeliveryCount, Version: e.Version, Epoch: e.Epoch, NextAt: jsonTime(e.NextAt), EndedBy: e.EndedBy,
		LastError: e.LastError, CreatedAt: jsonTime(e.CreatedAt), UpdatedAt: jsonTime(e.UpdatedAt), Erased: e.Erased,
	}
	if json.Valid(e.Content) && utf8.Valid(e.Content) {
		v.Content = e.Content
	} else {
		v.ContentBase64 = e.Content
	}
	return json.Marshal(v)
}

// UnmarshalJSON reads what MarshalJSON wrote. Decode then takes the content for JSON.
func (e *Entry) UnmarshalJSON(data []byte) error {
	var v entryJSON
	if err := json.Unmarshal(data, &v); err != nil {
		return fmt.Errorf("compensator: read an entry: %w", err)
	}
	content := []byte(v.Content)
	if content == nil {
		content = v.ContentBase64
	}
	*e = *entryOf(&processlog.Row{
		ID: v.ID, IdempotentID: v.IdempotentID, BusinessType: v.BusinessType, BatchID: v.BatchID, BusinessID: v.BusinessID,
		BusinessExtID: v.BusinessExtID, UserID: v.UserID, UserName: v.UserName, Content: content, Headers: v.Headers,
		State: v.State, ProcessCount: v.ProcessCount, MaxProcessCount: v.MaxProcessCount, CompensateCount: v.CompensateCount,
		DeliveryCount: v.DeliveryCount, Version: v.Version, Epoch: v.Epoch, NextAt: time.Time(v.NextAt), EndedBy: v.EndedBy,
		LastError: v.LastError, CreatedAt: time.Time(v.CreatedAt), UpdatedAt: time.Time(v.UpdatedAt), Erased: v.Erased,
	}, nil)
	return nil
}

// jsonTime is a time of one width, so that texts sort as times do.
type jsonTime time.Time

func (t jsonTime) MarshalText() ([]byte, error) {
	return []byte(time.Time(t).UTC().Format("2006-01-02T15:04:05.000Z07:00")), nil
}

func (t *jsonTime) UnmarshalText(text []byte) error {
	parsed, err := time.Parse(time.RFC3339, string(text))
	*t = jsonTime(parsed.UTC())
	return err
}
