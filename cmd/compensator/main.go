// Compensator is what a person does at night with a log of package compensator: what is stuck, what it is worth and why, and
// how it is put right, through package admin, with the same record as its pages. README.md has the commands, the exit codes
// and the schema of what is printed.
//
// It never claims an entry and never runs a handler.
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

// The exit codes. README.md promises them.
const (
	codeDone        = 0
	codeSomeRefused = 1
	codeUsage       = 2 // or not confirmed
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

// run is the program: one call of it.
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
	if err != nil && !(errors.As(err, &silent) && silent.told) {
		p.say("%s", plain(err))
	}
	return codeOf(err)
}

// program is one call.
type program struct {
	env           func(string) string
	in, out, errs *os.File
	colour        bool
	again         bool          // what has succeeded may be done again
	readOnly      bool          // nothing is to be changed
	readTime      time.Duration // of the Admin; 0: its own
	flags         flags
}

// say tells the person something that is no result.
func (p *program) say(format string, args ...any) {
	fmt.Fprintln(p.errs, "compensator:", shown(fmt.Sprintf(format, args...)))
}

// plain is an error without the library's name, which is the program's as well.
func plain(err error) string { return strings.ReplaceAll(err.Error(), "compensator: ", "") }

// exitError is an error whose code is known; told, it has been printed.
type exitError struct {
	code int
	told bool
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// missingError is a compensator.ErrNotFound in words of its own.
type missingError struct{ text string }

func (e missingError) Error() string { return e.text }
func (e missingError) Unwrap() error { return compensator.ErrNotFound }

func usage(format string, args ...any) error {
	return &exitError{code: codeUsage, err: fmt.Errorf(format, args...)}
}

// ran marks the errors of commands: any other is of how they were called.
type ran struct{ error }

func (r ran) Unwrap() error { return r.error }

// codeOf is the exit code of an error.
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

// reasonOf is the exit code of what an answer says of an entry, a case or a type.
func reasonOf(err error) int {
	var state *compensator.StateError
	var field *compensator.FieldError
	switch {
	case errors.Is(err, compensator.ErrNotFound):
		return codeNotFound
	case errors.Is(err, compensator.ErrChanged), errors.Is(err, compensator.ErrBusy), errors.As(err, &state):
		return codeChanged
	case errors.Is(err, admin.ErrNotAllowed), errors.Is(err, admin.ErrReadOnly), denied(err):
		return codeNotAllowed
	case errors.As(err, &field):
		return codeUsage
	}
	return codeDatabase
}

// denied reports whether the database says that its user may not.
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
	case 1044, 1045, 1142, 1143, 1227, 1370, 1698: // access to a database, at login, to a table, a column, a privilege, a routine; by a plugin
		return true
	}
	return false
}

// root is the command with all others.
func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "compensator",
		Short:         "What is stuck in a compensation log, what it is worth and why; and put it right.",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	p.flags.add(root)
	root.AddCommand(p.overview(), p.types(), p.list(), p.get(), p.history(), p.batch(), p.cases(), p.auditLog())
	root.AddCommand(p.changes()...)
	root.AddCommand(p.pause(), p.resume(), p.health(), p.policy(), p.migrate(), p.ddl(), p.check(), p.purge(), p.pages(), p.version())
	return root
}

// command makes one that works on the log. What it returns as an error is its answer, not one of usage.
func (p *program) command(use, short string, args cobra.PositionalArgs, do func(ctx context.Context, args []string) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: args, DisableFlagsInUseLine: true, RunE: func(cmd *cobra.Command, args []string) error {
		if err := do(cmd.Context(), args); err != nil {
			return ran{err}
		}
		return nil
	}}
}

// onLog is a command that has the log open.
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

// discard is a logger for drivers, which would write into the middle of what is printed.
type discard struct{}

func (discard) Print(...any)                           {}
func (discard) Printf(context.Context, string, ...any) {}
