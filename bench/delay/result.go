package delay

import (
	"slices"
	"time"
)

// Durations of a result are in ms.
type result struct {
	Name     string `json:"name"`
	Setting  string `json:"setting"`
	Versions string `json:"versions,omitempty"` // versions of its servers
	NotHere  string `json:"not_here,omitempty"`

	Deadlines  int     `json:"deadlines"`
	RecordRate float64 `json:"recorded_per_second"`

	Early   int     `json:"early"` // counts all deadlines, because a kill does not excuse an early firing
	EarlyBy float64 `json:"early_by_at_most"`

	// The fields below count only deadlines that are well before the kill or well after the restart.
	Calm int     `json:"calm"`
	P50  float64 `json:"p50_late"`
	P99  float64 `json:"p99_late"`
	Max  float64 `json:"max_late"`

	OverKill float64 `json:"max_late_over_the_kill"` // largest lateness of the other deadlines, in ms

	Waiting  int `json:"waiting_at_the_kill"`
	NotFired int `json:"not_fired"`         // deadlines that did not fire until the timeout ended
	Held     int `json:"not_fired_held"`    // those of NotFired that the mechanism's own store still holds
	Twice    int `json:"fired_twice"`       // deadlines that fired twice
	Entries  int `json:"entries_run_twice"` // entries that ran twice, for mechanisms with entry ids
	Again    int `json:"fired_still_held"`  // deadlines that fired, although the mechanism's own store holds them as not done

	calm, over []float64 // lateness of each deadline, sorted
}

// left holds the numbers of the deadlines that are unfinished in the mechanism's store.
func (t *trial) judge(left []int) result {
	k := t.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	r := result{Name: t.name, Setting: t.setting, Versions: t.place.Versions, Deadlines: len(k.facts)}
	first := k.all
	held := make(map[int]bool, len(left))
	for _, n := range left {
		held[n] = true
	}
	for n, f := range k.facts {
		first = min(first, f.recorded)
		r.Waiting += count(len(f.fired) == 0 || f.fired[0].at > t.killed)
		if len(f.fired) == 0 {
			r.NotFired++
			r.Held += count(held[n])
			continue
		}
		r.Again += count(held[n])
		r.add(f, t.isCalm(f.due))
	}
	r.RecordRate = float64(len(k.facts)) / time.Duration((k.all-first)*1000).Seconds()
	r.sum()
	return r
}

func count(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

func (t *trial) isCalm(due int64) bool {
	return due < t.killed-t.plan.lead().Microseconds() || due > t.restarted+t.plan.tail().Microseconds()
}

// add counts only the first firing.
func (r *result) add(f fact, calm bool) {
	late := float64(f.fired[0].at-f.due) / 1000
	if late < 0 {
		r.Early++
		r.EarlyBy = max(r.EarlyBy, -late)
	}
	if calm {
		r.calm = append(r.calm, late)
	} else {
		r.over = append(r.over, late)
	}
	if len(f.fired) > 1 {
		r.Twice++
	}
	times := make(map[uint64]int)
	for _, one := range f.fired {
		times[one.entry]++
	}
	for entry, n := range times {
		r.Entries += count(entry != 0 && n > 1)
	}
}

func (r *result) sum() {
	slices.Sort(r.calm)
	slices.Sort(r.over)
	r.Calm = len(r.calm)
	if n := len(r.calm); n > 0 {
		r.P50, r.P99, r.Max = r.calm[n/2], r.calm[n*99/100], r.calm[n-1]
	}
	if n := len(r.over); n > 0 {
		r.OverKill = r.over[n-1]
	}
}
