package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/processlog"
)

func (p *program) newCasesCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "cases", Short: "Entries that wait for a person"}
	cmd.AddCommand(p.newCaseListCommand(), p.newCaseTakeCommand(), p.newCaseNoteCommand())
	return cmd
}

var caseColumns = []column{{"entry_id", "ENTRY"}, {"case_version", ""}, {"business_type", "TYPE"}, {"kind_of_case", "CASE"}, {"error", "ERROR"}, {"amount_minor", ""}, {"currency", ""},
	{"worth", "WORTH"}, {"owner", "OWNER"}, {"due_at", "DUE"}, {"opened_at", ""}, {"closed_at", "CLOSED"}, {"business_id", ""}, {"ended_by", ""}, {"failure", "FAILURE"}, {"epoch", ""}}

func caseListing(cases []admin.Case) listing {
	l := listing{kind: "case", columns: caseColumns}
	for _, c := range cases {
		amount, currency := amountFields(c.Amount)
		l.rows = append(l.rows, []any{digits(c.EntryID.String()), digits(fmt.Sprint(c.Version)), c.BusinessType, c.Kind.String(), c.Error, amount, currency,
			amountText(c.Amount), c.Owner, c.DueAt, c.OpenedAt, c.ClosedAt, c.BusinessID, string(c.EndedBy), c.Fingerprint.String(), int(c.Epoch)})
		l.ids = append(l.ids, fmt.Sprintf("%s:c%d", c.EntryID, c.Version))
	}
	return l
}

func (p *program) newCaseListCommand() *cobra.Command {
	var filter admin.CaseFilter
	var failure string
	var limit int
	var isMine, groups, isUnknown bool
	cmd := p.newLogCommand("list", "List open cases, the case that is due first at the top. With --groups, list groups of similar failures with their amounts", cobra.NoArgs, operateAccess,
		func(ctx context.Context, s *session, _ []string) error {
			if err := checkLimit(limit); err != nil {
				return err
			}
			if failure != "" {
				if err := filter.Fingerprint.UnmarshalText([]byte(failure)); err != nil {
					return newUsageError("--failure: %v", err)
				}
			}
			if isMine {
				filter.Owner = s.actor.ID
			}
			if isUnknown {
				filter.Kind = admin.CaseUnknown
			}
			l := listing{}
			if groups {
				rows, hasMore, err := s.groupsOf(ctx, filter.BusinessType)
				if err != nil {
					return err
				}
				l = groupListing(rows)
				if l.hasMore = hasMore && p.flags.format == "json"; hasMore && !l.hasMore {
					p.printf("these are the failures with the most cases. There may be more, so the sums may be too low")
				}
			} else {
				rows, hasMore, err := s.casesOf(ctx, filter, limit)
				if err != nil {
					return err
				}
				l = caseListing(rows)
				l.hasMore = hasMore
			}
			if len(l.rows) == 0 {
				p.warnType(ctx, s, filter.BusinessType)
				if err := p.explainNone(ctx, s); err != nil {
					return err
				}
			}
			return p.print(l)
		})
	flags := cmd.Flags()
	flags.StringVar(&filter.BusinessType, "type", "", "only cases of this business type")
	flags.StringVar(&failure, "failure", "", "only cases of this failure (16 digits, from --groups)")
	flags.StringVar(&filter.Owner, "owner", "", "only cases of this person")
	flags.BoolVar(&isMine, "mine", false, "only cases that you have taken")
	flags.BoolVar(&filter.Unowned, "unowned", false, "only cases that no person has taken")
	flags.BoolVar(&isUnknown, "unknown", false, "only cases of unknown outcome: an attempt timed out, was cut off, never ended or lost the result of its call")
	flags.BoolVar(&groups, "groups", false, "list groups of similar failures instead of cases")
	flags.IntVar(&limit, "limit", 50, fmt.Sprintf("maximum number of cases, up to %d", maxListed))
	for _, other := range []string{"failure", "owner", "mine", "unowned", "unknown", "limit"} {
		cmd.MarkFlagsMutuallyExclusive("groups", other)
	}
	cmd.MarkFlagsMutuallyExclusive("owner", "mine", "unowned")
	_ = cmd.RegisterFlagCompletionFunc("type", func(cmd *cobra.Command, _ []string, input string) ([]string, cobra.ShellCompDirective) {
		return p.completeType(cmd, nil, input)
	})
	return cmd
}

// explainNone reads the first 50 dead entries that have no case. If the person may see one of them, explainNone prints
// a hint.
func (p *program) explainNone(ctx context.Context, s *session) error {
	dead, err := s.store.DeadWithoutCase(ctx, 0, 50)
	i := slices.IndexFunc(dead, func(r processlog.Row) bool {
		return s.May(ctx, s.actor, admin.SeeEntries, admin.Subject{Type: r.BusinessType})
	})
	if i >= 0 {
		p.printf("entries are dead without a case, for example entry %s. Services open cases once Config.Operations is set. \"compensator list --where state=dead\" lists these entries", dead[i].ID)
	}
	return err
}

func (s *session) casesOf(ctx context.Context, filter admin.CaseFilter, limit int) (cases []admin.Case, hasMore bool, err error) {
	return readPages(limit, filter.Cursor, func(limit int, cursor string) ([]admin.Case, string, error) {
		filter.Limit, filter.Cursor = limit, cursor
		page, err := s.Cases(ctx, s.actor, filter)
		return page.Cases, page.Next, err
	})
}

// An empty businessType means all types.
func (s *session) groupsOf(ctx context.Context, businessType string) (groups []admin.Group, hasMore bool, err error) {
	if businessType == "" {
		return s.Groups(ctx, s.actor)
	}
	return s.GroupsOf(ctx, s.actor, businessType, admin.Fingerprint{})
}

func groupListing(groups []admin.Group) listing {
	l := listing{kind: "group", columns: []column{{"failure", "FAILURE"}, {"business_type", "TYPE"}, {"cases", "CASES"}, {"worth", "WORTH"}, {"no_amount_known", ""},
		{"error", "ERROR"}, {"first_at", "FIRST"}, {"last_at", ""}, {"example", "EXAMPLE"}, {"sums", ""}},
		innerColumns: []string{"sums"}}
	for _, g := range groups {
		sums := listing{kind: "sum", columns: []column{{"amount_minor", ""}, {"currency", ""}}}
		var amountTexts []string
		for _, sum := range g.Sums {
			sums.rows = append(sums.rows, []any{digits(strconv.FormatInt(sum.Minor, 10)), sum.Currency})
			amountTexts = append(amountTexts, formatUnits(sum.Minor, sum.Currency))
		}
		if g.NoAmount > 0 && len(amountTexts) > 0 {
			amountTexts = append(amountTexts, fmt.Sprintf("%d unknown", g.NoAmount))
		}
		l.rows = append(l.rows, []any{g.Fingerprint.String(), g.Type, g.N, strings.Join(amountTexts, ", "), g.NoAmount, g.Error, g.First, g.Last, digits(g.Example.String()), sums})
	}
	return l
}

func (p *program) newCaseTakeCommand() *cobra.Command {
	var why why
	cmd := p.newLogCommand("take <id>… | -", "Take cases. With - instead of ids, read the output of cases list -o ids from standard input", cobra.MinimumNArgs(1), operateAccess,
		func(ctx context.Context, s *session, args []string) error {
			if err := why.validate(); err != nil {
				return err
			}
			names, err := p.names(ctx, args)
			if err != nil {
				return err
			}
			s.maxNamed = len(names)
			answers, err := s.takeCases(ctx, names, why.Why)
			if err != nil {
				return err
			}
			return p.answer(answers)
		})
	why.addFlags(cmd)
	return cmd
}

// takeCases takes the cases in batches. If a batch after the first one fails, takeCases returns no error. Instead, the
// error becomes the answer for the remaining cases, so that the person sees which cases were taken.
func (s *session) takeCases(ctx context.Context, names []string, why admin.Why) (results, error) {
	errs := make([]error, len(names))
	seenIDs := make(map[compensator.EntryID]bool)
	var cases []admin.SeenCase
	var indexes []int
	for i, name := range names {
		v, err := s.seenCase(ctx, name)
		var exitErr *exitError
		switch {
		case err != nil && reasonOf(err) == codeDatabase && !errors.As(err, &exitErr):
			return results{}, err // The remaining cases would fail with the same error.
		case err == nil && seenIDs[v.EntryID]:
			return results{}, newUsageError("%s is named twice: name it once", name) // Search the whole list for duplicates, because the Admin gets at most 500 cases at a time.
		}
		if errs[i] = err; err == nil {
			seenIDs[v.EntryID] = true
			cases, indexes = append(cases, v), append(indexes, i)
		}
	}
	for at := 0; at < len(cases); at += admin.MaxEntries {
		batch := cases[at:min(at+admin.MaxEntries, len(cases))]
		answers, err := s.TakeCases(ctx, s.actor, batch, why)
		if err != nil && at == 0 {
			return results{}, err
		}
		for i, index := range indexes[at:] {
			switch {
			case err != nil:
				errs[index] = err
			case i < len(batch):
				errs[index] = answers[i]
			}
		}
		if err != nil {
			break
		}
	}
	var answers results
	for i, name := range names {
		answers.addResult(name, errs[i])
	}
	return answers, nil
}

// seenCase uses the current version if name gives none.
func (s *session) seenCase(ctx context.Context, name string) (seen admin.SeenCase, err error) {
	text, version, isGiven := strings.Cut(name, ":c")
	if seen.EntryID, err = compensator.ParseEntryID(text); err != nil {
		return seen, newUsageError("%q is not a case: give an entry id, or a line of cases list -o ids", name)
	}
	if isGiven {
		if seen.Version, err = strconv.ParseUint(version, 10, 64); err != nil {
			return seen, newUsageError("%q is not a line of cases list -o ids", name)
		}
		return seen, nil
	}
	view, err := s.Entry(ctx, s.actor, seen.EntryID)
	if err != nil {
		return seen, err
	}
	if view.Case == nil {
		return seen, missingError{fmt.Sprintf("entry %s has no case", seen.EntryID)}
	}
	seen.Version = view.Case.Version
	return seen, nil
}

func (p *program) newCaseNoteCommand() *cobra.Command {
	var why why
	cmd := p.newLogCommand("note <id>", "Add the text of --reason to an entry as a note", cobra.ExactArgs(1), operateAccess,
		func(ctx context.Context, s *session, args []string) error {
			ref, err := parseRef(args[0])
			if err := errors.Join(err, why.validate()); err != nil {
				return err
			}
			var answers results
			answers.addResult(args[0], s.Note(ctx, s.actor, ref, why.Why))
			return p.answer(answers)
		})
	why.addFlags(cmd)
	return cmd
}
