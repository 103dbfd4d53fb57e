package sqlstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/processlog"
)

// mostTypes is the maximum length in bytes of the column business_types, which lists types of entries. If the list has
// no room for a further type, that type is not stored.
const mostTypes = 2000

// Names of types contain no line breaks.
func encodeTypes(types []string) string { return strings.Join(types, "\n") }

func decodeTypes(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

const limitColumns = "{text business_types}, keyed, program_interval, program_burst, program_concurrent," +
	" person_interval, person_burst, person_concurrent, version, {text actor, reason}, changed_at"

func limitScan(l *processlog.StoredLimit) (places []any, done func()) {
	var types string
	var program, person, at int64
	return []any{&types, &l.Keyed, &program, &l.Program.Burst, &l.Program.Concurrent, &person, &l.Person.Burst, &l.Person.Concurrent, &l.Version, &l.Actor, &l.Reason, &at}, func() {
		l.Types, l.Program.Interval, l.Person.Interval = decodeTypes(types), time.Duration(program), time.Duration(person)
		if at > 0 {
			l.At = unixMilli(at)
		}
	}
}

func (p *permits) declared(stored *processlog.StoredLimit) (now processlog.StoredLimit, changed bool) {
	now = *stored
	now.Name, now.Keyed, now.Program = p.limit.Name, p.limit.Keyed, p.program
	changed = now.Name != stored.Name || now.Keyed != stored.Keyed || now.Program != stored.Program
	if at, found := slices.BinarySearch(stored.Types, p.businessType); !found {
		if types := slices.Insert(slices.Clone(stored.Types), at, p.businessType); len(encodeTypes(types)) <= mostTypes {
			now.Types, changed = types, true
		}
	}
	return now, changed
}

const (
	beginLimit = "INSERT INTO {limit} (limit_name, limit_key, tat, granted_at, holders, business_types, keyed, program_interval, program_burst, program_concurrent)" +
		" VALUES ({name}, {no bytes}, 0, 0, {no bytes}, {types}, {keyed}, {interval}, {burst}, {concurrent}){again}"
	describeLimit = "UPDATE {limit}{by id} SET business_types={types}, keyed={keyed}, program_interval={interval}, program_burst={burst}, program_concurrent={concurrent}" +
		" WHERE limit_key={no bytes} AND limit_name={name}"
)

func (s *Store) beginLimit(l *processlog.StoredLimit) string {
	return s.describing(beginLimit, l, "again", s.d.again("limit_key, limit_name", "limit_key"))
}

func (s *Store) describeLimit(l *processlog.StoredLimit) string {
	return s.describing(describeLimit, l)
}

func (s *Store) describing(statement string, l *processlog.StoredLimit, args ...string) string {
	keyed := "0"
	if l.Keyed {
		keyed = "1"
	}
	return s.sql(statement, append(args, "name", s.d.text(l.Name), "types", s.d.text(encodeTypes(l.Types)), "keyed", keyed,
		"interval", strconv.FormatInt(int64(l.Program.Interval), 10), "burst", strconv.Itoa(l.Program.Burst), "concurrent", strconv.Itoa(l.Program.Concurrent))...)
}

const readLimits = "SELECT {text limit_name}, " + limitColumns + " FROM {limit}{by id} WHERE limit_key={no bytes}{named} ORDER BY limit_name{every row}"

// Limits implements Operations.
func (s *Store) Limits(ctx context.Context, name string) ([]processlog.StoredLimit, error) {
	named := ""
	if name != "" {
		named = " AND limit_name=" + s.d.text(name)
	}
	rows, err := s.read(ctx, s.sql(readLimits, "named", named))
	if s.d.fault(err) == faultNoTable {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("compensator: read the limits: %w", err)
	}
	defer rows.Close()
	var limits []processlog.StoredLimit
	for rows.Next() {
		var l processlog.StoredLimit
		places, done := limitScan(&l)
		if err := rows.Scan(append([]any{&l.Name}, places...)...); err != nil {
			return nil, fmt.Errorf("compensator: read the limits: %w", err)
		}
		done()
		limits = append(limits, l)
	}
	return limits, rows.Err()
}

const readLimitKey = "SELECT tat-{now}*1000000, start_interval, holders FROM {limit}{by id} WHERE limit_key={key} AND limit_name={name}{every row}"

// LimitedKey implements Operations.
func (s *Store) LimitedKey(ctx context.Context, limit processlog.StoredLimit, key string) (k processlog.LimitedKey, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("compensator: read the limit %q: %w", limit.Name, err)
		}
	}()
	rows, err := s.read(ctx, s.sql(readLimitKey, "key", s.d.binary([]byte(key)), "name", s.d.text(limit.Name)))
	if err != nil {
		return k, err
	}
	defer rows.Close()
	var ahead, interval int64
	var text []byte
	for rows.Next() {
		if err := rows.Scan(&ahead, &interval, &text); err != nil {
			return k, err
		}
	}
	if err := rows.Err(); err != nil {
		return k, err
	}
	values := limit.InForce()
	k.Starts, k.Next = (&processlog.StartLimit{Interval: values.Interval, Burst: values.Burst}).Free(processlog.Rescaled(time.Duration(ahead), time.Duration(interval), values.Interval))
	holders, err := parseHolders(text)
	if err == nil && values.Concurrent > 0 {
		k.Holders, err = s.holding(ctx, holders)
	}
	return k, err
}

const putLimit = "UPDATE {limit}{by id} SET person_interval={interval}, person_burst={burst}, person_concurrent={concurrent}, version=version+1," +
	" actor={actor}, reason={reason}, changed_at={now} WHERE limit_key={no bytes} AND limit_name={name} AND version={version}"

// PutLimit implements Operations. It writes one row. Every claim under the limit locks this row, so a claim sees the
// change as a whole or not at all.
func (s *Store) PutLimit(ctx context.Context, l processlog.StoredLimit, ops ...processlog.Operation) error {
	query := s.sql(putLimit, "interval", strconv.FormatInt(int64(l.Person.Interval), 10), "burst", strconv.Itoa(l.Person.Burst), "concurrent", strconv.Itoa(l.Person.Concurrent),
		"actor", s.d.text(l.Actor), "reason", s.d.text(l.Reason), "name", s.d.text(l.Name), "version", decimal(l.Version))
	err := s.untilFree(ctx, changeTimeout, s.inOwn, func(tx processlog.Transaction) error {
		if err := s.operate(ctx, tx, ops...); err != nil {
			return err
		}
		n, err := execCount(ctx, tx, query)
		if err == nil && n == 0 {
			return processlog.ErrChanged
		}
		if err == nil {
			failpoint.Reach(failpoint.LimitChanged)
		}
		return err
	})
	if err != nil {
		err = fmt.Errorf("compensator: change the limit %q: %w", l.Name, err)
	}
	return err
}
