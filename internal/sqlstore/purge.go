package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/processlog"
)

// purgeRows is how many rows one transaction deletes. It is small, so that their locks are short.
const purgeRows = 100

// Purge implements Store. It finds rows along the due index without a lock, oldest first within each type. It deletes those
// that nobody holds and that have not moved on since.
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
		p := purge{s: s, group: g, old: fmt.Sprintf("next_at<%s-%d", s.d.now, processlog.Millis(age))}
		err := p.run(ctx, limit-purged)
		purged += p.purged
		if err != nil {
			err = fmt.Errorf("compensator: purge %s entries of %q: %w", state, g.businessType, err)
			refused = append(refused, err)
			if !errors.As(err, new(*processlog.RefusedError)) {
				break
			} // otherwise the other types go on
		}
	}
	return purged, errors.Join(refused...)
}

// purge deletes entries of one type and state.
type purge struct {
	s       *Store
	group   group
	old     string // condition: the entry ended long enough ago
	purged  int
	waits   int              // transactions that met a lock in spite of all
	refused []refusal[ended] // what the database refuses to delete
	tired   bool             // some entries were not tried alone, for that would have taken too many statements
	passed  ended            // the last entry up to which all are deleted or refused
	held    bool             // an entry behind passed stays for another reason
}

// purgeWaits bounds the waits of one purge for a lock that a trigger wants.
const purgeWaits = 4

// ended is an entry as it was found.
type ended struct {
	id     processlog.ID
	nextAt int64
	key    string // the bytes of its idempotency key
}

// maxPassed is how many entries that stay a Purge goes on behind.
const maxPassed = 1000

// run deletes up to limit of the oldest entries. It begins behind those that are known to be refused, and goes on behind those that
// stay.
func (p *purge) run(ctx context.Context, limit int) error {
	known := p.s.refusals.of(p.group)
	p.passed = known.passed
	after, looked, err := known.passed, 0, error(nil)
	for err == nil && p.purged < limit && looked-p.purged <= maxPassed {
		asked := limit - p.purged
		var page []ended
		if page, err = p.oldest(ctx, after, asked); err == nil {
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

// asRefused names the refused entries.
func (p *purge) asRefused() error {
	ids := make([]refusal[processlog.ID], len(p.refused))
	for i, r := range p.refused {
		ids[i] = refusal[processlog.ID]{r.item.id, r.err}
	}
	return asRefused(ids)
}

// deletePage deletes what it can, in transactions of a few entries.
func (p *purge) deletePage(ctx context.Context, page []ended) error {
	for chunk := range slices.Chunk(page, purgeRows) {
		if err := p.delete(ctx, chunk); err != nil || p.tired {
			return err
		}
		failpoint.Reach(failpoint.PurgePart)
	}
	return nil
}

// oldest reads up to limit entries behind another one, or from the first.
func (p *purge) oldest(ctx context.Context, after ended, limit int) ([]ended, error) {
	s, where := p.s, p.group.where(p.s)+" AND "+p.old
	if !after.id.IsZero() {
		where += fmt.Sprintf(" AND next_at>=%[1]d AND (next_at>%[1]d OR id>%[2]s)", after.nextAt, after.id)
	}
	rows, err := s.pool().QueryContext(ctx, fmt.Sprintf("SELECT id, next_at, CAST(idempotent_id AS %s) FROM %s%s WHERE %s ORDER BY next_at, id LIMIT %d",
		s.d.bytes, s.table.quoted(""), s.d.dueIndex, where, limit))
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

// delete deletes those entries that nobody holds, and keeps those that the database refuses to delete apart from the others.
func (p *purge) delete(ctx context.Context, entries []ended) error {
	waits := p.waits
	refused, left, err := writeApart(ctx, p.s, entries, p.try(ctx))
	p.refused = append(p.refused, refused...)
	p.tired = p.tired || len(left) > 0 && p.waits == waits
	return err
}

// try is one way to delete entries: those that nobody holds, all or none.
func (p *purge) try(ctx context.Context) func(entries []ended) error {
	return func(entries []ended) error {
		free, n, err := p.deleteFree(ctx, entries)
		switch f := p.s.d.fault(err); {
		case err == nil:
			p.purged += n
			p.pass(entries, free < len(entries))
		case waitIn(err) != nil && ctx.Err() == nil && p.waits < purgeWaits:
			p.waits++
			p.held = true // before pieces are deleted in any order
		case waitIn(err) != nil:
			return waitIn(err).error // splitting would take too long
		case (f == faultBusy || f == faultEnded || f == faultAborted) && ctx.Err() == nil && p.waits == 0:
			p.waits++ // a second one is told: each may have waited for long
			p.pass(entries, true)
			return nil
		case p.s.refusesRow(err) && len(entries) == 1:
			p.pass(entries, false)
		}
		return err
	}
}

// pass notes how far everything is deleted or refused.
func (p *purge) pass(entries []ended, held bool) {
	if p.held = p.held || held; !p.held {
		p.passed = entries[len(entries)-1]
	}
}

// deleteFree deletes in one transaction those entries that nobody holds. It returns how many were free, and how many of them it deleted.
func (p *purge) deleteFree(ctx context.Context, entries []ended) (free, deleted int, err error) {
	err = p.s.inOwn(ctx, func(tx processlog.Transaction) error {
		ids, err := p.lockFree(ctx, tx, entries)
		if free = len(ids); err != nil || free == 0 {
			return err
		}
		n, err := p.s.writeHeld(ctx, tx, fmt.Sprintf("%s WHERE id IN (%s) AND %s", p.s.d.deleteByID(p.s.table.quoted("")), idList(ids), p.ended()))
		deleted = int(n)
		return err
	})
	return free, deleted, err
}

// ended is the condition under which a row is deleted. The sum keeps the due index out of the plan: a DELETE would lock the rows
// of others there.
func (p *purge) ended() string { return fmt.Sprintf("state+0=%d AND %s", p.group.state, p.old) }

// lockFree locks those entries that nobody holds, in the unique index first and then in the primary key. Whoever records an id
// again holds a shared lock in the unique index and then asks for the row. So a DELETE that holds the row must not wait for the
// unique index: the two would deadlock, and the server would roll the producer back.
func (p *purge) lockFree(ctx context.Context, tx processlog.Tx, entries []ended) ([]processlog.ID, error) {
	ids := make([]processlog.ID, len(entries))
	keys := make(map[processlog.ID]string, len(entries))
	for i, e := range entries {
		ids[i], keys[e.id] = e.id, e.key
	}
	slices.SortFunc(ids, processlog.ID.Compare)
	if p.s.d.skipLocked == "" {
		return ids, nil // the transaction holds the whole database
	}
	return readFree(ctx, p.s, ids, func(ids []processlog.ID, lock string) ([]processlog.ID, error) {
		literals := make([]string, len(ids))
		for i, id := range ids {
			literals[i] = p.s.d.text(keys[id])
		}
		return queryIDs(ctx, tx, fmt.Sprintf("SELECT id FROM %s%s WHERE idempotent_id IN (%s) AND %s%s",
			p.s.table.quoted(""), p.s.d.by("uk_idempotent_id"), strings.Join(literals, ","), p.ended(), lock))
	})
}

// purgeRefusals remembers how far the oldest entries are refused, so that a later Purge begins behind them.
type purgeRefusals struct {
	mu    sync.Mutex // guards known
	known map[group]refusedUpTo
}

// refusedUpTo is how far the entries of a type and state are refused.
type refusedUpTo struct {
	passed ended
	until  time.Time // then they are tried again
}

// refusedFor is how long a refused entry is left alone.
const refusedFor = time.Hour

func (r refusedUpTo) found() bool { return !r.until.IsZero() }

// of returns what is known of a type and state.
func (r *purgeRefusals) of(g group) refusedUpTo {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Now().After(r.known[g].until) {
		delete(r.known, g)
	}
	return r.known[g]
}

// pass moves a position on. A Purge that has not found all refused entries yet is unfinished, and the next one goes on where it ended.
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
