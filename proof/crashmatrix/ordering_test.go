//go:build failpoints

package crashmatrix

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/stretchr/testify/require"
)

// checkOrdering checks the order of the entries of each ordering key.
func (w *world) checkOrdering(logs []*log) {
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

// attempt is a run that began while its claim was valid. It lasts until the claim ends, by a write or by the end of its
// lease.
type attempt struct {
	*log
	at, over int64
}

func (l *log) attempts() (list []*attempt) {
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

// claimOver returns the time at which a claim ended.
func (l *log) claimOver(version uint64) (over int64) {
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

// ended returns when an entry first reached a terminal state. The handler of a cancelled entry may still be running
// then.
func (l *log) ended() int64 {
	for _, s := range l.steps {
		if s.state.Terminal() {
			return s.at
		}
	}
	return math.MaxInt64
}

// unnoted is the suffix of the key of an entry recorded by plain SQL. Such an entry has no position before its first
// claim.
const unnoted = "-plain"

// victim returns the victim that recorded the entry, and the number that the victim gave to the entry.
func (l *log) victim() (victim string, number int) {
	victim, rest, _ := strings.Cut(strings.TrimSuffix(l.key, unnoted), "-")
	number, _ = strconv.Atoi(rest)
	return victim, number
}

// The method before reports whether an entry precedes another. Two entries of one victim are in the order in which the
// victim recorded them. Entries of different victims are in the order of their ids.
func (l *log) before(other *log) bool {
	victim, number := l.victim()
	if theirs, n := other.victim(); victim == theirs {
		return number < n
	}
	return l.id < other.id
}

// outOfOrder returns what is wrong with the attempts of one ordering key. No attempt may begin before the entries that
// precede it have ended. No attempt may begin during another attempt.
//
// Two entries of one victim are committed in their order. Entries of two victims may be committed in another order,
// because the COMMIT of a killed process may complete later. So an entry of another victim is compared only after its
// first attempt.
func outOfOrder(attempts []*attempt) string {
	for _, a := range attempts {
		for _, b := range attempts {
			victimA, _ := a.victim()
			victimB, _ := b.victim()
			noted := !strings.HasSuffix(a.key, unnoted) && !strings.HasSuffix(b.key, unnoted)
			switch {
			case !a.before(b.log):
			case noted && (victimA == victimB || a.at < b.at) && a.ended() > b.at:
				return fmt.Sprintf("entry %d begins before entry %d of the same ordering key has ended\nhistory of the preceding entry: %s\nits own: %s", b.id, a.id, a, b)
			case a.at < b.over && b.at < a.over:
				return fmt.Sprintf("entry %d begins during entry %d of the same ordering key\nhistory of the other: %s\nits own: %s", a.id, b.id, b, a)
			}
		}
	}
	return ""
}
