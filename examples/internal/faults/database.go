package faults

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"
)

// ReadOnlyFor returns a fault that makes a database server read-only for a while.
func ReadOnlyFor(span time.Duration, root string) (dsn string, b Fault, err error) {
	config, err := mysql.ParseDSN(root)
	if err != nil {
		return "", b, err
	}
	db, err := sql.Open("mysql", root)
	if err != nil {
		return "", b, err
	}
	defer db.Close()
	for _, statement := range []string{"CREATE USER service IDENTIFIED BY 'secret'", fmt.Sprintf("GRANT ALL ON %s.* TO service", config.DBName)} {
		if _, err := db.Exec(statement); err != nil {
			return "", b, err
		}
	}
	config.User, config.Passwd = "service", "secret"
	return config.FormatDSN(), Fault{What: fmt.Sprintf("database: read_only for %v", span), Strike: func(ctx context.Context) error {
		return readOnly(ctx, root, span)
	}}, nil
}

func readOnly(ctx context.Context, root string, span time.Duration) error {
	db, err := sql.Open("mysql", root)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, "SET GLOBAL read_only = 1"); err != nil {
		return err
	}
	Pause(ctx, span)
	_, err = db.ExecContext(context.WithoutCancel(ctx), "SET GLOBAL read_only = 0")
	return err
}
