package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/processlog"
)

const (
	// statsClock fails if the table does not exist.
	statsClock = "SELECT {now} FROM (SELECT COUNT(*) AS n FROM {stat} WHERE instance={empty} AND `at`=0) AS t"

	// statsWrite writes nothing if the process has already written this minute or a later minute. The row with `at`=0
	// has the last minute that the process has written, because FoldStats may have moved all other rows. {last} writes
	// this row.
	statsWrite = "INSERT INTO {stat} (instance, `at`, business_type, last_at, {counts}) SELECT v.* FROM ({rows}{last}) AS v" +
		" WHERE NOT EXISTS (SELECT 1 FROM {stat} AS m WHERE m.instance={instance} AND m.`at`=0 AND m.last_at>={minute}){again}"
	statsRow = "{instance}, {at}, {type}, {last_at}, {values}"

	// The folded rows hold the sums of all processes. Rows of single processes are those that FoldStats has not added yet.
	statsRead     = "{folded} UNION ALL {of processes}"
	statsReadPart = "SELECT {bin} AS bin, {text business_type} AS name, {sums} FROM {stat}{by id} WHERE {instances} AND `at`>={from} AND `at`<{to}{and type} GROUP BY {bin}, business_type"

	statsToFold = "SELECT {text instance}, `at`, {text business_type}, {counts} FROM {stat}{by id} WHERE {which} AND `at`<{now}-({age})" +
		" ORDER BY instance, `at`, business_type LIMIT {limit}{lock}"
	statsFold   = "INSERT INTO {stat} (instance, `at`, business_type, {counts}) VALUES {rows}{again}"
	statsFolded = "{DELETE FROM stat} WHERE {keys}"

	statsForget = "{DELETE FROM stat} WHERE instance={empty} AND `at`<{now}-({age})"
	// The row with `at`=0 has no counts. It holds the last minute that a process has written. statsForgetProcesses
	// deletes this row when the process has written nothing for a day.
	statsForgetProcesses = "{DELETE FROM stat} WHERE instance>={processes} AND `at`=0 AND last_at<{now}-86400000"
)

const (
	statsFoldedBy = "" // value of the column instance in folded rows, which hold sums over all processes
	// statsProcesses is the lowest value of the column instance in the row of a process, because the name of a process
	// begins with a digit or a letter.
	statsProcesses = "0"
)

// statsAtOnce is how many rows one statement of WriteStats writes. Each row is a SELECT in a UNION. SQLite accepts 500
// of them, so 400 leaves a margin.
const statsAtOnce = 400

// statColumns are the columns of StatCounts, in the order of StatCounts.Values.
var statColumns = []string{"recorded", "started", "succeeded", "compensated", "failed", "dead",
	"took_5ms", "took_20ms", "took_50ms", "took_100ms", "took_250ms", "took_500ms", "took_1s", "took_5s", "took_30s", "took_5m", "took_1h", "took_more",
	"late_5ms", "late_20ms", "late_50ms", "late_100ms", "late_250ms", "late_500ms", "late_1s", "late_5s", "late_30s", "late_5m", "late_1h", "late_more"}

// StatsClock implements Operations.
func (s *Store) StatsClock(ctx context.Context) (time.Time, error) {
	rows, err := s.read(ctx, s.sql(statsClock))
	if err == nil {
		defer rows.Close()
		var now int64
		for rows.Next() {
			if err := rows.Scan(&now); err != nil {
				return time.Time{}, err
			}
		}
		if err = rows.Err(); err == nil {
			return unixMilli(now), nil
		}
	}
	return time.Time{}, s.withoutStats(fmt.Errorf("compensator: read the clock beside the statistics: %w", err))
}

func (s *Store) withoutStats(err error) error {
	return s.withoutTable(err, "_stat", "Operations.Statistics needs")
}

// WriteStats implements Operations.
func (s *Store) WriteStats(ctx context.Context, instance string, at time.Time, stats []processlog.Stat) error {
	for first := 0; first < len(stats); first += statsAtOnce {
		chunk := stats[first:min(first+statsAtOnce, len(stats))]
		if err := s.writeStats(ctx, instance, at, chunk, first+len(chunk) == len(stats)); err != nil {
			return s.withoutStats(fmt.Errorf("compensator: write statistics: %w", s.dropReadOnly(err)))
		}
	}
	return nil
}

// writeStats writes a part of the counts of a minute. The last part also marks the minute as written.
func (s *Store) writeStats(ctx context.Context, instance string, at time.Time, stats []processlog.Stat, last bool) error {
	minute := signed(at.UnixMilli())
	name := s.d.text(instance)
	rows := make([]string, len(stats))
	for i := range stats {
		row := s.sql(statsRow, "instance", name, "at", minute, "type", s.d.text(stats[i].BusinessType), "last_at", "0", "values", statValues(&stats[i].StatCounts))
		if i == 0 {
			row = s.named(row)
		}
		rows[i] = "SELECT " + row
	}
	mark := ""
	if last {
		mark = " UNION ALL SELECT " + s.sql(statsRow, "instance", name, "at", "0", "type", s.d.empty, "last_at", minute, "values", statValues(new(processlog.StatCounts)))
	}
	_, err := s.writePool().ExecContext(ctx, s.sql(statsWrite, "counts", strings.Join(statColumns, ", "), "rows", strings.Join(rows, " UNION ALL "), "last", mark,
		"instance", name, "minute", minute, "again", s.d.again("instance, `at`, business_type", append([]string{"last_at"}, statColumns...)...)))
	return err
}

// named adds a column name to each value of the row, because the columns of a derived table must have different names.
func (s *Store) named(row string) string {
	names := append([]string{"instance", "at", "business_type", "last_at"}, statColumns...)
	values := strings.Split(row, ", ")
	for i := range values {
		values[i] += " AS `" + names[i] + "`"
	}
	return strings.Join(values, ", ")
}

func statValues(c *processlog.StatCounts) string {
	values := c.Values()
	texts := make([]string, len(values))
	for i, value := range values {
		texts[i] = strconv.FormatUint(*value, 10)
	}
	return strings.Join(texts, ", ")
}

// Stats implements Operations.
func (s *Store) Stats(ctx context.Context, f processlog.StatFilter) ([]processlog.Stat, error) {
	sums := make([]string, len(statColumns))
	for i, column := range statColumns {
		sums[i] = "SUM(" + column + ")"
	}
	andType := ""
	if f.BusinessType != "" {
		andType = " AND business_type=" + s.d.text(f.BusinessType)
	}
	period := signed(f.Period.Milliseconds())
	part := func(instances string) string {
		return s.sql(statsReadPart, "bin", "`at`-`at`%"+period, "sums", strings.Join(sums, ", "), "instances", instances,
			"from", signed(f.From.UnixMilli()), "to", signed(f.To.UnixMilli()), "and type", andType)
	}
	rows, err := s.read(ctx, s.sql(statsRead, "folded", part("instance="+s.d.empty), "of processes", part("instance>="+s.d.text(statsProcesses))))
	byKey := make(map[statKey]*processlog.StatCounts)
	if err == nil {
		err = scanStats(rows, func(_ string, at int64, businessType string, c processlog.StatCounts) {
			key := statKey{"", at, businessType}
			if byKey[key] == nil {
				byKey[key] = new(processlog.StatCounts)
			}
			byKey[key].Add(c)
		})
	}
	if err != nil {
		return nil, s.withoutStats(fmt.Errorf("compensator: read statistics: %w", err))
	}
	stats := make([]processlog.Stat, 0, len(byKey))
	for key, c := range byKey {
		stats = append(stats, processlog.Stat{At: unixMilli(key.at), BusinessType: key.businessType, StatCounts: *c})
	}
	slices.SortFunc(stats, func(a, b processlog.Stat) int {
		if by := a.At.Compare(b.At); by != 0 {
			return by
		}
		return strings.Compare(a.BusinessType, b.BusinessType)
	})
	return stats, nil
}

type statKey struct {
	instance     string
	at           int64
	businessType string
}

func scanStats(rows *sql.Rows, each func(instance string, at int64, businessType string, c processlog.StatCounts)) error {
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	var instance, businessType string
	var at int64
	var c processlog.StatCounts
	places := []any{&at, &businessType}
	if len(columns) > len(statColumns)+2 {
		places = append([]any{&instance}, places...)
	}
	for _, value := range c.Values() {
		places = append(places, value)
	}
	for rows.Next() {
		if err := rows.Scan(places...); err != nil {
			return err
		}
		each(instance, at, businessType, c)
	}
	return rows.Err()
}

// FoldStats implements Operations. A folded row holds the sum of several rows. One transaction adds the old rows to
// folded rows, and then deletes the old rows.
func (s *Store) FoldStats(ctx context.Context, fold processlog.StatFold, age time.Duration, limit int) (n int, err error) {
	which, period := s.sql("instance>={processes} AND `at`>0", "processes", s.d.text(statsProcesses)), int64(1)
	if fold == processlog.FoldHours {
		period = processlog.StatHour.Milliseconds()
		which = "instance=" + s.d.empty + " AND `at`%" + signed(period) + "<>0"
	}
	err = s.inOwn(ctx, func(tx processlog.Transaction) error {
		rows, err := tx.QueryContext(ctx, s.sql(statsToFold, "which", which, "counts", strings.Join(statColumns, ", "), "age", signed(age.Milliseconds()),
			"limit", strconv.Itoa(limit), "lock", s.d.lock))
		if err != nil {
			return err
		}
		var keys []string
		sums := make(map[statKey]*processlog.StatCounts)
		err = scanStats(rows, func(instance string, at int64, businessType string, c processlog.StatCounts) {
			keys = append(keys, s.sql("(instance={instance} AND `at`={at} AND business_type={type})", "instance", s.d.text(instance), "at", signed(at), "type", s.d.text(businessType)))
			to := statKey{statsFoldedBy, at - at%period, businessType}
			if sums[to] == nil {
				sums[to] = new(processlog.StatCounts)
			}
			sums[to].Add(c)
		})
		if n = len(keys); err != nil || n == 0 {
			return err
		}
		if _, err := tx.ExecContext(ctx, s.foldInto(sums)); err != nil {
			return err
		}
		failpoint.Reach(failpoint.StatsAdded)
		_, err = tx.ExecContext(ctx, s.sql(statsFolded, "keys", strings.Join(keys, " OR ")))
		return err
	})
	if err != nil {
		return 0, s.withoutStats(fmt.Errorf("compensator: fold statistics: %w", err))
	}
	return n, nil
}

// foldInto returns the INSERT that adds the sums to the folded rows. A folded row holds the counts of all processes.
// The INSERT lists the rows in the order of their keys.
func (s *Store) foldInto(sums map[statKey]*processlog.StatCounts) string {
	keys := make([]statKey, 0, len(sums))
	for key := range sums {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b statKey) int {
		if a.at != b.at {
			return int(min(max(a.at-b.at, -1), 1))
		}
		return strings.Compare(a.businessType, b.businessType)
	})
	rows := make([]string, len(keys))
	for i, key := range keys {
		rows[i] = "(" + s.d.empty + ", " + signed(key.at) + ", " + s.d.text(key.businessType) + ", " + statValues(sums[key]) + ")"
	}
	var add strings.Builder
	for _, column := range statColumns {
		add.WriteString(", " + column + "=" + s.sql("{stat}") + "." + column + "+" + s.d.offer(column))
	}
	return s.sql(statsFold, "counts", strings.Join(statColumns, ", "), "rows", strings.Join(rows, ", "), "again", s.d.again("instance, `at`, business_type", "last_at")+add.String())
}

// ForgetStats implements Operations.
func (s *Store) ForgetStats(ctx context.Context, age time.Duration) error {
	for _, query := range []string{
		s.sql(statsForget, "age", signed(age.Milliseconds())),
		s.sql(statsForgetProcesses, "processes", s.d.text(statsProcesses)),
	} {
		if _, err := s.writePool().ExecContext(ctx, query); err != nil {
			return s.withoutStats(fmt.Errorf("compensator: delete old statistics: %w", s.dropReadOnly(err)))
		}
	}
	return nil
}
