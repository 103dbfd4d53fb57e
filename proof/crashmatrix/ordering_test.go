//go:build failpoints

package crashmatrix

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/stretchr/testify/require"
)

// checkOrdering looks at the lines of what takes turns.
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

// attempt is a run that began while its claim held: from then on until the claim ended, by a write or by time.
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

// claimOver is when a claim ended.
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

// ended is when an entry first came to rest. One that was called off may be at it still.
func (l *log) ended() int64 {
	for _, s := range l.steps {
		if s.state.Terminal() {
			return s.at
		}
	}
	return math.MaxInt64
}

// unnoted ends the key of an entry that plain SQL has recorded: it has no position before its first claim.
const unnoted = "-plain"

// life is whose service recorded the entry, and as the how manieth.
func (l *log) life() (life string, number int) {
	life, rest, _ := strings.Cut(strings.TrimSuffix(l.key, unnoted), "-")
	number, _ = strconv.Atoi(rest)
	return life, number
}

// before reports whether an entry stands in front of another: of one life the one that was recorded first, or given first in
// one call, and of several the one with the lower id.
func (l *log) before(other *log) bool {
	life, number := l.life()
	if theirs, n := other.life(); life == theirs {
		return number < n
	}
	return l.id < other.id
}

// outOfOrder tells what is wrong with the attempts of a line: none begins before what stands in front of it has ended, nor beside
// another. What stands in front was committed before where one life recorded both, a transaction after the other or in one; of
// another's, whose COMMIT may be done after its death, it is known only from its first attempt on.
func outOfOrder(attempts []*attempt) string {
	for _, a := range attempts {
		for _, b := range attempts {
			lifeA, _ := a.life()
			lifeB, _ := b.life()
			noted := !strings.HasSuffix(a.key, unnoted) && !strings.HasSuffix(b.key, unnoted)
			switch {
			case !a.before(b.log):
			case noted && (lifeA == lifeB || a.at < b.at) && a.ended() > b.at:
				return fmt.Sprintf("entry %d begins before %d has ended, which stands in front of it\nthat one's history: %s\nits own: %s", b.id, a.id, a, b)
			case a.at < b.over && b.at < a.over:
				return fmt.Sprintf("entry %d begins beside %d\nthat one's history: %s\nits own: %s", a.id, b.id, b, a)
			}
		}
	}
	return ""
}
