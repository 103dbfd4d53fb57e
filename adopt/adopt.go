package adopt

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/sleep"
	"github.com/compensator-go/compensator/processlog"
)

// Import turns the rows of one table into entries. Its methods may run concurrently, and in several processes.
type Import struct {
	c       *compensator.Compensator
	cfg     Config
	table   string                 // Config.Table, quoted for SQL
	key     string                 // Config.Key, quoted for SQL
	locks   atomic.Pointer[string] // locking clause of SELECT; see turn.lock
	running atomic.Bool
}

// Open returns an Import into c's log. The old table must be on the database server of c. An error names each invalid
// field. The first pass reports a wrong table or condition.
func Open(c *compensator.Compensator, cfg Config) (*Import, error) {
	if c == nil {
		return nil, &compensator.FieldError{Field: "c", Reason: "is nil"}
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	table := "`" + strings.ReplaceAll(cfg.Table, ".", "`.`") + "`"
	return &Import{c: c, cfg: cfg.withDefaults(), table: table, key: "`" + cfg.Key + "`"}, nil
}

// DryRun makes one pass and rolls back every transaction. It locks rows as long as Once does. It also consumes
// AUTO_INCREMENT numbers of the log.
//
// If rows of different pages share an idempotency key, DryRun counts each of these rows as recorded. DryRun returns the
// same errors as Once.
func (im *Import) DryRun(ctx context.Context) (*Report, error) {
	return im.runPass(ctx, true, map[string]bool{})
}

// Once makes one pass through the table. If Once returns an error, the report counts the rows that were committed
// before the error. Call Once again to continue, also after compensator.ErrCommitUnknown.
//
// If Config does not fit the table, the error is a *compensator.FieldError. With StopAtRefusal it may be a *Refusal.
// Any other error comes from Record or from the database.
func (im *Import) Once(ctx context.Context) (*Report, error) {
	return im.runPass(ctx, false, map[string]bool{})
}

// Run makes one pass after the other until ctx ends, and then returns nil. It logs errors of the database and tries
// again.
//
// Run returns an error in these cases:
//   - Run is already running on this Import: compensator.ErrRunning.
//   - The Compensator was closed: compensator.ErrClosed.
//   - Config does not fit the table: a *compensator.FieldError.
//   - StopAtRefusal is set and a row was refused. The error is its *Refusal.
func (im *Import) Run(ctx context.Context) error {
	if im.running.Swap(true) {
		return compensator.ErrRunning
	}
	defer im.running.Store(false)
	named := make(map[string]bool) // refused rows that Run has already logged
	for failures := 0; ; {
		report, err := im.runPass(ctx, false, named)
		switch {
		case ctx.Err() != nil:
			return nil
		case isFinal(err):
			return err
		case err != nil:
			failures++
			im.cfg.Logger.Warn("adopt: a pass failed and will be repeated", "import", im.cfg.Name, "err", err)
		default:
			failures = 0
			im.reportProgress(report)
		}
		if !sleep.For(ctx, im.cfg.Every<<min(failures, 5)) {
			return nil
		}
	}
}

func isFinal(err error) bool {
	var refusal *Refusal
	var field *compensator.FieldError
	return errors.Is(err, compensator.ErrClosed) || errors.As(err, &refusal) || errors.As(err, &field) && !processlog.IsSessionError(err)
}

func (im *Import) reportProgress(r *Report) {
	if recorded := total(r.Recorded); recorded > 0 {
		im.cfg.Logger.Info("adopt: rows became entries", "import", im.cfg.Name, "recorded", recorded, "known", total(r.Known),
			"skipped", total(r.Skipped), "refused", total(r.Refused), "busy", r.Busy)
	}
}

func total(counts map[string]int) (n int) {
	for _, count := range counts {
		n += count
	}
	return n
}

// runPass goes through the table once. The parameter named holds the keys of the refused rows that the Import has
// already logged.
func (im *Import) runPass(ctx context.Context, dry bool, named map[string]bool) (*Report, error) {
	report := newReport()
	for lastKey := (*key)(nil); ; {
		startedAt := time.Now()
		t := &pageRun{Import: im, dry: dry, afterKey: lastKey}
		err := t.runPage(ctx)
		if isRefusal(err) {
			err = im.oneByOne(ctx, t, report, named)
		} else if err == nil {
			im.count(report, t.tally, named)
		}
		if err != nil || len(t.keys) < im.cfg.Page {
			return report, err
		}
		lastKey = &t.keys[len(t.keys)-1]
		if !sleep.For(ctx, max(im.cfg.Rest, time.Since(startedAt))) {
			return report, context.Cause(ctx)
		}
	}
}

// oneByOne runs each row of a page in a transaction of its own, because a refused entry rolls back the whole page.
func (im *Import) oneByOne(ctx context.Context, page *pageRun, report *Report, named map[string]bool) error {
	for i := range page.keys {
		t := &pageRun{Import: im, dry: page.dry, onlyKeys: page.keys[i : i+1]}
		err := t.runPage(ctx)
		if isRefusal(err) {
			refusal := &Refusal{Key: page.keys[i].text, BusinessType: t.entries[0].BusinessType, Err: err}
			if im.cfg.StopAtRefusal {
				return refusal
			}
			t.tally = newReport()
			t.tally.Rows = 1
			t.tally.refuse(refusal)
			err = nil
		}
		if err != nil {
			return err
		}
		im.count(report, t.tally, named)
	}
	return nil
}

// Run logs each refused row once, so it keeps the keys of the logged rows in memory. mostNamed is the maximum number of
// these keys. Further refused rows are not logged.
const mostNamed = 100_000

func (im *Import) count(report, tally *Report, named map[string]bool) {
	for _, r := range tally.Refusals {
		if !named[r.Key] && len(named) < mostNamed {
			named[r.Key] = true
			im.cfg.Logger.Warn("adopt: row is refused", "import", im.cfg.Name, "row", r.Key, "type", r.BusinessType, "err", r.Err)
		}
	}
	report.add(tally)
	if im.cfg.Progress != nil {
		im.cfg.Progress(report)
	}
}

func isRefusal(err error) bool {
	var refusal *Refusal
	var field *compensator.FieldError
	var otherType *compensator.OtherTypeError
	switch {
	case errors.As(err, &refusal):
		return false // Return the *Refusal unchanged, because it already names its row.
	case errors.As(err, &otherType), errors.Is(err, compensator.ErrOtherContent):
		return true
	}
	return errors.As(err, &field) && !ownFields[field.Field] && !processlog.IsSessionError(err)
}

// ownFields are the fields of a *compensator.FieldError that describe the Config or the transaction. Such an error is
// the same for every row, so it ends the pass. An error in any other field refuses only the row that causes it.
var ownFields = map[string]bool{"tx": true, "Table": true, "Key": true, "Take": true}
