package processlog

import "time"

// StatBounds are the upper bounds of all buckets of a Histogram but the last, which has none.
var StatBounds = [...]time.Duration{5 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond,
	500 * time.Millisecond, time.Second, 5 * time.Second, 30 * time.Second, 5 * time.Minute, time.Hour}

// Histogram counts durations by bucket. A duration belongs to the first bucket whose bound is not below it.
type Histogram [len(StatBounds) + 1]uint64

// Add counts one duration.
func (h *Histogram) Add(d time.Duration) {
	at := 0
	for at < len(StatBounds) && d > StatBounds[at] {
		at++
	}
	h[at]++
}

// Quantile estimates the duration d for which the share q of all counted durations is at most d. For example, if q is
// 0.5, the duration d is the median. If d is above the last of the StatBounds, Quantile returns that bound, so the true
// value may be higher. The result ok is false if nothing was counted.
func (h Histogram) Quantile(q float64) (d time.Duration, ok bool) {
	var n uint64
	for _, count := range h {
		n += count
	}
	if n == 0 {
		return 0, false
	}
	remaining := q * float64(n)
	var lowerBound time.Duration
	for i, upperBound := range StatBounds {
		if count := float64(h[i]); count > 0 && remaining <= count {
			return lowerBound + time.Duration(float64(upperBound-lowerBound)*remaining/count), true
		}
		remaining -= float64(h[i])
		lowerBound = upperBound
	}
	return lowerBound, true
}

// StatCounts counts what processes did with the entries of a type.
type StatCounts struct {
	Recorded    uint64    `json:"recorded"`    // entries whose commit the recording process has seen
	Started     uint64    `json:"started"`     // attempts of handlers and compensations that began
	Succeeded   uint64    `json:"succeeded"`   // entries that have succeeded, also by Complete
	Compensated uint64    `json:"compensated"` // entries whose compensation has succeeded
	Failed      uint64    `json:"failed"`      // attempts that counted as a failure of their entry
	Dead        uint64    `json:"dead"`        // entries that became dead
	Took        Histogram `json:"took"`        // durations of the attempts that have ended
	Late        Histogram `json:"late"`        // start minus due time of the attempts that began
}

// Values returns the addresses of all counts, in the order of the columns.
func (c *StatCounts) Values() []*uint64 {
	values := []*uint64{&c.Recorded, &c.Started, &c.Succeeded, &c.Compensated, &c.Failed, &c.Dead}
	for i := range c.Took {
		values = append(values, &c.Took[i])
	}
	for i := range c.Late {
		values = append(values, &c.Late[i])
	}
	return values
}

// Add adds the counts of o.
func (c *StatCounts) Add(o StatCounts) {
	otherValues := o.Values()
	for i, value := range c.Values() {
		*value += *otherValues[i]
	}
}

// Ended returns the number of entries that have succeeded, were compensated or became dead.
func (c StatCounts) Ended() uint64 { return c.Succeeded + c.Compensated + c.Dead }

// Stat has the counts of a type in a period.
type Stat struct {
	At           time.Time `json:"at"`   // begin of the period, by the database's clock
	BusinessType string    `json:"type"` // business type of the entries
	StatCounts
}

// StatFilter selects counts for Stats.
type StatFilter struct {
	From, To     time.Time     // from inclusive, to exclusive
	Period       time.Duration // length of a period, in whole minutes; a period begins at a multiple of it since 1970
	BusinessType string        // empty: any
}

// StatMinute is the time that a row of statistics covers when a process writes it.
const StatMinute = time.Minute

// StatHour is the time that a row of statistics covers after FoldHours has added up the rows of its minutes.
const StatHour = time.Hour

// StatFold says which rows FoldStats adds up.
type StatFold int

// The kinds of rows that FoldStats adds up.
const (
	FoldInstances StatFold = iota // rows of several processes for the same minute and type
	FoldHours                     // rows for the minutes of an hour
)
