package memory

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// statKey has an empty instance for the folded counts of all processes.
type statKey struct {
	instance     string
	at           int64 // unix ms
	businessType string
}

type statistics struct {
	rows        map[statKey]processlog.StatCounts
	lastMinutes map[string]int64 // by process
	backlog     []processlog.Backlog
	backlogAt   int64 // unix ms of the round that counted backlog; 0: none
}

func newStatistics() statistics {
	return statistics{rows: make(map[statKey]processlog.StatCounts), lastMinutes: make(map[string]int64)}
}

func (s statistics) clone() statistics {
	s.rows, s.lastMinutes = maps.Clone(s.rows), maps.Clone(s.lastMinutes)
	return s
}

// StatsClock implements processlog.Operations.
func (s *Store) StatsClock(ctx context.Context) (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return millisToTime(s.nowLocked()), ctx.Err()
}

// WriteStats implements processlog.Operations.
func (s *Store) WriteStats(ctx context.Context, instance string, at time.Time, stats []processlog.Stat) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if last, isFound := s.ops.stats.lastMinutes[instance]; isFound && last >= at.UnixMilli() {
		return nil
	}
	for _, stat := range stats {
		s.ops.stats.rows[statKey{instance, at.UnixMilli(), stat.BusinessType}] = stat.StatCounts
	}
	s.ops.stats.lastMinutes[instance] = at.UnixMilli()
	return nil
}

// FoldStats implements processlog.Operations.
func (s *Store) FoldStats(ctx context.Context, fold processlog.StatFold, age time.Duration, limit int) (n int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.nowLocked() - age.Milliseconds()
	for key, counts := range s.ops.stats.rows {
		to := statKey{"", key.at, key.businessType}
		if fold == processlog.FoldHours {
			to.at -= to.at % processlog.StatHour.Milliseconds()
		}
		if n == limit || key.at >= before || to == key || (fold == processlog.FoldHours) != (key.instance == "") {
			continue
		}
		sum := s.ops.stats.rows[to]
		sum.Add(counts)
		s.ops.stats.rows[to] = sum
		delete(s.ops.stats.rows, key)
		n++
	}
	return n, nil
}

// ForgetStats implements processlog.Operations.
func (s *Store) ForgetStats(ctx context.Context, age time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.nowLocked()
	maps.DeleteFunc(s.ops.stats.rows, func(key statKey, _ processlog.StatCounts) bool {
		return key.instance == "" && key.at < now-age.Milliseconds()
	})
	maps.DeleteFunc(s.ops.stats.lastMinutes, func(_ string, last int64) bool { return last < now-(24*time.Hour).Milliseconds() })
	return nil
}

// Stats implements processlog.Operations.
func (s *Store) Stats(ctx context.Context, f processlog.StatFilter) ([]processlog.Stat, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	byKey := make(map[statKey]processlog.StatCounts)
	for key, counts := range s.ops.stats.rows {
		if key.at < f.From.UnixMilli() || key.at >= f.To.UnixMilli() || f.BusinessType != "" && key.businessType != f.BusinessType {
			continue
		}
		to := statKey{"", key.at - key.at%f.Period.Milliseconds(), key.businessType}
		sum := byKey[to]
		sum.Add(counts)
		byKey[to] = sum
	}
	var stats []processlog.Stat
	for key, counts := range byKey {
		stats = append(stats, processlog.Stat{At: millisToTime(key.at), BusinessType: key.businessType, StatCounts: counts})
	}
	slices.SortFunc(stats, func(a, b processlog.Stat) int {
		if by := a.At.Compare(b.At); by != 0 {
			return by
		}
		return strings.Compare(a.BusinessType, b.BusinessType)
	})
	return stats, ctx.Err()
}
