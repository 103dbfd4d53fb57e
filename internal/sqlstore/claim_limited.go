package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/processlog"
)

// ClaimLimited implements Store. In the transaction of the claim, it first locks the entries. Then it locks the limit's
// row with the key "", so that claims under one limit take turns. After that it waits for no other lock, so that no two
// claims deadlock.
//
// Each claimed entry takes a start, which is a permit to run now. The last statement stores the taken starts with the
// time of the database's clock at that moment. The claim still holds the lock of the limit's row, so the next claim
// under the limit stores its starts later. So the starts are stored in the order of their times.
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

// permits holds the permits of a claim under a limit. A nil *permits means that there is no limit.
type permits struct {
	s     *Store
	limit processlog.StartLimit
	keyOf map[processlog.ID]keyed
	keys  map[string]*keyPermits // the locked rows, by key

	businessType string
	stored       processlog.StoredLimit // what the first row says of the limit
	now          int64                  // the database's clock when the rows were read, in ms
	program      processlog.LimitValues // the values before a person's change
	writeSentAt  time.Time              // when the statement that grants the permits was sent, by the clock of this process
}

type keyed struct {
	key     string
	permits *keyPermits // nil: the entry needs no permit
	ok      bool
}

type keyPermits struct {
	literal string        // the key in a statement
	exists  bool          // whether the key has a row
	starts  int           // starts that are left
	granted int64         // processlog.Room.Granted
	next    time.Duration // time until there is one more start
	holders []holder      // entries that may hold a permit
	// The field ahead is the column tat of the key minus the current time. The field interval is the Interval that the
	// limit had at the last grant.
	ahead, interval time.Duration
	shift           time.Duration // what to add to the column tat, because the Interval of the limit has changed
	wanted          int           // claimable entries of the key
	taken           int           // permits that the claim takes, plus the starts in the field advance
	advance         int           // starts that the claim takes in advance, for entries of later claims
}

func (p *permits) free(k *keyPermits) int {
	if p.limit.Concurrent == 0 {
		return processlog.Unbounded
	}
	return max(0, p.limit.Concurrent-len(k.holders)-k.taken)
}

func (p *permits) lacksPermit(row *processlog.Row) bool {
	k := p.of(row)
	return k != nil && (k.starts <= k.taken || p.free(k) == 0)
}

// of returns nil if the row needs no permit.
func (p *permits) of(row *processlog.Row) *keyPermits {
	if p == nil {
		return nil
	}
	return p.keyOf[row.ID].permits
}

func (p *permits) refuses(row *processlog.Row) bool { return p != nil && !p.keyOf[row.ID].ok }

func (p *permits) take(row *processlog.Row) {
	if k := p.of(row); k != nil {
		k.taken++
	}
}

func (p *permits) limited(row *processlog.Row) processlog.Limited {
	k, l := p.of(row), processlog.Limited{ID: row.ID, Key: p.keyOf[row.ID].key}
	if k.starts <= k.taken {
		l.In = k.next
	}
	return l
}

func (p *permits) rooms() map[string]processlog.Room {
	if len(p.keys) == 0 {
		return nil
	}
	rooms := make(map[string]processlog.Room, len(p.keys))
	for key, k := range p.keys {
		rooms[key] = processlog.Room{Starts: max(0, k.starts-k.taken), Next: k.next, Permits: p.free(k), Advance: k.advance, Granted: k.granted}
	}
	return rooms
}

// lockPermits sends no statement if no row needs a permit.
func (c *claim) lockPermits(ctx context.Context, tx processlog.Tx, rows []processlog.Row) error {
	if c.permits == nil {
		return nil
	}
	p := c.permits
	p.keyOf, p.keys = make(map[processlog.ID]keyed, len(rows)), make(map[string]*keyPermits)
	for i := range rows {
		if row := &rows[i]; c.claimable(row) {
			p.want(row)
		}
	}
	if len(p.keys) == 0 {
		return nil
	}
	if err := p.lock(ctx, tx); err != nil {
		return fmt.Errorf("lock the limit %q: %w", p.limit.Name, err)
	}
	failpoint.Reach(failpoint.LimitLocked)
	if err := p.dropEnded(ctx, tx, rows); err != nil {
		return fmt.Errorf("read who holds permits of the limit %q: %w", p.limit.Name, err)
	}
	return nil
}

func (p *permits) want(row *processlog.Row) {
	key, limited, ok := p.limit.Of(row)
	of := keyed{key: key, ok: ok}
	if limited && ok {
		if of.permits = p.keys[key]; of.permits == nil {
			of.permits = &keyPermits{literal: p.s.d.binary([]byte(key))}
			p.keys[key] = of.permits
		}
		of.permits.wanted++
		p.businessType = row.BusinessType
	}
	p.keyOf[row.ID] = of
}

const lockLimit = "SELECT limit_key, tat, start_interval, starts, holders, {now}, " + limitColumns + " FROM {limit}{by id} WHERE limit_name={name} AND limit_key IN ({keys}) ORDER BY limit_key{lock}"

// rowLock returns the locking clause of lockLimit. If a claim has waited for the limit's row until the timeout, that
// claim marks the limit as stuck. A claim under a stuck limit does not wait for the row, and fails at once. The first
// claim that gets the lock removes the mark.
func (p *permits) rowLock() string {
	if _, stuck := p.s.stuckLimits.Load(p.limit.Name); stuck {
		return p.s.d.lockNow
	}
	return p.s.d.lock
}

func (p *permits) lock(ctx context.Context, tx processlog.Tx) error {
	name, keys := p.s.d.text(p.limit.Name), []string{p.s.d.binary(nil)}
	for key, k := range p.keys {
		if key != "" {
			keys = append(keys, k.literal)
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

func (p *permits) read(ctx context.Context, tx processlog.Tx, query string) (first bool, err error) {
	rows, err := tx.QueryContext(ctx, query)
	if err != nil {
		return false, p.asBusy(err)
	}
	defer rows.Close()
	var key, holders sql.RawBytes
	var tat, interval, granted int64
	var stored processlog.StoredLimit
	ofKey := []any{&key, &tat, &interval, &granted, &holders, &p.now}
	ofLimit, done := limitScan(&stored)
	places := append(ofKey, ofLimit...)
	for rows.Next() {
		if err := rows.Scan(places...); err != nil {
			return false, err
		}
		if len(key) == 0 {
			done()
			first, stored.Name = true, p.limit.Name
			p.stored = stored
		}
		for i := range ofLimit {
			places[len(ofKey)+i] = unread{}
		}
		if k := p.keys[string(key)]; k != nil {
			k.exists, k.ahead, k.interval, k.granted = true, time.Duration(tat-p.now*1_000_000), time.Duration(interval), granted
			if k.holders, err = parseHolders(holders); err != nil {
				return false, err
			}
		}
	}
	return first, p.asBusy(rows.Err())
}

type unread struct{}

func (unread) Scan(any) error { return nil }

// count computes the starts that each key has left.
//
// A key without a row may have had a row that was deleted. Starts of the deleted row must not be returned to the new
// row. So in a new row the field granted begins with the present time in µs, which is above every number in the deleted
// row.
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

func (p *permits) asBusy(err error) error {
	if p.s.d.fault(err) == faultBusy {
		p.s.stuckLimits.Store(p.limit.Name, true)
		return fmt.Errorf("%w: %w", processlog.ErrBusy, err)
	}
	return err
}

// writePermits must be the last statement of the transaction.
func (c *claim) writePermits(ctx context.Context, tx processlog.Tx, mine []processlog.Row) error {
	p := c.permits
	if p == nil {
		return nil
	}
	for _, k := range p.keys {
		// Count again from the leased rows, because the claim may have leased fewer rows than it chose.
		k.taken, k.advance = 0, 0
	}
	for i := range mine {
		k := p.of(&mine[i])
		if k == nil {
			continue
		}
		if h := (holder{mine[i].ID, mine[i].Version}); p.limit.Concurrent > 0 && !slices.Contains(k.holders, h) {
			k.holders = append(k.holders, h)
		}
		k.taken++
		k.granted++
	}
	var written []*keyPermits
	for key, k := range p.keys {
		if k.taken > 0 {
			k.advance = p.limit.TakeAdvance(key, k.starts-k.taken)
			k.taken += k.advance
			k.granted += int64(k.advance)
		}
		// The Interval of the limit has changed, so the key's column tat moves by k.shift. A start of the old Interval
		// must no longer be returned. ReturnStarts returns no start if the field granted has another value than at the
		// claim. So raise this field.
		if k.shift != 0 {
			k.granted++
		}
		if k.taken > 0 || k.shift != 0 {
			written = append(written, k)
		}
	}
	if len(written) == 0 {
		return nil
	}
	slices.SortFunc(written, func(a, b *keyPermits) int { return strings.Compare(a.literal, b.literal) })
	if err := p.write(ctx, tx, written); err != nil {
		return fmt.Errorf("take permits of %d keys of the limit %q: %w", len(written), p.limit.Name, err)
	}
	failpoint.Reach(failpoint.PermitsWritten)
	for _, k := range written {
		k.starts, k.taken, k.shift = k.starts-k.taken, 0, 0
	}
	return nil
}

func (p *permits) write(ctx context.Context, tx processlog.Tx, written []*keyPermits) error {
	statement := p.raise
	if slices.ContainsFunc(written, func(k *keyPermits) bool { return !k.exists || k.shift != 0 }) {
		statement = p.insert
	}
	query := statement(written)
	p.writeSentAt = time.Now()
	_, err := execCount(ctx, tx, query)
	return err
}

// raiseLimits stores permits for keys that have rows. It costs a server half as much as insertLimits.
const raiseLimits = "UPDATE {limit}{by id} SET tat={later}+{interval}*{taken}, granted_at={now}, starts=starts+{taken}," +
	"{holders} start_interval={interval}, burst={burst}, concurrent={concurrent} WHERE limit_name={name} AND limit_key IN ({keys})"

func (p *permits) raise(written []*keyPermits) string {
	keys, holders := make([]string, len(written)), ""
	for i, k := range written {
		keys[i] = k.literal
	}
	if p.limit.Concurrent > 0 {
		holders = " holders=" + byKey(written, func(k *keyPermits) string { return p.s.d.binary([]byte(formatHolders(k.holders))) }) + ","
	}
	return p.s.sql(raiseLimits, "later", p.s.d.later("tat", p.s.sql("{now}*1000000")), "taken", byKey(written, func(k *keyPermits) string { return strconv.Itoa(k.taken) }),
		"holders", holders, "interval", signed(int64(p.limit.Interval)), "burst", strconv.Itoa(p.limit.Burst), "concurrent", strconv.Itoa(p.limit.Concurrent),
		"name", p.s.d.text(p.limit.Name), "keys", strings.Join(keys, ","))
}

// byKey returns an SQL expression for an UPDATE of several keys. In the row of each key, the expression has the value
// that the function value returns for this key.
func byKey(written []*keyPermits, value func(k *keyPermits) string) string {
	most := value(written[0])
	var others []string
	keys := make(map[string][]string)
	for _, k := range written[1:] {
		if v := value(k); v != most {
			if len(keys[v]) == 0 {
				others = append(others, v)
			}
			keys[v] = append(keys[v], k.literal)
		}
	}
	if len(others) == 0 {
		return most
	}
	var cases strings.Builder
	for _, v := range others {
		cases.WriteString(" WHEN limit_key IN (" + strings.Join(keys[v], ",") + ") THEN " + v)
	}
	return "CASE" + cases.String() + " ELSE " + most + " END"
}

// insertLimits stores permits as raiseLimits does. It also works for keys that have no row yet, and for keys whose
// interval has changed.
const insertLimits = "INSERT INTO {limit} (limit_name, limit_key, tat, granted_at, starts, holders, start_interval, burst, concurrent) VALUES {values}{again}, tat={moved}"

func (p *permits) insert(written []*keyPermits) string {
	now := p.s.sql("{now}*1000000")
	values := make([]string, len(written))
	for i, k := range written {
		values[i] = fmt.Sprintf("(%s, %s, %s+%d, %s, %d, %s, %d, %d, %d)", p.s.d.text(p.limit.Name), k.literal, now,
			int64(k.taken)*int64(p.limit.Interval), p.s.sql("{now}"), k.granted, p.s.d.binary([]byte(formatHolders(k.holders))), int64(p.limit.Interval), p.limit.Burst, p.limit.Concurrent)
	}
	tat := "tat"
	if shift := byKey(written, func(k *keyPermits) string { return signed(int64(k.shift)) }); shift != "0" {
		tat += "+" + shift
	}
	return p.s.sql(insertLimits, "values", strings.Join(values, ","),
		"again", p.s.d.again("limit_key, limit_name", "granted_at", "starts", "holders", "start_interval", "burst", "concurrent"),
		"moved", p.s.d.later(tat, now)+"+"+p.s.d.offer("tat")+"-"+now)
}

// permitApart takes permits for c.retryRows in its own transaction. If the process dies before a row is leased, the limit
// has counted a start that never happens.
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

// returnApart returns the starts of rows that were not leased. If that fails, the limit grants a little less.
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

// ReturnStarts implements Store. It locks rows in key order, as claims do.
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

func (s *Store) withoutLimits(err error) error {
	if err != nil && s.d.fault(err) == faultNoTable && strings.Contains(err.Error(), "_limit") {
		return s.withoutTable(err, "_limit", "TypeConfig.Limit needs")
	}
	return err
}
