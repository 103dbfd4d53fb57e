package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/spf13/cobra"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/processlog"
)

func (p *program) migrate() *cobra.Command {
	return p.command("migrate", "Create the log's missing tables, also those of Config.Operations. The command ddl prints the statements", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		db, _, err := p.database(true)
		if err != nil {
			return err
		}
		defer db.Close()
		if err := compensator.MigrateTable(ctx, db, p.flags.table); err != nil {
			return err
		}
		p.say("the tables of %s exist", p.flags.table)
		return nil
	})
}

// database opens the database without checking the log.
func (p *program) database(create bool) (*sql.DB, string, error) {
	dsn, warning, err := p.flags.data(p.env)
	if err != nil {
		return nil, "", err
	}
	if warning != "" {
		p.say("%s", warning)
	}
	return openDB(dsn, create)
}

func (p *program) ddl() *cobra.Command {
	cmd := p.command("ddl mysql|sqlite", "Print the statements of migrate", cobra.ExactArgs(1), func(_ context.Context, args []string) error {
		text, err := compensator.DDL(args[0], p.flags.table)
		if err == nil {
			_, err = fmt.Fprintln(p.out, text)
		}
		return err
	})
	cmd.ValidArgs = []string{"mysql", "sqlite"}
	return cmd
}

func (p *program) check() *cobra.Command {
	var grants bool
	cmd := p.command("check", "Check that the server meets the requirements of the log and has its tables. --grants prints the rights to grant", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		if grants {
			return p.grants()
		}
		db, _, err := p.database(false)
		if err != nil {
			return err
		}
		defer db.Close()
		store, err := compensator.OpenStore(ctx, db, p.flags.table)
		if err != nil {
			return err
		}
		defer store.Close()
		return p.checkStore(ctx, store)
	})
	cmd.Flags().BoolVar(&grants, "grants", false, "print the grants for a reader and an operator, for MySQL")
	return cmd
}

func (p *program) checkStore(ctx context.Context, store processlog.Store) error {
	if err := store.Check(ctx); err != nil {
		return p.noLog(err)
	}
	l := listing{kind: "check", single: true, columns: []column{{"server", ""}, {"operations", ""}}}
	version := ""
	noted, is := store.(interface {
		Version() string
		Notes() []string
	})
	if is {
		version = noted.Version()
		for _, note := range noted.Notes() {
			p.say("%s", note)
		}
	}
	ops, is := store.(processlog.Operations)
	var missing *compensator.FieldError
	err := errors.New("no tables")
	if is {
		err = ops.CheckOperations(ctx)
	}
	if err != nil && !errors.As(err, &missing) {
		return err
	}
	if err != nil {
		p.say("%s", plain(noOperations(p.flags.table)))
	}
	l.rows = [][]any{{version, err == nil}}
	return p.print(l)
}

// grantLines lists the grants for each table, for two roles: a reader, and an operator who may also purge.
var grantLines = []struct{ suffix, reader, operator string }{
	{"", "SELECT", "SELECT, INSERT, UPDATE"},
	{"_audit", "SELECT", "SELECT, INSERT"},
	{"_meta", "SELECT", "SELECT"},
	{"_fault", "SELECT", "SELECT, INSERT, UPDATE"},
	{"_result", "SELECT", "SELECT"},
	{"_attempt", "SELECT", "SELECT"},
	{"_stat", "SELECT", "SELECT"},
	{"_case", "SELECT", "SELECT, UPDATE"},
	{"_operation", "SELECT", "SELECT, INSERT"},
	{"_setting", "SELECT", "SELECT, INSERT, UPDATE"},
	{"_limit", "SELECT", "SELECT, UPDATE"},
	{"_turns", "SELECT", "SELECT, DELETE"}, // SELECT to find overdue entries that are not blocked; DELETE to purge the rows of erased and ended entries
}

// grants prints the statements that a database administrator must run.
func (p *program) grants() error {
	dsn, _, err := p.flags.data(p.env)
	if err != nil {
		return err
	}
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil || isSQLite(dsn) {
		return usage("--grants is for MySQL and MariaDB: on SQLite, a person who may write the file may do anything")
	}
	database, table, qualified := strings.Cut(p.flags.table, ".")
	if !qualified {
		database, table = cfg.DBName, database
	}
	for _, who := range []string{"reader", "operator"} {
		fmt.Fprintf(p.out, "-- %s: every command that only reads, except check%s\n", who, map[string]string{"operator": "; check, requeue, compensate, settle, cancel, complete, reschedule, cases, pause, resume"}[who])
		for _, line := range grantLines {
			rights := line.reader
			if who == "operator" {
				rights = line.operator
			}
			if rights == "" {
				continue
			}
			fmt.Fprintf(p.out, "GRANT %s ON `%s`.`%s%s` TO 'compensator_%s'@'%%';\n", rights, database, table, line.suffix, who)
		}
	}
	_, err = fmt.Fprintf(p.out, "-- for purge, in addition to the grants of an operator\nGRANT DELETE ON `%[1]s`.`%[2]s` TO 'compensator_operator'@'%%';\nGRANT DELETE ON `%[1]s`.`%[2]s_fault` TO 'compensator_operator'@'%%';\nGRANT DELETE ON `%[1]s`.`%[2]s_result` TO 'compensator_operator'@'%%';\nGRANT DELETE ON `%[1]s`.`%[2]s_attempt` TO 'compensator_operator'@'%%';\n", database, table)
	return err
}

func (p *program) purge() *cobra.Command {
	var why why
	var yes bool
	var older time.Duration
	cmd := p.onLog("purge", "Delete entries that succeeded, were compensated or were cancelled longer ago than --older", cobra.NoArgs, toChange,
		func(ctx context.Context, s *session, _ []string) error {
			reason, err := why.text()
			if err != nil {
				return err
			}
			if older < time.Minute {
				return usage("--older is missing or below one minute: give how long ago the entries must have ended, for example 720h")
			}
			if err := s.allow(ctx, purgeRight, reason); err != nil {
				return err
			}
			p.say("the idempotency keys of deleted entries are forgotten: a repeated event is processed again")
			if err := p.sure(ctx, yes, "purge what ended longer ago than", older.String()); err != nil {
				return err
			}
			err = s.store.Operate(ctx, processlog.Operation{Actor: s.actor.ID, Action: string(purgeRight), Subject: "older than " + older.String(), Reason: reason})
			if err != nil {
				return err
			}
			n, err := admin.Of(s.c).Purge(ctx, older)
			return cmp.Or(p.print(listing{kind: "purge", single: true, columns: []column{{"deleted", ""}}, rows: [][]any{{n}}}), err)
		})
	cmd.Flags().DurationVar(&older, "older", 0, "minimum time since the entries ended: 720h")
	cmd.Flags().BoolVar(&yes, "yes", false, "do it without asking")
	why.add(cmd)
	return cmd
}

func (p *program) version() *cobra.Command {
	return p.command("version", "The program's version, its commit, and its schema's version", cobra.NoArgs, func(context.Context, []string) error {
		version, commit := built()
		return p.print(listing{kind: "version", single: true, columns: []column{{"version", ""}, {"commit", ""}, {"schema_version", ""}}, rows: [][]any{{version, commit, schema}}})
	})
}

// built returns the version and the commit from which the program was built. commit is empty if the build does not know
// it, and ends with "+changes" if the tree had changes that were not committed.
func built() (version, commit string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown", ""
	}
	changes := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			changes = "+changes"
		}
	}
	if commit == "" {
		changes = ""
	}
	return info.Main.Version, commit + changes
}

// builtText is what --version prints.
func builtText() string {
	version, commit := built()
	return fmt.Sprintf("%s, commit %s", version, cmp.Or(commit, "unknown"))
}
