// Package grants checks in tests that rate limits hold. A grant allows a process to start a number of entries. Triggers
// record each grant in the table grants.
package grants

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// Schema holds the statements that create the table grants and its triggers. A grant allows a process a number of
// starts of entries. A process can give back starts that no entry has used. The triggers record this as a row with a
// negative number of starts. The library accepts only starts of the latest grant of a key. So this row gets the time of
// the latest grant.
//
// A test may add a trigger that sets @claim_token to the token of each new lease. A claim writes its leases before it
// takes starts. So the column claim_token names the claim that took the starts.
//
// A person may change the interval of a limit while the stored time of a key is in the future. Then the next grant adds
// one more than the granted number to the column starts of the library's table. With this higher number, ReturnStarts
// refuses starts from before the change. The trigger grants_next subtracts the additional 1.
var Schema = []string{
	"CREATE TABLE grants (seq BIGINT AUTO_INCREMENT PRIMARY KEY, limit_name VARCHAR(64) NOT NULL, limit_key VARBINARY(64) NOT NULL, at BIGINT NOT NULL," +
		" starts BIGINT NOT NULL, start_interval BIGINT NOT NULL, burst INT NOT NULL, claim_token VARBINARY(16)) ENGINE=InnoDB",
	"CREATE TRIGGER grants_first AFTER INSERT ON common_process_log_limit FOR EACH ROW INSERT INTO grants (limit_name, limit_key, at, starts, start_interval, burst, claim_token)" +
		" SELECT NEW.limit_name, NEW.limit_key, NEW.granted_at, (NEW.tat-NEW.granted_at*1000000) DIV NEW.start_interval, NEW.start_interval, NEW.burst, @claim_token FROM DUAL WHERE NEW.start_interval>0",
	"CREATE TRIGGER grants_next AFTER UPDATE ON common_process_log_limit FOR EACH ROW INSERT INTO grants (limit_name, limit_key, at, starts, start_interval, burst, claim_token)" +
		" SELECT NEW.limit_name, NEW.limit_key, NEW.granted_at, CASE WHEN OLD.start_interval NOT IN (0, NEW.start_interval) AND OLD.tat>NEW.granted_at*1000000 THEN GREATEST(0, NEW.starts-OLD.starts-1)" +
		" WHEN NEW.tat>OLD.tat THEN (NEW.tat-GREATEST(OLD.tat,NEW.granted_at*1000000)) DIV NEW.start_interval ELSE (NEW.tat-OLD.tat) DIV NEW.start_interval END, NEW.start_interval, NEW.burst, @claim_token" +
		" FROM DUAL WHERE NEW.start_interval>0",
}

type grant struct {
	key    string
	at     int64 // in milliseconds
	starts int64 // negative if a process has returned starts
	values processlog.LimitValues
}

type Found struct {
	Starts map[string]int
	Full   int
}

func (f *Found) Total() (n int) {
	for _, starts := range f.Starts {
		n += starts
	}
	return n
}

func Check(ctx context.Context, db *sql.DB, limit string, values ...processlog.LimitValues) (Found, error) {
	rows, err := db.QueryContext(ctx, "SELECT limit_key, at, starts, start_interval, burst FROM grants WHERE limit_name=? ORDER BY seq", limit)
	if err != nil {
		return Found{}, err
	}
	defer rows.Close()
	var all []grant
	for rows.Next() {
		var g grant
		if err := rows.Scan(&g.key, &g.at, &g.starts, &g.values.Interval, &g.values.Burst); err != nil {
			return Found{}, err
		}
		if !slices.Contains(values, g.values) {
			return Found{}, fmt.Errorf("limit %q: a grant at %d had the values %+v", limit, g.at, g.values)
		}
		all = append(all, g)
	}
	if err := rows.Err(); err != nil {
		return Found{}, err
	}
	found, err := checkWindows(all)
	if err != nil {
		return found, fmt.Errorf("limit %q, %w", limit, err)
	}
	return found, nil
}

type period struct {
	key    string
	values processlog.LimitValues
	starts map[int64]int64 // granted starts minus returned starts, by the time of the grant in milliseconds
}

// checkWindows checks the grants of each key. If the values of the limit change, checkWindows checks the grants before
// and after the change separately. The caller need not sort the grants by time. They can be out of order, because the
// statement of a grant may wait for the lock of its row.
func checkWindows(all []grant) (Found, error) {
	found := Found{Starts: make(map[string]int)}
	var periods []*period
	latest := make(map[string]*period)
	for _, g := range all {
		found.Starts[g.key] += int(g.starts)
		p := latest[g.key]
		if p == nil || p.values != g.values {
			p = &period{g.key, g.values, make(map[int64]int64)}
			latest[g.key], periods = p, append(periods, p)
		}
		p.starts[g.at] += g.starts
	}
	for _, p := range periods {
		full, err := p.check()
		if err != nil {
			return found, fmt.Errorf("key %q: %w", p.key, err)
		}
		found.Full += full
	}
	return found, nil
}

// check returns how often the burst was used up.
func (p *period) check() (reached int, err error) {
	interval, allowed := p.values.Interval, time.Duration(p.values.Burst)*p.values.Interval
	var last int64
	var need time.Duration
	for _, at := range slices.Sorted(maps.Keys(p.starts)) {
		if p.starts[at] < 0 {
			return 0, fmt.Errorf("more starts of the grant at %d were returned than granted; starts by their time: %v", at, p.starts)
		}
		need = max(0, need-time.Duration(at-last)*time.Millisecond) + time.Duration(p.starts[at])*interval
		last = at
		if need > allowed {
			return 0, fmt.Errorf("a window that ends at %d has starts for %v, and allows %v; starts by their time: %v", at, need, allowed, p.starts)
		}
		if allowed-need < interval {
			reached++
		}
	}
	return reached, nil
}

// Permits counts the entries that hold a permit at the same time. Call Note once for every change of an entry's row, in
// the order of the changes.
type Permits struct {
	held map[string]map[uint64]int64
	most int
}

type Change struct {
	ID          uint64
	Key         string
	Old, New    uint64
	OldLease    int64 // in ms
	LeaseUntil  int64 // in ms
	ChangedAtMS int64 // by the database's clock
}

func (p *Permits) Note(c Change) {
	held := p.held[c.Key]
	if held == nil {
		held = make(map[uint64]int64)
		if p.held == nil {
			p.held = make(map[string]map[uint64]int64)
		}
		p.held[c.Key] = held
	}
	_, isHeld := held[c.ID]
	isClaim := c.New != c.Old && c.LeaseUntil != c.OldLease && c.LeaseUntil > 0
	if c.New != c.Old {
		delete(held, c.ID)
	}
	if isRenewal := c.New == c.Old && isHeld; !isClaim && !isRenewal {
		return
	}
	held[c.ID] = c.LeaseUntil
	now := 0
	for _, end := range held {
		if end > c.ChangedAtMS {
			now++
		}
	}
	p.most = max(p.most, now)
}

func (p *Permits) Most() int { return p.most }
