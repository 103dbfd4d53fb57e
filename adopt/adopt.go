package adopt

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator"
)

// Import takes the rows of one table. Its methods may run side by side, and in several processes.
type Import struct {
	c       *compensator.Compensator
	cfg     Config
	table   string                 // quoted
	key     string                 // quoted
	locks   atomic.Pointer[string] // see turn.lock
	running atomic.Bool
}

// Open makes an Import into c's log, whose database has the old table, too. Errors name the field that is wrong; what is wrong
// with a table or a condition, the first pass says.
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

// DryRun is a pass whose transactions are all rolled back. They lock what they touch for as long, and use up numbers of the
// log's AUTO_INCREMENT. Rows of different pages that share an idempotency key are counted as if each became an entry.
func (im *Import) DryRun(ctx context.Context) (*Report, error) {
	return im.pass(ctx, true, map[string]bool{})
}

// Once is one pass through the table. With an error, the report says what was committed before it; the same call goes on
// where it ended. After compensator.ErrCommitUnknown, too: a page that was committed is known.
func (im *Import) Once(ctx context.Context) (*Report, error) {
	return im.pass(ctx, false, map[string]bool{})
}

// Run makes pass after pass until ctx ends, and returns nil then. Problems of the database are logged, and waited out. An error
// says that Run is running already, that the Compensator was closed, that Config fits the table badly, or, with StopAtRefusal,
// which row was refused.
func (im *Import) Run(ctx context.Context) error {
	if im.running.Swap(true) {
		return compensator.ErrRunning
	}
	defer im.running.Store(false)
	named := make(map[string]bool) // refused rows that are in the log
	for failures := 0; ; {
		report, err := im.pass(ctx, false, named)
		switch {
		case ctx.Err() != nil:
			return nil
		case final(err):
			return err
		case err != nil:
			failures++
			im.cfg.Logger.Warn("adopt: a pass failed, and is made again", "import", im.cfg.Name, "err", err)
		default:
			failures = 0
			im.tell(report)
		}
		if !pause(ctx, im.cfg.Every<<min(failures, 5)) {
			return nil
		}
	}
}

// final reports whether another pass would end alike.
func final(err error) bool {
	var refusal *Refusal
	var field *compensator.FieldError
	return errors.Is(err, compensator.ErrClosed) || errors.As(err, &refusal) || errors.As(err, &field)
}

func (im *Import) tell(r *Report) {
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

// pass goes through the table once. Refused rows that are not named yet are logged.
func (im *Import) pass(ctx context.Context, dry bool, named map[string]bool) (*Report, error) {
	report := newReport()
	for after := (*key)(nil); ; {
		began := time.Now()
		t := &turn{Import: im, dry: dry, after: after}
		err := t.run(ctx)
		if refused(err) {
			err = im.oneByOne(ctx, t, report, named)
		} else if err == nil {
			im.count(report, t.tally, named)
		}
		if err != nil || len(t.keys) < im.cfg.Page {
			return report, err
		}
		after = &t.keys[len(t.keys)-1]
		if !pause(ctx, max(im.cfg.Rest, time.Since(began))) {
			return report, context.Cause(ctx)
		}
	}
}

// oneByOne is for a page with an entry that Record refuses, with which it refuses the others: each row has a transaction of
// its own.
func (im *Import) oneByOne(ctx context.Context, page *turn, report *Report, named map[string]bool) error {
	for i := range page.keys {
		t := &turn{Import: im, dry: page.dry, only: page.keys[i : i+1]}
		err := t.run(ctx)
		if refused(err) {
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

// mostNamed bounds what Run remembers of refused rows.
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

// refused reports whether Record says that an entry will never be taken.
func refused(err error) bool {
	var refusal *Refusal
	var field *compensator.FieldError
	var other *compensator.OtherTypeError
	switch {
	case errors.As(err, &refusal):
		return false // it has its name
	case errors.As(err, &other), errors.Is(err, compensator.ErrOtherContent):
		return true
	}
	return errors.As(err, &field) && !ours[field.Field]
}

// ours are the fields that are not an entry's.
var ours = map[string]bool{"tx": true, "Key": true, "Take": true}

// pause reports whether ctx is still alive after d.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
