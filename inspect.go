package compensator

import (
	"context"
	"fmt"
	"time"
)

// Get reads one entry as committed. ErrNotFound.
func (c *Compensator) Get(ctx context.Context, ref Ref) (*Entry, error) {
	id, isID := ref.(EntryID)
	if !isID {
		key, _ := ref.(IdempotentID)
		ids, err := c.store.IDs(ctx, nil, []string{string(key)})
		if err != nil {
			return nil, err
		}
		id = ids[string(key)]
	}
	rows, err := c.store.Load(ctx, []EntryID{id})
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("%v: %w", ref, ErrNotFound)
	}
	return c.decodable(&rows[0].Entry), nil
}

// decodable gives an entry the codec of its type, if this process has it.
func (c *Compensator) decodable(e *Entry) *Entry {
	if t := c.types.named(e.BusinessType); t != nil {
		e.codec = t.cfg.Codec
	}
	return e
}

// List reads a page of entries. Pages do not shift while entries are added or move on: a cursor stands for
// a position, not for a count.
func (c *Compensator) List(ctx context.Context, filter Filter) (Page, error) {
	page, err := c.store.List(ctx, filter)
	for i := range page.Entries {
		c.decodable(&page.Entries[i])
	}
	return page, err
}

// Count counts entries by state and type, each only up to CountFilter.AtMost: its cost does not grow with
// the table.
func (c *Compensator) Count(ctx context.Context, filter CountFilter) ([]Count, error) {
	return c.store.Count(ctx, filter)
}

// History lists what people did to an entry, oldest first; to the log as a whole, for the zero EntryID.
func (c *Compensator) History(ctx context.Context, id EntryID) ([]AuditRecord, error) {
	return c.store.History(ctx, id)
}

// Progress is how far the entries of a batch have come.
type Progress struct {
	Total     int
	Done      int // in a terminal state
	Succeeded int
	Dead      int
	ByState   map[State]int
	More      bool // the batch is larger than was counted
}

// Finished reports whether every entry of the batch has reached a terminal state.
func (p Progress) Finished() bool { return p.Total > 0 && p.Done == p.Total && !p.More }

// BatchProgress counts the entries recorded with a batch id, up to 1,000,000.
func (c *Compensator) BatchProgress(ctx context.Context, batchID string) (Progress, error) {
	p := Progress{ByState: make(map[State]int)}
	if batchID == "" {
		return p, &FieldError{Field: "batch id", Reason: "is empty"}
	}
	counts, err := c.store.Count(ctx, CountFilter{BatchID: batchID, AtMost: 1_000_000})
	for _, count := range counts {
		p.Total += count.N
		p.ByState[count.State] += count.N
		p.More = p.More || count.More
		if count.State.Terminal() {
			p.Done += count.N
		}
	}
	p.Succeeded, p.Dead = p.ByState[Succeeded], p.ByState[Dead]
	return p, err
}

// Purge deletes entries that reached one of states more than age before it was called, in steps of at most 1,000 that no
// producer waits for, and returns how many; ctx ends it between steps. An idempotent id guards against a
// second recording only as long as its entry is kept, so age should exceed the time a repeated event may
// take to arrive. Without states: succeeded, compensated and cancelled ones. Dead entries wait for a person,
// so they go only when named. A purge of entries younger than an hour leaves a note in the audit table, by which other
// processes tell it from a loss.
func (c *Compensator) Purge(ctx context.Context, age time.Duration, states ...State) (int, error) {
	if age < time.Minute {
		return 0, &FieldError{Field: "age", Reason: fmt.Sprintf("%v is less than 1m", age)}
	}
	if len(states) == 0 {
		states = []State{Succeeded, Compensated, Cancelled}
	}
	began := time.Now() // a purge may take long, and its note does not speak of what others see after it
	if age < testimonyLife {
		if err := c.store.Note(ctx, ActionPurge, ByHand{Actor: "Purge", Reason: fmt.Sprintf("entries older than %v", age)}); err != nil {
			return 0, err
		}
	}
	deleted := 0
	for _, state := range states {
		for {
			n, err := c.store.Purge(ctx, state, age+time.Since(began), purgeStep)
			deleted += n
			if err != nil {
				return deleted, err
			}
			if n < purgeStep {
				break
			}
		}
	}
	return deleted, nil
}

const purgeStep = 1000

// Filter selects entries for List. Give at most one of BatchID, BusinessID and BusinessExtID; the other
// fields narrow further. Every filter is served by an index.
type Filter struct {
	States        []State // any, when empty
	BusinessType  string
	BatchID       string
	BusinessID    string
	BusinessExtID string
	CreatedFrom   time.Time // inclusive
	CreatedTo     time.Time // exclusive
	Newest        bool      // newest first instead of oldest first
	Limit         int       // 0: 50; at most 1,000
	Cursor        string    // Page.Next of the page before
}

// Page is one page of a listing.
type Page struct {
	Entries []Entry
	Next    string // the cursor of the following page; empty at the end
}

// CountFilter selects what Count counts.
type CountFilter struct {
	BatchID      string // one batch; any when empty
	BusinessType string
	AtMost       int // stop counting a group there; 0: 10,000
}

// Count is the number of entries of one state and type.
type Count struct {
	BusinessType string
	State        State
	N            int
	More         bool // there are more than N; counting stopped at CountFilter.AtMost
}

// AuditRecord is one action of a person.
type AuditRecord struct {
	EntryID EntryID
	At      time.Time     // UTC, milliseconds
	Ago     time.Duration // At less the database's now
	Action  Action
	Actor   string
	Reason  string
	Before  AuditState
	After   AuditState
}

// AuditState is what an AuditRecord keeps of an entry.
type AuditState struct {
	State        State  `json:"state"`
	Version      uint64 `json:"version"`
	Epoch        uint32 `json:"epoch"`
	ProcessCount int    `json:"process_count"`
	LastError    string `json:"last_error,omitempty"`
}
