package compensator

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/likeness"
	"github.com/compensator-go/compensator/internal/operating"
	"github.com/compensator-go/compensator/internal/scrub"
	"github.com/compensator-go/compensator/internal/usererr"
	"github.com/compensator-go/compensator/processlog"
)

// Operations is what Config.Operations turns on: for each entry that dies a case is opened, in the transaction that makes
// it dead, and package desk lets people see and close them. It needs Migrate's newest tables. The zero value works; every
// process of a service has the same.
type Operations struct {
	Due   time.Duration         // how long a case may wait for a person, where Types says nothing else. Default 24 h; at least a minute
	Types map[string]CaseConfig // by business type

	// Scrub takes out of an error's text what people must not see, before a case keeps it and package desk shows it; numbers
	// of cards, tokens, passwords and whose e-mail it was are gone by then, also where Scrub is nil. It is called
	// concurrently, often, and again with what it has returned; of one that panics nothing is shown. The log's own column
	// keeps what the handler said.
	Scrub func(text string) string
}

// CaseConfig says what the cases of a type need.
type CaseConfig struct {
	Due time.Duration // as Operations.Due, whose default it takes

	// Amount is what an entry is worth, asked when it has died, maybe more than once; it must only look. Not known: nil, an error
	// or a panic, which are logged, an amount beyond processlog.MaxAmount, or of a currency that is not three letters of A to Z;
	// small ones are taken for capitals.
	Amount func(e *Entry) (Amount, error)
}

// Amount is what an entry is worth, in the smallest unit of a currency of three letters: {12900, "CNY"} is ¥129.00.
type Amount = processlog.Amount

const defaultCaseDue = 24 * time.Hour

func (o *Operations) withDefaults() *Operations {
	if o == nil {
		return nil
	}
	filled := Operations{Due: o.Due, Types: maps.Clone(o.Types), Scrub: o.Scrub}
	setDefault(&filled.Due, defaultCaseDue)
	for name, cfg := range filled.Types {
		setDefault(&cfg.Due, filled.Due)
		filled.Types[name] = cfg
	}
	return &filled
}

// problems names what is wrong with it.
func (o *Operations) problems(refuse func(bad bool, field, reason string)) {
	if o == nil {
		return
	}
	bad := badSpan(o.Due, time.Minute)
	refuse(bad != "", "Operations.Due", bad)
	for _, name := range slices.Sorted(maps.Keys(o.Types)) {
		bad := badSpan(o.Types[name].Due, time.Minute)
		refuse(bad != "", fmt.Sprintf("Operations.Types[%q].Due", name), bad)
	}
}

// checkOperations finds the store's part for people, and its tables.
func (c *Compensator) checkOperations(ctx context.Context) error {
	if c.cfg.Operations == nil {
		return nil
	}
	store, ok := c.store.(processlog.Operations)
	if !ok {
		return &FieldError{Field: "Operations", Reason: fmt.Sprintf("wants a Store that keeps cases, and %T does not", c.store)}
	}
	return store.CheckOperations(ctx)
}

// caseOf makes the case of an entry that dies, or is nil where none are kept.
func (c *Compensator) caseOf() func(row *processlog.Row, o *processlog.Outcome) *processlog.CaseDraft {
	if c.cfg.Operations == nil {
		return nil
	}
	return func(row *processlog.Row, o *processlog.Outcome) *processlog.CaseDraft {
		unknown := o.TimedOut || row.DeliveryCount > 1 || engine.TimedOut(row.LastError) // this attempt, or one before it
		draft := c.draftCase(row, o.EndedBy, o.LastError, unknown)
		return &draft
	}
}

// paused reads which types are paused, or is nil where nobody can pause any.
func (c *Compensator) paused() func(ctx context.Context) (map[string]bool, error) {
	if c.cfg.Operations == nil {
		return nil
	}
	store := c.store.(processlog.Operations)
	return func(ctx context.Context) (map[string]bool, error) {
		settings, err := store.Settings(ctx)
		paused := make(map[string]bool, len(settings))
		for _, s := range settings {
			if name, is := processlog.PausedType(s); is {
				paused[name] = true
			}
		}
		return paused, err
	}
}

// draftCase makes the case of an entry that is dead. unknown says that an attempt timed out or never ended, so that nobody knows
// whether its effect has happened.
func (c *Compensator) draftCase(row *processlog.Row, by EndedBy, lastError string, unknown bool) processlog.CaseDraft {
	scrubbed := processlog.FitError(c.scrubLong(lastError)) // before it is cut
	draft := processlog.CaseDraft{Kind: processlog.CaseDead, Amount: c.amount(row), Due: c.cfg.Operations.Due,
		Fingerprint: likeness.Fingerprint(row.BusinessType, string(by), scrubbed)}
	if kept := processlog.FitCaseError(scrubbed); kept != processlog.FitCaseError(lastError) {
		draft.Error = kept
	}
	if unknown || by == EndedByCrash {
		draft.Kind = processlog.CaseUnknown
	}
	if cfg, found := c.cfg.Operations.Types[row.BusinessType]; found {
		draft.Due = cfg.Due
	}
	return draft
}

// blacked stands for what may not be shown of an error.
const blacked = "…"

// torn is how much of a text that the log has cut is shown to nobody at its end, in characters: half a card's number, or half a
// token, is known for none.
const torn = 64

// scrub takes out of an error's text what people must not see.
func (c *Compensator) scrub(text string) string {
	scrubbed := c.byRules(text)
	if utf8.RuneCountInString(text) != processlog.MaxText {
		return scrubbed // whole
	}
	runes := []rune(scrubbed)
	return string(runes[:max(0, len(runes)-torn)]) + blacked
}

// longest is how much of a handler's error is scrubbed, in bytes: it may hold megabytes that a service far away has answered, of
// which the log keeps MaxText characters, and the outcomes of others wait meanwhile.
const longest = 4 * processlog.MaxText

// scrubLong is scrub for a text of any length, of the end of which it leaves nothing that may have been cut in two.
func (c *Compensator) scrubLong(text string) string {
	if len(text) <= longest {
		return c.scrub(text)
	}
	runes := []rune(c.byRules(text[:longest]))
	kept := string(runes[:max(0, len(runes)-torn)])
	if space := strings.LastIndexFunc(kept, unicode.IsSpace); space >= 0 { // a token may be longer than that
		kept = kept[:space]
	}
	return kept + blacked
}

// byRules is a text without what the library's rules and the service's find.
func (c *Compensator) byRules(text string) (scrubbed string) {
	text = scrub.Text(text)
	if c.cfg.Operations.Scrub == nil || text == "" {
		return text
	}
	defer func() {
		if p := recover(); p != nil {
			c.log.Error("compensator: Operations.Scrub panicked", "panic", usererr.PanicText(p))
			scrubbed = blacked
		}
	}()
	return cmp.Or(c.cfg.Operations.Scrub(text), blacked)
}

// Rounds of the cases' upkeep begin every caseEvery, in one process at a time, and take caseStep cases of each kind. All dead
// entries are looked at once an hour, and with a process's first round; in between those that died a while ago. Nothing waits
// for a round but what has passed the desk by: more of them would be most of what a process at rest asks for.
const (
	casesMark    = " cases" // no business type is called that
	caseEvery    = 3 * time.Minute
	caseStep     = 500
	caseRecent   = 30 * time.Minute
	caseThorough = time.Hour
	caseKept     = 365 * 24 * time.Hour // closed
)

// keepCases has this process take part in the rounds.
func (c *Compensator) keepCases(ctx context.Context) error {
	store, thorough := c.store.(processlog.Operations), true
	return c.upkeep(ctx, casesMark, caseEvery, engine.TroubleCases, func(ctx context.Context, slot, end time.Time) error {
		since := caseRecent
		if thorough || slot.Truncate(caseThorough).Equal(slot) {
			since = 0
		}
		err := c.caseRound(ctx, store, since, end)
		thorough = thorough && err != nil
		return err
	})
}

// caseRound closes the cases of entries that a service has ended and opens those that are missing; a thorough one, since 0,
// forgets old ones.
func (c *Compensator) caseRound(ctx context.Context, store processlog.Operations, since time.Duration, end time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	err := inSteps(func() (int, error) { return store.CloseCases(ctx, caseStep) })
	if err == nil {
		err = inSteps(func() (int, error) { return c.openMissing(ctx, store, since) })
	}
	if err == nil && since == 0 {
		err = inSteps(func() (int, error) { return store.ForgetCases(ctx, caseKept, caseStep) })
	}
	return err
}

// inSteps goes on while a step has found as many as it takes.
func inSteps(step func() (int, error)) error {
	for {
		if n, err := step(); err != nil || n < caseStep {
			return err
		}
	}
}

// openMissing opens cases of dead entries without one, and returns how many it has looked at, if it could open any. Those that
// others hold are left to the next step.
func (c *Compensator) openMissing(ctx context.Context, store processlog.Operations, since time.Duration) (n int, err error) {
	rows, err := store.DeadWithoutCase(ctx, since, caseStep)
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	drafts := make([]processlog.CaseDraft, len(rows))
	for i := range rows {
		// The attempt is long over: its text is all that is left of it.
		drafts[i] = c.draftCase(&rows[i], rows[i].EndedBy, rows[i].LastError, engine.TimedOut(rows[i].LastError))
	}
	opened, err := store.OpenCases(ctx, rows, drafts)
	if opened == 0 {
		return 0, err
	}
	return len(rows), err // of a full step there may be more, whatever was held, or lives again
}

// opsLog is a Compensator as package desk sees it.
type opsLog struct {
	*Compensator
	store processlog.Operations
}

func init() {
	operating.Of = func(of any) operating.Log {
		c := of.(*Compensator)
		store, ok := c.store.(processlog.Operations)
		if !ok || c.cfg.Operations == nil {
			return nil
		}
		return opsLog{c, store}
	}
}

func (l opsLog) Operations() processlog.Operations { return l.store }

func (l opsLog) SharedQueue() bool { return !l.local() }

func (l opsLog) TimedOut(lastError string) bool { return engine.TimedOut(lastError) }

func (l opsLog) Knows(businessType string) bool { return l.types.codec(businessType) != nil }

func (l opsLog) OpenBreakers() []OpenBreaker { return l.engine.OpenBreakers() }

// Scrub is an error's text as people may see it.
func (l opsLog) Scrub(text string) string { return l.scrub(text) }

// ChangeAll makes a person's change of entries as they were seen.
func (l opsLog) ChangeAll(ctx context.Context, seen []processlog.Version, change processlog.Change) ([]processlog.Changed, error) {
	if l.closed() {
		return nil, ErrClosed
	}
	change.Token = processlog.NewToken()
	answers, err := l.store.ChangeAll(l.engine.Reporting(ctx), seen, change)
	if err != nil {
		return nil, err
	}
	contents := l.contents(ctx, answers)
	for _, answer := range answers {
		if before := answer.Before; answer.Err == nil {
			before.Content = contents[before.ID]
			l.engine.Changed(before, change)
		}
	}
	return answers, nil
}

// contents reads those by which entries of serial types may have their keys: whoever stands behind one that has ended is told.
// Without them the next comes by itself, only later.
func (l opsLog) contents(ctx context.Context, answers []processlog.Changed) map[EntryID][]byte {
	contents := make(map[EntryID][]byte)
	for _, answer := range answers {
		if answer.Err != nil || !l.engine.TakesTurns(answer.Before.BusinessType) {
			continue
		}
		rows, err := l.Compensator.store.Load(ctx, []EntryID{answer.Before.ID}) // one by one, for they may be large
		if err == nil && len(rows) == 1 {
			contents[rows[0].ID] = rows[0].Content
		}
	}
	return contents
}

// Amounts asks the functions of the rows' types, for which the contents are read.
func (l opsLog) Amounts(ctx context.Context, rows []processlog.Row) (map[EntryID]Amount, error) {
	var ids []EntryID
	for i := range rows {
		if l.cfg.Operations.Types[rows[i].BusinessType].Amount != nil {
			ids = append(ids, rows[i].ID)
		}
	}
	whole, err := l.Compensator.store.Load(ctx, ids)
	amounts := make(map[EntryID]Amount, len(whole))
	for i := range whole {
		amounts[whole[i].ID] = l.amount(&whole[i])
	}
	return amounts, err
}

// amount asks the user's function.
func (c *Compensator) amount(row *processlog.Row) (amount Amount) {
	worth := c.cfg.Operations.Types[row.BusinessType].Amount
	if worth == nil {
		return Amount{}
	}
	defer func() {
		if p := recover(); p != nil {
			c.log.Error("compensator: the Amount of a type panicked", "type", row.BusinessType, "entry", row.ID, "panic", usererr.PanicText(p))
			amount = Amount{}
		}
	}()
	amount, err := worth(c.entry(row))
	amount.Currency = strings.ToUpper(amount.Currency) // some providers' codes are in small letters, and the decimals of a currency go by its capitals
	switch {
	case err != nil:
		c.log.Warn("compensator: the Amount of a type failed", "type", row.BusinessType, "entry", row.ID, "err", usererr.Text(err))
		return Amount{}
	case !amount.Known():
		return Amount{}
	}
	return amount
}
