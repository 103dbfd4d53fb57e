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

func (p *program) cases() *cobra.Command {
	cmd := &cobra.Command{Use: "cases", Short: "Entries that wait for a person"}
	cmd.AddCommand(p.caseList(), p.caseTake(), p.caseNote())
	return cmd
}

var caseColumns = []column{{"entry_id", "ENTRY"}, {"case_version", ""}, {"business_type", "TYPE"}, {"kind_of_case", "CASE"}, {"error", "ERROR"}, {"amount_minor", ""}, {"currency", ""},
	{"worth", "WORTH"}, {"owner", "OWNER"}, {"due_at", "DUE"}, {"opened_at", ""}, {"closed_at", "CLOSED"}, {"business_id", ""}, {"ended_by", ""}, {"failure", "FAILURE"}, {"epoch", ""}}

func caseListing(cases []admin.Case) listing {
	l := listing{kind: "case", columns: caseColumns}
	for _, c := range cases {
		minor, currency := money(c.Amount)
		l.rows = append(l.rows, []any{digits(c.EntryID.String()), digits(fmt.Sprint(c.Version)), c.BusinessType, c.Kind.String(), c.Error, minor, currency,
			worth(c.Amount), c.Owner, c.DueAt, c.OpenedAt, c.ClosedAt, c.BusinessID, string(c.EndedBy), c.Fingerprint.String(), int(c.Epoch)})
		l.ids = append(l.ids, fmt.Sprintf("%s:c%d", c.EntryID, c.Version))
	}
	return l
}

func (p *program) caseList() *cobra.Command {
	var filter admin.CaseFilter
	var failure string
	var limit int
	var mine, groups, unknown bool
	cmd := p.onLog("list", "Open cases, the earliest due first. --groups lists failures with their amounts instead", cobra.NoArgs, toOperate,
		func(ctx context.Context, s *session, _ []string) error {
			if err := checkLimit(limit); err != nil {
				return err
			}
			if failure != "" {
				if err := filter.Fingerprint.UnmarshalText([]byte(failure)); err != nil {
					return usage("--failure: %v", err)
				}
			}
			if mine {
				filter.Owner = s.actor.ID
			}
			if unknown {
				filter.Kind = admin.CaseUnknown
			}
			l := listing{}
			if groups {
				found, more, err := s.groupsOf(ctx, filter.BusinessType)
				if err != nil {
					return err
				}
				l = groupListing(found)
				if l.more = more && p.flags.format == "json"; more && !l.more {
					p.say("these are the failures with the most cases. There may be more, so the sums may be too low")
				}
			} else {
				found, more, err := s.casesOf(ctx, filter, limit)
				if err != nil {
					return err
				}
				l = caseListing(found)
				l.more = more
			}
			if len(l.rows) == 0 {
				p.doubtType(ctx, s, filter.BusinessType)
				if err := p.whyNone(ctx, s); err != nil {
					return err
				}
			}
			return p.print(l)
		})
	flags := cmd.Flags()
	flags.StringVar(&filter.BusinessType, "type", "", "only cases of this business type")
	flags.StringVar(&failure, "failure", "", "only cases of this failure (16 digits, from --groups)")
	flags.StringVar(&filter.Owner, "owner", "", "only cases of this person")
	flags.BoolVar(&mine, "mine", false, "your own")
	flags.BoolVar(&filter.Unowned, "unowned", false, "only cases that no person has taken")
	flags.BoolVar(&unknown, "unknown", false, "only cases of unknown outcome: an attempt timed out, was cut off or never ended")
	flags.BoolVar(&groups, "groups", false, "by failure")
	flags.IntVar(&limit, "limit", 50, fmt.Sprintf("maximum number of cases, up to %d", mostListed))
	for _, other := range []string{"failure", "owner", "mine", "unowned", "unknown", "limit"} {
		cmd.MarkFlagsMutuallyExclusive("groups", other)
	}
	cmd.MarkFlagsMutuallyExclusive("owner", "mine", "unowned") // These three flags exclude each other.
	_ = cmd.RegisterFlagCompletionFunc("type", func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return p.completeType(cmd, nil, typed)
	})
	return cmd
}

// whyNone is called when no case was found. It reads the first 50 dead entries that have no case. If the person may see
// one of them, whyNone prints a hint.
func (p *program) whyNone(ctx context.Context, s *session) error {
	dead, err := s.store.DeadWithoutCase(ctx, 0, 50)
	i := slices.IndexFunc(dead, func(r processlog.Row) bool {
		return s.May(ctx, s.actor, admin.SeeEntries, admin.Subject{Type: r.BusinessType})
	})
	if i >= 0 {
		p.say("entries are dead without a case, for example entry %s. Services open cases once Config.Operations is set. \"compensator list --where state=dead\" lists these entries", dead[i].ID)
	}
	return err
}

func (s *session) casesOf(ctx context.Context, filter admin.CaseFilter, limit int) (cases []admin.Case, more bool, err error) {
	return upTo(limit, filter.Cursor, func(limit int, cursor string) ([]admin.Case, string, error) {
		filter.Limit, filter.Cursor = limit, cursor
		page, err := s.Cases(ctx, s.actor, filter)
		return page.Cases, page.Next, err
	})
}

// groupsOf returns the groups of failures of one type. An empty businessType means all types.
func (s *session) groupsOf(ctx context.Context, businessType string) (groups []admin.Group, more bool, err error) {
	if businessType == "" {
		return s.Groups(ctx, s.actor)
	}
	return s.GroupsOf(ctx, s.actor, businessType, admin.Fingerprint{})
}

func groupListing(groups []admin.Group) listing {
	l := listing{kind: "group", columns: []column{{"failure", "FAILURE"}, {"business_type", "TYPE"}, {"cases", "CASES"}, {"worth", "WORTH"}, {"no_amount_known", ""},
		{"error", "ERROR"}, {"first_at", "FIRST"}, {"last_at", ""}, {"example", "EXAMPLE"}, {"sums", ""}},
		inner: []string{"sums"}}
	for _, g := range groups {
		sums := listing{kind: "sum", columns: []column{{"amount_minor", ""}, {"currency", ""}}}
		var worths []string
		for _, sum := range g.Sums {
			sums.rows = append(sums.rows, []any{digits(strconv.FormatInt(sum.Minor, 10)), sum.Currency})
			worths = append(worths, inUnits(sum.Minor, sum.Currency))
		}
		if g.NoAmount > 0 && len(worths) > 0 {
			worths = append(worths, fmt.Sprintf("%d unknown", g.NoAmount))
		}
		l.rows = append(l.rows, []any{g.Fingerprint.String(), g.Type, g.N, strings.Join(worths, ", "), g.NoAmount, g.Error, g.First, g.Last, digits(g.Example.String()), sums})
	}
	return l
}

func (p *program) caseTake() *cobra.Command {
	var why why
	cmd := p.onLog("take <id>… | -", "Take cases. The argument - reads the output of cases list with -o ids", cobra.MinimumNArgs(1), toOperate,
		func(ctx context.Context, s *session, args []string) error {
			if err := why.check(); err != nil {
				return err
			}
			names, err := p.names(ctx, args)
			if err != nil {
				return err
			}
			s.atOnce = len(names)
			answers, err := s.take(ctx, names, why.Why)
			if err != nil {
				return err
			}
			return p.answer(answers)
		})
	why.add(cmd)
	return cmd
}

// The method take takes cases in the versions that the person saw. One call of the Admin takes at most admin.MaxEntries
// cases. If an error occurs after the first such call, it becomes the answer for the remaining cases. So the person
// sees which cases were taken.
func (s *session) take(ctx context.Context, names []string, why admin.Why) (results, error) {
	errs := make([]error, len(names))
	known := make(map[compensator.EntryID]bool)
	var seen []admin.SeenCase
	var places []int
	for i, name := range names {
		v, err := s.seenCase(ctx, name)
		var wrong *exitError
		switch {
		case err != nil && reasonOf(err) == codeDatabase && !errors.As(err, &wrong):
			return results{}, err // The remaining cases would fail with the same error.
		case err == nil && known[v.EntryID]:
			return results{}, usage("%s is named twice: name it once", name) // Search the whole list for duplicates, because the Admin gets at most 500 cases at a time.
		}
		if errs[i] = err; err == nil {
			known[v.EntryID] = true
			seen, places = append(seen, v), append(places, i)
		}
	}
	for at := 0; at < len(seen); at += admin.MaxEntries {
		some := seen[at:min(at+admin.MaxEntries, len(seen))]
		done, err := s.TakeCases(ctx, s.actor, some, why)
		if err != nil && at == 0 {
			return results{}, err
		}
		for i, place := range places[at:] {
			switch {
			case err != nil:
				errs[place] = err
			case i < len(some):
				errs[place] = done[i]
			}
		}
		if err != nil {
			break
		}
	}
	var answers results
	for i, name := range names {
		answers.add(name, errs[i])
	}
	return answers, nil
}

// seenCase returns a case in the version that the argument name gives. If name gives no version, seenCase uses the
// current one.
func (s *session) seenCase(ctx context.Context, name string) (seen admin.SeenCase, err error) {
	text, version, given := strings.Cut(name, ":c")
	if seen.EntryID, err = compensator.ParseEntryID(text); err != nil {
		return seen, usage("%q is not a case: give an entry id, or a line of cases list -o ids", name)
	}
	if given {
		if seen.Version, err = strconv.ParseUint(version, 10, 64); err != nil {
			return seen, usage("%q is not a line of cases list -o ids", name)
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

func (p *program) caseNote() *cobra.Command {
	var why why
	cmd := p.onLog("note <id>", "Add a note, --reason, to an entry", cobra.ExactArgs(1), toOperate,
		func(ctx context.Context, s *session, args []string) error {
			of, err := ref(args[0])
			if err := errors.Join(err, why.check()); err != nil {
				return err
			}
			var answers results
			answers.add(args[0], s.Note(ctx, s.actor, of, why.Why))
			return p.answer(answers)
		})
	why.add(cmd)
	return cmd
}
