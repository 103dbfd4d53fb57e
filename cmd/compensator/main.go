// Compensator is a command line program for a log of package compensator. It uses package admin and writes the same
// records as the web pages. README.md lists the commands, the exit codes and the schema of the output.
//
// The program never claims an entry and never runs a handler.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/spf13/cobra"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
)

// These are the exit codes. README.md documents them.
const (
	codeDone        = 0
	codeSomeRefused = 1
	codeUsage       = 2 // wrong usage, or the person did not confirm
	codeNotFound    = 3
	codeChanged     = 4
	codeNotAllowed  = 5
	codeDatabase    = 6
	codeUnhealthy   = 7
	codeInterrupted = 130
)

func main() {
	silenceDrivers()
	os.Exit(run(os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr))
}

func run(args []string, env func(string) string, stdin, stdout, stderr *os.File) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	p := &program{env: env, stdin: stdin, stdout: stdout, stderr: stderr, colour: hasColour(stdout, env), readTime: readLimit}
	root := p.newRootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := oneLine(root.ExecuteContext(ctx))
	if ctx.Err() != nil && err != nil {
		p.printf("interrupted: %s", plainText(err))
		return codeInterrupted
	}
	var exitErr *exitError
	if err != nil && !(errors.As(err, &exitErr) && exitErr.isPrinted) {
		p.printf("%s", plainText(err))
	}
	return codeOf(err)
}

// oneLine joins the lines of an error about wrong usage. The library of commands puts its suggestions on lines of their
// own.
func oneLine(err error) error {
	if err == nil || errors.As(err, new(runError)) || errors.As(err, new(*exitError)) || !strings.Contains(err.Error(), "\n") {
		return err
	}
	return errors.New(strings.Join(strings.Fields(err.Error()), " "))
}

type program struct {
	env                   func(string) string
	stdin, stdout, stderr *os.File
	colour                bool
	canRepeat             bool          // whether finished entries may run again
	readOnly              bool          // whether to refuse all changes
	readTime              time.Duration // Options.ReadTime of the Admin; 0: the default
	flags                 flags
}

func (p *program) printf(format string, args ...any) {
	fmt.Fprintln(p.stderr, "compensator:", printable(fmt.Sprintf(format, args...)))
}

// plainText removes "compensator: ", because printf puts this word before each message.
func plainText(err error) string { return strings.ReplaceAll(err.Error(), "compensator: ", "") }

// exitError ends the program with an exit code. If isPrinted is set, the command has already told the person about the
// error, so run does not print it.
type exitError struct {
	code      int
	isPrinted bool
	err       error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

type missingError struct{ text string }

func (e missingError) Error() string { return e.text }
func (e missingError) Unwrap() error { return compensator.ErrNotFound }

func newUsageError(format string, args ...any) error {
	return &exitError{code: codeUsage, err: fmt.Errorf(format, args...)}
}

// An error that is not a runError means wrong usage.
type runError struct{ error }

func (r runError) Unwrap() error { return r.error }

func codeOf(err error) int {
	var exitErr *exitError
	var command runError
	switch {
	case err == nil:
		return codeDone
	case errors.As(err, &exitErr):
		return exitErr.code
	case !errors.As(err, &command):
		return codeUsage
	}
	return reasonOf(err)
}

func reasonOf(err error) int {
	var state *compensator.StateError
	var field *compensator.FieldError
	switch {
	case errors.Is(err, compensator.ErrNotFound):
		return codeNotFound
	case errors.Is(err, admin.ErrChanged), errors.Is(err, compensator.ErrBusy), errors.As(err, &state):
		return codeChanged
	case errors.Is(err, admin.ErrNotAllowed), errors.Is(err, admin.ErrReadOnly), isDenied(err):
		return codeNotAllowed
	case errors.As(err, &field):
		return codeUsage
	}
	return codeDatabase
}

func isDenied(err error) bool {
	var file *sqlite.Error
	if errors.As(err, &file) {
		return file.Code()&0xff == sqlite3.SQLITE_READONLY
	}
	var mysqlErr *mysql.MySQLError
	if !errors.As(err, &mysqlErr) {
		return false
	}
	switch mysqlErr.Number {
	case 1044, 1045, 1142, 1143, 1227, 1370, 1698: // MySQL denies access to: the database, the login, a table, a column, a privilege, a routine, a login by plugin.
		return true
	}
	return false
}

func (p *program) newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "compensator",
		Short:         "Show what is stuck in a compensation log, its amount and the reason, and repair it.",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       builtText(),
	}
	p.flags.addFlags(root)
	addGroup := func(id, title string, commands ...*cobra.Command) {
		root.AddGroup(&cobra.Group{ID: id, Title: title})
		for _, cmd := range commands {
			cmd.GroupID = id
			if examples[cmd.Name()] != "" {
				cmd.Example = "  compensator " + strings.Join(strings.Split(examples[cmd.Name()], "\n"), "\n  compensator ")
			}
		}
		root.AddCommand(commands...)
	}
	addGroup("look", "Look:", p.newOverviewCommand(), p.newTypesCommand(), p.newListCommand(), p.newGetCommand(), p.newExplainCommand(), p.newTimelineCommand(), p.newHistoryCommand(), p.newBatchCommand(), p.newBulkCommand(), p.newCasesCommand(), p.newAuditLogCommand(), p.newStatsCommand(), p.newInstancesCommand(), p.newPeriodicCommand())
	addGroup("change", "Change entries:", p.newChangeCommands()...)
	addGroup("types", "Pause and limit types:", p.newPauseCommand(), p.newResumeCommand(), p.newLimitsCommand(), p.newLimitCommand())
	addGroup("log", "The log and this program:", p.newHealthCommand(), p.newPolicyCommand(), p.newMigrateCommand(), p.newDdlCommand(), p.newCheckCommand(), p.newPurgeCommand(), p.newPagesCommand(), p.newVersionCommand())
	root.SetHelpCommandGroupID("log")
	root.SetCompletionCommandGroupID("log")
	return root
}

// examples maps the name of a command to calls of the command, one a line.
var examples = map[string]string{
	"list":       "list --where type=refund,state=dead --newest\nlist --where running=yes\nlist --where business=o-4711 -o json",
	"explain":    "explain 4711\nexplain key:refund-o-4711",
	"bulk":       "bulk 97-3f6c9ab20d5e41c8\nbulk go-on 97-3f6c9ab20d5e41c8",
	"cases":      "cases list --groups\ncases take 4711 --reason 'I call the bank'",
	"trail":      "trail --limit 20",
	"requeue":    "requeue 4711 --reason 'PSP is back'\nrequeue --where type=refund,state=dead --first --reason 'PSP is back'",
	"compensate": "compensate 4711 --reason 'the order was cancelled'",
	"settle":     "settle 4711 --reason 'paid in cash' --ticket OPS-988",
	"cancel":     "cancel --where batch=b77,state=pending --reason 'a wrong import'",
	"complete":   "complete 4711 --reason 'the nightly job has done it'",
	"reschedule": "reschedule 4711 --delay 2h --reason 'the bank opens at nine'",
	"pause":      "pause refund --reason 'PSP is down'",
	"limit":      "limit psp --reset --reason 'PSP is back'",
	"purge":      "purge --older 720h --reason 'end of the month'",
	"ui":         "ui\nui --write",
}

// newCommand wraps each error of the function do in a runError. An error without a runError means wrong usage.
func (p *program) newCommand(use, summary string, args cobra.PositionalArgs, do func(ctx context.Context, args []string) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: summary, Args: args, DisableFlagsInUseLine: true, RunE: func(cmd *cobra.Command, args []string) error {
		if err := do(cmd.Context(), args); err != nil {
			return runError{err}
		}
		return nil
	}}
}

func (p *program) newLogCommand(use, summary string, args cobra.PositionalArgs, level accessLevel, do func(ctx context.Context, s *session, args []string) error) *cobra.Command {
	return p.newCommand(use, summary, args, func(ctx context.Context, args []string) error {
		if err := p.flags.format.validate(use); err != nil {
			return err
		}
		s, err := p.openSession(ctx, level)
		if err != nil {
			return err
		}
		return errors.Join(do(ctx, s, args), s.Close())
	})
}

// discard drops the log lines of drivers, which would mix with the output.
type discard struct{}

func (discard) Print(...any)                           {}
func (discard) Printf(context.Context, string, ...any) {}
