package adopt

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/usererr"
)

// Config says which rows become which entries. Name, Table, Key and Map are required. Table, Key, Columns, Where and Take go
// into SQL as they stand here, so they come from code and from nobody else. Open copies it, fills in the defaults named below,
// and reports everything wrong with it at once, as *compensator.FieldError.
type Config struct {
	// Name is part of the entries' idempotency keys, and never changes: with another one each row becomes a second entry. At most
	// 64 letters, digits, dots, hyphens and underscores.
	Name string

	// Table is the old table, "shop.process_log" if it is in another schema of the same server. It is on a transactional engine.
	Table string

	// Key is its primary key, or another column that is unique and never NULL: whole numbers, text, or bytes.
	Key string

	// Columns are what Row.Scan reads, in its order: columns of Table, or expressions in SQL.
	Columns []string

	// Where is a condition in SQL that says which rows to take. Default: all.
	Where string

	// Take is what is assigned to a row in the transaction that records its entry: "state = 1, updated_at = NOW()". Where must
	// not find the row any more, nor must the old scanner. Empty leaves the table as it is: each pass reads all of it again.
	Take string

	// Map says which entry a row becomes. Its FailOnDuplicate is set by the Import, and its IdempotencyKey if it is empty. Whoever
	// sets one knows that rows and services which share it share an entry. Skip leaves a row to the old system; any other error, or a
	// panic, refuses it. It is called while the row is locked, so it asks nobody. It may be called again for a row.
	Map func(row *Row) (compensator.NewEntry, error)

	StopAtRefusal bool // a refused row ends the pass with its *Refusal. The rest of its page is not recorded

	Page  int           // how many rows one transaction takes at most. Default 100; at most 500
	Rest  time.Duration // the least between two pages; as long as a page took, if that was longer. Default 20 ms
	Every time.Duration // how long Run rests between two passes. Default 1 s

	// Progress, if given, is told how the pass stands, after each of its pages. It must return at once, and not keep the report.
	Progress func(*Report)

	Logger *slog.Logger // gets what an operator should know; content is never logged. Default slog.Default()
}

func (cfg Config) withDefaults() Config {
	setDefault(&cfg.Where, "1=1")
	setDefault(&cfg.Page, 100)
	setDefault(&cfg.Rest, 20*time.Millisecond)
	setDefault(&cfg.Every, time.Second)
	setDefault(&cfg.Logger, slog.Default())
	cfg.Logger = usererr.Logger(cfg.Logger)
	return cfg
}

var (
	goodName   = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
	goodTable  = regexp.MustCompile(`^[A-Za-z0-9_$]{1,64}(\.[A-Za-z0-9_$]{1,64})?$`)
	goodColumn = regexp.MustCompile(`^[A-Za-z0-9_$]{1,64}$`)
)

func (cfg Config) validate() error {
	var problems []error
	refuse := func(bad bool, field, reason string) {
		if bad {
			problems = append(problems, &compensator.FieldError{Field: field, Reason: reason})
		}
	}
	refuse(!goodName.MatchString(cfg.Name), "Name", fmt.Sprintf("%q: want 1 to 64 letters, digits, dots, hyphens and underscores", cfg.Name))
	refuse(!goodTable.MatchString(cfg.Table), "Table", fmt.Sprintf("%q: want the name of a table, or schema.table, unquoted", cfg.Table))
	refuse(!goodColumn.MatchString(cfg.Key), "Key", fmt.Sprintf("%q: want the name of one column, unquoted", cfg.Key))
	refuse(cfg.Take != "" && cfg.Where == "", "Where", "is missing: after Take it must not find the row any more")
	refuse(cfg.Map == nil, "Map", "is missing")
	refuse(cfg.Page < 0 || cfg.Page > 500, "Page", fmt.Sprintf("%d: want 1 to 500", cfg.Page))
	refuse(cfg.Rest < 0, "Rest", fmt.Sprintf("%v is negative", cfg.Rest))
	refuse(cfg.Every < 0, "Every", fmt.Sprintf("%v is negative", cfg.Every))
	return errors.Join(problems...)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
