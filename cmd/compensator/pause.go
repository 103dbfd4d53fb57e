package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/compensator-go/compensator/admin"
)

func (p *program) newPauseCommand() *cobra.Command {
	var isAhead bool
	cmd := p.newTypeCommand("pause <type>", "Stop all services from claiming entries of a type", func(ctx context.Context, s *session, name string, why admin.Why, isConfirmed bool) error {
		if err := p.confirmUnless(ctx, isConfirmed, "pause", name); err != nil {
			return err
		}
		pause := s.Pause
		if isAhead {
			pause = s.PauseAhead
		}
		if err := pause(ctx, s.actor, name, why); errors.As(err, new(*admin.UnknownTypeError)) {
			return missingError{strings.TrimPrefix(err.Error(), "admin: ") + " (--ahead pauses a type that has no entries yet)"}
		} else if err != nil {
			return err
		}
		p.printf("services with Config.Operations stop claiming its entries from their next round on, within 12 s by default. Running attempts continue")
		return nil
	})
	cmd.Flags().BoolVar(&isAhead, "ahead", false, "also pause a type that the log does not have yet")
	return cmd
}

func (p *program) newResumeCommand() *cobra.Command {
	return p.newTypeCommand("resume <type>", "End a pause", func(ctx context.Context, s *session, name string, why admin.Why, isConfirmed bool) error {
		paused, err := s.Paused(ctx, s.actor)
		if err != nil {
			return err
		}
		for _, pause := range paused {
			if pause.Type != name {
				continue
			}
			p.printf("paused by %s at %s: %s", pause.Actor, formatTable(pause.At), pause.Reason)
			if err := p.confirmUnless(ctx, isConfirmed, "resume", name); err != nil {
				return err
			}
			return s.Resume(ctx, s.actor, pause, why)
		}
		if err := s.CheckType(ctx, s.actor, name); errors.As(err, new(*admin.UnknownTypeError)) {
			return missingError{strings.TrimPrefix(err.Error(), "admin: ")}
		} else if err != nil {
			return err
		}
		return missingError{fmt.Sprintf("%q is not paused", name)}
	})
}

// newTypeCommand returns a command for one type. A shell can complete the type.
func (p *program) newTypeCommand(use, summary string, do func(ctx context.Context, s *session, name string, why admin.Why, isConfirmed bool) error) *cobra.Command {
	cmd := p.newNamedCommand(use, summary, do)
	cmd.ValidArgsFunction = p.completeType
	return cmd
}

// newNamedCommand returns a command whose argument is the name of a type or of a limit. The command requires --reason.
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
	cmd.Flags().BoolVar(&isConfirmed, "yes", false, "do it without asking")
	return cmd
}

// confirmUnless asks the person to type a word, unless --yes is set.
func (p *program) confirmUnless(ctx context.Context, isConfirmed bool, verb, word string) error {
	if isConfirmed {
		return nil
	}
	p.printf("would %s %s", verb, word)
	return p.confirm(ctx, verb, word)
}
