package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/processlog"
)

// purgeStep is how many rows one transaction deletes. The number is small so that locks are held briefly.
const purgeStep = 100

// Purge implements Store. It finds rows through the due index without a lock, oldest first within each type. It deletes
// those that are not locked and that still match.
func (s *Store) Purge(ctx context.Context, businessType string, state processlog.State, age time.Duration, limit int) (int, error) {
	if !slices.Contains(processlog.States[:], state) || !state.Terminal() {
		return 0, &processlog.FieldError{Field: "state", Reason: state.String() + ": want a terminal state"}
	}
	if age < 0 {
		return 0, &processlog.FieldError{Field: "age", Reason: age.String() + " is negative"}
	}
	groups := []group{{state: state, businessType: businessType}}
	if businessType == "" {
		var err error
		if groups, err = s.groups(ctx, nil, []processlog.State{state}, nil); err != nil {
			return 0, fmt.Errorf("compensator: purge: %w", err)
		}
	}
	purged := 0
	var refused []error
	for _, g := range groups {
		if purged >= limit {
			break
		}
		p := purge{s: s, group: g, age: signed(processlog.Millis(age))}
		err := p.run(ctx, limit-purged)
		purged += p.purged
		if err != nil {
			err = fmt.Errorf("compensator: purge %s entries of %q: %w", state, g.businessType, err)
			refused = append(refused, err)
			if !errors.As(err, new(*processlog.RefusedError)) {
				break
			} // A *RefusedError does not stop the other types.
		}
	}
	return purged, errors.Join(refused...)
}

// purge deletes entries of one type and state.
type purge struct {
	s       *Store
	group   group
	age     string // minimum time in ms since the entry ended
	purged  int
	waits   int              // number of transactions that waited for a lock and did not get it
	refused []refusal[ended] // entries that the database refuses to delete
	tired   bool             // whether some entries were not tried alone, because that would have taken too many statements
	passed  ended            // last entry of the front part in which every entry is deleted or refused
	held    bool             // whether an entry behind the position passed stays for a reason other than a refusal
}

// purgeWaits is the maximum number of waits of one purge for locks that a trigger wants.
const purgeWaits = 4

// ended is an entry that Purge has found, with its position in the due index.
type ended struct {
	id     processlog.ID
	nextAt int64
	key    string // the bytes of its idempotency key
}

// maxPassed is the maximum number of entries that one Purge skips because it cannot delete them.
const maxPassed = 1000

// run deletes up to limit of the oldest entries. It starts after the entries that are known to be refused. It leaves
// entries that it cannot delete, and goes on behind them.
func (p *purge) run(ctx context.Context, limit int) error {
	known := p.s.refusals.of(p.group)
	p.passed = known.passed
	after, looked, err := known.passed, 0, error(nil)
	for err == nil && p.purged < limit && looked-p.purged <= maxPassed {
		asked := limit - p.purged
		var page []ended
		if page, err = p.oldest(ctx, after, asked); err == nil && len(page) > 0 {
			err = p.s.lookForAttempts(ctx)
		}
		if err == nil {
			err = p.deletePage(ctx, page)
		}
		if len(page) < asked || p.tired {
			break
		}
		after, looked = page[len(page)-1], looked+len(page)
	}
	if known.found() || len(p.refused) > 0 {
		p.s.refusals.pass(p.group, p.passed, p.tired)
	}
	if err == nil && len(p.refused) > 0 {
		return p.asRefused()
	}
	return err
}

// asRefused returns the refused entries as a *RefusedError.
func (p *purge) asRefused() error {
	ids := make([]refusal[processlog.ID], len(p.refused))
	for i, r := range p.refused {
		ids[i] = refusal[processlog.ID]{r.item.id, r.err}
	}
	return asRefused(ids)
}

// deletePage deletes all entries of a page that it can, in transactions of up to purgeStep entries.
func (p *purge) deletePage(ctx context.Context, page []ended) error {
	for chunk := range slices.Chunk(page, purgeStep) {
		if err := p.delete(ctx, chunk); err != nil || p.tired {
			return err
		}
		failpoint.Reach(failpoint.PurgePart)
	}
	return nil
}

const oldestRows = "SELECT id, next_at, CAST(idempotent_id AS {byte type}) FROM {log}{by due}" +
	" WHERE state={state} AND business_type={type} AND next_at<{now}-{age}{after} ORDER BY next_at, id LIMIT {limit}"

// oldest reads up to limit entries that come behind the position after. If after is zero, oldest reads from the start.
func (p *purge) oldest(ctx context.Context, after ended, limit int) ([]ended, error) {
	beyond := ""
	if !after.id.IsZero() {
		beyond = fmt.Sprintf(" AND next_at>=%[1]d AND (next_at>%[1]d OR id>%[2]s)", after.nextAt, after.id)
	}
	rows, err := p.s.pool().QueryContext(ctx, p.sql(oldestRows, "byte type", p.s.d.byteType, "after", beyond, "limit", strconv.Itoa(limit)))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var oldest []ended
	for rows.Next() {
		var e ended
		var id uint64
		if err := rows.Scan(&id, &e.nextAt, &e.key); err != nil {
			return nil, err
		}
		e.id = processlog.RowID(id)
		oldest = append(oldest, e)
	}
	return oldest, rows.Err()
}

// delete deletes those entries that are not locked. It separates entries that the database refuses to delete from the
// others.
func (p *purge) delete(ctx context.Context, entries []ended) error {
	waits := p.waits
	refused, left, err := writeApart(ctx, p.s, entries, p.try(ctx))
	p.refused = append(p.refused, refused...)
	p.tired = p.tired || len(left) > 0 && p.waits == waits
	return err
}

// try returns the function with which delete deletes one part of the entries. The function skips locked entries. It
// deletes all other entries. If the database refuses one of them, it deletes none.
func (p *purge) try(ctx context.Context) func(entries []ended) error {
	return func(entries []ended) error {
		free, n, err := p.deleteFree(ctx, entries)
		switch f := p.s.d.fault(err); {
		case err == nil:
			p.purged += n
			p.pass(entries, free < len(entries))
		case waitIn(err) != nil && ctx.Err() == nil && p.waits < purgeWaits:
			p.waits++
			p.held = true // From here on the position passed must stay, because writeApart deletes pieces in random order.
		case waitIn(err) != nil:
			return waitIn(err).error // It would take too long to split the entries.
		case (f == faultBusy || f == faultEnded || f == faultAborted) && ctx.Err() == nil && p.waits == 0:
			p.waits++ // Skip the first conflict. Return the second one, because each may have waited for a long time.
			p.pass(entries, true)
			return nil
		case p.s.refusesRow(err) && len(entries) == 1:
			p.pass(entries, false)
		}
		return err
	}
}

// pass moves p.passed to the last of the given entries, unless one of them or an earlier one is held. A held entry
// stays in the table for a reason other than a refusal.
func (p *purge) pass(entries []ended, held bool) {
	if p.held = p.held || held; !p.held {
		p.passed = entries[len(entries)-1]
	}
}

// purgeRows deletes rows that purgeFree has locked. state+0 keeps the due index out of the plan. A DELETE through that
// index would lock rows of other transactions.
const (
	purgeRows = "{DELETE FROM log} WHERE id IN ({ids}) AND state+0={state} AND next_at<{now}-{age}"
	purgeFree = "SELECT id FROM {log}{by uk_idempotent_id} WHERE idempotent_id IN ({keys}) AND state+0={state} AND next_at<{now}-{age}{lock}"
)

// sql returns a statement of the purge.
func (p *purge) sql(statement string, args ...string) string {
	return p.s.sql(statement, append(args, "state", signed(int64(p.group.state)), "type", p.s.d.text(p.group.businessType), "age", p.age)...)
}

// deleteFree deletes, in one transaction, those entries that are not locked. It returns how many were not locked, and
// how many of them it deleted.
func (p *purge) deleteFree(ctx context.Context, entries []ended) (free, deleted int, err error) {
	err = p.s.inOwn(ctx, func(tx processlog.Transaction) error {
		ids, err := p.lockFree(ctx, tx, entries)
		if free = len(ids); err != nil || free == 0 {
			return err
		}
		n, err := p.s.writeHeld(ctx, tx, p.sql(purgeRows, "ids", idList(ids)))
		if deleted = int(n); err != nil {
			return err
		}
		if err := p.s.deleteFaults(ctx, tx, ids); err != nil {
			return err
		}
		if err := p.s.deleteResults(ctx, tx, ids); err != nil {
			return err
		}
		return p.s.deleteAttempts(ctx, tx, ids)
	})
	return free, deleted, err
}

// lockFree locks those entries that are not locked yet: first in the unique index, then in the primary key. A
// transaction that records the same key again takes a shared lock in the unique index, and then asks for the row. If a
// DELETE held the row and then waited for the unique index, the two would deadlock. The server would roll the producer
// back.
func (p *purge) lockFree(ctx context.Context, tx processlog.Tx, entries []ended) ([]processlog.ID, error) {
	ids := make([]processlog.ID, len(entries))
	keys := make(map[processlog.ID]string, len(entries))
	for i, e := range entries {
		ids[i], keys[e.id] = e.id, e.key
	}
	slices.SortFunc(ids, processlog.ID.Compare)
	if p.s.d.skipLocked == "" {
		return ids, nil // The transaction holds the lock on the whole database.
	}
	return readFree(ctx, p.s, ids, func(ids []processlog.ID, lock string) ([]processlog.ID, error) {
		literals := make([]string, len(ids))
		for i, id := range ids {
			literals[i] = p.s.d.text(keys[id])
		}
		return queryIDs(ctx, tx, p.sql(purgeFree, "keys", strings.Join(literals, ","), "lock", lock))
	})
}

// purgeRefusals remembers for each type and state up to which position the database refuses the oldest entries. A later
// Purge starts after that position.
type purgeRefusals struct {
	mu    sync.Mutex // guards known
	known map[group]refusedUpTo
}

// refusedUpTo is the position, for one type and state, up to which entries were refused.
type refusedUpTo struct {
	passed ended
	until  time.Time // time at which the refused entries are tried again
}

// refusedFor is how long Purge leaves a refused entry alone.
const refusedFor = time.Hour

func (r refusedUpTo) found() bool { return !r.until.IsZero() }

// of returns the position of a type and state. It forgets a position that has expired.
func (r *purgeRefusals) of(g group) refusedUpTo {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Now().After(r.known[g].until) {
		delete(r.known, g)
	}
	return r.known[g]
}

// pass stores a new position. The parameter unfinished says that this Purge has not found all refused entries yet. In
// this case the next Purge continues after the position, and refusedFor starts again.
func (r *purgeRefusals) pass(g group, passed ended, unfinished bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil {
		r.known = make(map[group]refusedUpTo)
	}
	known := r.known[g]
	if unfinished || !known.found() {
		known.until = time.Now().Add(refusedFor)
	}
	known.passed = passed
	r.known[g] = known
}
