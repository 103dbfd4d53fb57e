package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/compensator-go/compensator/admin"
)

func (p *program) pause() *cobra.Command {
	var ahead bool
	cmd := p.onType("pause <type>", "Stop all services from claiming entries of a type", func(ctx context.Context, s *session, name string, why admin.Why, yes bool) error {
		if err := p.sure(ctx, yes, "pause", name); err != nil {
			return err
		}
		pause := s.Pause
		if ahead {
			pause = s.PauseAhead
		}
		if err := pause(ctx, s.actor, name, why); errors.As(err, new(*admin.UnknownTypeError)) {
			return missingError{strings.TrimPrefix(err.Error(), "admin: ") + " (--ahead pauses a type that has no entries yet)"}
		} else if err != nil {
			return err
		}
		p.say("services with Config.Operations stop claiming its entries from their next round on, within 12 s by default. Running attempts continue")
		return nil
	})
	cmd.Flags().BoolVar(&ahead, "ahead", false, "also pause a type that the log does not have yet")
	return cmd
}

func (p *program) resume() *cobra.Command {
	return p.onType("resume <type>", "End a pause", func(ctx context.Context, s *session, name string, why admin.Why, yes bool) error {
		paused, err := s.Paused(ctx, s.actor)
		if err != nil {
			return err
		}
		for _, is := range paused {
			if is.Type != name {
				continue
			}
			p.say("paused by %s at %s: %s", is.Actor, forTable(is.At), is.Reason)
			if err := p.sure(ctx, yes, "resume", name); err != nil {
				return err
			}
			return s.Resume(ctx, s.actor, is, why)
		}
		if err := s.CheckType(ctx, s.actor, name); errors.As(err, new(*admin.UnknownTypeError)) {
			return missingError{strings.TrimPrefix(err.Error(), "admin: ")}
		} else if err != nil {
			return err
		}
		return missingError{fmt.Sprintf("%q is not paused", name)}
	})
}

// onType returns a command for one type. A shell can complete the type.
func (p *program) onType(use, short string, do func(ctx context.Context, s *session, name string, why admin.Why, yes bool) error) *cobra.Command {
	cmd := p.onNamed(use, short, do)
	cmd.ValidArgsFunction = p.completeType
	return cmd
}

// onNamed returns a command whose argument is the name of a type or of a limit. The command requires --reason.
func (p *program) onNamed(use, short string, do func(ctx context.Context, s *session, name string, why admin.Why, yes bool) error) *cobra.Command {
	var why why
	var yes bool
	cmd := p.onLog(use, short, cobra.ExactArgs(1), toOperate, func(ctx context.Context, s *session, args []string) error {
		if err := why.check(); err != nil {
			return err
		}
		var answers results
		err := do(ctx, s, args[0], why.Why, yes)
		if code := reasonOf(err); err != nil && (code == codeUsage || code == codeDatabase) {
			return err // This error is about the whole command, not about the type.
		}
		answers.add(args[0], err)
		return p.answer(answers)
	})
	why.add(cmd)
	cmd.Flags().BoolVar(&yes, "yes", false, "do it without asking")
	return cmd
}

// sure asks the person to type a word, unless --yes is set.
func (p *program) sure(ctx context.Context, yes bool, verb, word string) error {
	if yes {
		return nil
	}
	p.say("would %s %s", verb, word)
	return p.confirm(ctx, verb, word)
}
