package main

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/processlog"
)

func (p *program) newBulkCommand() *cobra.Command {
	var outcome string
	cmd := p.newLogCommand("bulk <action>", "Show the present state of the entries of an earlier bulk action", cobra.ExactArgs(1), readAccess,
		func(ctx context.Context, s *session, args []string) error {
			view, err := s.readBulk(ctx, args[0])
			if err != nil {
				return err
			}
			if outcome != "" {
				return p.printBulkEntries(ctx, s, view, admin.BulkOutcome(outcome))
			}
			return p.printBulk(view)
		})
	cmd.Flags().StringVar(&outcome, "outcome", "", "list the entries that have this outcome now, for example dead")
	cmd.AddCommand(p.newBulkGoOnCommand(), p.newBulkTryCommand(), p.newBulkStopCommand())
	return cmd
}

func (p *program) newBulkStopCommand() *cobra.Command {
	return p.newLogCommand("stop <action>", "End a change that began with --all, so that it changes no further entry", cobra.ExactArgs(1), changeAccess,
		func(ctx context.Context, s *session, args []string) error {
			view, err := s.readBulk(ctx, args[0])
			if err != nil {
				return err
			}
			if err := s.StopBulk(ctx, s.actor, view.ID); err != nil {
				return err
			}
			return p.printBulkNow(ctx, s, view.ID)
		})
}

// newBulkGoOnCommand returns the command that acts on the entries that are left after --first or --all.
func (p *program) newBulkGoOnCommand() *cobra.Command {
	var isConfirmed bool
	cmd := p.newLogCommand("go-on <action>", "Continue a change that began with --first or --all", cobra.ExactArgs(1), changeAccess,
		func(ctx context.Context, s *session, args []string) error {
			view, err := s.readBulk(ctx, args[0])
			if err != nil {
				return err
			}
			if view.Left == 0 {
				p.printf("no entry is left, so nothing was done")
				return p.printBulk(view)
			}
			p.printTrials(view)
			if !isConfirmed {
				p.printf("would %s the other %d, as %s, because %q", view.Action, view.Left, s.actor.ID, view.Reason)
				if err := p.confirm(ctx, string(view.Action), strconv.Itoa(view.Left)); err != nil {
					return err
				}
			}
			if view.Search != nil {
				return p.goOn(ctx, s, view.ID)
			}
			if err := s.ContinueBulk(ctx, s.actor, view.ID); err != nil {
				return err
			}
			return p.printBulkNow(ctx, s, view.ID)
		})
	cmd.Flags().BoolVar(&isConfirmed, "yes", false, "make the change without asking")
	return cmd
}

// newBulkTryCommand returns the command that tries one more entry before the others.
func (p *program) newBulkTryCommand() *cobra.Command {
	var isConfirmed bool
	cmd := p.newLogCommand("try <action>", "Try one more entry of a change that began with --first, before the others", cobra.ExactArgs(1), changeAccess,
		func(ctx context.Context, s *session, args []string) error {
			view, err := s.readBulk(ctx, args[0])
			if err != nil {
				return err
			}
			if len(view.Trials) == 0 || view.Left == 0 {
				p.printf("this change tries no entry first, or has changed the others, so nothing was done")
				return p.printBulk(view)
			}
			p.printTrials(view)
			if !isConfirmed {
				p.printf("would %s one more of the other %d, as %s, because %q", view.Action, view.Left, s.actor.ID, view.Reason)
				if err := p.confirm(ctx, string(view.Action), "1"); err != nil {
					return err
				}
			}
			if err := s.TryAnother(ctx, s.actor, view.ID, view.LastBatch); err != nil {
				return err
			}
			if view, err = s.Bulk(ctx, s.actor, view.ID); err != nil {
				return err
			}
			p.printTrials(view)
			return p.printBulk(view)
		})
	cmd.Flags().BoolVar(&isConfirmed, "yes", false, "make the change without asking")
	return cmd
}

func (p *program) printTrials(view admin.BulkView) {
	for _, trial := range view.Trials {
		p.printf("entry %s was tried first: %s", trial.ID, trial.Outcome)
	}
}

func (s *session) readBulk(ctx context.Context, text string) (admin.BulkView, error) {
	id, err := admin.ParseBulkID(text)
	if err != nil {
		return admin.BulkView{}, newUsageError("%q is not an action, as the commands that change entries print it", text)
	}
	view, err := s.Bulk(ctx, s.actor, id)
	return view, err
}

func (p *program) printBulkNow(ctx context.Context, s *session, id admin.BulkID) error {
	view, err := s.Bulk(ctx, s.actor, id)
	if err != nil {
		return err
	}
	return p.printBulk(view)
}

func (p *program) printBulk(view admin.BulkView) error {
	p.printf("%s by %s at %s, because %q: %d of %d changed, %d left", view.Action, view.Actor, formatTable(view.At), view.Reason, view.Changed, view.Total, view.Left)
	l := listing{kind: "outcome", columns: []column{{"outcome", "OUTCOME"}, {"entries", "ENTRIES"}, {"skipped", "NOT CHANGED"}}}
	for _, outcome := range admin.BulkOutcomes {
		if n := view.Outcomes[outcome]; n > 0 {
			l.rows = append(l.rows, []any{string(outcome), n, false})
		}
	}
	for _, why := range slices.Sorted(maps.Keys(view.LeftOut)) {
		l.rows = append(l.rows, []any{strings.ReplaceAll(why, "_", " "), view.LeftOut[why], true})
	}
	if view.NotFollowed > 0 {
		p.printf("the outcomes are those of the last batches: %s of earlier batches are not followed", processlog.EntryCount(view.NotFollowed))
	}
	if view.StoppedBy != "" {
		p.printf("stopped by %s, before it got to %s", view.StoppedBy, processlog.EntryCount(view.NotVisited()))
	}
	return p.print(l)
}

func (p *program) printBulkEntries(ctx context.Context, s *session, view admin.BulkView, outcome admin.BulkOutcome) error {
	if !slices.Contains(admin.BulkOutcomes[:], outcome) {
		return newUsageError("--outcome %q: give one of %v", outcome, admin.BulkOutcomes)
	}
	lines, err := s.lines(ctx, view.Entries[outcome])
	if err != nil {
		return err
	}
	var entries []compensator.Entry
	for _, id := range view.Entries[outcome] {
		if line := lines[id]; line != nil {
			entries = append(entries, line.Entry)
		}
	}
	return p.print(entryListing("entry", entries))
}
