//go:build failpoints

package crashmatrix

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/stretchr/testify/require"
)

func (w *world) checkOrdering(logs []*entryLog) {
	w.t.Helper()
	lines := make(map[string][]*attempt)
	for _, l := range logs {
		if l.line != "" {
			lines[l.line] = append(lines[l.line], l.attempts()...)
		}
	}
	require.NotEmpty(w.t, lines)
	for _, attempts := range lines {
		if what := outOfOrder(attempts); what != "" {
			w.t.Error(what)
		}
	}
}

// attempt lasts until the claim ends, by a write or by the end of its lease.
type attempt struct {
	*entryLog
	at, over int64
}

func (l *entryLog) attempts() (list []*attempt) {
	for version, runs := range l.runs {
		over := l.claimOver(version)
		for _, r := range runs {
			if r.at < over {
				list = append(list, &attempt{l, r.at, over})
			}
		}
	}
	return list
}

func (l *entryLog) claimOver(version uint64) (over int64) {
	for _, s := range l.steps {
		switch {
		case s.version == version:
			over = max(over, s.leased)
		case s.version > version:
			return min(over, s.at)
		}
	}
	return over
}

func (l *entryLog) ended() int64 {
	for _, s := range l.steps {
		if s.state.Terminal() {
			return s.at
		}
	}
	return math.MaxInt64
}

// An entry recorded by plain SQL has no position before its first claim.
const unnoted = "-plain"

func (l *entryLog) victim() (victim string, number int) {
	victim, rest, _ := strings.Cut(strings.TrimSuffix(l.key, unnoted), "-")
	number, _ = strconv.Atoi(rest)
	return victim, number
}

// Two entries of one victim must run in the order in which the victim recorded them. Entries of different victims must
// run in the order of their ids.
func (l *entryLog) precedes(other *entryLog) bool {
	victim, number := l.victim()
	if theirs, n := other.victim(); victim == theirs {
		return number < n
	}
	return l.id < other.id
}

// The entries of two victims may be committed in any order, because the COMMIT of a killed process may complete late.
// So if two entries come from different victims, outOfOrder requires their order only once the first of them has begun
// to run.
func outOfOrder(attempts []*attempt) string {
	for _, a := range attempts {
		for _, b := range attempts {
			victimA, _ := a.victim()
			victimB, _ := b.victim()
			noted := !strings.HasSuffix(a.key, unnoted) && !strings.HasSuffix(b.key, unnoted)
			switch {
			case !a.precedes(b.entryLog):
			case noted && (victimA == victimB || a.at < b.at) && a.ended() > b.at:
				return fmt.Sprintf("entry %d begins before entry %d of the same ordering key has ended\nhistory of the preceding entry: %s\nits own: %s", b.id, a.id, a, b)
			case a.at < b.over && b.at < a.over:
				return fmt.Sprintf("entry %d begins during entry %d of the same ordering key\nhistory of the other: %s\nits own: %s", a.id, b.id, b, a)
			}
		}
	}
	return ""
}
