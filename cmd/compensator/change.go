package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/processlog"
)

// why holds the flags for the reason of an action.
type why struct{ admin.Why }

func (w *why) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&w.Reason, "reason", "", "the reason, which is recorded")
	cmd.Flags().StringVar(&w.Ticket, "ticket", "", "a ticket, recorded before the reason: OPS-988")
}

func (w *why) check() error {
	if strings.TrimSpace(w.Reason) == "" {
		return usage("--reason is missing: give a reason, which is recorded")
	}
	return nil
}

// text returns the reason as the records store it.
func (w *why) text() (string, error) {
	if err := w.check(); err != nil {
		return "", err
	}
	text := w.Reason
	if w.Ticket != "" {
		text = "[" + w.Ticket + "] " + text
	}
	if utf8.RuneCountInString(text) > processlog.MaxText || !utf8.ValidString(text) {
		return "", usage("--reason: at most %d characters of UTF-8", processlog.MaxText)
	}
	return text, nil
}

// changes returns the commands that change entries.
func (p *program) changes() []*cobra.Command {
	verbs := []struct {
		name, short string
		action      admin.Right
		delays      bool
	}{
		{"requeue", "Run entries again from the first attempt", admin.Requeue, true},
		{"compensate", "Run the compensation of entries, or run it again", admin.Compensate, true},
		{"settle", "Mark entries as settled, because a person has done or undone the work", admin.SettleManually, false},
		{"cancel", "Cancel entries, because the work is no longer wanted", admin.Cancel, false},
		{"complete", "Mark entries as succeeded, because another program has done the work", admin.Complete, false},
		{"reschedule", "Make entries due after --delay from now", admin.Reschedule, true},
	}
	var all []*cobra.Command
	for _, v := range verbs {
		all = append(all, p.change(v.name, v.short, v.action, v.delays))
	}
	return all
}

func (p *program) change(name, short string, action admin.Right, delays bool) *cobra.Command {
	var why why
	var conditions []string
	var yes, checked, skip bool
	var delay time.Duration
	cmd := p.onLog(name+" <id>… | - | --where …", short, cobra.ArbitraryArgs, toChange, func(ctx context.Context, s *session, args []string) error {
		if err := why.check(); err != nil {
			return err
		}
		entries, answers, err := p.pick(ctx, s, args, conditions)
		if err != nil {
			return err
		}
		ch := admin.Change{Action: action, Why: why.Why, Delay: delay, Checked: checked, Again: p.again}
		if skip && len(entries) > 0 {
			if entries, err = p.skipUnknown(ctx, s, entries, ch); err != nil {
				return err
			}
		}
		if len(entries) > 0 {
			if err := p.preview(ctx, s, name, entries, ch, yes); err != nil {
				return unchecked(err)
			}
			if err := s.do(ctx, ch, entries, &answers); err != nil {
				return unchecked(err)
			}
		}
		if len(answers) == 0 {
			p.say("no entry matches, so nothing was done")
			p.doubt(ctx, s, conditions)
		}
		if delays && delay == 0 && answers.done() > 0 {
			p.sayWhen(ctx, s)
		}
		return p.answer(answers)
	})
	p.whereFlag(cmd, &conditions)
	why.add(cmd)
	cmd.Flags().BoolVar(&yes, "yes", false, "do it without asking")
	if delays {
		cmd.Flags().DurationVar(&delay, "delay", 0, "until due")
	}
	if action == admin.Requeue || action == admin.Compensate {
		cmd.Flags().BoolVar(&p.again, "again", false, "also run entries again that have ended: succeeded, compensated, cancelled or settled manually")
	}
	if action != admin.Reschedule {
		cmd.Flags().BoolVar(&checked, "checked", false, "also change entries of unknown outcome: you have checked what each of them did")
		cmd.Flags().BoolVar(&skip, "skip-unknown", false, "leave out entries of unknown outcome")
		cmd.MarkFlagsMutuallyExclusive("checked", "skip-unknown")
	}
	return cmd
}

// doubt prints a hint if a --where condition names a type that the log does not know.
func (p *program) doubt(ctx context.Context, s *session, conditions []string) {
	if w, err := parseWhere(conditions); err == nil {
		p.doubtType(ctx, s, w.BusinessType)
	}
}

// doubtType prints a hint if the log does not know a type.
func (p *program) doubtType(ctx context.Context, s *session, businessType string) {
	var unknown *admin.UnknownTypeError
	if businessType != "" && !s.store.missing() && errors.As(s.CheckType(ctx, s.actor, businessType), &unknown) {
		p.say("%s", strings.TrimPrefix(unknown.Error(), "admin: "))
	}
}

// picked is an entry to change, in the version that the person saw.
type picked struct {
	name string // name of the entry, as the person typed it
	id   compensator.EntryID
	seen uint64      // version that the person saw, as typed
	line *admin.Line // nil if the entry was not read yet
}

// pick returns the entries that args or conditions name. answers holds an error for each entry that does not exist.
func (p *program) pick(ctx context.Context, s *session, args, conditions []string) (entries []picked, answers results, err error) {
	switch {
	case len(args) > 0 && len(conditions) > 0:
		return nil, nil, usage("give entries or --where, not both")
	case len(args) == 0 && len(conditions) == 0:
		return nil, nil, usage("no entries: give ids, or - for the lines of list -o ids, or --where")
	case len(conditions) > 0:
		w, err := parseWhere(conditions)
		if err != nil {
			return nil, nil, err
		}
		found, more, err := s.chosen(ctx, w, admin.MaxEntries)
		if more {
			return nil, nil, tooMany("more than 500")
		}
		for _, e := range found {
			entries = append(entries, picked{name: e.ID.String(), id: e.ID, seen: e.Version})
		}
		return entries, nil, err
	}
	names, err := p.names(ctx, args)
	if err != nil {
		return nil, nil, err
	}
	if len(names) > admin.MaxEntries {
		return nil, nil, tooMany(strconv.Itoa(len(names)))
	}
	return s.named(ctx, names)
}

func tooMany(n string) error {
	return usage("%s entries, and at most %d at a time: narrow --where by type, state, error, from and to", n, admin.MaxEntries)
}

// names returns args. If the only argument is -, it returns the lines of standard input.
func (p *program) names(ctx context.Context, args []string) ([]string, error) {
	if !slices.Contains(args, "-") {
		return args, nil
	}
	if len(args) > 1 {
		return nil, usage("- cannot be combined with other entries")
	}
	return within(ctx, func() (names []string, err error) {
		lines := bufio.NewScanner(p.in)
		for lines.Scan() {
			line := strings.TrimSpace(lines.Text())
			if line == "" {
				continue
			}
			if !strings.Contains(line, ":") || strings.HasPrefix(line, "key:") {
				return nil, usage("%q: standard input must have the lines of list -o ids, id:version, so that only what you saw is changed", line)
			}
			names = append(names, line)
			if len(names) > mostListed {
				return nil, tooMany("more than 100,000")
			}
		}
		return names, lines.Err()
	})
}

// within calls the function read, which takes no context. If ctx ends first, within returns the context's error.
func within[T any](ctx context.Context, read func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := read()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// asked is the name of an entry as the person typed it, parsed into its parts.
type asked struct {
	name string
	of   compensator.Ref
	seen *uint64 // version in the name; nil if there is none
}

// parse parses the name of an entry: id, id:version or key:…
func parse(name string) (asked, error) {
	id, version, is := strings.Cut(name, ":")
	if !is || id == "key" {
		of, err := ref(name)
		return asked{name: name, of: of}, err
	}
	of, err := compensator.ParseEntryID(id)
	seen, err2 := strconv.ParseUint(version, 10, 64)
	if errors.Join(err, err2) != nil {
		return asked{}, usage("%q is not id:version, as list -o ids prints it", name)
	}
	return asked{name, of, &seen}, nil
}

// named finds entries by their names. It reads only the entries whose names have no version, and all of these that are
// named by id with one query. answers holds an error for each entry that does not exist.
func (s *session) named(ctx context.Context, names []string) (entries []picked, answers results, err error) {
	all := make([]asked, len(names))
	var ids []compensator.EntryID
	for i, name := range names {
		if all[i], err = parse(name); err != nil {
			return nil, nil, err
		}
		if id, is := all[i].of.(compensator.EntryID); is && all[i].seen == nil {
			ids = append(ids, id)
		}
	}
	lines, err := s.lines(ctx, ids)
	if err != nil {
		return nil, nil, err
	}
	known := make(map[compensator.EntryID]bool)
	for _, one := range all {
		e, err := s.found(ctx, one, lines)
		switch {
		case errors.Is(err, compensator.ErrNotFound):
			answers.add(one.name, err)
		case err != nil:
			return nil, nil, err
		case known[e.id]:
			return nil, nil, usage("%s is named twice: name it once", one.name)
		default:
			known[e.id], entries = true, append(entries, e)
		}
	}
	return entries, answers, nil
}

// found returns the entry of one name. lines holds the entries that the method named has read by id.
func (s *session) found(ctx context.Context, one asked, lines map[compensator.EntryID]*admin.Line) (picked, error) {
	id, is := one.of.(compensator.EntryID)
	switch {
	case one.seen != nil:
		return picked{name: one.name, id: id, seen: *one.seen}, nil
	case !is:
		view, err := s.Entry(ctx, s.actor, one.of)
		return picked{one.name, view.Entry.ID, view.Entry.Version, &admin.Line{Entry: view.Entry, Amount: view.Amount, Case: view.Case, OutcomeUnknown: view.OutcomeUnknown}}, err
	case lines[id] == nil:
		return picked{}, fmt.Errorf("%v: %w", id, compensator.ErrNotFound)
	}
	return picked{one.name, id, lines[id].Entry.Version, lines[id]}, nil
}

// lines reads entries as lines. The result lacks entries that do not exist or that the person may not see.
func (s *session) lines(ctx context.Context, ids []compensator.EntryID) (map[compensator.EntryID]*admin.Line, error) {
	found := make(map[compensator.EntryID]*admin.Line, len(ids))
	if len(ids) == 0 {
		return found, nil
	}
	lines, err := s.Lines(ctx, s.actor, ids)
	for i := range lines {
		found[lines[i].Entry.ID] = &lines[i]
	}
	return found, err
}

// unchecked turns an *UncheckedError into an error that names the flags to add.
func unchecked(err error) error {
	var refused *admin.UncheckedError
	if !errors.As(err, &refused) {
		return err
	}
	var parts []string
	if n := len(refused.Unknown); n > 0 {
		parts = append(parts, fmt.Sprintf("the outcome of %s is unknown (%s): an attempt timed out, was cut off, never ended or runs now, so it may have had its effect. "+
			"Find out what happened, then add --checked. Or add --skip-unknown to leave such entries out", counted(n), admin.NameEntries(refused.Unknown)))
	}
	if n := len(refused.Finished); n > 0 {
		parts = append(parts, fmt.Sprintf("%s ended already (%s). Add --again to run such entries again", counted(n), admin.NameEntries(refused.Finished)))
	}
	return usage("nothing was done: %s", strings.Join(parts, ". And "))
}

func counted(n int) string {
	if n == 1 {
		return "1 entry"
	}
	return fmt.Sprintf("%d entries", n)
}

// skipUnknown returns entries without those that need --checked, and prints the names of the removed entries.
func (p *program) skipUnknown(ctx context.Context, s *session, entries []picked, ch admin.Change) ([]picked, error) {
	lines, err := s.read(ctx, entries)
	if err != nil {
		return nil, err
	}
	ch.Again = true
	refused := ch.Unchecked(lines)
	if refused == nil {
		return entries, nil
	}
	p.say("left alone: the outcome of %s is unknown (%s)", counted(len(refused.Unknown)), admin.NameEntries(refused.Unknown))
	return slices.DeleteFunc(entries, func(e picked) bool { return slices.Contains(refused.Unknown, e.id) }), nil
}

// The method read reads the entries whose line is nil. It returns the lines of all entries that exist.
func (s *session) read(ctx context.Context, entries []picked) ([]admin.Line, error) {
	var unread []compensator.EntryID
	for _, e := range entries {
		if e.line == nil {
			unread = append(unread, e.id)
		}
	}
	lines, err := s.lines(ctx, unread)
	if err != nil {
		return nil, err
	}
	all := make([]admin.Line, 0, len(entries))
	for i := range entries {
		if entries[i].line == nil {
			entries[i].line = lines[entries[i].id]
		}
		if entries[i].line != nil {
			all = append(all, *entries[i].line)
		}
	}
	return all, nil
}

// previewed is how many entries the preview lists. The preview only counts the others.
const previewed = 20

// preview prints the changes that would be made. It asks for confirmation unless --yes is set.
func (p *program) preview(ctx context.Context, s *session, verb string, entries []picked, ch admin.Change, yes bool) error {
	if yes {
		return nil
	}
	lines, err := s.read(ctx, entries)
	if err != nil {
		return err
	}
	l := listing{kind: "preview", columns: []column{{"entry", "ENTRY"}, {"type", "TYPE"}, {"state", "STATE"}, {"worth", "WORTH"}, {"error", "ERROR"}}}
	sums := make(map[string]int64)
	for i, line := range lines {
		if line.Amount.Known() {
			sums[line.Amount.Currency] += line.Amount.Minor
		}
		if i < previewed {
			l.rows = append(l.rows, []any{digits(line.Entry.ID.String()), line.Entry.BusinessType, line.Entry.State.String(), worth(line.Amount), line.Entry.LastError})
		}
	}
	var total []string
	for currency, minor := range sums {
		total = append(total, inUnits(minor, currency))
	}
	slices.Sort(total)
	what := fmt.Sprintf("%s %d", verb, len(entries))
	p.say("would %s, as %s, because %q%s", strings.Join(append([]string{what}, total...), ", worth "), s.actor.ID, ch.Reason, after(ch.Delay))
	l.table(p.errs, false)
	if rest := len(entries) - previewed; rest > 0 {
		fmt.Fprintf(p.errs, "… and %d more\n", rest)
	}
	if refused := ch.Unchecked(lines); refused != nil {
		return refused
	}
	if unknown := (admin.Change{Action: ch.Action, Again: true}).Unchecked(lines); unknown != nil { // These entries need --checked.
		p.say("! the outcome of %s is unknown, and you have checked: %s", counted(len(unknown.Unknown)), admin.NameEntries(unknown.Unknown))
	}
	return p.confirm(ctx, verb, strconv.Itoa(len(entries)))
}

func after(delay time.Duration) string {
	if delay == 0 {
		return ""
	}
	return fmt.Sprintf(", due in %v", delay)
}

// confirm asks the person to type the word.
func (p *program) confirm(ctx context.Context, verb, word string) error {
	if !terminal(p.in) || !terminal(p.errs) {
		return usage("nothing was done, because there is no terminal to ask for a confirmation: add --yes")
	}
	fmt.Fprintf(p.errs, "type %s to %s: ", shown(word), verb)
	typed, err := within(ctx, func() (string, error) { return bufio.NewReader(p.in).ReadString('\n') })
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if strings.TrimSpace(typed) != word {
		return usage("not confirmed: nothing was done")
	}
	return nil
}

// The method do applies the change ch to the entries. It adds one answer for each entry to the list answers.
func (s *session) do(ctx context.Context, ch admin.Change, entries []picked, answers *results) error {
	for _, e := range entries {
		ch.Entries = append(ch.Entries, admin.Seen{ID: e.id, Version: e.seen})
	}
	said, err := s.Change(ctx, s.actor, ch)
	if err != nil {
		return err
	}
	policy, unread := s.rules.now(ctx)
	for i, e := range entries {
		switch {
		case !errors.Is(said[i], admin.ErrNotAllowed):
		case policy == nil && unread == nil:
			said[i] = fmt.Errorf("%w: it has ended, and --again runs it again", said[i])
		default:
			said[i] = fmt.Errorf("%w: the policy forbids it, or it has ended and --again is missing", said[i])
		}
		answers.add(e.name, said[i])
	}
	return nil
}

// sayWhen prints when the requeued entries run.
func (p *program) sayWhen(ctx context.Context, s *session) {
	if s.redis == nil {
		p.say("without --redis the entries wait for the reconciler of their services: 15 s by default")
		return
	}
	if problem := s.c.Health(ctx).Queue; problem != nil {
		p.say("Redis does not accept the entries (%v), so they wait for the reconciler of their services", problem)
	}
}

// results holds one answer for each entry, case or type that a command names.
type results []result

type result struct {
	name string
	err  error
}

func (r *results) add(name string, err error) { *r = append(*r, result{name, err}) }

func (r results) done() (n int) {
	for _, answer := range r {
		if answer.err == nil {
			n++
		}
	}
	return n
}

// answer prints the results. If everything was refused for the same reason, that reason decides the exit code.
func (p *program) answer(answers results) error {
	l := listing{kind: "result", columns: []column{{"name", "ENTRY"}, {"result", "RESULT"}, {"reason", "WHY"}}}
	codes := make(map[int]bool)
	for _, a := range answers {
		row := []any{a.name, "done", ""}
		code := codeDone
		if a.err != nil {
			row[1], row[2] = "refused", plain(a.err)
			code = reasonOf(a.err)
			var known *exitError
			if errors.As(a.err, &known) {
				code = known.code
			}
		}
		codes[code] = true
		l.rows = append(l.rows, row)
	}
	if err := p.print(l); err != nil || len(answers) == answers.done() {
		return err
	}
	refusal := &exitError{code: codeSomeRefused, printed: true, err: fmt.Errorf("%d of %d refused", len(answers)-answers.done(), len(answers))}
	if len(codes) == 1 {
		for refusal.code = range codes {
		}
	}
	return refusal
}
