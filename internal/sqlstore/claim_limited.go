package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/processlog"
)

// ClaimLimited implements Store. In the transaction of the claim it first locks the entries, and then the rows of the
// limit. Then it decides which entries get a permit. After the leases it writes the rows of the limit:
//
//   - The first row of a limit has the key "". Every claim locks it first, even if it wants other keys. So claims under one
//     limit take turns, and a key without a row has a full burst.
//   - After that lock a claim waits for no other lock: it has already locked its entries, and skipped entries that others
//     had locked. So no two claims deadlock.
//   - The last statement stores the times of the granted starts, by the clock at that moment. The rows are locked by
//     then, so no earlier grant has a later time. The number of free starts comes from an earlier reading of the clock.
//     At that time no more starts were free than now, so the claim does not grant too many.
func (s *Store) ClaimLimited(ctx context.Context, want []processlog.Wanted, token processlog.Token, lease time.Duration, limit processlog.StartLimit, accept func(*processlog.Row) bool) (processlog.Claimed, error) {
	p := &permits{s: s, limit: limit, program: limit.Values()}
	found, err := s.claim(ctx, want, token, lease, p, accept)
	if err != nil {
		return found, s.withoutLimits(err)
	}
	found.GrantedAfter = p.writeSentAt
	if found.Rooms = p.rooms(); found.Rooms != nil {
		values := p.limit.Values()
		found.InForce = &values
	}
	return found, nil
}

// permits is the state of one limit in a claim. A nil *permits limits nothing.
type permits struct {
	s     *Store
	limit processlog.StartLimit
	keyOf map[processlog.ID]keyed // of the claimable rows
	keys  map[string]*keyPermits  // the locked rows, by key

	businessType string                 // type of the claimable rows
	stored       processlog.StoredLimit // what the first row says of the limit
	now          int64                  // the database's clock when the rows were read, in ms
	program      processlog.LimitValues // the values before a person's change
	writeSentAt  time.Time              // when the statement that grants the permits was sent, by the clock of this process
}

// keyed is what StartLimit.Of has returned for an entry.
type keyed struct {
	key         string
	limited, ok bool
}

// keyPermits is the locked row of one key.
type keyPermits struct {
	exists          bool          // whether the key has a row
	starts          int           // starts that are left
	granted         int64         // processlog.Room.Granted
	next            time.Duration // time until there is one more start
	holders         []holder      // entries that may hold a permit
	ahead, interval time.Duration // the stored time minus the current time, and the interval of the last grant; zero without a row
	shift           time.Duration // how far the stored time moves because the interval is not that of the last grant
	wanted          int           // claimable entries of the key
	taken           int           // permits that the claim takes
}

// free returns how many more permits Concurrent allows.
func (p *permits) free(k *keyPermits) int {
	if p.limit.Concurrent == 0 {
		return processlog.Unbounded
	}
	return max(0, p.limit.Concurrent-len(k.holders)-k.taken)
}

// lacksPermit reports whether an entry needs a permit and none is free.
func (p *permits) lacksPermit(row *processlog.Row) bool {
	k := p.of(row)
	return k != nil && (k.starts <= k.taken || p.free(k) == 0)
}

// of returns the permits of a row's key, or nil if the row needs none.
func (p *permits) of(row *processlog.Row) *keyPermits {
	if p == nil || !p.keyOf[row.ID].limited {
		return nil
	}
	return p.keys[p.keyOf[row.ID].key]
}

// refuses reports whether StartLimit.Key has said that an entry must not start.
func (p *permits) refuses(row *processlog.Row) bool { return p != nil && !p.keyOf[row.ID].ok }

// take takes a permit for a row that the claim is going to lease.
func (p *permits) take(row *processlog.Row) {
	if k := p.of(row); k != nil {
		k.taken++
	}
}

// limited describes an entry that gets no permit.
func (p *permits) limited(row *processlog.Row) processlog.Limited {
	k, l := p.of(row), processlog.Limited{ID: row.ID, Key: p.keyOf[row.ID].key}
	if k.starts <= k.taken {
		l.In = k.next
	}
	return l
}

// rooms returns how many starts and permits are left for each key.
func (p *permits) rooms() map[string]processlog.Room {
	if len(p.keys) == 0 {
		return nil
	}
	rooms := make(map[string]processlog.Room, len(p.keys))
	for key, k := range p.keys {
		rooms[key] = processlog.Room{Starts: max(0, k.starts-k.taken), Next: k.next, Permits: p.free(k), Granted: k.granted}
	}
	return rooms
}

// lockPermits locks the limit's rows for the keys of the claimable rows. It sends no statement if no row needs a permit.
func (c *claim) lockPermits(ctx context.Context, tx processlog.Tx, rows []processlog.Row) error {
	if c.permits == nil {
		return nil
	}
	p := c.permits
	p.keyOf, p.keys = make(map[processlog.ID]keyed, len(rows)), nil
	wanted := make(map[string]int)
	for i := range rows {
		row := &rows[i]
		if !c.claimable(row) {
			continue
		}
		key, limited, ok := p.limit.Of(row)
		if limited = limited && ok; limited {
			wanted[key]++
			p.businessType = row.BusinessType
		}
		p.keyOf[row.ID] = keyed{key, limited, ok}
	}
	if len(wanted) == 0 {
		return nil
	}
	if err := p.lock(ctx, tx, wanted); err != nil {
		return fmt.Errorf("lock the limit %q: %w", p.limit.Name, err)
	}
	failpoint.Reach(failpoint.LimitLocked)
	if err := p.dropEnded(ctx, tx, rows); err != nil {
		return fmt.Errorf("read who holds permits of the limit %q: %w", p.limit.Name, err)
	}
	return nil
}

const lockLimit = "SELECT limit_key, tat-{now}*1000000, start_interval, starts, holders, {now}, " + limitColumns + " FROM {limit}{by id} WHERE limit_name={name} AND limit_key IN ({keys}) ORDER BY limit_key{lock}"

// rowLock returns how a claim locks the rows of the limit. A claim usually waits for its turn, which takes milliseconds. If a process stands
// still in the middle of a claim, it keeps the lock. The first claim that has waited in vain remembers that. Until a claim gets the lock,
// the next ones fail at once, so that they hold up no other work.
func (p *permits) rowLock() string {
	if _, stuck := p.s.stuckLimits.Load(p.limit.Name); stuck {
		return p.s.d.lockNow
	}
	return p.s.d.lock
}

// lock locks and reads the rows of the wanted keys. It creates the first row of the limit if it does not exist.
func (p *permits) lock(ctx context.Context, tx processlog.Tx, wanted map[string]int) error {
	name, keys := p.s.d.text(p.limit.Name), []string{p.s.d.binary(nil)}
	p.keys = make(map[string]*keyPermits, len(wanted))
	for key, n := range wanted {
		p.keys[key] = &keyPermits{wanted: n}
		if key != "" {
			keys = append(keys, p.s.d.binary([]byte(key)))
		}
	}
	slices.Sort(keys)
	query := p.s.sql(lockLimit, "name", name, "keys", strings.Join(keys, ","), "lock", p.rowLock())
	for range 2 {
		first, err := p.read(ctx, tx, query)
		if err != nil {
			return err
		}
		p.s.stuckLimits.Delete(p.limit.Name)
		now, changed := p.declared(&p.stored)
		if first && !changed {
			p.count()
			return nil
		}
		statement := p.s.describeLimit(&now)
		if !first {
			statement = p.s.beginLimit(&now)
		}
		if _, err := execCount(ctx, tx, statement); err != nil {
			return p.asBusy(err)
		}
		if first {
			p.count()
			return nil
		}
	}
	return errors.New("the first row of the limit does not exist")
}

// read reads the rows of the keys. It reports whether the first row of the limit exists.
func (p *permits) read(ctx context.Context, tx processlog.Tx, query string) (first bool, err error) {
	rows, err := tx.QueryContext(ctx, query)
	if err != nil {
		return false, p.asBusy(err)
	}
	defer rows.Close()
	for rows.Next() {
		var key, holders []byte
		var ahead, interval, granted int64
		var stored processlog.StoredLimit
		places, done := limitScan(&stored)
		if err := rows.Scan(append([]any{&key, &ahead, &interval, &granted, &holders, &p.now}, places...)...); err != nil {
			return false, err
		}
		done()
		if len(key) == 0 {
			first, stored.Name = true, p.limit.Name
			p.stored = stored
		}
		if k := p.keys[string(key)]; k != nil {
			k.exists, k.ahead, k.interval, k.granted = true, time.Duration(ahead), time.Duration(interval), granted
			if k.holders, err = parseHolders(holders); err != nil {
				return false, err
			}
		}
	}
	return first, p.asBusy(rows.Err())
}

// count applies the change of a person to the limit, and computes the starts that the keys have left. The numbers of a new row begin
// with the time in µs. So they are above those of an earlier row of the key, which PurgeLimitKeys has deleted. Otherwise starts of the
// earlier row could be returned to the new one.
func (p *permits) count() {
	p.limit.Set(p.program.With(p.stored.Person))
	for _, k := range p.keys {
		if !k.exists {
			k.granted = p.now * 1000
		}
		ahead := processlog.Rescaled(k.ahead, k.interval, p.limit.Interval)
		k.shift = ahead - k.ahead
		k.starts, k.next = p.limit.Free(ahead)
	}
}

// asBusy adds ErrBusy to the error of a statement that waited for a lock of another claim and did not get it.
func (p *permits) asBusy(err error) error {
	if p.s.d.fault(err) == faultBusy {
		p.s.stuckLimits.Store(p.limit.Name, true)
		return fmt.Errorf("%w: %w", processlog.ErrBusy, err)
	}
	return err
}

// writeLimits stores the permits that a claim has granted under a limit. For each granted start of a key, it moves the
// key's stored time tat by one interval. It also stores the holders of the key.
const writeLimits = "INSERT INTO {limit} (limit_name, limit_key, tat, granted_at, starts, holders, start_interval, burst, concurrent) VALUES {values}{again}, tat={moved}"

// writePermits stores the permits of the claimed rows. It is the last statement of the transaction.
func (c *claim) writePermits(ctx context.Context, tx processlog.Tx, mine []processlog.Row) error {
	p := c.permits
	if p == nil {
		return nil
	}
	written := make(map[string]*keyPermits)
	for key, k := range p.keys {
		k.taken = 0 // The claim may have leased fewer rows than it chose.
		if k.shift != 0 {
			written[key] = k // From now on, the starts that the key has ahead pass at the new rate.
			k.granted++      // Starts of the old rate can no longer be returned.
		}
	}
	for i := range mine {
		k := p.of(&mine[i])
		if k == nil {
			continue
		}
		h := holder{mine[i].ID, mine[i].Version}
		if p.limit.Concurrent > 0 && !slices.Contains(k.holders, h) {
			k.holders = append(k.holders, h)
		}
		written[p.keyOf[h.id].key] = k
		k.taken++
		k.granted++
	}
	if len(written) == 0 {
		return nil
	}
	if err := p.write(ctx, tx, written); err != nil {
		return err
	}
	for _, k := range written {
		k.starts, k.taken, k.shift = k.starts-k.taken, 0, 0
	}
	return nil
}

func (p *permits) write(ctx context.Context, tx processlog.Tx, written map[string]*keyPermits) error {
	now := p.s.sql("{now}*1000000")
	var values, shifts []string
	for key, k := range written {
		literal := p.s.d.binary([]byte(key))
		values = append(values, fmt.Sprintf("(%s, %s, %s+%d, %s, %d, %s, %d, %d, %d)", p.s.d.text(p.limit.Name), literal, now,
			int64(k.taken)*int64(p.limit.Interval), p.s.sql("{now}"), k.granted, p.s.d.binary([]byte(formatHolders(k.holders))), int64(p.limit.Interval), p.limit.Burst, p.limit.Concurrent))
		if k.shift != 0 {
			shifts = append(shifts, fmt.Sprintf(" WHEN limit_key=%s THEN %d", literal, int64(k.shift)))
		}
	}
	slices.Sort(values)
	tat := "tat"
	if len(shifts) > 0 {
		slices.Sort(shifts)
		tat += "+CASE" + strings.Join(shifts, "") + " ELSE 0 END"
	}
	query := p.s.sql(writeLimits, "values", strings.Join(values, ","),
		"again", p.s.d.again("limit_key, limit_name", "granted_at", "starts", "holders", "start_interval", "burst", "concurrent"),
		"moved", p.s.d.later(tat, now)+"+"+p.s.d.offer("tat")+"-"+now)
	p.writeSentAt = time.Now()
	if _, err := execCount(ctx, tx, query); err != nil {
		return fmt.Errorf("take permits of %d keys of the limit %q: %w", len(written), p.limit.Name, err)
	}
	failpoint.Reach(failpoint.PermitsWritten)
	return nil
}

// permitApart takes permits for the rows in c.retryRows, in a separate transaction. Later transactions lease these rows
// one by one. permitApart removes rows that get no permit from c.retryRows.
//
// If the process dies before a row is leased, the limit has counted a start that never happens. The permit itself ends
// at once, because it is for the version that the row would have had after the lease.
func (c *claim) permitApart(ctx context.Context) error {
	if c.permits == nil {
		return nil
	}
	var chosen []processlog.Row
	err := c.s.inOwn(ctx, func(tx processlog.Transaction) error {
		if err := c.lockPermits(ctx, tx, c.retryRows); err != nil {
			return err
		}
		for _, row := range c.retryRows {
			if c.permits.lacksPermit(&row) {
				c.result.Limited = append(c.result.Limited, c.permits.limited(&row))
				continue
			}
			c.permits.take(&row)
			chosen = append(chosen, row)
		}
		leased := slices.Clone(chosen)
		for i := range leased {
			c.markClaimed(&leased[i])
		}
		return c.writePermits(ctx, tx, leased)
	})
	c.retryRows = chosen
	return err
}

// returnApart returns the starts of rows that were not leased after permitApart. If that fails, the limit grants a little less.
func (c *claim) returnApart(ctx context.Context, chosen []processlog.Row) {
	if c.permits == nil {
		return
	}
	unused := make(map[string]processlog.Unused)
	for i := range chosen {
		row := &chosen[i]
		if k := c.permits.of(row); k != nil && !slices.ContainsFunc(c.result.Mine, func(mine processlog.Row) bool { return mine.ID == row.ID }) {
			key := c.permits.keyOf[row.ID].key
			unused[key] = processlog.Unused{Starts: unused[key].Starts + 1, Granted: k.granted}
		}
	}
	if len(unused) > 0 {
		_ = c.s.ReturnStarts(ctx, c.permits.limit, unused)
	}
}

const returnStarts = "UPDATE {limit}{by id} SET tat=tat-{unused} WHERE limit_name={name} AND limit_key IN ({keys})"

// ReturnStarts implements Store. It locks rows in the order of their keys, as claims do.
func (s *Store) ReturnStarts(ctx context.Context, limit processlog.StartLimit, unused map[string]processlog.Unused) error {
	if len(unused) == 0 || limit.Interval == 0 {
		return nil
	}
	var keys, times []string
	for key, u := range unused {
		literal := s.d.binary([]byte(key))
		keys = append(keys, literal)
		times = append(times, fmt.Sprintf(" WHEN limit_key=%s AND starts=%d THEN %d", literal, u.Granted, int64(u.Starts)*int64(limit.Interval)))
	}
	slices.Sort(keys)
	query := s.sql(returnStarts, "unused", "CASE"+strings.Join(times, "")+" ELSE 0 END", "name", s.d.text(limit.Name), "keys", strings.Join(keys, ","))
	if _, err := execCount(ctx, s.writePool(), query); err != nil {
		return s.withoutLimits(fmt.Errorf("compensator: return starts of the limit %q: %w", limit.Name, s.dropReadOnly(err)))
	}
	return nil
}

// CheckLimits implements Store.
func (s *Store) CheckLimits(ctx context.Context) error {
	if err := s.checkTable(ctx, "_limit"); err != nil {
		return s.withoutLimits(fmt.Errorf("compensator: read the table %s: %w", s.table.quoted("_limit"), err))
	}
	return nil
}

// withoutLimits replaces err if the _limit table is missing. The new error names the table and the feature that needs it.
func (s *Store) withoutLimits(err error) error {
	if err != nil && s.d.fault(err) == faultNoTable && strings.Contains(err.Error(), "_limit") {
		return s.withoutTable(err, "_limit", "TypeConfig.Limit needs")
	}
	return err
}
