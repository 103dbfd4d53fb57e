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

// purgeStep is the maximum number of rows that one transaction deletes or writes. A short transaction holds its locks
// only briefly.
const purgeStep = 100

// Purge implements Store. It finds rows through the due index without a lock, and deletes those that are free and still
// match.
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
			// After a *RefusedError go on with the next type. Any other error ends the purge.
			if !errors.As(err, new(*processlog.RefusedError)) {
				break
			}
		}
	}
	return purged, errors.Join(refused...)
}

type purge struct {
	s         *Store
	group     group
	age       string // minimum time in ms since the entry ended
	purged    int
	lockWaits int                   // number of transactions that waited for a lock and did not get it
	refusals  []refusal[endedEntry] // entries that the database refuses to delete
	gaveUp    bool                  // whether splitStatements was used up before every entry was tried
	// lastPassed is a position in the order of next_at and id. Every entry up to this position was deleted, or the
	// database refused to delete the entry.
	lastPassed endedEntry
	// hasHeld says that an entry after lastPassed was neither deleted nor refused. The next Purge must try it again.
	hasHeld bool
}

const purgeWaits = 4

type endedEntry struct {
	id     processlog.ID
	nextAt int64
	key    string // the bytes of its idempotency key
}

const maxPassed = 1000

func (p *purge) run(ctx context.Context, limit int) error {
	refusedUntil := p.s.refusals.of(p.group)
	p.lastPassed = refusedUntil.position
	position, readCount, err := refusedUntil.position, 0, error(nil)
	for err == nil && p.purged < limit && readCount-p.purged <= maxPassed {
		pageSize := limit - p.purged
		var page []endedEntry
		if page, err = p.oldest(ctx, position, pageSize); err == nil && len(page) > 0 {
			err = p.s.lookForAttempts(ctx)
		}
		if err == nil {
			err = p.deletePage(ctx, page)
		}
		if len(page) < pageSize || p.gaveUp {
			break
		}
		position, readCount = page[len(page)-1], readCount+len(page)
	}
	if refusedUntil.isKnown() || len(p.refusals) > 0 {
		p.s.refusals.store(p.group, p.lastPassed, p.gaveUp)
	}
	if err == nil && len(p.refusals) > 0 {
		return p.asRefused()
	}
	return err
}

func (p *purge) asRefused() error {
	ids := make([]refusal[processlog.ID], len(p.refusals))
	for i, r := range p.refusals {
		ids[i] = refusal[processlog.ID]{r.item.id, r.err}
	}
	return asRefused(ids)
}

func (p *purge) deletePage(ctx context.Context, page []endedEntry) error {
	for chunk := range slices.Chunk(page, purgeStep) {
		if err := p.deleteEntries(ctx, chunk); err != nil || p.gaveUp {
			return err
		}
		failpoint.Reach(failpoint.PurgePart)
	}
	return nil
}

const oldestRows = "SELECT id, next_at, CAST(idempotent_id AS {byte type}) FROM {log}{by due}" +
	" WHERE state={state} AND business_type={type} AND next_at<{now}-{age}{after} ORDER BY next_at, id LIMIT {limit}"

func (p *purge) oldest(ctx context.Context, after endedEntry, limit int) ([]endedEntry, error) {
	condition := ""
	if !after.id.IsZero() {
		condition = fmt.Sprintf(" AND next_at>=%[1]d AND (next_at>%[1]d OR id>%[2]s)", after.nextAt, after.id)
	}
	rows, err := p.s.pool().QueryContext(ctx, p.sql(oldestRows, "byte type", p.s.d.byteType, "after", condition, "limit", strconv.Itoa(limit)))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var oldest []endedEntry
	for rows.Next() {
		var e endedEntry
		var id uint64
		if err := rows.Scan(&id, &e.nextAt, &e.key); err != nil {
			return nil, err
		}
		e.id = processlog.RowID(id)
		oldest = append(oldest, e)
	}
	return oldest, rows.Err()
}

// deleteEntries adds the refused entries to p.refusals.
func (p *purge) deleteEntries(ctx context.Context, entries []endedEntry) error {
	waitsBefore := p.lockWaits
	refusals, untried, err := writeApart(ctx, p.s, entries, p.deletePart(ctx))
	p.refusals = append(p.refusals, refusals...)
	p.gaveUp = p.gaveUp || len(untried) > 0 && p.lockWaits == waitsBefore
	return err
}

// deletePart returns a function that deletes all entries that are not locked, or none.
func (p *purge) deletePart(ctx context.Context) func(entries []endedEntry) error {
	return func(entries []endedEntry) error {
		freeCount, n, err := p.deleteFree(ctx, entries)
		switch f := p.s.d.fault(err); {
		case err == nil:
			p.purged += n
			p.advance(entries, freeCount < len(entries))
		case waitIn(err) != nil && ctx.Err() == nil && p.lockWaits < purgeWaits:
			p.lockWaits++
			// After this error, writeApart deletes the entries in small parts, and chooses the entries of each part at
			// random. So p.lastPassed must not move any more. The next Purge then tries all entries that are left.
			p.hasHeld = true
		case waitIn(err) != nil:
			// A *waitError would make writeApart try smaller parts, each of which may wait for the lock again. That
			// would take too long, so return the error inside the *waitError.
			return waitIn(err).error
		case (f == faultBusy || f == faultEnded || f == faultAborted) && ctx.Err() == nil && p.lockWaits == 0:
			p.lockWaits++
			p.advance(entries, true) // These entries stay for the next Purge.
			return nil
		case p.s.refusesRow(err) && len(entries) == 1:
			p.advance(entries, false)
		}
		return err
	}
}

// advance moves p.lastPassed to the last of the entries. The parameter isHeld says that at least one of the entries was
// neither deleted nor refused, for example because it was locked. After the first call with isHeld set, no call moves
// p.lastPassed any more. So the next Purge tries the held entry again.
func (p *purge) advance(entries []endedEntry, isHeld bool) {
	if p.hasHeld = p.hasHeld || isHeld; !p.hasHeld {
		p.lastPassed = entries[len(entries)-1]
	}
}

// state+0 keeps the due index out of the plan. A DELETE through it would lock rows of other transactions.
const (
	purgeRows = "{DELETE FROM log} WHERE id IN ({ids}) AND state+0={state} AND next_at<{now}-{age}"
	purgeFree = "SELECT id FROM {log}{by uk_idempotent_id} WHERE idempotent_id IN ({keys}) AND state+0={state} AND next_at<{now}-{age}{lock}"
)

func (p *purge) sql(statement string, args ...string) string {
	return p.s.sql(statement, append(args, "state", signed(int64(p.group.state)), "type", p.s.d.text(p.group.businessType), "age", p.age)...)
}

// deleteFree deletes, in one transaction, the entries that are not locked.
func (p *purge) deleteFree(ctx context.Context, entries []endedEntry) (freeCount, deleted int, err error) {
	err = p.s.inOwn(ctx, func(tx processlog.Transaction) error {
		ids, err := p.lockFree(ctx, tx, entries)
		if freeCount = len(ids); err != nil || freeCount == 0 {
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
	return freeCount, deleted, err
}

// lockFree locks each row first in the unique index and then in the primary key. A producer that records the same key
// locks in this order, too. In the opposite order the two transactions could deadlock, and the server could roll back
// the producer.
func (p *purge) lockFree(ctx context.Context, tx processlog.Tx, entries []endedEntry) ([]processlog.ID, error) {
	ids := make([]processlog.ID, len(entries))
	keys := make(map[processlog.ID]string, len(entries))
	for i, e := range entries {
		ids[i], keys[e.id] = e.id, e.key
	}
	slices.SortFunc(ids, processlog.ID.Compare)
	if p.s.d.skipLocked == "" {
		// On SQLite, the transaction has locked the whole database. So no row is locked by another transaction.
		return ids, nil
	}
	return readFree(ctx, p.s, ids, func(ids []processlog.ID, lock string) ([]processlog.ID, error) {
		literals := make([]string, len(ids))
		for i, id := range ids {
			literals[i] = p.s.d.text(keys[id])
		}
		return queryIDs(ctx, tx, p.sql(purgeFree, "keys", strings.Join(literals, ","), "lock", lock))
	})
}

// purgeRefusals holds a position for each business type and state. Up to this position, the database refuses to delete
// the entries that are still there. The next Purge begins after the position.
type purgeRefusals struct {
	mu        sync.Mutex // guards positions
	positions map[group]refusedUpTo
}

type refusedUpTo struct {
	position endedEntry
	retryAt  time.Time // time at which the refused entries are tried again
}

const refusedFor = time.Hour

func (r refusedUpTo) isKnown() bool { return !r.retryAt.IsZero() }

func (r *purgeRefusals) of(g group) refusedUpTo {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Now().After(r.positions[g].retryAt) {
		delete(r.positions, g)
	}
	return r.positions[g]
}

// store sets the position after which the next Purge of the group begins. At the time retryAt, this position is
// dropped, and Purge begins with the first entry again. store sets retryAt to the present time plus refusedFor in two
// cases:
//   - There is no position yet.
//   - The parameter unfinished is true: entries after the position were not tried.
//
// Otherwise the earlier retryAt stays.
func (r *purgeRefusals) store(g group, position endedEntry, unfinished bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.positions == nil {
		r.positions = make(map[group]refusedUpTo)
	}
	stored := r.positions[g]
	if unfinished || !stored.isKnown() {
		stored.retryAt = time.Now().Add(refusedFor)
	}
	stored.position = position
	r.positions[g] = stored
}
