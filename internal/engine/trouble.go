package engine

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/internal/report"
	"github.com/compensator-go/compensator/internal/usererr"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// troubles keeps what fails and nobody can be told: there is no caller. Each goes into the log at once, and then at
// most once a minute for each cause, and stands in Health until the same works again.
type troubles struct {
	log    *slog.Logger
	number func(error) uint16 // the server's, of an error
	closed func() bool

	some atomic.Bool // there is any: what works asks for no more than this

	mu   sync.Mutex // guards the fields below
	open map[troubleKey]*observe.Trouble
	said map[cause]time.Time

	unread map[string]time.Time // by type: when content last could not be decoded
}

// contentForgotten is how long after the last such failure troubleContent ends. Another entry of the type that succeeds does not end
// it, and an entry that waits is tried again within mostUnavailable.
const contentForgotten = 2*mostUnavailable + time.Minute

type troubleKey struct{ what, businessType string }

// cause is what is complained about once a minute: claims that fail for another reason than before are another.
type cause struct {
	what   string
	number uint16 // the server's; 0: no answer of a server
}

// What fails. Each is the key of a Trouble, and stands in the log.
const (
	troubleDue      = "due entries could not be found in the database"
	troubleClaim    = "entries could not be claimed"
	troubleReadBack = "new entries could not be read back"
	troubleRelease  = "leases could not be given back"
	troubleRenew    = "leases could not be renewed"
	troubleStore    = "outcomes could not be stored"
	troubleWitness  = "what the database has kept so far could not be read back"
	troubleRound    = "the log could not be searched for forgotten entries"
	troubleMisfits  = "entries do not run as they stand: something else than this library has written them so"
	troublePauses   = "what people have paused could not be read"
	troubleMarks    = "the slots of periodic types could not be looked for"
	troubleTurns    = "it could not be told whose turn it is"
	troubleSlot     = "a slot could not be recorded"
	troubleContent  = "contents cannot be decoded here: their entries wait for a version of the code that can"
	troubleAttempt  = "attempts end with nothing counted: something they need is not available"
	troubleFaults   = "attempts fail, and count, for they have met the database's condition too often in a row"
	troubleNotify   = "other processes could not be notified"
	troubleAnnounce = "the queue has no room for entries, which are found in the database"

	// What the database refuses for some entries, which it names; see refusals.
	troubleRefusedOutcome = "the database refuses to store outcomes of entries"
	troubleRefusedClaim   = "the database refuses to lease entries"
	troubleRefusedPark    = "the database refuses to put entries back until their turn comes"
	troubleRefusedWake    = "the database refuses to make entries due whose turn has come"
	troubleRefusedRelease = "the database refuses to take back leases of entries"
	troubleRefusedRenewal = "the database refuses to renew leases of entries"

	// Of upkeep; see Period.
	TroublePurge = "ended entries could not be purged"
	TroubleCases = "cases could not be opened and closed after the fact"
)

// failed takes an error of a statement of ours, and logs it.
func (t *troubles) failed(what, businessType string, err error) {
	if t.closed() {
		return // Close has ended it
	}
	err = usererr.Of(err) // of a driver, or of a Store or Queue of the user's
	times, since := t.record(what, businessType, err)
	t.complain(what, err, "type", businessType, "times", times, "since", since)
}

// record keeps an error for Health. It returns how often the same has failed, and since when.
func (t *troubles) record(what, businessType string, err error) (times int, since time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := troubleKey{what, businessType}
	trouble := t.open[key]
	if trouble == nil {
		trouble = &observe.Trouble{What: what, BusinessType: businessType, Since: time.Now()}
		setIn(&t.open, key, trouble)
		t.some.Store(true)
	}
	trouble.Error = err.Error()
	trouble.Times++
	return trouble.Times, trouble.Since
}

// passed takes the news that something works. It costs a look at one word while there is no trouble.
func (t *troubles) passed(what, businessType string) {
	if !t.some.Load() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, troubleKey{what, businessType})
	t.some.Store(len(t.open) > 0)
}

// complain logs err, unless the same cause was logged within the last minute.
func (t *troubles) complain(what string, err error, attrs ...any) {
	now := time.Now()
	t.mu.Lock()
	about := cause{what, t.number(err)}
	last, known := t.said[about]
	quiet := known && now.Sub(last) < report.Interval
	if !quiet {
		setIn(&t.said, about, now)
	}
	t.mu.Unlock()
	if !quiet {
		t.log.Warn("compensator: "+what, append([]any{slog.Any("err", err)}, attrs...)...)
	}
}

// list is for Health: the oldest first.
func (t *troubles) list() []observe.Trouble {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []observe.Trouble
	for businessType, last := range t.unread {
		if time.Since(last) > contentForgotten {
			delete(t.unread, businessType)
			delete(t.open, troubleKey{troubleContent, businessType})
			t.some.Store(len(t.open) > 0)
		}
	}
	for _, trouble := range t.open {
		list = append(list, *trouble)
	}
	slices.SortFunc(list, func(a, b observe.Trouble) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.What, b.What)) })
	return list
}

// attempted takes the end of an attempt, and whether it counts. One that does not would else say why in its entry alone.
func (t *troubles) attempted(businessType string, err error, counts bool) {
	v := judged(err)
	kind := v.kind
	switch {
	case v.undecodable:
		t.undecodable(businessType, err)
	case kind == serverFault && counts:
		t.failed(troubleFaults, businessType, err)
	case kind == serverFault, kind == serverDown, kind == unavailable && !counts:
		t.failed(troubleAttempt, businessType, err)
	default:
		t.passed(troubleAttempt, businessType)
		t.passed(troubleFaults, businessType)
	}
}

// undecodable takes the end of an attempt whose content this process cannot decode.
func (t *troubles) undecodable(businessType string, err error) {
	t.failed(troubleContent, businessType, err)
	t.mu.Lock()
	defer t.mu.Unlock()
	setIn(&t.unread, businessType, time.Now())
}

// announced takes the end of an announcement, and the types of which the queue left entries out.
func (t *troubles) announced(batch []processlog.Announcement, leftOut []string, err error) {
	for _, businessType := range leftOut {
		t.failed(troubleAnnounce, businessType, err)
	}
	for _, a := range batch {
		t.roomAgain([]string{a.BusinessType}, leftOut)
	}
}

// roomAgain takes the news that the queue has all entries of types, but for those that lack some.
func (t *troubles) roomAgain(businessTypes, lacking []string) {
	if !t.some.Load() {
		return
	}
	for _, businessType := range businessTypes {
		if !slices.Contains(lacking, businessType) {
			t.passed(troubleAnnounce, businessType)
		}
	}
}
