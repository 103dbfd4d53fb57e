package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"slices"
	"time"
)

type books struct {
	settings
	uploaded     map[message]user
	acknowledged int // users in the answers to uploads
	retried      int // repeated requests

	toldSynced, toldPerson int // as reported by the service, for all batches

	stored  int              // users in the database
	synced  map[message]int  // number of times each user is in the directory
	said    map[message]bool // whether the log says that the user is synced
	failed  map[message]bool // whether the log says that a person must look
	waits   []time.Duration  // time from upload to directory, in ascending order
	queued  int
	numbers map[string]int // for the library only: results of checks, by their text

	again, sendings int // users that the library has sent again, and the number of messages for that
}

type check struct {
	what  string
	query string
	want  int
}

const (
	ofEntry = ` FROM usersync_log l WHERE l.business_type = 'sync_user' AND `
	due     = `l.created_at + INTERVAL ? MICROSECOND`
)

// checks returns the checks of the library's log. In a query, a placeholder ? stands for the delay in µs: the time from
// the upload until an entry is due.
func (b *books) checks() []check {
	few := `(SELECT COUNT(DISTINCT s.sending) FROM usersync_sendings s WHERE s.batch = l.batch_id AND s.user = l.business_id)`
	return []check{
		{"entries that have not ended, or hold a lease", `SELECT COUNT(*) FROM usersync_log WHERE state IN (0, -1, -3) OR lease_until > 0`, 0},
		{"entries that were neither completed by a consumer nor left to a person", `SELECT COUNT(*)` + ofEntry + `(l.state NOT IN (1, -2) OR l.state = 1 AND l.ended_by <> 'complete')`, 0},
		{"entries that wait for a person without a reason", `SELECT COUNT(*)` + ofEntry + `l.state = -2 AND COALESCE(l.last_error, '') = ''`, 0},
		{"entries that ran although they were completed before they were due", `SELECT COUNT(DISTINCT l.id) FROM usersync_log l
			JOIN usersync_directory d ON d.batch = l.batch_id AND d.user = l.business_id JOIN usersync_sendings s ON s.batch = d.batch AND s.user = d.user
			WHERE l.business_type = 'sync_user' AND d.synced_at < ` + due, 0},
		{"users sent again before their time", `SELECT COUNT(*) FROM usersync_log l JOIN usersync_sendings s ON s.batch = l.batch_id AND s.user = l.business_id
			WHERE l.business_type = 'sync_user' AND s.sent_at < ` + due, 0},
		{"entries with more failures than attempts", fmt.Sprintf(`SELECT COUNT(*)`+ofEntry+`l.process_count > %d`, b.most+1), 0},
		{"users sent again more often than allowed", fmt.Sprintf(`SELECT COUNT(*) FROM usersync_sendings WHERE sending > %d`, b.most), 0},
		{"entries given up before all tries were used", fmt.Sprintf(`SELECT COUNT(*)`+ofEntry+`l.state = -2 AND l.ended_by = 'exhausted' AND (%s <> %d OR l.process_count <> %d)`, few, b.most, b.most+1), 0},
		{"messages of a dead consumer that no consumer took", `SELECT COUNT(*) FROM usersync_log WHERE business_type = 'redelivered_user' AND state <> 1`, 0},
		{"users in the directory without their upload's trace", `SELECT COUNT(*) FROM usersync_directory d JOIN usersync_batches b ON b.batch = d.batch WHERE d.trace <> b.trace`, 0},
	}
}

func (s *scene) read(ctx context.Context, b *books) (err error) {
	b.synced, b.said, b.failed, b.numbers = make(map[message]int), make(map[message]bool), make(map[message]bool), make(map[string]int)
	if b.queued, err = s.queued(); err != nil {
		return err
	}
	if err := s.db.QueryRowContext(ctx, `SELECT COUNT(*) FROM usersync_users`).Scan(&b.stored); err != nil {
		return err
	}
	const latencies = `SELECT d.batch, d.user, TIMESTAMPDIFF(MICROSECOND, b.uploaded_at, d.synced_at) FROM usersync_directory d JOIN usersync_batches b ON b.batch = d.batch`
	err = eachRow(ctx, s.db, latencies, func(scan func(...any) error) error {
		var m message
		var micros int64
		err := scan(&m.Batch, &m.User, &micros)
		b.synced[m]++
		b.waits = append(b.waits, time.Duration(micros)*time.Microsecond)
		return err
	})
	if err != nil {
		return err
	}
	slices.Sort(b.waits)
	if err := s.readLog(ctx, b); err != nil || s.manual {
		return err
	}
	return b.readNumbers(ctx, s.db)
}

func (s *scene) readLog(ctx context.Context, b *books) error {
	query := `SELECT batch_id, business_id, state = 1, state = -2 FROM usersync_log WHERE business_type = 'sync_user'`
	if s.manual {
		query = `SELECT batch, user, status = 1, status = 3 FROM usersync_hand_log`
	}
	return eachRow(ctx, s.db, query, func(scan func(...any) error) error {
		var m message
		var isReported, isFailed bool
		err := scan(&m.Batch, &m.User, &isReported, &isFailed)
		b.said[m], b.failed[m] = isReported, isFailed
		return err
	})
}

func (b *books) readNumbers(ctx context.Context, db *sql.DB) error {
	for _, c := range b.checks() {
		var args []any
		if slices.Contains([]byte(c.query), '?') {
			args = append(args, b.delay.Microseconds())
		}
		var n int
		if err := db.QueryRowContext(ctx, c.query, args...).Scan(&n); err != nil {
			return fmt.Errorf("%s: %w", c.what, err)
		}
		b.numbers[c.what] = n
	}
	return db.QueryRowContext(ctx, `SELECT COUNT(DISTINCT batch, user), COUNT(*) FROM usersync_sendings`).Scan(&b.again, &b.sendings)
}

func (b *books) count(holds func(m message, hopeless bool) bool) (n int) {
	for m, u := range b.uploaded {
		if holds(m, fateOf(u, b.seed).hopeless()) {
			n++
		}
	}
	return n
}

func (b *books) hopeless() int {
	return b.count(func(_ message, hopeless bool) bool { return hopeless })
}

func (b *books) once() int {
	return b.count(func(m message, hopeless bool) bool { return !hopeless && b.synced[m] == 1 })
}

func (b *books) twice() int {
	return b.count(func(m message, _ bool) bool { return b.synced[m] > 1 })
}

func (b *books) never() int {
	return b.count(func(m message, hopeless bool) bool { return !hopeless && b.synced[m] == 0 })
}

// lied counts users whose log entry says done although the directory does not have them.
func (b *books) lied() int {
	return b.count(func(m message, _ bool) bool { return b.said[m] && b.synced[m] == 0 })
}

// handed counts hopeless users whose log entry says failed. A failed entry waits for a person, so these users are
// handed to a person.
func (b *books) handed() int {
	return b.count(func(m message, hopeless bool) bool { return hopeless && b.failed[m] })
}

func (b *books) report(out io.Writer) (wrong int) {
	expect := func(subject string, got, wanted int) {
		verdict := "ok   "
		if got != wanted {
			verdict = "WRONG"
			wrong++
		}
		fmt.Fprintf(out, "  %s  %s: %d, want %d\n", verdict, subject, got, wanted)
	}
	all, hopeless := len(b.uploaded), b.hopeless()
	expect("users acknowledged", b.acknowledged, all)
	expect("users stored", b.stored, all)
	expect("entries: one per user", len(b.said), all)
	expect("users synced exactly once", b.once(), all-hopeless)
	expect("users synced more than once", b.twice(), 0)
	expect("users never synced", b.never(), 0)
	expect("entries that say done for a user who is not synced", b.lied(), 0)
	expect("hopeless users who wait for a person", b.handed(), hopeless)
	expect("users synced, according to the service", b.toldSynced, all-hopeless)
	expect("users who wait for a person, according to the service", b.toldPerson, hopeless)
	for _, c := range b.checks() {
		expect(c.what, b.numbers[c.what], c.want)
	}
	expect("messages left in the queue", b.queued, 0)
	fmt.Fprintf(out, "  users sent again: %d, in %d messages; requests tried again: %d\n", b.again, b.sendings, b.retried)
	return wrong
}

// wait returns a percentile of the time from a user's upload to the user's row in the directory. p is a share, for
// example 0.99.
func (b *books) wait(p float64) time.Duration {
	if len(b.waits) == 0 {
		return 0
	}
	return b.waits[min(len(b.waits)-1, int(p*float64(len(b.waits))))].Round(10 * time.Millisecond)
}

func compare(out io.Writer, ours, manual *books) {
	fmt.Fprint(out, "| | library | hand-written |\n|---|---|---|\n")
	row := func(subject string, valueOf func(*books) any) {
		fmt.Fprintf(out, "| %s | %v | %v |\n", subject, valueOf(ours), valueOf(manual))
	}
	row("users uploaded", func(b *books) any { return len(b.uploaded) })
	row("of these hopeless", func(b *books) any { return b.hopeless() })
	row("synced exactly once", func(b *books) any { return b.once() })
	row("synced more than once", func(b *books) any { return b.twice() })
	row("never synced, though they could be", func(b *books) any { return b.never() })
	row("the log says done, and the directory lacks the user", func(b *books) any { return b.lied() })
	row("hopeless, and the log says failed", func(b *books) any { return b.handed() })
	row("time from upload to directory: median / 99 % / longest", func(b *books) any {
		return fmt.Sprintf("%v / %v / %v", b.wait(0.5), b.wait(0.99), b.wait(1))
	})
}
