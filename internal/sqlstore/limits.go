package sqlstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// mostTypes is the size of the column business_types. A type that does not fit is not stored.
const mostTypes = 2000

// encodeTypes returns the text of business_types. Names of types contain no line breaks.
func encodeTypes(types []string) string { return strings.Join(types, "\n") }

func decodeTypes(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// limitColumns are the columns of StoredLimit, without the name.
const limitColumns = "{text business_types}, keyed, program_interval, program_burst, program_concurrent"

// limitScan returns the places for limitColumns, and a function that sets l from them.
func limitScan(l *processlog.StoredLimit) (places []any, done func()) {
	var types string
	var interval int64
	return []any{&types, &l.Keyed, &interval, &l.Program.Burst, &l.Program.Concurrent}, func() {
		l.Types, l.Program.Interval = decodeTypes(types), time.Duration(interval)
	}
}

// declared returns what the first row of the limit must say after a claim of a type. stored is what it says.
func (p *permits) declared(stored processlog.StoredLimit) processlog.StoredLimit {
	now := processlog.StoredLimit{Name: p.limit.Name, Types: stored.Types, Keyed: p.limit.Keyed, Program: p.limit.Values()}
	if at, found := slices.BinarySearch(stored.Types, p.businessType); !found {
		if types := slices.Insert(slices.Clone(stored.Types), at, p.businessType); len(encodeTypes(types)) <= mostTypes {
			now.Types = types
		}
	}
	return now
}

const (
	beginLimit = "INSERT INTO {limit} (limit_name, limit_key, tat, granted_at, holders, business_types, keyed, program_interval, program_burst, program_concurrent)" +
		" VALUES ({name}, {no bytes}, 0, 0, {no bytes}, {types}, {keyed}, {interval}, {burst}, {concurrent}){again}"
	describeLimit = "UPDATE {limit}{by id} SET business_types={types}, keyed={keyed}, program_interval={interval}, program_burst={burst}, program_concurrent={concurrent}" +
		" WHERE limit_key={no bytes} AND limit_name={name}"
)

// beginLimit returns the statement that stores the first row of a limit, if it does not exist.
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

const readLimits = "SELECT {text limit_name}, " + limitColumns + " FROM {limit}{by id} WHERE limit_key={no bytes} ORDER BY limit_name{every row}"

// Limits implements Operations. The first rows of all limits are beside each other.
func (s *Store) Limits(ctx context.Context) ([]processlog.StoredLimit, error) {
	rows, err := s.read(ctx, s.sql(readLimits))
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

const (
	readLimitKey = "SELECT tat-{now}*1000000, holders FROM {limit}{by id} WHERE limit_key={key} AND limit_name={name}{every row}"
	permitsNow   = "SELECT id, version, {text business_type} FROM {log}{by id} WHERE id IN ({ids}) AND lease_until>{now} ORDER BY id{every row}"
)

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
	var ahead int64
	var text []byte
	for rows.Next() {
		if err := rows.Scan(&ahead, &text); err != nil {
			return k, err
		}
	}
	if err := rows.Err(); err != nil {
		return k, err
	}
	values := limit.InForce()
	k.Starts, k.Next = (&processlog.StartLimit{Interval: values.Interval, Burst: values.Burst}).Free(time.Duration(ahead))
	holders, err := parseHolders(text)
	if err == nil && values.Concurrent > 0 {
		k.Holders, err = s.holding(ctx, holders)
	}
	return k, err
}

// holding returns the holders whose permits have not ended.
func (s *Store) holding(ctx context.Context, holders []holder) (now []processlog.PermitHolder, err error) {
	for chunk := range slices.Chunk(holders, processlog.MaxRows) {
		ids := make([]processlog.ID, len(chunk))
		for i, h := range chunk {
			ids[i] = h.id
		}
		slices.SortFunc(ids, processlog.ID.Compare)
		rows, err := s.read(ctx, s.sql(permitsNow, "ids", idList(slices.Compact(ids))))
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		for rows.Next() {
			var id, version uint64
			var businessType string
			if err := rows.Scan(&id, &version, &businessType); err != nil {
				return nil, err
			}
			if h := (holder{processlog.RowID(id), version}); slices.Contains(chunk, h) {
				now = append(now, processlog.PermitHolder{ID: h.id, BusinessType: businessType})
			}
		}
		if err := rows.Err(); err != nil {
			return nil, err
		}
	}
	return now, nil
}
