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

const (
	// One statement holds backlogSlice and backlogEnd, so that both see the same entries.
	backlogSlice = "SELECT {place} AS place, COUNT(*) AS n, COALESCE(SUM(CASE WHEN next_at<={now} THEN 1 ELSE 0 END), 0) AS due, COALESCE(SUM(CASE WHEN next_at<{now}-{overdue} THEN 1 ELSE 0 END), 0) AS overdue" +
		" FROM (SELECT next_at FROM {log}{by due} WHERE state={state} AND business_type={type}{after} ORDER BY next_at, id LIMIT {limit}) AS g{place}"
	backlogEnd = "SELECT {place}, -1, {number next_at}, id FROM (SELECT next_at, id FROM {log}{by due}" +
		" WHERE state={state} AND business_type={type}{after} ORDER BY next_at, id LIMIT 1 OFFSET {last}) AS e{place}"

	backlogRead = "SELECT {now} AS clock, {empty} AS name, last_at, 0 AS pending, 0 AS retrying, 0 AS compensating, 0 AS dead, 0 AS due, 0 AS overdue FROM {stat}{by id} WHERE instance={backlog} AND `at`=0 AND business_type={empty}" +
		" UNION ALL SELECT 0, {text business_type}, 0, recorded, failed, compensated, dead, started, late_more FROM {stat}{by id} WHERE instance={backlog}" +
		" AND `at`=(SELECT last_at FROM {stat}{by id} WHERE instance={backlog} AND `at`=0 AND business_type={empty}){every row}"

	backlogForget = "{DELETE FROM stat} WHERE instance={backlog} AND `at`>0 AND `at`<{slot}"
)

// backlogRows is the value of the column instance in the rows with the backlog. Statements on the counts of processes
// read only rows whose instance is statsFoldedBy, or is statsProcesses or greater. backlogRows is between these two
// values, so these statements do not read the backlog.
const backlogRows = " backlog"

// CountBacklog implements Operations.
func (s *Store) CountBacklog(ctx context.Context, ranges []processlog.BacklogRange, limit int) ([]processlog.BacklogSlice, error) {
	counted, err := s.countBacklog(ctx, ranges, limit)
	if err != nil {
		return nil, fmt.Errorf("compensator: count the backlog: %w", err)
	}
	return counted, nil
}

func (s *Store) countBacklog(ctx context.Context, ranges []processlog.BacklogRange, limit int) ([]processlog.BacklogSlice, error) {
	parts := make([]string, 0, 2*len(ranges))
	for i, r := range ranges {
		args := []string{"place", strconv.Itoa(i), "state", signed(int64(r.State)), "type", s.d.text(r.BusinessType), "after", afterPosition(r.After),
			"overdue", signed(processlog.OverdueAfter.Milliseconds()), "limit", strconv.Itoa(limit), "last", strconv.Itoa(limit - 1)}
		parts = append(parts, s.sql(backlogSlice, args...), s.sql(backlogEnd, args...))
	}
	rows, err := s.read(ctx, strings.Join(parts, " UNION ALL ")+everyRow)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	counted := make([]processlog.BacklogSlice, len(ranges))
	for rows.Next() {
		var place, n int
		var a, b int64
		if err := rows.Scan(&place, &n, &a, &b); err != nil {
			return nil, err
		}
		if n < 0 {
			counted[place].Last = processlog.Scheduled{NextAt: a, ID: processlog.RowID(uint64(b))}
		} else {
			counted[place].N, counted[place].Due, counted[place].Overdue = n, int(a), int(b)
		}
	}
	return counted, rows.Err()
}

func afterPosition(after processlog.Scheduled) string {
	if after.ID.IsZero() {
		return ""
	}
	return fmt.Sprintf(" AND next_at>=%[1]d AND (next_at>%[1]d OR id>%[2]s)", after.NextAt, after.ID)
}

// WriteBacklog implements Operations. It writes into the statistics table.
func (s *Store) WriteBacklog(ctx context.Context, slot time.Time, backlog []processlog.Backlog) error {
	stats := make([]processlog.Stat, 0, max(1, len(backlog)))
	for _, b := range backlog {
		stat := processlog.Stat{At: slot, BusinessType: b.BusinessType, StatCounts: processlog.StatCounts{Recorded: uint64(b.Pending), Failed: uint64(b.Retrying),
			Compensated: uint64(b.Compensating), Dead: uint64(b.Dead), Started: uint64(b.Due)}}
		stat.Late[len(stat.Late)-1] = uint64(b.Overdue)
		stats = append(stats, stat)
	}
	if len(stats) == 0 {
		stats = append(stats, processlog.Stat{At: slot}) // WriteStats stores nothing without a row, not even the minute.
	}
	if err := s.WriteStats(ctx, backlogRows, slot, stats); err != nil {
		return err
	}
	if _, err := s.writePool().ExecContext(ctx, s.sql(backlogForget, "backlog", s.d.text(backlogRows), "slot", signed(slot.UnixMilli()))); err != nil {
		return s.withoutStats(fmt.Errorf("compensator: delete an old backlog: %w", s.dropReadOnly(err)))
	}
	return nil
}

// ReadBacklog implements Operations.
func (s *Store) ReadBacklog(ctx context.Context) (processlog.BacklogReading, error) {
	reading, err := s.readBacklog(ctx)
	if err != nil {
		return processlog.BacklogReading{}, s.withoutStats(fmt.Errorf("compensator: read the backlog: %w", err))
	}
	return reading, nil
}

func (s *Store) readBacklog(ctx context.Context) (reading processlog.BacklogReading, err error) {
	rows, err := s.read(ctx, s.sql(backlogRead, "backlog", s.d.text(backlogRows)))
	if err != nil {
		return reading, err
	}
	defer rows.Close()
	for rows.Next() {
		var clock, at int64
		var b processlog.Backlog
		if err := rows.Scan(&clock, &b.BusinessType, &at, &b.Pending, &b.Retrying, &b.Compensating, &b.Dead, &b.Due, &b.Overdue); err != nil {
			return reading, err
		}
		switch {
		case clock > 0:
			reading.Known, reading.Age = true, remaining(clock, at)
		case b != processlog.Backlog{BusinessType: b.BusinessType}:
			reading.Types = append(reading.Types, b)
		}
	}
	slices.SortFunc(reading.Types, func(a, b processlog.Backlog) int { return strings.Compare(a.BusinessType, b.BusinessType) })
	return reading, rows.Err()
}
