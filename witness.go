package compensator

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/internal/sqlstore"
	"github.com/compensator-go/compensator/processlog"
)

// witness remembers a little of what this process has seen the database keep, and reads it back from time to time. A
// database that knows less has gone back: it was promoted although it lagged, or restored. From then on nothing is
// started and nothing recorded here until a person has said go on, who may still have the better choice.
//
// What is remembered was read as committed, or its COMMIT was acknowledged. An INSERT that merely worked is no
// evidence: a savepoint may have been rolled back since, a deadlock swallowed.
type witness struct {
	c       *Compensator
	doubted atomic.Bool          // the database is to be asked before anything claimed starts
	own     atomic.Int64         // how many connections of our own had been opened at the last check
	users   atomic.Int64         // the same of the user's, where a Connector counts them
	met     atomic.Int64         // when those were last a reason to ask, unix ns
	lost    atomic.Pointer[loss] // nil unless stopped

	turn     chan struct{}         // full while somebody asks the database; guards the fields below
	told     time.Time             // when the log was last told of the loss
	accepted map[goAhead]time.Time // when each was written, by this process's clock

	mu      sync.Mutex                 // guards the fields below
	seen    [testimoniesKept]testimony // the newest, each at its id modulo their number
	trail   [trailParts][2]testimony   // first and last of each part of the last rounds: what is read back first
	part    int                        // the present one's place in trail
	began   time.Time                  // when it began
	doubts  [doubtsKept]freshEntry     // recorded here, and not read back yet: no evidence
	next    int                        // place in doubts
	checked time.Time
	sweep   int // place in seen, of what the next check asks for beside the trail
}

const (
	testimoniesKept = 512 // bounds what a process can list as lost
	doubtsKept      = 32
	sweepMost       = 32

	// trailRounds is how many rounds of the reconciler the trail covers: between two of them, much more may be seen
	// than is kept.
	trailRounds = 2
	trailParts  = 16

	// testimonyLife is how long it means something that an entry is not there. A purge of younger ones leaves a note.
	testimonyLife = time.Hour
)

func (w *witness) init(c *Compensator) {
	w.c, w.turn, w.accepted = c, make(chan struct{}, 1), make(map[goAhead]time.Time)
}

// goAhead is a note by which a person has accepted a loss, told from others by what does not change.
type goAhead struct {
	at            int64
	actor, reason string
}

// loss is what the database has lost.
type loss struct {
	LossError
	newest time.Time // of the testimonies that are lost
}

// testimony is one version of an entry that the database has kept.
type testimony struct {
	Version
	businessType string
	at           time.Time // before the statement was sent whose answer says so
}

func testimonyOf(row *Row, asked time.Time) testimony {
	return testimony{versionOf(row), row.BusinessType, asked}
}

func versionOf(row *Row) Version {
	return Version{ID: row.ID, IdempotentID: row.IdempotentID, State: row.State, Number: row.Version, Epoch: row.Epoch, Token: row.Token}
}

// storedAs is the version that an outcome leaves.
func storedAs(o *Outcome, token Token) Version {
	return Version{ID: o.ID, IdempotentID: o.IdempotentID, State: o.To, Number: o.Version + 1, Epoch: o.Epoch, Token: token}
}

// refutes reports whether a history that has had s cannot hold found, or nothing: versions only grow, each is written
// once, and over a success nobody writes but a person, who begins another epoch. That tells a success that is gone from
// a row that others have carried past it since.
func (s *testimony) refutes(found Version, exists bool) bool {
	switch {
	case !exists:
		return time.Since(s.at) < testimonyLife
	case found.IdempotentID != s.IdempotentID, found.Number < s.Number, found.Epoch < s.Epoch:
		return true
	case found.Token == s.Token:
		return false
	}
	return found.Number == s.Number || (s.State == Succeeded || s.State == Compensated) && found.Epoch == s.Epoch
}

// sawRows remembers rows that were read as committed, or claimed. asked is when the statement was sent. One at its
// end may be old, and purged the next moment.
func (w *witness) sawRows(rows []Row, asked time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range rows {
		if !rows[i].State.Terminal() {
			w.rememberLocked(testimonyOf(&rows[i], asked))
		}
	}
}

// sawRead is sawRows for what was read outside a transaction, which in the user's pool may be at READ UNCOMMITTED.
func (w *witness) sawRead(rows []Row, asked time.Time) {
	if s, ok := w.c.store.(*sqlstore.Store); !ok || s.ReadsCommitted() {
		w.sawRows(rows, asked)
	}
}

// sawStored remembers outcomes that are stored. An absorbed success may have got a higher number: it is then no lower.
func (w *witness) sawStored(batch []settlement, results []Settled, asked time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, r := range results {
		if o := &batch[i].outcome; r.Applied {
			w.rememberLocked(testimony{storedAs(o, batch[i].token), batch[i].a.row.BusinessType, asked})
		}
	}
}

func (w *witness) rememberLocked(s testimony) {
	if time.Since(w.began) > trailRounds*w.c.cfg.ReconcileInterval/trailParts {
		w.began, w.part = time.Now(), (w.part+1)%trailParts
		w.trail[w.part] = [2]testimony{s}
	}
	w.trail[w.part][1] = s
	w.seen[s.ID.Row()%testimoniesKept] = s
}

// recorded takes entries whose transaction has ended well, and that nobody here reads back before they are due. The
// next check finds out whether they are there; in a process that only records, it comes now and then.
func (w *witness) recorded(fresh []freshEntry) {
	if len(fresh) == 0 {
		return
	}
	w.mu.Lock()
	for _, f := range fresh[max(0, len(fresh)-doubtsKept):] {
		if f.id.IsZero() {
			continue
		}
		w.doubts[w.next] = f
		w.next = (w.next + 1) % doubtsKept
	}
	w.mu.Unlock()
	if !w.c.accepts.Load() && w.due(w.c.cfg.ReconcileInterval) {
		w.c.checkLane.Add(struct{}{})
	}
}

// trusts reports whether rows that were just claimed may run, and remembers them. A claim is the first that is sent
// over a new connection, and the first to be told of an outcome that is forgotten.
func (w *witness) trusts(rows []Row, asked time.Time) bool {
	if refuted := w.refuted(rows); len(refuted) > 0 {
		w.check(refuted)
	}
	w.checkIf(w.unsure)
	if w.stopped() != nil {
		return false
	}
	w.sawRows(rows, asked)
	return true
}

// refuted lists what is remembered of rows and cannot have been, as they were claimed. It may be that the claim's
// answer was on its way for long: only the database can tell.
func (w *witness) refuted(rows []Row) (list []testimony) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range rows {
		s := &w.seen[rows[i].ID.Row()%testimoniesKept]
		if s.ID == rows[i].ID && s.refutes(versionOf(&rows[i]), true) {
			list = append(list, *s)
		}
	}
	return list
}

// doubt has the database asked before the next claim's entries start: its last answer was an error.
func (w *witness) doubt() { w.doubted.Store(true) }

// unsure reports whether the server may be another one than at the last check.
func (w *witness) unsure() bool {
	own, _ := w.connections()
	return w.doubted.Load() || own != w.own.Load()
}

// strange reports the same of the server the user's transactions are on. His pool may open connections all the time.
func (w *witness) strange() bool {
	_, users := w.connections()
	return users != w.users.Load() && time.Since(time.Unix(0, w.met.Load())) > strangePause
}

// strangePause is how often the user's new connections are a reason to ask, at most.
const strangePause = time.Second

// connections counts those of our own that were opened so far, and those of the user's.
func (w *witness) connections() (own, users int64) {
	if s, ok := w.c.store.(*sqlstore.Store); ok {
		return s.Connections()
	}
	return 0, 0
}

// stopped is why nothing is started and recorded here, or nil.
func (w *witness) stopped() *loss { return w.lost.Load() }

// refusal is stopped as an error. A process that only records has no rounds: each refusal may have it look whether a
// person has said go on.
func (w *witness) refusal() error {
	lost := w.stopped()
	if lost == nil {
		return nil
	}
	if !w.c.accepts.Load() && w.due(w.c.cfg.PollInterval) {
		w.c.checkLane.Add(struct{}{})
	}
	return &lost.LossError
}

// refusesRecords is refusal before something is recorded: the first that may be sent over a new connection.
func (w *witness) refusesRecords() error {
	if w.strange() {
		if len(w.trailNow()) > 0 { // with nothing remembered nothing is asked
			defer w.met.Store(time.Now().UnixNano())
		}
		w.checkIf(w.strange)
	}
	return w.refusal()
}

// round is a round of the reconciler.
func (w *witness) round() {
	w.checkIf(func() bool { return w.stopped() != nil || w.unsure() || w.due(w.c.cfg.ReconcileInterval) })
}

func (w *witness) due(interval time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Since(w.checked) >= interval
}

// checkIf checks unless somebody else just has.
func (w *witness) checkIf(needed func() bool) {
	if !needed() {
		return
	}
	w.turn <- struct{}{}
	defer func() { <-w.turn }()
	if needed() {
		w.ask(nil)
	}
}

// check asks the database for what is remembered, and for more.
func (w *witness) check(more []testimony) {
	w.turn <- struct{}{}
	defer func() { <-w.turn }()
	w.ask(more)
}

// ask is check by whoever has the turn; when stopped it asks whether a person has said go on.
func (w *witness) ask(more []testimony) {
	ctx, cancel := w.c.statement()
	defer cancel()
	own, users := w.connections()
	w.doubted.Store(false)
	ask := w.compare
	if w.stopped() != nil {
		ask = w.seekAcceptance
	}
	err := ask(ctx, more)
	w.c.saw(troubleWitness, err)
	if err != nil {
		w.doubt()
		return
	}
	w.own.Store(own)
	w.users.Store(users)
}

// compare reads back.
func (w *witness) compare(ctx context.Context, more []testimony) error {
	asked, began := slices.Concat(w.trailNow(), w.sweepOn(), more), time.Now()
	doubts := w.takeDoubts()
	if len(asked)+len(doubts) == 0 {
		return nil
	}
	wanted := slices.Clone(asked)
	for _, f := range doubts {
		wanted = append(wanted, testimony{Version: Version{ID: f.id}})
	}
	found, err := w.read(ctx, wanted)
	if err != nil {
		return err
	}
	w.c.reportMissing(w.prove(doubts, found, began))
	if len(lostOf(asked, found, nil)) == 0 {
		return nil
	}
	return w.examine(ctx, asked, found)
}

// trailNow lists what the next check asks for.
func (w *witness) trailNow() (list []testimony) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, part := range w.trail {
		for i, s := range part {
			if time.Since(s.at) < testimonyLife && (i == 0 || s != part[0]) {
				list = append(list, s)
			}
		}
	}
	return list
}

// sweepOn lists some of all that is remembered, in turn: others may have carried the ends of every part past what was
// lost of them, and not what was seen between.
func (w *witness) sweepOn() (list []testimony) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for range w.seen {
		if len(list) == sweepMost {
			break
		}
		if s := w.seen[w.sweep]; time.Since(s.at) < testimonyLife {
			list = append(list, s)
		}
		w.sweep = (w.sweep + 1) % testimoniesKept
	}
	return list
}

// takeDoubts lists what was recorded and is to be read for the first time. What the reading does not prove is forgotten.
func (w *witness) takeDoubts() (list []freshEntry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checked = time.Now()
	for _, f := range w.doubts {
		if !f.id.IsZero() {
			list = append(list, f)
		}
	}
	clear(w.doubts[:])
	return list
}

func (w *witness) read(ctx context.Context, list []testimony) (map[EntryID]Version, error) {
	ids := make([]EntryID, len(list))
	for i := range list {
		ids[i] = list[i].ID
	}
	slices.SortFunc(ids, processlog.ID.Compare)
	versions, err := w.c.store.Versions(ctx, slices.Compact(ids))
	found := make(map[EntryID]Version, len(versions))
	for _, v := range versions {
		found[v.ID] = v
	}
	return found, err
}

// prove remembers those of doubts that are there, and returns the others. They may be older than what was seen before,
// which is not to give way to them as the last of its part.
func (w *witness) prove(doubts []freshEntry, found map[EntryID]Version, asked time.Time) (missing []freshEntry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(doubts) > 0 {
		w.began = time.Time{}
	}
	for _, f := range doubts {
		switch v := found[f.id]; {
		case v.IdempotentID != f.key:
			missing = append(missing, f)
		case !v.State.Terminal():
			w.rememberLocked(testimony{v, f.businessType, asked})
		}
	}
	return missing
}

// lostOf lists what is not there any more and was not purged, as far as the log's notes say.
func lostOf(asked []testimony, found map[EntryID]Version, notes []AuditRecord) (lost []testimony) {
	for _, s := range asked {
		v, exists := found[s.ID]
		if s.refutes(v, exists) && (exists || !purgedSince(notes, s.at)) {
			lost = append(lost, s)
		}
	}
	return lost
}

// purgedSince reports whether there is a note of a purge from after a moment.
func purgedSince(notes []AuditRecord, moment time.Time) bool {
	since := time.Since(moment)
	return slices.ContainsFunc(notes, func(r AuditRecord) bool { return r.Action == ActionPurge && r.Ago < since })
}

// notes reads the log's own history. Only when a note is first read is its age taken for that, at most: the database's
// clock may be set, and is another one's once a replica is promoted, and an old note must not become a new one by it.
func (w *witness) notes(ctx context.Context) ([]AuditRecord, error) {
	asked := time.Now()
	notes, err := w.c.store.History(ctx, EntryID{})
	for _, r := range notes {
		if _, known := w.accepted[goAheadOf(r)]; r.Action == ActionAcceptLoss && !known {
			w.accepted[goAheadOf(r)] = asked.Add(-max(0, r.Ago))
		}
	}
	return notes, err
}

func goAheadOf(r AuditRecord) goAhead { return goAhead{r.At.UnixMilli(), r.Actor, r.Reason} }

// acceptedSince reports whether a person has said go on after a moment.
func (w *witness) acceptedSince(notes []AuditRecord, moment time.Time) bool {
	return slices.ContainsFunc(notes, func(r AuditRecord) bool {
		return r.Action == ActionAcceptLoss && w.accepted[goAheadOf(r)].After(moment)
	})
}

// examine makes sure of what looks lost: a plain read may have been answered elsewhere than where the log is written. What
// a database loses is the end of its history: where the note is by which a person has accepted a loss, all that was
// there before the note is there still, or is the loss that he meant.
func (w *witness) examine(ctx context.Context, asked []testimony, found map[EntryID]Version) error {
	notes, err := w.notes(ctx)
	if err != nil {
		return err
	}
	lost := lostOf(asked, found, notes)
	if len(lost) == 0 {
		return nil
	}
	newest := slices.MaxFunc(lost, func(a, b testimony) int { return a.at.Compare(b.at) })
	row, err := w.c.store.Resolve(ctx, newest.ID)
	exists := !errors.Is(err, ErrNotFound)
	switch {
	case err != nil && exists:
		return err
	case !newest.refutes(versionOf(&row), exists):
		return nil
	}
	loss := &loss{LossError{Lost: w.list(ctx, lost, found, notes)}, newest.at}
	if w.acceptedSince(notes, newest.at) {
		w.goOn(loss)
	} else {
		w.stop(loss)
	}
	return nil
}

// list names all that is remembered and lost, by id; at least what is known to be.
func (w *witness) list(ctx context.Context, known []testimony, found map[EntryID]Version, notes []AuditRecord) (list []LostEntry) {
	w.mu.Lock()
	all := slices.DeleteFunc(slices.Concat(known, w.seen[:]), func(s testimony) bool { return s.ID.IsZero() })
	w.mu.Unlock()
	if now, err := w.read(ctx, all); err == nil {
		known, found = lostOf(all, now, notes), now
	}
	slices.SortStableFunc(known, func(a, b testimony) int { return b.at.Compare(a.at) }) // of one entry, the last word
	listed := make(map[EntryID]bool, len(known))
	for _, s := range known {
		if listed[s.ID] {
			continue
		}
		listed[s.ID] = true
		v := found[s.ID]
		list = append(list, LostEntry{ID: s.ID, IdempotentID: s.IdempotentID, BusinessType: s.businessType, Seen: s.at, Was: s.State,
			Gone: v.IdempotentID != s.IdempotentID, Is: v.State})
	}
	slices.SortFunc(list, func(a, b LostEntry) int { return a.ID.Compare(b.ID) })
	return list
}

func (w *witness) stop(loss *loss) {
	w.lost.Store(loss)
	w.complain(loss)
	tell(w.c, w.c.cfg.Observer.HistoryLost, &loss.LossError)
}

// complain tells the log, once a minute.
func (w *witness) complain(loss *loss) {
	if time.Since(w.told) < time.Minute {
		return
	}
	w.told = time.Now()
	w.c.log.Error("compensator: stopped until a person calls AcceptLoss", "err", &loss.LossError, "lost", loss.Lost)
}

// seekAcceptance looks whether a person has said go on since what is lost was seen.
func (w *witness) seekAcceptance(ctx context.Context, _ []testimony) error {
	loss := w.stopped()
	w.mu.Lock()
	w.checked = time.Now()
	w.mu.Unlock()
	w.complain(loss)
	notes, err := w.notes(ctx)
	if err == nil && w.acceptedSince(notes, loss.newest) {
		w.goOn(loss)
	}
	return err
}

// goOn forgets everything, and starts again.
func (w *witness) goOn(loss *loss) {
	w.mu.Lock()
	clear(w.seen[:])
	clear(w.trail[:])
	clear(w.doubts[:])
	w.mu.Unlock()
	w.lost.Store(nil)
	w.told = time.Time{}
	w.c.log.Warn("compensator: a person has accepted what the database lost; going on", "lost", loss.Lost)
	w.c.scanner.poke()
}

// AcceptLoss says that what the database has lost is known, and that work is to go on: see ErrHistoryLost. It is kept
// in the audit table (History of the zero EntryID), where every process that has stopped finds it with its next round.
// It returns what this process remembers and the database has lost; the others log theirs. A loss that comes later is not
// accepted by it.
func (c *Compensator) AcceptLoss(ctx context.Context, by ByHand) ([]LostEntry, error) {
	if err := validateByHand(by); err != nil {
		return nil, err
	}
	if c.closed() {
		return nil, ErrClosed
	}
	w := &c.witness
	w.turn <- struct{}{}
	defer func() { <-w.turn }()
	if w.stopped() == nil {
		w.ask(nil) // it may not have been noticed here yet
	}
	if err := c.store.Note(ctx, ActionAcceptLoss, by); err != nil {
		return nil, err
	}
	_, err := w.notes(ctx)
	c.saw(troubleWitness, err)
	loss := w.stopped()
	if loss == nil {
		return nil, nil
	}
	w.goOn(loss)
	return loss.Lost, nil
}
