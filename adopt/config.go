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

// Config says which rows become which entries. Name, Table, Key and Map are required. Open copies the Config, fills in
// the defaults, and reports all invalid fields at once, each as a *compensator.FieldError.
//
// Table, Key, Columns, Where and Take go into SQL unchanged, so set them in your code, never from input.
type Config struct {
	// Name is part of the entries' idempotency keys. Never change Name, because with another name each row would become
	// a second entry. Name has at most 64 letters, digits, dots, hyphens and underscores.
	Name string

	// Table is the old table, whose rows become entries. Write "shop.process_log" if the table is in another schema of
	// the same server. If the field Take is set, the table must use a transactional engine, for example InnoDB. With
	// another engine, a rollback would keep the update of a row that got no entry. So the Import then returns a
	// *compensator.FieldError.
	Table string

	// Key is the table's primary key, or another unique column that is never NULL. The column holds integers, text or
	// bytes. If a pass through the table reads a value of Key twice, it returns an error.
	Key string

	// Columns lists the values that Row.Scan reads, in the order of the list. Each element is a column of Table or an
	// SQL expression.
	Columns []string

	// Where is an SQL condition that selects the rows to take. The default is all rows.
	Where string

	// Take is the SET clause of the UPDATE for a row, for example "state = 1, updated_at = NOW()". The UPDATE runs in
	// the transaction that records the row's entry. After the UPDATE, the condition Where must no longer match the row.
	// The program that ran the rows of Table before must no longer find the row either. If Take is empty, Table stays
	// unchanged, and each pass reads the whole Table again.
	Take string

	// Map returns the entry for a row. Map runs while the row is locked, so Map must not call other systems. Map may be
	// called again for the same row.
	//
	// The Import sets FailOnDuplicate to false. The Import sets IdempotencyKey if Map leaves it empty. If a service has
	// already recorded an entry with the same key, the row gets no second entry.
	//
	// If Map returns the result of Skip, the Import leaves the row to the old system. If Map returns any other error or
	// panics, the Import refuses the row.
	Map func(row *Row) (compensator.NewEntry, error)

	// StopAtRefusal ends the pass at the first refused row. The pass returns the *Refusal of the row. Rows in the same
	// transaction (Page) are not recorded either.
	StopAtRefusal bool

	Page  int           // maximum number of rows in one transaction; default 100, at most 500
	Rest  time.Duration // minimum pause between two pages; default 20 ms. The pause is at least as long as the last page took
	Every time.Duration // pause of Run between two passes; default 1 s

	// Progress, if set, receives the report of the pass after each page. Progress must return at once and must not keep
	// the report.
	Progress func(*Report)

	Logger *slog.Logger // receives warnings and notices for the operator, never content; default slog.Default()
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
	refuse(cfg.Take != "" && cfg.Where == "", "Where", "is missing: with Take set, it must not find a row that was taken")
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
