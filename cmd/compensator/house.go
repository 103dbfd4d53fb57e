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

func (p *program) newMigrateCommand() *cobra.Command {
	return p.newCommand("migrate", "Create the log's missing tables, also those of Config.Operations. The command ddl prints the statements", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		db, _, err := p.database(true)
		if err != nil {
			return err
		}
		defer db.Close()
		if err := compensator.MigrateTable(ctx, db, p.flags.table); err != nil {
			return err
		}
		p.printf("the tables of %s exist", p.flags.table)
		return nil
	})
}

func (p *program) database(create bool) (*sql.DB, string, error) {
	dsn, warning, err := p.flags.databaseFlags(p.env)
	if err != nil {
		return nil, "", err
	}
	if warning != "" {
		p.printf("%s", warning)
	}
	return openDB(dsn, create)
}

func (p *program) newDdlCommand() *cobra.Command {
	cmd := p.newCommand("ddl mysql|sqlite", "Print the SQL statements that the command migrate runs", cobra.ExactArgs(1), func(_ context.Context, args []string) error {
		text, err := compensator.DDL(args[0], p.flags.table)
		if err == nil {
			_, err = fmt.Fprintln(p.stdout, text)
		}
		return err
	})
	cmd.ValidArgs = []string{"mysql", "sqlite"}
	return cmd
}

func (p *program) newCheckCommand() *cobra.Command {
	var grants bool
	cmd := p.newCommand("check", "Check that the server meets the requirements of the log and has its tables. --grants prints the rights to grant", cobra.NoArgs, func(ctx context.Context, _ []string) error {
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
		return p.explainNoLog(err)
	}
	l := listing{kind: "check", isSingle: true, columns: []column{{"server", ""}, {"operations", ""}}}
	version := ""
	reporter, ok := store.(interface {
		Version() string
		Notes() []string
	})
	if ok {
		version = reporter.Version()
		for _, note := range reporter.Notes() {
			p.printf("%s", note)
		}
	}
	ops, ok := store.(processlog.Operations)
	var fieldErr *compensator.FieldError
	err := errors.New("no tables")
	if ok {
		err = ops.CheckOperations(ctx)
	}
	if err != nil && !errors.As(err, &fieldErr) {
		return err
	}
	if err != nil {
		p.printf("%s", plainText(newNoOperationsError(p.flags.table)))
	}
	l.rows = [][]any{{version, err == nil}}
	return p.print(l)
}

var grantLines = []struct{ suffix, reader, operator string }{
	{"", "SELECT", "SELECT, INSERT, UPDATE"},
	{"_audit", "SELECT", "SELECT, INSERT"},
	{"_meta", "SELECT", "SELECT"},
	{"_fault", "SELECT", "SELECT, INSERT, UPDATE"},
	{"_result", "SELECT", "SELECT"},
	{"_attempt", "SELECT", "SELECT"},
	{"_stat", "SELECT", "SELECT"},
	{"_instance", "SELECT", "SELECT"},
	{"_slots", "SELECT", "SELECT"},
	{"_case", "SELECT", "SELECT, UPDATE"},
	{"_operation", "SELECT", "SELECT, INSERT"},
	{"_setting", "SELECT", "SELECT, INSERT, UPDATE"},
	{"_limit", "SELECT", "SELECT, UPDATE"},
	{"_turns", "SELECT", "SELECT, DELETE"}, // SELECT to find overdue entries that are not blocked; DELETE to purge the rows of erased and ended entries
}

// grants prints the statements that a database administrator must run.
func (p *program) grants() error {
	dsn, _, err := p.flags.databaseFlags(p.env)
	if err != nil {
		return err
	}
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil || isSQLite(dsn) {
		return newUsageError("--grants is for MySQL and MariaDB: on SQLite, a person who may write the file may do anything")
	}
	database, table, isQualified := strings.Cut(p.flags.table, ".")
	if !isQualified {
		database, table = cfg.DBName, database
	}
	for _, account := range []string{"reader", "operator"} {
		fmt.Fprintf(p.stdout, "-- %s: every command that only reads, except check%s\n", account, map[string]string{"operator": "; check, requeue, compensate, settle, cancel, complete, reschedule, cases, pause, resume"}[account])
		for _, line := range grantLines {
			rights := line.reader
			if account == "operator" {
				rights = line.operator
			}
			if rights == "" {
				continue
			}
			fmt.Fprintf(p.stdout, "GRANT %s ON `%s`.`%s%s` TO 'compensator_%s'@'%%';\n", rights, database, table, line.suffix, account)
		}
	}
	_, err = fmt.Fprintf(p.stdout, "-- for purge, in addition to the grants of an operator\nGRANT DELETE ON `%[1]s`.`%[2]s` TO 'compensator_operator'@'%%';\nGRANT DELETE ON `%[1]s`.`%[2]s_fault` TO 'compensator_operator'@'%%';\nGRANT DELETE ON `%[1]s`.`%[2]s_result` TO 'compensator_operator'@'%%';\nGRANT DELETE ON `%[1]s`.`%[2]s_attempt` TO 'compensator_operator'@'%%';\n", database, table)
	return err
}

func (p *program) newPurgeCommand() *cobra.Command {
	var why why
	var isConfirmed bool
	var minAge time.Duration
	cmd := p.newLogCommand("purge", "Delete entries that succeeded, were compensated or were cancelled longer ago than --older", cobra.NoArgs, changeAccess,
		func(ctx context.Context, s *session, _ []string) error {
			reason, err := why.text()
			if err != nil {
				return err
			}
			if minAge < time.Minute {
				return newUsageError("--older is missing or below one minute: give how long ago the entries must have ended, for example 720h")
			}
			if err := s.checkRight(ctx, purgeRight, reason); err != nil {
				return err
			}
			p.printf("the idempotency keys of deleted entries are forgotten: a repeated event is processed again")
			if err := p.confirmUnless(ctx, isConfirmed, "purge what ended longer ago than", minAge.String()); err != nil {
				return err
			}
			err = s.store.Operate(ctx, processlog.Operation{Actor: s.actor.ID, Action: string(purgeRight), Subject: "older than " + minAge.String(), Reason: reason})
			if err != nil {
				return err
			}
			n, err := admin.Of(s.c).Purge(ctx, minAge)
			return cmp.Or(p.print(listing{kind: "purge", isSingle: true, columns: []column{{"deleted", ""}}, rows: [][]any{{n}}}), err)
		})
	cmd.Flags().DurationVar(&minAge, "older", 0, "minimum time since the entries ended, for example 720h")
	cmd.Flags().BoolVar(&isConfirmed, "yes", false, "make the change without asking")
	why.addFlags(cmd)
	return cmd
}

func (p *program) newVersionCommand() *cobra.Command {
	return p.newCommand("version", "Print the version of the program, its commit, and the version of its output", cobra.NoArgs, func(context.Context, []string) error {
		version, commit := buildVersion()
		return p.print(listing{kind: "version", isSingle: true, columns: []column{{"version", ""}, {"commit", ""}, {"schema_version", ""}}, rows: [][]any{{version, commit, schema}}})
	})
}

// buildVersion returns the version and the commit from which the program was built. commit is empty if the build does
// not know it, and ends with "+changes" if the tree had changes that were not committed.
func buildVersion() (version, commit string) {
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

func builtText() string {
	version, commit := buildVersion()
	return fmt.Sprintf("%s, commit %s", version, cmp.Or(commit, "unknown"))
}
