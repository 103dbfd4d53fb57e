package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/jitter"
	"github.com/compensator-go/compensator/processlog"
)

// Migrate creates those tables of a log that do not exist. If a view or a user's own table has one of their names, it
// creates nothing and returns an error.
func Migrate(ctx context.Context, db *sql.DB, table string) error {
	d, err := detectDialect(ctx, db)
	if err != nil {
		return err
	}
	statements, err := ddl(d, table)
	if err != nil {
		return err
	}
	name, err := d.table(table)
	if err != nil {
		return err
	}
	if err := tryAgain(ctx, d, func() error { return checkForeign(ctx, d, db, name) }); err != nil {
		return fmt.Errorf("migrate %s: %w", table, err)
	}
	if err := tryAgain(ctx, d, func() error { return checkForeignSides(ctx, d, db, name) }); err != nil {
		return fmt.Errorf("migrate %s: %w", table, err)
	}
	for _, statement := range statements {
		if err := tryAgain(ctx, d, func() error {
			_, err := db.ExecContext(ctx, statement)
			return err
		}); err != nil {
			return fmt.Errorf("migrate %s: %w", table, err)
		}
		failpoint.Reach(failpoint.MigrationPart)
	}
	return nil
}

// Processes that migrate at the same time sometimes deadlock, or conflict on Galera.
const migrateTries = 10

// tryAgain repeats a step while it conflicts with another process.
func tryAgain(ctx context.Context, d *dialect, step func() error) (err error) {
	for range migrateTries {
		err = step()
		if f := d.fault(err); f != faultAborted && f != faultBusy {
			return err
		}
		select {
		case <-time.After(jitter.N(200 * time.Millisecond)):
		case <-ctx.Done():
			return err
		}
	}
	return err
}

// DDL returns the statements that Migrate runs on a kind of database, "mysql" or "sqlite".
func DDL(database, table string) (string, error) {
	statements, err := ddl(dialectNamed(database), table)
	return strings.Join(statements, "\n"), err
}

func ddl(d *dialect, table string) ([]string, error) {
	if d == nil {
		return nil, &processlog.FieldError{Field: "database", Reason: `want "mysql" or "sqlite"`}
	}
	name, err := d.table(table)
	if err != nil {
		return nil, err
	}
	files, err := fs.Glob(d.migrations, "*/*.sql") // fs.Glob sorts by name.
	if err != nil {
		return nil, err
	}
	var statements []string
	for _, file := range files {
		text, err := fs.ReadFile(d.migrations, file)
		if err != nil {
			return nil, err
		}
		statements = append(statements, name.replaceDefault(string(text), d.quote))
	}
	return statements, nil
}
