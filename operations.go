package compensator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/compensator-go/compensator/internal/backlog"
	"github.com/compensator-go/compensator/internal/likeness"
	"github.com/compensator-go/compensator/internal/scrub"
	"github.com/compensator-go/compensator/internal/usererr"
	"github.com/compensator-go/compensator/processlog"
)

// Operations turns on cases, which ask people to look at dead entries. The transaction in which an entry becomes dead
// opens its case. Package admin lets people see and close cases. Operations needs the newest version of the tables that
// Migrate creates. The zero value works. Every process of a service must have the same Operations, except InstanceName.
type Operations struct {
	Due   time.Duration         // time that a case may wait for a person, unless Types has a CaseConfig.Due for its type. Default 24 h, at least a minute
	Types map[string]CaseConfig // settings by business type

	// Attempts stores the last 50 failed attempts of each entry, and package admin shows them. A success adds no
	// statement. The transaction that stores the outcome of a failed attempt also stores the attempt, by one statement
	// for up to 100 attempts. Attempts needs the table common_process_log_attempt, which Migrate creates.
	Attempts bool

	// Statistics makes each process count how many entries of each type were recorded, started, failed and ended. The
	// process also measures how long attempts took, and how late they began. Package admin shows these figures over
	// time. A process stores its counts of a minute by one statement, unless nothing happened in the minute. A killed
	// process loses the counts of its last minute. One of the processes in Run also counts the waiting entries. This
	// count runs every minute, or every four minutes while no process has work. A statement of this count reads at most
	// 5,000 entries, or 200,000 in a process without work. Statistics needs the table common_process_log_stat, which
	// Migrate creates.
	Statistics bool

	// Instances makes each process store a row about itself: its name, its versions, its types, and how busy the types
	// are. Package admin shows these rows. A process writes its row with one statement in New, in Run, once a minute,
	// and in Close. No decision of the library depends on these rows. Instances needs the table
	// common_process_log_instance, which Migrate creates.
	Instances bool

	// InstanceName is the name of this process in the lists of failed attempts and of processes. The default is the
	// host and the process id, for example "api-1:17".
	InstanceName string

	// Scrub removes secrets from the text of an error. The library calls Scrub before a case stores the text, and
	// before package admin shows the text. The library itself always removes passwords, keys, e-mail addresses, phone
	// numbers, and the numbers of payment cards, accounts and identity cards. Set Scrub to remove further secrets.
	//
	// The library calls Scrub often and concurrently. Scrub may get a text that Scrub has returned before. If Scrub
	// panics, package admin does not show the text. The column last_error of the log keeps the full text.
	Scrub func(text string) string
}

// CaseConfig says how the cases of a type are handled.
type CaseConfig struct {
	Due time.Duration // overrides Operations.Due

	// Amount returns what an entry is worth. The library calls Amount after the death of the entry, perhaps more than
	// once. So Amount must change nothing. The amount of a case is unknown if Amount is nil, returns an error or
	// panics. The library logs such errors and panics. The amount is also unknown if it exceeds processlog.MaxAmount,
	// or if its currency is not three letters A to Z. The library converts small letters of the currency to capitals.
	Amount func(e *Entry) (Amount, error)
}

// Amount is a value in the smallest unit of a currency. The currency is a code of three letters: {12900, "CNY"} is
// ¥129.00.
type Amount = processlog.Amount

const defaultCaseDue = 24 * time.Hour

func (o *Operations) withDefaults() *Operations {
	if o == nil {
		return nil
	}
	filled := Operations{Due: o.Due, Types: maps.Clone(o.Types), Attempts: o.Attempts, Statistics: o.Statistics, Instances: o.Instances, InstanceName: o.InstanceName, Scrub: o.Scrub}
	setDefault(&filled.Due, defaultCaseDue)
	for name, cfg := range filled.Types {
		setDefault(&cfg.Due, filled.Due)
		filled.Types[name] = cfg
	}
	return &filled
}

func (o *Operations) problems(refuse func(bad bool, field, reason string)) {
	if o == nil {
		return
	}
	bad := spanProblem(o.Due, time.Minute)
	refuse(bad != "", "Operations.Due", bad)
	for _, name := range slices.Sorted(maps.Keys(o.Types)) {
		bad := spanProblem(o.Types[name].Due, time.Minute)
		refuse(bad != "", fmt.Sprintf("Operations.Types[%q].Due", name), bad)
	}
}

func (c *Compensator) checkOperations(ctx context.Context) error {
	if c.cfg.Operations == nil {
		return nil
	}
	store, ok := c.store.(processlog.Operations)
	if !ok {
		return &FieldError{Field: "Operations", Reason: fmt.Sprintf("wants a Store that keeps cases, and %T does not", c.store)}
	}
	err := store.CheckOperations(ctx)
	if c.cfg.Operations.Attempts {
		err = errors.Join(err, store.KeepAttempts(ctx))
	}
	return err
}

func (c *Compensator) stats() processlog.Operations {
	if c.cfg.Operations == nil || !c.cfg.Operations.Statistics {
		return nil
	}
	return c.store.(processlog.Operations)
}

func (c *Compensator) instances() processlog.Operations {
	if c.cfg.Operations == nil || !c.cfg.Operations.Instances {
		return nil
	}
	return c.store.(processlog.Operations)
}

func (c *Compensator) instanceName() string {
	switch o := c.cfg.Operations; {
	case o == nil || !o.Attempts && !o.Instances:
		return ""
	case o.InstanceName != "":
		return o.InstanceName
	}
	host, _ := os.Hostname() // Ignore the error: without a host, the process id is still a hint.
	return fmt.Sprintf("%s:%d", host, os.Getpid())
}

func (c *Compensator) scrubAttempt() func(text string) string {
	if c.cfg.Operations == nil || !c.cfg.Operations.Attempts {
		return nil
	}
	return c.scrubLong
}

func (c *Compensator) caseOf() func(row *processlog.Row, o *processlog.Outcome) *processlog.CaseDraft {
	if c.cfg.Operations == nil {
		return nil
	}
	return func(row *processlog.Row, o *processlog.Outcome) *processlog.CaseDraft {
		faults := row.Faults.In(row)
		if o.Faults != nil {
			faults = *o.Faults
		}
		draft := c.draftCase(row, o.EndedBy, o.LastError, faults.OutcomeUnknown)
		return &draft
	}
}

func (c *Compensator) settings() func(ctx context.Context) ([]processlog.Setting, error) {
	if c.cfg.Operations == nil {
		return nil
	}
	return c.store.(processlog.Operations).Settings
}

// draftCase drafts the case of a dead entry. The parameter unknown says that the effect of the entry may or may not
// have happened.
func (c *Compensator) draftCase(row *processlog.Row, by EndedBy, lastError string, unknown bool) processlog.CaseDraft {
	scrubbed := processlog.FitError(c.scrubLong(lastError)) // FitError cuts the text, so scrub first: half a secret is not recognised as one
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

const hiddenMark = "…"

// hiddenTail is how many characters are hidden at the end of a text that the log has cut, because half a secret is not
// recognised as one.
const hiddenTail = 64

// scrub removes secrets from an error's text: see Operations.Scrub. If the text has the maximum length, the log has
// probably cut the text, perhaps in the middle of a secret. So scrub then hides the end of the text.
func (c *Compensator) scrub(text string) string {
	scrubbed := c.applyRules(text)
	if utf8.RuneCountInString(text) != processlog.MaxText {
		return scrubbed // the text was not cut
	}
	runes := []rune(scrubbed)
	return string(runes[:max(0, len(runes)-hiddenTail)]) + hiddenMark
}

// maxScrubbed is how many bytes of a handler's error are scrubbed. A scrub of megabytes would delay the outcomes of
// other entries.
const maxScrubbed = 4 * processlog.MaxText

// scrubLong cuts a long text, and also removes the end of what is left, because the cut may be in the middle of a
// secret.
func (c *Compensator) scrubLong(text string) string {
	if len(text) <= maxScrubbed {
		return c.scrub(text)
	}
	runes := []rune(c.applyRules(text[:maxScrubbed]))
	kept := string(runes[:max(0, len(runes)-hiddenTail)])
	// The cut may be in the middle of a secret that is longer than hiddenTail, the number of letters removed so far. So
	// also drop the last word.
	if space := strings.LastIndexFunc(kept, unicode.IsSpace); space >= 0 {
		kept = kept[:space]
	}
	return kept + hiddenMark
}

func (c *Compensator) applyRules(text string) (scrubbed string) {
	text = scrub.Text(text)
	if c.cfg.Operations.Scrub == nil || text == "" {
		return text
	}
	defer func() {
		if p := recover(); p != nil {
			c.log.Error("compensator: Operations.Scrub panicked", "panic", usererr.PanicText(p))
			scrubbed = hiddenMark
		}
	}()
	return cmp.Or(c.cfg.Operations.Scrub(text), hiddenMark)
}

// One process at a time maintains cases, in rounds. The time between the beginnings of two rounds is the constant
// caseEvery. A round opens missing cases of entries that are dead, and closes cases of entries that are not dead any
// more. The first round of a process reads all dead entries, and so does one round an hour. Each other round reads only
// entries that died less than the duration caseRecent ago.
const (
	casesMark    = " cases" // cannot be the name of a business type
	caseEvery    = 3 * time.Minute
	caseIdle     = 12 * time.Minute // replaces caseEvery in an idle process. An hour must be a multiple of caseEvery and of caseIdle, so that a round begins at each full hour
	caseStep     = 500
	caseRecent   = 30 * time.Minute
	caseThorough = time.Hour
	caseKept     = 365 * 24 * time.Hour // how long a closed case is kept

	problemCases = "cases could not be opened and closed after the fact"
)

func (c *Compensator) startCaseRounds(ctx context.Context) error {
	store := c.store.(processlog.Operations)
	thorough := true
	return c.startSlotLoop(ctx, casesMark, caseEvery, caseIdle, problemCases, forKeepFor(func(ctx context.Context, slot time.Time) error {
		since := caseRecent
		if thorough || slot.Truncate(caseThorough).Equal(slot) {
			since = 0
		}
		err := c.caseRound(ctx, store, since)
		thorough = thorough && err != nil
		return err
	}))
}

// A row of statistics holds the counts of a type for one minute in one process. To fold rows means to replace several
// rows by one row with their sums. A round first folds the rows that several processes have written for the same
// minute. Two kinds of rounds then also fold minutes into hours, and delete old hours: the first round of a process,
// and a round at a full hour. The constant statEvery is the time between two rounds. Each round runs in one process
// only.
const (
	statsMark     = " statistics" // cannot be the name of a business type
	statEvery     = 5 * time.Minute
	statIdle      = time.Hour // instead of statEvery, for a process that is idle
	statStep      = caseStep
	statInstances = 10 * time.Minute     // how old a minute must be before the rows of all processes for this minute are folded into one
	statMinutes   = 3 * 24 * time.Hour   // how old an hour must be before the rows of its minutes are folded into one
	statHours     = 100 * 24 * time.Hour // age at which the hourly rows of the statistics are deleted

	problemStats = "statistics could not be folded"

	// The rounds that count the backlog begin every minute, in one process at a time.
	backlogMark    = " backlog"      // cannot be the name of a business type
	backlogIdle    = 4 * time.Minute // time between two rounds of a process that is idle
	problemBacklog = "waiting entries could not be counted"
)

func (c *Compensator) keepStats(ctx context.Context) error {
	store, thorough := c.stats(), true
	if store == nil {
		return nil
	}
	if err := c.startSlotLoop(ctx, backlogMark, processlog.StatMinute, backlogIdle, problemBacklog, forKeepFor(func(ctx context.Context, slot time.Time) error {
		slice := backlog.IdleSlice
		if c.features.Busy() {
			slice = backlog.Slice
		}
		return backlog.Round(ctx, c.store.(backlog.Store), slot, slice)
	})); err != nil {
		return err
	}
	return c.startSlotLoop(ctx, statsMark, statEvery, statIdle, problemStats, forKeepFor(func(ctx context.Context, slot time.Time) error {
		fold := func(which processlog.StatFold, age time.Duration) error {
			return runSteps(func() (int, error) { return store.FoldStats(ctx, which, age, statStep) })
		}
		err := fold(processlog.FoldInstances, statInstances)
		if thorough = thorough || slot.Truncate(processlog.StatHour).Equal(slot); err == nil && thorough {
			if err = fold(processlog.FoldHours, statMinutes); err == nil {
				err = store.ForgetStats(ctx, statHours)
			}
			thorough = err != nil
		}
		return err
	}))
}

// A round deletes the rows of processes that have ended or were killed. One process runs a round in each period of
// length instanceEvery.
const (
	instancesMark = " instances" // cannot be the name of a business type
	instanceEvery = time.Hour
	instanceKept  = 24 * time.Hour // how long a row is kept after its process was last seen

	problemInstances = "old instances could not be deleted"
)

func (c *Compensator) forgetInstances(ctx context.Context) error {
	store := c.instances()
	if store == nil {
		return nil
	}
	return c.startSlotLoop(ctx, instancesMark, instanceEvery, instanceEvery, problemInstances, forKeepFor(func(ctx context.Context, _ time.Time) error {
		return store.ForgetInstances(ctx, instanceKept)
	}))
}

// caseRound closes cases of entries that are not dead any more, and opens missing cases of dead entries. If the
// duration age is not 0, caseRound opens cases only for entries that died within this duration. If age is 0, it opens
// cases for all dead entries, and deletes cases that were closed more than caseKept ago.
func (c *Compensator) caseRound(ctx context.Context, store processlog.Operations, age time.Duration) error {
	steps := []func() (int, error){
		func() (int, error) { return store.CloseCases(ctx, caseStep) },
		func() (int, error) { return c.openMissing(ctx, store, age) },
	}
	if age == 0 {
		steps = append(steps, func() (int, error) { return store.ForgetCases(ctx, caseKept, caseStep) })
	}
	var errs []error
	for _, step := range steps {
		err := runSteps(step)
		errs = append(errs, err)
		if refused := new(processlog.RefusedError); err != nil && !errors.As(err, &refused) {
			break // The database itself fails, so skip the other steps. A *RefusedError, in contrast, concerns only single cases.
		}
	}
	return errors.Join(errs...)
}

func runSteps(step func() (int, error)) error {
	for {
		if n, err := step(); err != nil || n < caseStep {
			return err
		}
	}
}

// openMissing opens cases for dead entries that have no open case. One call reads up to caseStep of these entries. It
// skips entries that are locked or have changed. The result n is the number of entries that the call has read,
// including the skipped entries. There is one exception: n is 0 if the call has opened no case. Then runSteps does not
// call openMissing again.
func (c *Compensator) openMissing(ctx context.Context, store processlog.Operations, since time.Duration) (n int, err error) {
	rows, err := store.DeadWithoutCase(ctx, since, caseStep)
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	drafts := make([]processlog.CaseDraft, len(rows))
	for i := range rows {
		drafts[i] = c.draftCase(&rows[i], rows[i].EndedBy, rows[i].LastError, rows[i].Faults.In(&rows[i]).OutcomeUnknown)
	}
	opened, err := store.OpenCases(ctx, rows, drafts)
	if opened == 0 {
		return 0, err
	}
	return len(rows), err // After a full step there may be more dead entries, even if some were locked or requeued during this step.
}

// amount returns what an entry is worth, from the user's function Amount. It returns no amount if this function fails
// or panics.
func (c *Compensator) amount(row *processlog.Row) (amount Amount) {
	amountOf := c.cfg.Operations.Types[row.BusinessType].Amount
	if amountOf == nil {
		return Amount{}
	}
	defer func() {
		if p := recover(); p != nil {
			c.log.Error("compensator: the Amount of a type panicked", "type", row.BusinessType, "entry", row.ID, "panic", usererr.PanicText(p))
			amount = Amount{}
		}
	}()
	amount, err := amountOf(c.entry(row))
	// Some payment providers write the code of a currency in small letters. The library finds the decimals of a
	// currency in a table whose codes have capitals, so convert the code to capitals.
	amount.Currency = strings.ToUpper(amount.Currency)
	switch {
	case err != nil:
		c.log.Warn("compensator: the Amount of a type failed", "type", row.BusinessType, "entry", row.ID, "err", usererr.Text(err))
		return Amount{}
	case !amount.Known():
		return Amount{}
	}
	return amount
}
