package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/compensator-go/compensator/admin"
)

func (p *program) newPauseCommand() *cobra.Command {
	var opts admin.PauseOptions
	var until string
	var again bool
	cmd := p.newTypeCommand("pause <type>", "Stop all services from claiming entries of a type, for a time or until somebody resumes it", func(ctx context.Context, s *session, name string, why admin.Why, isConfirmed bool) error {
		end, err := time.Parse(time.RFC3339, until)
		if err != nil && until != "" {
			return newUsageError("--until %q: give a time such as 2026-01-31T10:00:00Z", until)
		}
		if again {
			seen, err := p.showPause(ctx, s, name)
			if err != nil {
				return err
			}
			opts.Instead = seen.Version
		}
		if err := p.confirmUnless(ctx, isConfirmed, "pause", name); err != nil {
			return err
		}
		if until != "" {
			if opts.For = time.Until(end); opts.For < time.Second {
				return newUsageError("--until %s: the time is past", until)
			}
		}
		if err := s.PauseWith(ctx, s.actor, name, opts, why); errors.As(err, new(*admin.UnknownTypeError)) {
			return missingError{strings.TrimPrefix(err.Error(), "admin: ") + " (--ahead pauses a type that has no entries yet)"}
		} else if err != nil {
			return err
		}
		p.printf("services with Config.Operations stop claiming its entries from their next round on, within 12 s by default. Running attempts continue")
		if opts.For > 0 {
			p.printf("the pause ends by itself after %v", opts.For.Round(time.Second))
		}
		return nil
	})
	cmd.Flags().BoolVar(&opts.Ahead, "ahead", false, "also pause a type that has no entries yet")
	cmd.Flags().BoolVar(&again, "again", false, "give the pause of a paused type a new end")
	cmd.Flags().DurationVar(&opts.For, "for", 0, "length of the pause, such as 2h")
	cmd.Flags().StringVar(&until, "until", "", "end of the pause, such as 2026-01-31T10:00:00Z")
	cmd.MarkFlagsMutuallyExclusive("for", "until")
	return cmd
}

func (p *program) newResumeCommand() *cobra.Command {
	return p.newTypeCommand("resume <type>", "End a pause", func(ctx context.Context, s *session, name string, why admin.Why, isConfirmed bool) error {
		pause, err := p.showPause(ctx, s, name)
		if err != nil {
			return err
		}
		if err := p.confirmUnless(ctx, isConfirmed, "resume", name); err != nil {
			return err
		}
		return s.Resume(ctx, s.actor, pause, why)
	})
}

// showPause returns a missingError if the type is not paused.
func (p *program) showPause(ctx context.Context, s *session, name string) (admin.Paused, error) {
	paused, err := s.Paused(ctx, s.actor)
	if err != nil {
		return admin.Paused{}, err
	}
	for _, pause := range paused {
		if pause.Type != name {
			continue
		}
		end := ""
		if !pause.Until.IsZero() {
			end = " until " + formatTable(pause.Until)
		}
		p.printf("paused by %s at %s%s: %s", pause.Actor, formatTable(pause.At), end, pause.Reason)
		return pause, nil
	}
	if err := s.CheckType(ctx, s.actor, name); errors.As(err, new(*admin.UnknownTypeError)) {
		return admin.Paused{}, missingError{strings.TrimPrefix(err.Error(), "admin: ")}
	} else if err != nil {
		return admin.Paused{}, err
	}
	return admin.Paused{}, missingError{fmt.Sprintf("%q is not paused", name)}
}

func (p *program) newTypeCommand(use, summary string, do func(ctx context.Context, s *session, name string, why admin.Why, isConfirmed bool) error) *cobra.Command {
	cmd := p.newNamedCommand(use, summary, do)
	cmd.ValidArgsFunction = p.completeType
	return cmd
}

// The command requires --reason.
func (p *program) newNamedCommand(use, summary string, do func(ctx context.Context, s *session, name string, why admin.Why, isConfirmed bool) error) *cobra.Command {
	var why why
	var isConfirmed bool
	cmd := p.newLogCommand(use, summary, cobra.ExactArgs(1), operateAccess, func(ctx context.Context, s *session, args []string) error {
		if err := why.validate(); err != nil {
			return err
		}
		var answers results
		err := do(ctx, s, args[0], why.Why, isConfirmed)
		if code := reasonOf(err); err != nil && (code == codeUsage || code == codeDatabase) {
			return err // This error is about the whole command, not about the type.
		}
		answers.addResult(args[0], err)
		return p.answer(answers)
	})
	why.addFlags(cmd)
	cmd.Flags().BoolVar(&isConfirmed, "yes", false, "make the change without asking")
	return cmd
}

func (p *program) confirmUnless(ctx context.Context, isConfirmed bool, verb, word string) error {
	if isConfirmed {
		return nil
	}
	p.printf("would %s %s", verb, word)
	return p.confirm(ctx, verb, word)
}
