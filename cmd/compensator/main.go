// Compensator is a command line program for a log of package compensator. It shows which entries are stuck, their
// amounts, and the reasons. With it you can also repair entries. It uses package admin and writes the same records as
// the web pages. README.md lists the commands, the exit codes and the schema of the output.
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
	quietDrivers()
	os.Exit(run(os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr))
}

// run makes one call of the program and returns the exit code.
func run(args []string, env func(string) string, in, out, errs *os.File) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	p := &program{env: env, in: in, out: out, errs: errs, colour: colourful(out, env), readTime: readLimit}
	root := p.root()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errs)
	err := root.ExecuteContext(ctx)
	if ctx.Err() != nil && err != nil {
		p.say("interrupted: %s", plain(err))
		return codeInterrupted
	}
	var silent *exitError
	if err != nil && !(errors.As(err, &silent) && silent.printed) {
		p.say("%s", plain(err))
	}
	return codeOf(err)
}

// program is one run of the command, with its arguments and streams.
type program struct {
	env           func(string) string
	in, out, errs *os.File
	colour        bool
	again         bool          // whether finished entries may run again
	readOnly      bool          // whether to refuse all changes
	readTime      time.Duration // Options.ReadTime of the Admin; 0: the default
	flags         flags
}

// say prints a message to standard error.
func (p *program) say(format string, args ...any) {
	fmt.Fprintln(p.errs, "compensator:", shown(fmt.Sprintf(format, args...)))
}

// plain returns the text of an error without "compensator: ". The program prints its own name, which is the same.
func plain(err error) string { return strings.ReplaceAll(err.Error(), "compensator: ", "") }

// exitError is an error with an exit code. If printed is set, the program has already printed the error.
type exitError struct {
	code    int
	printed bool
	err     error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// missingError is a compensator.ErrNotFound with another text.
type missingError struct{ text string }

func (e missingError) Error() string { return e.text }
func (e missingError) Unwrap() error { return compensator.ErrNotFound }

func usage(format string, args ...any) error {
	return &exitError{code: codeUsage, err: fmt.Errorf(format, args...)}
}

// ran wraps an error of a command that has started its work. An error without this wrapper means wrong usage.
type ran struct{ error }

func (r ran) Unwrap() error { return r.error }

// codeOf returns the exit code of an error.
func codeOf(err error) int {
	var known *exitError
	var command ran
	switch {
	case err == nil:
		return codeDone
	case errors.As(err, &known):
		return known.code
	case !errors.As(err, &command):
		return codeUsage
	}
	return reasonOf(err)
}

// reasonOf returns the exit code for the error of one entry, case or type.
func reasonOf(err error) int {
	var state *compensator.StateError
	var field *compensator.FieldError
	switch {
	case errors.Is(err, compensator.ErrNotFound):
		return codeNotFound
	case errors.Is(err, admin.ErrChanged), errors.Is(err, compensator.ErrBusy), errors.As(err, &state):
		return codeChanged
	case errors.Is(err, admin.ErrNotAllowed), errors.Is(err, admin.ErrReadOnly), denied(err):
		return codeNotAllowed
	case errors.As(err, &field):
		return codeUsage
	}
	return codeDatabase
}

// denied reports whether the database refused access because the user lacks a privilege.
func denied(err error) bool {
	var file *sqlite.Error
	if errors.As(err, &file) {
		return file.Code()&0xff == sqlite3.SQLITE_READONLY
	}
	var answer *mysql.MySQLError
	if !errors.As(err, &answer) {
		return false
	}
	switch answer.Number {
	case 1044, 1045, 1142, 1143, 1227, 1370, 1698: // MySQL denies access to: the database, the login, a table, a column, a privilege, a routine, a login by plugin.
		return true
	}
	return false
}

// root returns the root command with all other commands.
func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "compensator",
		Short:         "Show what is stuck in a compensation log, its amount and the reason, and repair it.",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       builtText(),
	}
	p.flags.add(root)
	root.AddCommand(p.overview(), p.types(), p.list(), p.get(), p.explain(), p.timeline(), p.history(), p.batch(), p.cases(), p.auditLog(), p.stats())
	root.AddCommand(p.changes()...)
	root.AddCommand(p.pause(), p.resume(), p.limits(), p.limit(), p.health(), p.policy(), p.migrate(), p.ddl(), p.check(), p.purge(), p.pages(), p.version())
	return root
}

// command returns a command that calls do. An error of do does not count as wrong usage.
func (p *program) command(use, short string, args cobra.PositionalArgs, do func(ctx context.Context, args []string) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: args, DisableFlagsInUseLine: true, RunE: func(cmd *cobra.Command, args []string) error {
		if err := do(cmd.Context(), args); err != nil {
			return ran{err}
		}
		return nil
	}}
}

// onLog returns a command that opens the log and then calls do.
func (p *program) onLog(use, short string, args cobra.PositionalArgs, need need, do func(ctx context.Context, s *session, args []string) error) *cobra.Command {
	return p.command(use, short, args, func(ctx context.Context, args []string) error {
		if err := p.flags.format.check(use); err != nil {
			return err
		}
		s, err := p.open(ctx, need)
		if err != nil {
			return err
		}
		return errors.Join(do(ctx, s, args), s.Close())
	})
}

// discard is a logger that drops the log lines of drivers, because they would mix with the output.
type discard struct{}

func (discard) Print(...any)                           {}
func (discard) Printf(context.Context, string, ...any) {}
