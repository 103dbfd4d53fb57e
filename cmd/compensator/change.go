package main

import (
	"bufio"
	"cmp"
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

type why struct{ admin.Why }

func (w *why) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&w.Reason, "reason", "", "the reason, which is recorded")
	cmd.Flags().StringVar(&w.Ticket, "ticket", "", "id of a ticket, recorded before the reason, for example OPS-988")
}

func (w *why) validate() error {
	if processlog.IsBlank(w.Reason) {
		return newUsageError("--reason is missing: give a reason, which is recorded")
	}
	return nil
}

func (w *why) text() (string, error) {
	if err := w.validate(); err != nil {
		return "", err
	}
	text := w.Reason
	if w.Ticket != "" {
		text = "[" + w.Ticket + "] " + text
	}
	if utf8.RuneCountInString(text) > processlog.MaxText || !utf8.ValidString(text) {
		return "", newUsageError("--reason: at most %d characters of UTF-8", processlog.MaxText)
	}
	return text, nil
}

func (p *program) newChangeCommands() []*cobra.Command {
	verbs := []struct {
		name, summary string
		action        admin.Right
		delays        bool
	}{
		{"requeue", "Run entries again from the first attempt", admin.Requeue, true},
		{"compensate", "Run the compensation of entries, or run it again", admin.Compensate, true},
		{"settle", "Mark entries as settled, because a person has done or undone the work", admin.SettleManually, false},
		{"cancel", "Cancel entries, because the work is no longer wanted", admin.Cancel, false},
		{"complete", "Mark entries as succeeded, because another program has done the work", admin.Complete, false},
		{"reschedule", "Make entries due after --delay from now", admin.Reschedule, true},
	}
	var commands []*cobra.Command
	for _, v := range verbs {
		commands = append(commands, p.newChangeCommand(v.name, v.summary, v.action, v.delays))
	}
	return commands
}

func (p *program) newChangeCommand(name, summary string, action admin.Right, delays bool) *cobra.Command {
	var why why
	var conditions []string
	var isChecked, canSkip bool
	var flags allFlags
	var delay time.Duration
	cmd := p.newLogCommand(name+" <id>… | - | --where …", summary, cobra.ArbitraryArgs, changeAccess, func(ctx context.Context, s *session, args []string) error {
		if err := why.validate(); err != nil {
			return err
		}
		ch := admin.Change{Action: action, Why: why.Why, Delay: delay, Checked: isChecked, Again: p.canRepeat}
		if flags.all {
			return p.changeMatching(ctx, s, name, ch, args, conditions, flags)
		}
		entries, answers, err := p.pickEntries(ctx, s, args, conditions)
		if err != nil {
			return err
		}
		if canSkip && len(entries) > 0 {
			if entries, err = p.skipUnknown(ctx, s, entries, ch); err != nil {
				return err
			}
		}
		if len(entries) > 0 {
			if err := p.preview(ctx, s, name, entries, ch, flags.confirmed); err != nil {
				return hintUnchecked(err)
			}
			id, err := s.do(ctx, ch, entries, flags.first, &answers)
			if err != nil {
				return hintUnchecked(err)
			}
			if id != (admin.BulkID{}) {
				p.printf("compensator bulk %s shows what becomes of them", id)
				if flags.first {
					p.printf("compensator bulk go-on %s goes on with the others", id)
				}
			}
		}
		if len(answers) == 0 {
			p.printf("no entry matches, so nothing was done")
			p.warnConditions(ctx, s, conditions)
		}
		if delays && delay == 0 && answers.countDone() > 0 {
			p.printWhen(ctx, s)
		}
		return p.answer(answers)
	})
	p.whereFlag(cmd, &conditions)
	why.addFlags(cmd)
	cmd.Flags().BoolVar(&flags.confirmed, "yes", false, "make the change without asking")
	cmd.Flags().BoolVar(&flags.all, "all", false, "change all entries that --where selects, in batches of up to 500. --where must name a state")
	if action != admin.Reschedule {
		cmd.Flags().BoolVar(&flags.first, "first", false, "change only the oldest entry. The command bulk go-on then changes the others")
	}
	if delays {
		cmd.Flags().DurationVar(&delay, "delay", 0, "time from now until the entries are due")
	}
	if action == admin.Requeue || action == admin.Compensate {
		cmd.Flags().BoolVar(&p.canRepeat, "again", false, "also run entries again that have ended: succeeded, compensated, cancelled or settled manually")
	}
	if action != admin.Reschedule {
		cmd.Flags().BoolVar(&isChecked, "checked", false, "also change entries of unknown outcome, because you have checked what their attempts did")
		cmd.Flags().BoolVar(&canSkip, "skip-unknown", false, "leave out entries of unknown outcome")
		cmd.MarkFlagsMutuallyExclusive("checked", "skip-unknown")
	}
	return cmd
}

func (p *program) warnConditions(ctx context.Context, s *session, conditions []string) {
	if w, err := parseWhere(conditions); err == nil {
		p.warnType(ctx, s, w.BusinessType)
	}
}

func (p *program) warnType(ctx context.Context, s *session, businessType string) {
	var typeErr *admin.UnknownTypeError
	if businessType != "" && !s.store.lacksOperations() && errors.As(s.CheckType(ctx, s.actor, businessType), &typeErr) {
		p.printf("%s", strings.TrimPrefix(typeErr.Error(), "admin: "))
	}
}

type pickedEntry struct {
	name    string // name of the entry, as the person typed it
	id      compensator.EntryID
	version uint64      // version that the person saw, as typed
	line    *admin.Line // nil if the entry was not read yet
}

// pickEntries returns the entries that args or conditions name. answers holds an error for each entry that does not
// exist.
func (p *program) pickEntries(ctx context.Context, s *session, args, conditions []string) (entries []pickedEntry, answers results, err error) {
	switch {
	case len(args) > 0 && len(conditions) > 0:
		return nil, nil, newUsageError("give entries or --where, not both")
	case len(args) == 0 && len(conditions) == 0:
		return nil, nil, newUsageError("no entries: give ids, or - for the lines of list -o ids, or --where")
	case len(conditions) > 0:
		w, err := parseWhere(conditions)
		if err := cmp.Or(err, w.check()); err != nil {
			return nil, nil, err
		}
		chosen, hasMore, err := s.readChosen(ctx, w, admin.MaxEntries)
		if hasMore {
			return nil, nil, newTooManyError("more than 500")
		}
		for _, e := range chosen {
			entries = append(entries, pickedEntry{name: e.ID.String(), id: e.ID, version: e.Version})
		}
		return entries, nil, err
	}
	names, err := p.names(ctx, args)
	if err != nil {
		return nil, nil, err
	}
	if len(names) > admin.MaxEntries {
		return nil, nil, newTooManyError(strconv.Itoa(len(names)))
	}
	return s.findEntries(ctx, names)
}

func newTooManyError(n string) error {
	return newUsageError("%s entries, and at most %d at a time: narrow --where by type, state, error, from and to, or add --all to act on all of them", n, admin.MaxEntries)
}

// names returns the names of the entries for a change. If the only argument is "-", the names are the lines of standard
// input. Otherwise the arguments are the names.
func (p *program) names(ctx context.Context, args []string) ([]string, error) {
	if !slices.Contains(args, "-") {
		return args, nil
	}
	if len(args) > 1 {
		return nil, newUsageError("- cannot be combined with other entries")
	}
	return runWithin(ctx, func() (names []string, err error) {
		lines := bufio.NewScanner(p.stdin)
		for lines.Scan() {
			line := strings.TrimSpace(lines.Text())
			if line == "" {
				continue
			}
			if !strings.Contains(line, ":") || strings.HasPrefix(line, "key:") {
				return nil, newUsageError("%q: standard input must have the lines of list -o ids, id:version, so that only what you saw is changed", line)
			}
			names = append(names, line)
			if len(names) > maxListed {
				return nil, newTooManyError("more than 100,000")
			}
		}
		return names, lines.Err()
	})
}

// runWithin returns the context's error if ctx ends first.
func runWithin[T any](ctx context.Context, read func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	outcome := make(chan result, 1)
	go func() {
		value, err := read()
		outcome <- result{value, err}
	}()
	select {
	case r := <-outcome:
		return r.value, r.err
	case <-ctx.Done():
		var zero T
		return zero, ctx.Err()
	}
}

type namedEntry struct {
	name    string
	ref     compensator.Ref
	version *uint64 // version in the name; nil if there is none
}

// parse accepts id, id:version and key:…
func parse(name string) (namedEntry, error) {
	id, version, ok := strings.Cut(name, ":")
	if !ok || id == "key" {
		ref, err := parseRef(name)
		return namedEntry{name: name, ref: ref}, err
	}
	of, err := compensator.ParseEntryID(id)
	seen, err2 := strconv.ParseUint(version, 10, 64)
	if errors.Join(err, err2) != nil {
		return namedEntry{}, newUsageError("%q is not id:version, as list -o ids prints it", name)
	}
	return namedEntry{name, of, &seen}, nil
}

// findEntries finds the entries that a person has named. A name such as id:version already has all that a change needs,
// so findEntries does not read that entry. For each entry that was not found, the result answers has an error.
func (s *session) findEntries(ctx context.Context, names []string) (entries []pickedEntry, answers results, err error) {
	parsed := make([]namedEntry, len(names))
	var ids []compensator.EntryID
	for i, name := range names {
		if parsed[i], err = parse(name); err != nil {
			return nil, nil, err
		}
		if id, ok := parsed[i].ref.(compensator.EntryID); ok && parsed[i].version == nil {
			ids = append(ids, id)
		}
	}
	lines, err := s.lines(ctx, ids)
	if err != nil {
		return nil, nil, err
	}
	seenIDs := make(map[compensator.EntryID]bool)
	for _, request := range parsed {
		e, err := s.findEntry(ctx, request, lines)
		switch {
		case errors.Is(err, compensator.ErrNotFound):
			answers.addResult(request.name, err)
		case err != nil:
			return nil, nil, err
		case seenIDs[e.id]:
			return nil, nil, newUsageError("%s is named twice: name it once", request.name)
		default:
			seenIDs[e.id], entries = true, append(entries, e)
		}
	}
	return entries, answers, nil
}

// findEntry returns the entry of one name. lines holds the entries that findEntries has read by id.
func (s *session) findEntry(ctx context.Context, request namedEntry, lines map[compensator.EntryID]*admin.Line) (pickedEntry, error) {
	id, ok := request.ref.(compensator.EntryID)
	switch {
	case request.version != nil:
		return pickedEntry{name: request.name, id: id, version: *request.version}, nil
	case !ok:
		view, err := s.Entry(ctx, s.actor, request.ref)
		return pickedEntry{request.name, view.Entry.ID, view.Entry.Version, &admin.Line{Entry: view.Entry, Amount: view.Amount, Case: view.Case, OutcomeUnknown: view.OutcomeUnknown}}, err
	case lines[id] == nil:
		return pickedEntry{}, fmt.Errorf("%v: %w", id, compensator.ErrNotFound)
	}
	return pickedEntry{request.name, id, lines[id].Entry.Version, lines[id]}, nil
}

// lines leaves out entries that do not exist or that the person may not see.
func (s *session) lines(ctx context.Context, ids []compensator.EntryID) (map[compensator.EntryID]*admin.Line, error) {
	linesByID := make(map[compensator.EntryID]*admin.Line, len(ids))
	if len(ids) == 0 {
		return linesByID, nil
	}
	lines, err := s.Lines(ctx, s.actor, ids)
	for i := range lines {
		linesByID[lines[i].Entry.ID] = &lines[i]
	}
	return linesByID, err
}

func hintUnchecked(err error) error {
	var refused *admin.UncheckedError
	if !errors.As(err, &refused) {
		return err
	}
	var parts []string
	if n := len(refused.Unknown); n > 0 {
		parts = append(parts, fmt.Sprintf("the outcome of %s is unknown (%s): an attempt timed out, was cut off, never ended, lost the result of its call or runs now, so it may have had its effect. "+
			"Find out what happened, then add --checked. Or add --skip-unknown to leave such entries out", processlog.EntryCount(n), admin.NameEntries(refused.Unknown)))
	}
	if n := len(refused.Finished); n > 0 {
		parts = append(parts, fmt.Sprintf("%s ended already (%s). Add --again to run such entries again", processlog.EntryCount(n), admin.NameEntries(refused.Finished)))
	}
	return newUsageError("nothing was done: %s", strings.Join(parts, ". And "))
}

func (p *program) skipUnknown(ctx context.Context, s *session, entries []pickedEntry, ch admin.Change) ([]pickedEntry, error) {
	lines, err := s.read(ctx, entries)
	if err != nil {
		return nil, err
	}
	ch.Again = true
	refused := ch.Unchecked(lines)
	if refused == nil {
		return entries, nil
	}
	p.printf("left alone: the outcome of %s is unknown (%s)", processlog.EntryCount(len(refused.Unknown)), admin.NameEntries(refused.Unknown))
	return slices.DeleteFunc(entries, func(e pickedEntry) bool { return slices.Contains(refused.Unknown, e.id) }), nil
}

// The method session.read reads the entries whose line is nil.
func (s *session) read(ctx context.Context, entries []pickedEntry) ([]admin.Line, error) {
	var unreadIDs []compensator.EntryID
	for _, e := range entries {
		if e.line == nil {
			unreadIDs = append(unreadIDs, e.id)
		}
	}
	lines, err := s.lines(ctx, unreadIDs)
	if err != nil {
		return nil, err
	}
	found := make([]admin.Line, 0, len(entries))
	for i := range entries {
		if entries[i].line == nil {
			entries[i].line = lines[entries[i].id]
		}
		if entries[i].line != nil {
			found = append(found, *entries[i].line)
		}
	}
	return found, nil
}

const maxPreviewed = 20

// preview asks for confirmation unless --yes is set.
func (p *program) preview(ctx context.Context, s *session, verb string, entries []pickedEntry, ch admin.Change, isConfirmed bool) error {
	if isConfirmed {
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
		if i < maxPreviewed {
			l.rows = append(l.rows, []any{digits(line.Entry.ID.String()), line.Entry.BusinessType, line.Entry.State.String(), amountText(line.Amount), line.Entry.LastError})
		}
	}
	var total []string
	for currency, amount := range sums {
		total = append(total, formatUnits(amount, currency))
	}
	slices.Sort(total)
	subject := fmt.Sprintf("%s %d", verb, len(entries))
	p.printf("would %s, as %s, because %q%s", strings.Join(append([]string{subject}, total...), ", worth "), s.actor.ID, ch.Reason, delayText(ch.Delay))
	l.table(p.stderr, false)
	if remaining := len(entries) - maxPreviewed; remaining > 0 {
		fmt.Fprintf(p.stderr, "… and %d more\n", remaining)
	}
	if refused := ch.Unchecked(lines); refused != nil {
		return refused
	}
	if uncheckedErr := (admin.Change{Action: ch.Action, Again: true}).Unchecked(lines); uncheckedErr != nil { // These entries need --checked.
		p.printf("! the outcome of %s is unknown, and you have checked: %s", processlog.EntryCount(len(uncheckedErr.Unknown)), admin.NameEntries(uncheckedErr.Unknown))
	}
	return p.confirm(ctx, verb, strconv.Itoa(len(entries)))
}

func delayText(delay time.Duration) string {
	if delay == 0 {
		return ""
	}
	return fmt.Sprintf(", due in %v", delay)
}

func (p *program) confirm(ctx context.Context, verb, word string) error {
	if !isTerminal(p.stdin) || !isTerminal(p.stderr) {
		return newUsageError("nothing was done, because there is no terminal to ask for a confirmation: add --yes")
	}
	fmt.Fprintf(p.stderr, "type %s to %s: ", printable(word), verb)
	input, err := runWithin(ctx, func() (string, error) { return bufio.NewReader(p.stdin).ReadString('\n') })
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if strings.TrimSpace(input) != word {
		return newUsageError("not confirmed: nothing was done")
	}
	return nil
}

// The method do makes a change. If triesFirst is true, it changes only the first entry, and the other entries wait for
// a person. The method adds a result to the parameter answers for each entry that does not wait. If there are several
// entries, it returns the id of the action.
func (s *session) do(ctx context.Context, ch admin.Change, entries []pickedEntry, triesFirst bool, answers *results) (id admin.BulkID, err error) {
	for _, e := range entries {
		ch.Entries = append(ch.Entries, admin.Seen{ID: e.id, Version: e.version})
	}
	var errs []error
	if len(entries) > 1 {
		id, errs, err = s.StartBulk(ctx, s.actor, ch, admin.BulkOptions{TryFirst: triesFirst})
	} else {
		errs, err = s.Change(ctx, s.actor, ch)
	}
	if err != nil {
		return id, err
	}
	waiting, err := s.waiting(ctx, id, triesFirst)
	if err != nil {
		return id, err
	}
	policy, policyErr := s.rules.currentPolicy(ctx)
	for i, e := range entries {
		switch {
		case !errors.Is(errs[i], admin.ErrNotAllowed):
		case policy == nil && policyErr == nil:
			errs[i] = fmt.Errorf("%w: it has ended, and --again runs it again", errs[i])
		default:
			errs[i] = fmt.Errorf("%w: the policy forbids it, or it has ended and --again is missing", errs[i])
		}
		if errs[i] != nil || !waiting[e.id] {
			answers.addResult(e.name, errs[i])
		}
	}
	return id, nil
}

func (s *session) waiting(ctx context.Context, id admin.BulkID, triesFirst bool) (map[compensator.EntryID]bool, error) {
	waiting := make(map[compensator.EntryID]bool)
	if !triesFirst || id == (admin.BulkID{}) {
		return waiting, nil
	}
	view, err := s.Bulk(ctx, s.actor, id)
	for _, left := range view.LeftIDs {
		waiting[left] = true
	}
	return waiting, err
}

func (p *program) printWhen(ctx context.Context, s *session) {
	if s.redis == nil {
		p.printf("without --redis the entries wait for the reconciler of their services: 15 s by default")
		return
	}
	if problem := s.c.Health(ctx).Queue; problem != nil {
		p.printf("Redis does not accept the entries (%v), so they wait for the reconciler of their services", problem)
	}
}

type results []result

type result struct {
	name string
	err  error
}

func (r *results) addResult(name string, err error) { *r = append(*r, result{name, err}) }

func (r results) countDone() (n int) {
	for _, answer := range r {
		if answer.err == nil {
			n++
		}
	}
	return n
}

// answer prints the results. If each entry was refused with the same exit code, answer returns this code. If only some
// entries were refused, or with different codes, answer returns codeSomeRefused.
func (p *program) answer(answers results) error {
	l := listing{kind: "result", columns: []column{{"name", "ENTRY"}, {"result", "RESULT"}, {"reason", "WHY"}}}
	codes := make(map[int]bool)
	for _, a := range answers {
		row := []any{a.name, "done", ""}
		code := codeDone
		if a.err != nil {
			row[1], row[2] = "refused", plainText(a.err)
			code = reasonOf(a.err)
			var exitErr *exitError
			if errors.As(a.err, &exitErr) {
				code = exitErr.code
			}
		}
		codes[code] = true
		l.rows = append(l.rows, row)
	}
	if err := p.print(l); err != nil || len(answers) == answers.countDone() {
		return err
	}
	refusal := &exitError{code: codeSomeRefused, isPrinted: true, err: fmt.Errorf("%d of %d refused", len(answers)-answers.countDone(), len(answers))}
	if len(codes) == 1 {
		for refusal.code = range codes {
		}
	}
	return refusal
}
