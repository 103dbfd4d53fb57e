package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/processlog"
)

type tally struct {
	N    int
	More bool
}

func (t tally) String() string {
	switch {
	case t.More:
		return fmt.Sprintf("%d+", t.N)
	case t.N == 0:
		return ""
	}
	return fmt.Sprint(t.N)
}

func (t tally) MarshalText() ([]byte, error) {
	if t.N == 0 {
		return []byte("0"), nil
	}
	return []byte(t.String()), nil
}

func (p *program) newOverviewCommand() *cobra.Command {
	return p.newLogCommand("overview", "Show what needs attention: unfinished and dead entries by type, overdue entries, paused types", cobra.NoArgs, readAccess,
		func(ctx context.Context, s *session, _ []string) error {
			overview, err := s.Overview(ctx, s.actor)
			if err != nil {
				return err
			}
			overview.AddBacklog(s.readBacklog(ctx))
			l := listing{kind: "overview", columns: []column{{"type", "TYPE"}, {"pending", "PENDING"}, {"retrying", "RETRYING"},
				{"compensating", "COMPENSATING"}, {"dead", "DEAD"}, {"overdue_seconds", "OVERDUE"}, {"paused_by", "PAUSED BY"}, {"paused_reason", "WHY"}, {"paused_at", ""}, {"paused_until", "PAUSED UNTIL"}, {"limited_by", "LIMITED BY"}, {"limited_until", "UNTIL"}}}
			limits := p.usedUpLimits(ctx, s)
			for _, t := range overview.Types {
				l.rows = append(l.rows, append(overviewRow(t), limits[t.Type].Name, limits[t.Type].FreeAt))
			}
			if err := p.print(l); err != nil {
				return err
			}
			p.noteBacklog(overview)
			if names := unregistered(overview); names != "" {
				p.printf("no live process has a handler for: %s. Their entries wait until a process registers one", names)
			}
			if overview.Health != nil {
				p.printf("%s", servers(s, *overview.Health))
			}
			return nil
		})
}

// readBacklog returns the number of waiting entries, as a service has counted them last. It returns a zero reading if
// the log has no such number, or if the database user may not read it.
func (s *session) readBacklog(ctx context.Context) admin.BacklogReading {
	reading, err := s.store.ReadBacklog(ctx)
	if err != nil {
		return admin.BacklogReading{}
	}
	return reading
}

func (p *program) noteBacklog(overview admin.Overview) {
	hasMore := slices.ContainsFunc(overview.Types, func(t admin.TypeOverview) bool {
		return slices.ContainsFunc(t.Counts, func(c admin.StateCount) bool { return c.More })
	})
	switch {
	case hasMore:
		p.printf("1000+ means at least 1,000. If Operations.Statistics is set, services count all of them once a minute")
	case overview.BacklogAge > 0:
		p.printf("numbers above 1,000 were counted %v ago", overview.BacklogAge.Round(time.Second))
	}
}

// addWaiting leaves due and overdue empty if no service has counted them within the last minutes.
func (l *listing) addWaiting(overview admin.Overview) {
	var waiting tally
	var sum admin.Backlog
	for _, t := range overview.Types {
		n, hasMore := t.Waiting()
		waiting.N, waiting.More = waiting.N+n, waiting.More || hasMore
		if t.Backlog != nil {
			sum.Due += t.Backlog.Due
			sum.Overdue += t.Backlog.Overdue
		}
	}
	l.columns = append(l.columns, column{"waiting", ""}, column{"due", ""}, column{"overdue", ""}, column{"backlog_age_seconds", ""})
	values := []any{waiting, nil, nil, nil}
	if overview.BacklogAge > 0 {
		values = []any{waiting, sum.Due, sum.Overdue, overview.BacklogAge}
	}
	l.rows[0] = append(l.rows[0], values...)
}

func unregistered(overview admin.Overview) string {
	var names []string
	for _, t := range overview.Types {
		if t.Unregistered {
			names = append(names, t.Type)
		}
	}
	return strings.Join(names, ", ")
}

func overviewRow(t admin.TypeOverview) []any {
	counts := make(map[compensator.State]tally)
	for _, c := range t.Counts {
		counts[c.State] = tally{c.N, c.More}
	}
	var by, why string
	var at, until time.Time
	if t.Paused != nil {
		by, why, at, until = t.Paused.Actor, t.Paused.Reason, t.Paused.At, t.Paused.Until
	}
	return []any{t.Type, counts[compensator.Pending], counts[compensator.Retrying], counts[compensator.Compensating], counts[compensator.Dead], t.Overdue, by, why, at, until}
}

func servers(s *session, h admin.Health) string {
	database, queue := "database ok", "queue ok"
	if h.Database != "" {
		database = "database: " + h.Database
	}
	switch {
	case s.redis == nil:
		queue = "queue not checked: give --redis"
	case h.Queue != "":
		queue = "queue: " + h.Queue
	}
	if s.store.lacksOperations() {
		queue += ", no cases: see \"compensator check\""
	}
	return database + ", " + queue
}

func (p *program) newTypesCommand() *cobra.Command {
	return p.newLogCommand("types", "List the business types of the log, with up to 1,000 entries counted per state", cobra.NoArgs, readAccess,
		func(ctx context.Context, s *session, _ []string) error {
			counts, err := s.counts(ctx, 1000)
			if err != nil {
				return err
			}
			l := listing{kind: "type", columns: []column{{"type", "TYPE"}}}
			columnOf := make(map[compensator.State]int)
			for _, state := range processlog.States {
				columnOf[state] = len(l.columns)
				l.columns = append(l.columns, column{strings.ReplaceAll(state.String(), " ", "_"), strings.ToUpper(state.String())})
			}
			rows := make(map[string][]any)
			for _, c := range counts {
				if rows[c.BusinessType] == nil {
					row := append([]any{c.BusinessType}, slices.Repeat([]any{tally{}}, len(processlog.States))...)
					rows[c.BusinessType], l.rows = row, append(l.rows, row)
				}
				rows[c.BusinessType][columnOf[c.State]] = tally{c.N, c.More}
			}
			limits := p.usedUpLimits(ctx, s)
			l.columns = append(l.columns, column{"limited_by", "LIMITED BY"}, column{"limited_until", "UNTIL"})
			for i, row := range l.rows {
				limit := limits[row[0].(string)]
				l.rows[i] = append(rows[row[0].(string)], limit.Name, limit.FreeAt)
			}
			slices.SortFunc(l.rows, func(a, b []any) int { return strings.Compare(a[0].(string), b[0].(string)) })
			return p.print(l)
		})
}

func (s *session) counts(ctx context.Context, maxCount int) ([]admin.Count, error) {
	counts, err := admin.Of(s.c).Count(ctx, admin.CountFilter{AtMost: maxCount})
	return slices.DeleteFunc(counts, func(c admin.Count) bool {
		return !s.May(ctx, s.actor, admin.SeeOverview, admin.Subject{Type: c.BusinessType})
	}), err
}

var entryColumns = []column{{"id", "ID"}, {"version", ""}, {"business_type", "TYPE"}, {"state", "STATE"}, {"process_count", "FAILURES"}, {"max_process_count", ""},
	{"compensate_count", ""}, {"delivery_count", ""}, {"epoch", ""}, {"next_at", "DUE OR ENDED"}, {"ended_by", ""}, {"idempotent_id", ""}, {"batch_id", ""},
	{"business_id", "BUSINESS ID"}, {"business_ext_id", ""}, {"user_id", "USER"}, {"last_error", "ERROR"}, {"created_at", ""}, {"updated_at", ""}, {"erased", ""}}

func entryRow(e compensator.Entry) []any {
	return []any{digits(e.ID.String()), digits(fmt.Sprint(e.Version)), e.BusinessType, e.State.String(), e.ProcessCount, e.MaxAttempts,
		e.CompensateCount, e.DeliveryCount, int(e.Epoch), e.NextAt, string(e.EndedBy), e.IdempotencyKey, e.BatchID,
		e.BusinessID, e.BusinessExtID, e.UserID, e.LastError, e.CreatedAt, e.UpdatedAt, e.Erased}
}

func entryListing(kind string, entries []compensator.Entry) listing {
	l := listing{kind: kind, columns: entryColumns}
	for _, e := range entries {
		l.rows = append(l.rows, entryRow(e))
		l.ids = append(l.ids, fmt.Sprintf("%s:%d", e.ID, e.Version))
	}
	return l
}

const maxListed = 100_000

func checkLimit(limit int) error {
	if limit < 1 || limit > maxListed {
		return newUsageError("--limit %d: give 1 to %d", limit, maxListed)
	}
	return nil
}

func (p *program) newListCommand() *cobra.Command {
	var conditions []string
	var limit int
	var newest bool
	cmd := p.newLogCommand("list", "List entries, the oldest first. The worth is known for entries that have a case with an amount. With -o ids, print the lines that requeue and other changing commands read", cobra.NoArgs, readAccess,
		func(ctx context.Context, s *session, _ []string) error {
			w, err := parseWhere(conditions)
			if err := cmp.Or(err, checkLimit(limit), w.check()); err != nil {
				return err
			}
			w.Newest = newest
			if w.LeasedOfAllTypes() {
				return p.listRunning(ctx, s, w.Filter, limit)
			}
			entries, hasMore, err := s.readChosen(ctx, w, limit)
			if err != nil {
				return err
			}
			if len(entries) == 0 {
				p.warnType(ctx, s, w.BusinessType)
			}
			return p.printWithWorth(ctx, s, entries, hasMore)
		})
	p.whereFlag(cmd, &conditions)
	cmd.Flags().IntVar(&limit, "limit", 50, fmt.Sprintf("maximum number of entries, up to %d", maxListed))
	cmd.Flags().BoolVar(&newest, "newest", false, "newest first")
	return cmd
}

// listRunning prints the only page of the running entries of all types.
func (p *program) listRunning(ctx context.Context, s *session, filter admin.Filter, limit int) error {
	filter.Limit = min(limit, pageSize)
	page, err := s.Entries(ctx, s.actor, filter)
	if err != nil {
		return err
	}
	if len(page.Partial) > 0 {
		p.printf("further entries of these types may run: %s", strings.Join(page.Partial, ", "))
		p.printf("list them by type, for example --where running=yes,type=%s", page.Partial[0])
	}
	return p.printWithWorth(ctx, s, page.Entries, false)
}

const pageSize = 1000

// printWithWorth leaves the worth empty for entries without a case of known amount.
func (p *program) printWithWorth(ctx context.Context, s *session, entries []compensator.Entry, hasMore bool) error {
	l := entryListing("entry", entries)
	l.hasMore = hasMore
	if p.flags.format == "ids" {
		return p.print(l)
	}
	worths, err := s.worthsOf(ctx, entries)
	if err != nil {
		return err
	}
	l.columns = append(slices.Clone(l.columns), column{"amount_minor", ""}, column{"currency", ""}, column{"worth", "WORTH"})
	for i, e := range entries {
		amount, currency := amountFields(worths[e.ID])
		l.rows[i] = append(l.rows[i], amount, currency, amountText(worths[e.ID]))
	}
	return p.print(l)
}

// worthsOf reads the known amounts of the entries' cases. It sends one statement for each 1,000 entries.
func (s *session) worthsOf(ctx context.Context, entries []compensator.Entry) (map[compensator.EntryID]compensator.Amount, error) {
	worths := make(map[compensator.EntryID]compensator.Amount)
	for page := range slices.Chunk(entries, pageSize) {
		ids := make([]compensator.EntryID, len(page))
		for i, e := range page {
			ids[i] = e.ID
		}
		cases, err := s.store.CasesOf(ctx, slices.SortedFunc(slices.Values(ids), compensator.EntryID.Compare))
		if err != nil {
			return nil, err
		}
		for _, c := range cases {
			c.Amount.Currency = strings.ToUpper(c.Amount.Currency) // Older versions stored small letters.
			if c.Amount.Known() {
				worths[c.EntryID] = c.Amount
			}
		}
	}
	return worths, nil
}

func (s *session) readChosen(ctx context.Context, w conditions, limit int) (matches []compensator.Entry, hasMore bool, err error) {
	if w.failure != (admin.Fingerprint{}) {
		return s.readFailed(ctx, w, limit)
	}
	// A listing of the running entries of all types may lack some entries. A change must not miss entries, so a change
	// needs a type.
	if w.LeasedOfAllTypes() {
		return nil, false, newUsageError("--where running=yes wants a type")
	}
	filter := w.Filter
	return readPages(limit, filter.Cursor, func(limit int, cursor string) ([]compensator.Entry, string, error) {
		filter.Limit, filter.Cursor = limit, cursor
		page, err := s.Entries(ctx, s.actor, filter)
		return page.Entries, page.Next, err
	})
}

func readPages[T any](limit int, cursor string, read func(limit int, cursor string) ([]T, string, error)) (rows []T, hasMore bool, err error) {
	for {
		page, next, err := read(min(pageSize, limit+1-len(rows)), cursor)
		if err != nil {
			return nil, false, err
		}
		rows = append(rows, page...)
		if len(rows) > limit {
			return rows[:limit], true, nil
		}
		if cursor = next; cursor == "" {
			return rows, false, nil
		}
	}
}

// readFailed leaves out purged entries.
func (s *session) readFailed(ctx context.Context, w conditions, limit int) (matches []compensator.Entry, hasMore bool, err error) {
	if s.store.lacksOperations() {
		return nil, false, newNoOperationsError(s.store.table)
	}
	filter := admin.CaseFilter{BusinessType: w.BusinessType, Fingerprint: w.failure, Limit: admin.MaxEntries}
	return readPages(limit, "", func(_ int, cursor string) (matches []compensator.Entry, next string, err error) {
		filter.Cursor = cursor
		page, err := s.CaseLines(ctx, s.actor, filter)
		for _, line := range page.Lines {
			if len(w.States) == 0 || slices.Contains(w.States, line.Entry.State) {
				matches = append(matches, line.Entry)
			}
		}
		return matches, page.Next, err
	})
}

func parseRef(arg string) (compensator.Ref, error) {
	if key, ok := strings.CutPrefix(arg, "key:"); ok && key != "" {
		return compensator.IdempotencyKey(key), nil
	}
	id, err := compensator.ParseEntryID(arg)
	if err != nil {
		return nil, newUsageError("%q is not an entry: give an id, or key: with the idempotency key", arg)
	}
	return id, nil
}

func (p *program) newGetCommand() *cobra.Command {
	var content bool
	var why why
	cmd := p.newLogCommand("get <id>", "Show one entry, its case, its audit log and related entries. --content needs --reason and is recorded", cobra.ExactArgs(1), readAccess,
		func(ctx context.Context, s *session, args []string) error {
			ref, err := parseRef(args[0])
			if err != nil {
				return err
			}
			view, err := s.Entry(ctx, s.actor, ref)
			if err != nil {
				return err
			}
			l := viewListing(view)
			if content {
				if err := s.reveal(ctx, view.Entry.ID, why.Why, &l); err != nil {
					return err
				}
			}
			return p.print(l)
		})
	cmd.Flags().BoolVar(&content, "content", false, "show the content, result, headers and user name, and record that you looked")
	why.addFlags(cmd)
	return cmd
}

// The Admin requires a reason for a reveal.
func (s *session) reveal(ctx context.Context, id compensator.EntryID, why admin.Why, l *listing) error {
	if s.store.lacksOperations() {
		return newNoOperationsError(s.store.table)
	}
	e, err := s.Reveal(ctx, s.actor, id, why)
	if err != nil {
		return err
	}
	l.columns = append(slices.Clone(l.columns), column{"user_name", ""}, column{"content", ""}, column{"result", ""}, column{"headers", ""})
	l.rows[0] = append(l.rows[0], e.UserName, string(e.Content), string(e.Result), e.Headers)
	return nil
}

func viewListing(view admin.EntryView) listing {
	l := entryListing("entry", []compensator.Entry{view.Entry})
	amount, currency := amountFields(view.Amount)
	var cases []admin.Case
	if view.Case != nil {
		cases = append(cases, *view.Case)
	}
	l.isSingle, l.innerColumns = true, []string{"cases", "trail", "siblings"}
	l.columns = append(slices.Clone(l.columns), column{"amount_minor", ""}, column{"currency", ""}, column{"content_size", ""}, column{"content_sha256", ""}, column{"result_size", ""},
		column{"cases", ""}, column{"trail", ""}, column{"siblings", ""})
	l.rows[0] = append(l.rows[0], amount, currency, view.ContentSize, view.ContentSHA256, view.ResultSize,
		caseListing(cases), auditLogListing(view.AuditLog), entryListing("sibling", view.Siblings))
	return l
}

func (p *program) newEntryCommand(use, summary string, read func(ctx context.Context, s *session, ref compensator.Ref) error) *cobra.Command {
	return p.newLogCommand(use, summary, cobra.ExactArgs(1), readAccess, func(ctx context.Context, s *session, args []string) error {
		ref, err := parseRef(args[0])
		if err != nil {
			return err
		}
		return read(ctx, s, ref)
	})
}

func (p *program) newExplainCommand() *cobra.Command {
	return p.newEntryCommand("explain <id>", "Say why an entry does not run now, and what happens to it next. With --redis, also look into the queue",
		func(ctx context.Context, s *session, ref compensator.Ref) error {
			explanation, err := s.Explain(ctx, s.actor, ref)
			if err != nil {
				return err
			}
			l := listing{kind: "reason", columns: []column{{"entry_id", "ENTRY"}, {"state", "STATE"}, {"says", "SAYS"}, {"sentence", "SENTENCE"}, {"code", ""},
				{"other_entry_id", ""}, {"name", ""}, {"actor", ""}, {"text", ""}, {"n", ""}, {"at", ""}, {"until", ""}}}
			for list, reasons := range [][]admin.Reason{explanation.Reasons, explanation.Next} {
				for _, r := range reasons {
					l.rows = append(l.rows, reasonRow(explanation, []string{"why", "next"}[list], r))
				}
			}
			return p.print(l)
		})
}

func reasonRow(explanation admin.Explanation, sentence string, r admin.Reason) []any {
	var otherTime digits
	if !r.Entry.IsZero() {
		otherTime = digits(r.Entry.String())
	}
	return []any{digits(explanation.ID.String()), explanation.State.String(), sentence, r.String(), r.Code, otherTime, r.Name, r.Actor, r.Text, r.N, r.At, r.Until}
}

func (p *program) newTimelineCommand() *cobra.Command {
	return p.newEntryCommand("timeline <id>", "Show the history of an entry in order of time: when it was recorded, its failed attempts that were stored, actions of people, and its end or next attempt",
		func(ctx context.Context, s *session, ref compensator.Ref) error {
			view, why, err := s.ExplainedEntry(ctx, s.actor, ref)
			if err != nil {
				return err
			}
			if !view.AttemptsKept {
				p.printf("this log keeps no failed attempts, or this user may not read them: see Operations.Attempts")
			}
			return p.print(timelineListing(view.Timeline(), why.Reasons))
		})
}

func timelineListing(events []admin.Event, why []admin.Reason) listing {
	l := listing{kind: "event", columns: []column{{"at", "AT"}, {"event", "EVENT"}, {"what", "WHAT"}, {"attempt", "ATTEMPT"}, {"late_ms", "LATE MS"}, {"took_ms", "TOOK MS"}, {"by", "BY"},
		{"epoch", ""}, {"compensating", ""}, {"timed_out", ""}, {"lost_leases", ""}, {"next_at", ""}, {"trace", ""}, {"text", "ERROR OR REASON"}}}
	for _, e := range events {
		row := make([]any, len(l.columns))
		row[0], row[1] = e.At, string(e.Kind)
		text := &row[len(row)-1]
		switch e.Kind {
		case admin.EventUnrecorded:
			*text = fmt.Sprintf("%d failures are not kept", e.N)
		case admin.EventFailed:
			a := e.Attempt
			copy(row[2:], []any{string(a.Verdict), a.Number, int(a.Late().Milliseconds()), int(a.Took.Milliseconds()), a.Instance, int(a.Epoch), a.Compensating, a.TimedOut, a.LostLeases, a.NextAt, a.Trace})
			*text = a.Error
		case admin.EventAction:
			row[2], row[6], *text = e.Action.Action, e.Action.Actor, e.Action.Reason
		case admin.EventEnded:
			row[2], row[6] = e.State.String(), string(e.EndedBy)
		case admin.EventDue:
			sentences := make([]string, len(why))
			for i, r := range why {
				sentences[i] = r.String()
			}
			row[2], *text = e.State.String(), strings.Join(sentences, " ")
		}
		l.rows = append(l.rows, row)
	}
	return l
}

func (p *program) newHistoryCommand() *cobra.Command {
	return p.newEntryCommand("history <id>", "Show the audit log of an entry, the oldest record first",
		func(ctx context.Context, s *session, ref compensator.Ref) error {
			view, err := s.Entry(ctx, s.actor, ref)
			if err != nil {
				return err
			}
			records, hasMore, err := s.readAuditLog(ctx, admin.AuditLogFilter{EntryID: view.Entry.ID}, maxListed)
			if err != nil {
				return err
			}
			slices.Reverse(records)
			l := auditLogListing(records)
			l.hasMore = hasMore
			return p.print(l)
		})
}

func (s *session) readAuditLog(ctx context.Context, filter admin.AuditLogFilter, limit int) (records []admin.AuditLogRecord, hasMore bool, err error) {
	return readPages(limit, filter.Cursor, func(limit int, cursor string) ([]admin.AuditLogRecord, string, error) {
		filter.Limit, filter.Cursor = limit, cursor
		page, err := s.AuditLog(ctx, s.actor, filter)
		return page.Records, page.Next, err
	})
}

func auditLogListing(records []admin.AuditLogRecord) listing {
	l := listing{kind: "trail", columns: []column{{"at", "AT"}, {"actor", "WHO"}, {"action", "ACTION"}, {"refused", "REFUSED"}, {"entry_id", "ENTRY"},
		{"business_type", "TYPE"}, {"from", "FROM"}, {"to", "TO"}, {"version", ""}, {"subject", "OF"}, {"reason", "WHY"}}}
	for _, r := range records {
		var entry, version digits
		var from, to string
		if !r.EntryID.IsZero() {
			entry = digits(r.EntryID.String())
		}
		if r.Before != nil && r.After != nil {
			from, to, version = r.Before.State.String(), r.After.State.String(), digits(fmt.Sprint(r.After.Version))
		}
		l.rows = append(l.rows, []any{r.At, r.Actor, r.Action, r.Refused, entry, r.BusinessType, from, to, version, r.Subject, r.Reason})
	}
	return l
}

func (p *program) newAuditLogCommand() *cobra.Command {
	var filter admin.AuditLogFilter
	var limit int
	var since time.Duration
	cmd := p.newLogCommand("trail", "Show the audit log with refused actions, the newest record first", cobra.NoArgs, operateAccess,
		func(ctx context.Context, s *session, _ []string) error {
			if err := checkLimit(limit); err != nil {
				return err
			}
			if since > 0 {
				filter.From = time.Now().Add(-since)
			}
			records, hasMore, err := s.readAuditLog(ctx, filter, limit)
			if err != nil {
				return err
			}
			l := auditLogListing(records)
			l.hasMore = hasMore
			return p.print(l)
		})
	cmd.Flags().StringVar(&filter.Actor, "actor", "", "only records of this person")
	cmd.Flags().StringVar(&filter.Action, "action", "", "only records of this action, such as requeue or pause")
	cmd.Flags().DurationVar(&since, "since", 0, "only records of this last period, for example 24h")
	cmd.Flags().BoolVar(&filter.EachEntry, "each-entry", false, "also list each entry of an action on several entries")
	cmd.Flags().IntVar(&limit, "limit", 50, fmt.Sprintf("maximum number of records, up to %d", maxListed))
	return cmd
}

func (p *program) newBatchCommand() *cobra.Command {
	return p.newLogCommand("batch <batch id>", "Show the progress of a batch", cobra.ExactArgs(1), readAccess,
		func(ctx context.Context, s *session, args []string) error {
			if !s.May(ctx, s.actor, admin.SeeEntries, admin.Subject{}) { // The entries may be of any type, so the person needs the right for all types.
				return admin.ErrNotAllowed
			}
			progress, err := s.c.Batch(args[0]).Progress(ctx)
			if err != nil {
				return err
			}
			if progress.Total == 0 {
				return fmt.Errorf("batch %s: %w", args[0], compensator.ErrNotFound)
			}
			l := listing{kind: "batch", isSingle: true, columns: []column{{"batch_id", ""}, {"total", ""}, {"done", ""}, {"finished", ""}, {"more", ""}},
				rows: [][]any{{args[0], progress.Total, progress.Done, progress.Finished(), progress.More}}}
			for _, state := range processlog.States {
				l.columns = append(l.columns, column{strings.ReplaceAll(state.String(), " ", "_"), ""})
				l.rows[0] = append(l.rows[0], progress.ByState[state])
			}
			return p.print(l)
		})
}

func (p *program) newHealthCommand() *cobra.Command {
	var timeout time.Duration
	cmd := p.newLogCommand("health", "Check that the database and, with --redis, the queue answer, and that no entry has waited too long. Entries of paused types may wait. The exit code is 7 if a check fails, and 6 if the database cannot be reached", cobra.NoArgs, readAccess,
		func(ctx context.Context, s *session, _ []string) error {
			overview, err := s.Overview(ctx, s.actor)
			if err != nil {
				return err
			}
			if overview.Health == nil {
				return admin.ErrNotAllowed
			}
			var problems []string
			for _, problem := range []struct{ of, is string }{{"database", overview.Health.Database}, {"queue", overview.Health.Queue}} {
				if problem.is != "" {
					problems = append(problems, problem.of+": "+problem.is)
				}
			}
			queue := "asked"
			if s.redis == nil {
				queue = "not asked: if the services use Redis, give --redis"
			}
			var oldest time.Duration
			var paused, limited []string
			limits := p.usedUpLimits(ctx, s)
			for _, t := range overview.Types {
				if t.Paused != nil { // A person has paused the type, so its overdue entries are no problem.
					text := t.Type
					if !t.Paused.Until.IsZero() {
						text += " until " + formatTable(t.Paused.Until)
					}
					paused = append(paused, text)
					continue
				}
				if limit, isUsedUp := limits[t.Type]; isUsedUp && t.Overdue > 0 {
					limited = append(limited, fmt.Sprintf("%s by %s, %s", t.Type, limit.Name, untilText(limit)))
					// The type is overdue only because other entries have used up its limit. So its overdue entries are
					// no problem.
					continue
				}
				oldest = max(oldest, t.Overdue)
				if t.Overdue > timeout {
					problems = append(problems, fmt.Sprintf("%s: due for %v, and no process has claimed it", t.Type, t.Overdue.Round(time.Second)))
				}
			}
			problem := strings.Join(problems, "; ")
			overview.AddBacklog(s.readBacklog(ctx))
			l := listing{kind: "health", isSingle: true, columns: []column{{"healthy", ""}, {"problem", ""}, {"queue", ""}, {"paused", ""}, {"limited", ""}, {"oldest_overdue_seconds", ""}},
				rows: [][]any{{problem == "", problem, queue, strings.Join(paused, ", "), strings.Join(limited, "; "), oldest}}}
			l.addWaiting(overview)
			err = p.print(l)
			if err == nil && problem != "" {
				err = &exitError{code: codeUnhealthy, isPrinted: true, err: fmt.Errorf("unhealthy: %s", problem)}
			}
			return err
		})
	cmd.Flags().DurationVar(&timeout, "patience", time.Minute, "maximum time for which an entry may be due, unless its type is paused")
	return cmd
}
