package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

type progress struct {
	done     int            // succeeded or compensated
	open     int            // not ended
	underWay map[string]int // claimed without an outcome yet, by business type
}

// progress counts the entries in the log. An entry is under way if its delivery_count is above 0: a claim adds 1, and
// the outcome sets it to 0. After the only worker was killed, the attempts under way are those that were cut short.
func (s *shop) progress(ctx context.Context) (progress, error) {
	p := progress{underWay: make(map[string]int)}
	rows, err := s.db.QueryContext(ctx, "SELECT business_type, SUM(state IN (1, 2)), SUM(state IN (0, -1, -3)), SUM(delivery_count > 0) FROM "+logTable+" GROUP BY business_type")
	if err != nil {
		return p, err
	}
	defer rows.Close()
	for rows.Next() {
		var businessType string
		var done, open, underWay int
		if err := rows.Scan(&businessType, &done, &open, &underWay); err != nil {
			return p, err
		}
		p.done += done
		p.open += open
		p.underWay[businessType] = underWay
	}
	return p, rows.Err()
}

func (p progress) attempts() string {
	var list []string
	for _, businessType := range slices.Sorted(maps.Keys(p.underWay)) {
		if n := p.underWay[businessType]; n > 0 {
			list = append(list, fmt.Sprintf("%d %s", n, businessType))
		}
	}
	return strings.Join(list, ", ")
}

// middle reports whether a fifth of the work is done and a worker is inside a transaction that returns stock.
func (p progress) middle() bool { return p.done >= 20 && p.underWay["close_unpaid"] > 0 }
