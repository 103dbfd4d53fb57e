package main

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/processlog"
)

type allFlags struct{ all, first, confirmed bool }

func (p *program) changeMatching(ctx context.Context, s *session, verb string, ch admin.Change, args, conditions []string, flags allFlags) error {
	if len(args) > 0 || len(conditions) == 0 {
		return newUsageError("--all wants --where, and no entries")
	}
	w, err := parseWhere(conditions)
	if err := cmp.Or(err, w.check()); err != nil {
		return err
	}
	search := admin.Search{Filter: w.Filter, Failure: w.failure}
	if search.Failure != (admin.Fingerprint{}) && len(search.Filter.States) == 0 { // Only dead entries have open cases.
		search.Filter.States = []compensator.State{compensator.Dead}
	}
	if len(search.Filter.States) == 0 {
		return newUsageError("--all wants a state in --where, for example state=dead")
	}
	found, err := s.Matching(ctx, s.actor, ch.Action, search)
	if err != nil {
		return err
	}
	if found.N == 0 && !found.More {
		p.printf("no entry matches, so nothing was done")
		p.warnConditions(ctx, s, conditions)
		return nil
	}
	if err := p.previewMatching(ctx, s, verb, ch, found, flags.confirmed); err != nil {
		return err
	}
	id, err := s.StartMatching(ctx, s.actor, ch, search, admin.BulkOptions{TryFirst: flags.first})
	if id == (admin.BulkID{}) {
		return err
	}
	p.printf("compensator bulk %s shows what becomes of them", id)
	p.printf("compensator bulk go-on %s goes on, also after an interruption. bulk stop ends the action", id)
	if err != nil {
		return err
	}
	if flags.first {
		return p.printBulkNow(ctx, s, id)
	}
	return p.goOn(ctx, s, id)
}

// previewMatching asks for confirmation unless --yes is set.
func (p *program) previewMatching(ctx context.Context, s *session, verb string, ch admin.Change, found admin.Matching, isConfirmed bool) error {
	number := strconv.Itoa(found.N)
	subject := []string{verb + " " + countMany(found.N, found.More)}
	for _, sum := range found.Sums {
		subject = append(subject, formatUnits(sum.Minor, sum.Currency))
	}
	p.printf("would %s, as %s, because %q%s", strings.Join(subject, ", worth "), s.actor.ID, ch.Reason, delayText(ch.Delay))
	switch {
	case found.Unknown > 0 && ch.Checked:
		p.printf("! the outcome of %s is unknown, and you have checked", processlog.EntryCount(found.Unknown))
	case found.Unknown > 0:
		p.printf("! the outcome of %s is unknown, so they are left out. Find out what happened, then add --checked", processlog.EntryCount(found.Unknown))
	}
	if found.Finished > 0 && !ch.Again {
		p.printf("! %s ended already, so they are left out. Add --again to run such entries again", processlog.EntryCount(found.Finished))
	}
	if found.NotAllowed > 0 {
		p.printf("! you may not change %s, so they are left out", processlog.EntryCount(found.NotAllowed))
	}
	if isConfirmed {
		return nil
	}
	return p.confirm(ctx, verb, number)
}

func countMany(n int, more bool) string {
	if more {
		return "more than " + processlog.EntryCount(n)
	}
	return processlog.EntryCount(n)
}

func (p *program) goOn(ctx context.Context, s *session, id admin.BulkID) error {
	err := s.FinishBulk(ctx, s.actor, id, func(now admin.BulkProgress) {
		if now.Left > 0 {
			p.printf("%d changed, %s left", now.Changed, countMany(now.Left, now.More))
		}
	})
	if errors.Is(err, admin.ErrContinued) {
		p.printf("another process goes on with this action or has stopped it, so this one stops")
	} else if err != nil {
		return err
	}
	return p.printBulkNow(ctx, s, id)
}
