package engine

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// loss is what the database has lost.
type loss struct {
	processlog.LossError
	newest time.Time // of the remembered versions that are lost
}

// lostOf lists what is not there any more and was not purged, as far as the log's notes say.
func lostOf(asked []rememberedVersion, found map[processlog.ID]processlog.Version, notes []processlog.AuditRecord) (lost []rememberedVersion) {
	for _, s := range asked {
		v, exists := found[s.ID]
		if s.refutes(v, exists) && (exists || !purgedSince(notes, s.at)) {
			lost = append(lost, s)
		}
	}
	return lost
}

// purgedSince reports whether there is a note of a purge from after a moment.
func purgedSince(notes []processlog.AuditRecord, moment time.Time) bool {
	since := time.Since(moment)
	return slices.ContainsFunc(notes, func(r processlog.AuditRecord) bool { return r.Action == processlog.ActionPurge && r.Ago < since })
}

// examine makes sure of what looks lost: a plain read may have been answered elsewhere than where the log is written. What
// a database loses is the end of its history: where the note is by which a person has accepted a loss, all that was
// there before the note is there still, or is the loss that he meant.
func (w *rollbackDetector) examine(ctx context.Context, asked []rememberedVersion, found map[processlog.ID]processlog.Version) error {
	notes, err := w.notes(ctx)
	if err != nil {
		return err
	}
	lost := lostOf(asked, found, notes)
	if len(lost) == 0 {
		return nil
	}
	newest, sure, err := w.confirm(ctx, w.young(ctx, lost, found))
	if err != nil || !sure {
		return err
	}
	loss := &loss{processlog.LossError{Lost: w.list(ctx, lost, found, notes)}, newest.at}
	// Another process has noticed the same loss before, and a person has spoken already.
	if w.acceptedSince(notes, newest.at) {
		w.goOn(loss)
	} else {
		w.stop(loss)
	}
	return nil
}

// young lists what of lost tells a loss by the database's clock, too. A machine that was suspended has clocks that stood still:
// what it has seen a moment ago others may have purged in good time. A log of an earlier version does not tell its clock; there
// its own must do.
func (w *rollbackDetector) young(ctx context.Context, lost []rememberedVersion, found map[processlog.ID]processlog.Version) []rememberedVersion {
	now, _, err := w.Store.Marks(ctx, []string{noType})
	if err != nil {
		return lost
	}
	all := w.remembered.all()
	return slices.DeleteFunc(slices.Clone(lost), func(s rememberedVersion) bool {
		_, exists := found[s.ID]
		clock, known := s.clockBy(all)
		return !exists && known && now.UnixMilli()-clock >= RememberedVersionLife.Milliseconds()
	})
}

// clockBy is what the database's clock said when s was seen. Where that was not told, what was seen nearest to it tells.
func (s *rememberedVersion) clockBy(all []rememberedVersion) (clock int64, known bool) {
	if s.clock != 0 {
		return s.clock, true
	}
	nearest := time.Duration(math.MaxInt64)
	for _, other := range all {
		if apart := s.at.Sub(other.at); other.clock != 0 && apart.Abs() < nearest {
			clock, known, nearest = other.clock+apart.Milliseconds(), true, apart.Abs()
		}
	}
	return clock, known
}

// noType is the name of no business type.
const noType = " "

// confirmMost is how many of what looks lost are read with a lock, where plain reads are answered elsewhere each time.
const confirmMost = 8

// confirm returns the newest of what is lost for sure, as locking reads tell. A database loses the end of its history, so
// the first read tells mostly; but of the newest others may have made as many versions since.
func (w *rollbackDetector) confirm(ctx context.Context, lost []rememberedVersion) (newest rememberedVersion, sure bool, err error) {
	byAge := slices.SortedStableFunc(slices.Values(lost), func(a, b rememberedVersion) int {
		return cmp.Or(b.at.Compare(a.at), a.ID.Compare(b.ID)) // of one moment by id, so that the same history asks the same
	})
	byAge = slices.CompactFunc(byAge, func(a, b rememberedVersion) bool { return a.ID == b.ID })
	for _, s := range byAge[:min(len(byAge), confirmMost)] {
		row, err := w.Store.Resolve(ctx, s.ID)
		exists := !errors.Is(err, processlog.ErrNotFound)
		if err != nil && exists {
			return rememberedVersion{}, false, err
		}
		if s.refutes(versionOf(&row), exists) {
			return s, true, nil
		}
	}
	return rememberedVersion{}, false, nil
}

// list names all that is remembered and lost, by id; at least what is known to be.
func (w *rollbackDetector) list(ctx context.Context, known []rememberedVersion, found map[processlog.ID]processlog.Version, notes []processlog.AuditRecord) (list []processlog.LostEntry) {
	all := slices.Concat(known, w.remembered.all())
	if now, err := w.read(ctx, all); err == nil {
		known, found = lostOf(all, now, notes), now
	}
	slices.SortStableFunc(known, func(a, b rememberedVersion) int { return b.at.Compare(a.at) }) // of one entry, the last word
	listed := make(map[processlog.ID]bool, len(known))
	for _, s := range known {
		if listed[s.ID] {
			continue
		}
		listed[s.ID] = true
		v := found[s.ID]
		list = append(list, processlog.LostEntry{ID: s.ID, IdempotencyKey: s.IdempotencyKey, BusinessType: s.businessType, Seen: s.at, Was: s.State,
			Gone: v.IdempotencyKey != s.IdempotencyKey, Is: v.State})
	}
	slices.SortFunc(list, func(a, b processlog.LostEntry) int { return a.ID.Compare(b.ID) })
	return list
}

func (w *rollbackDetector) stop(loss *loss) {
	w.lost.Store(loss)
	w.complain(loss)
	Tell(w.Base, w.Observer.HistoryLost, &loss.LossError)
}

// complain tells the log, once a minute.
func (w *rollbackDetector) complain(loss *loss) {
	if time.Since(w.told) < time.Minute {
		return
	}
	w.told = time.Now()
	w.Log.Error("compensator: stopped until a person calls AcceptLoss", "err", &loss.LossError, "lost", loss.Lost)
}

// goAhead is a note by which a person has accepted a loss, told from others by what does not change.
type goAhead struct {
	at            int64
	actor, reason string
}

func goAheadOf(r processlog.AuditRecord) goAhead { return goAhead{r.At.UnixMilli(), r.Actor, r.Reason} }

// notes reads the log's own history. Only when a note is first read is its age taken for that, at most: the database's
// clock may be set, and is another one's once a replica is promoted, and an old note must not become a new one by it.
func (w *rollbackDetector) notes(ctx context.Context) ([]processlog.AuditRecord, error) {
	asked := time.Now()
	notes, err := w.Store.History(ctx, processlog.ID{})
	for _, r := range notes {
		if _, known := w.accepted[goAheadOf(r)]; r.Action == processlog.ActionAcceptLoss && !known {
			w.accepted[goAheadOf(r)] = asked.Add(-max(0, r.Ago))
		}
	}
	return notes, err
}

// acceptedSince reports whether a person has said go on after a moment.
func (w *rollbackDetector) acceptedSince(notes []processlog.AuditRecord, moment time.Time) bool {
	return slices.ContainsFunc(notes, func(r processlog.AuditRecord) bool {
		return r.Action == processlog.ActionAcceptLoss && w.accepted[goAheadOf(r)].After(moment)
	})
}

// seekAcceptance looks whether a person has said go on since what is lost was seen.
func (w *rollbackDetector) seekAcceptance(ctx context.Context) error {
	loss := w.stopped()
	w.remembered.look()
	w.complain(loss)
	notes, err := w.notes(ctx)
	if err == nil && w.acceptedSince(notes, loss.newest) {
		w.goOn(loss)
	}
	return err
}

// goOn forgets everything, and starts again.
func (w *rollbackDetector) goOn(loss *loss) {
	// What is remembered is of a history that is no more: kept, it would stop the process again.
	w.remembered.forget()
	w.lost.Store(nil)
	w.told = time.Time{}
	w.Log.Warn("compensator: a person has accepted what the database lost; going on", "lost", loss.Lost)
	w.claimSchedule.Wake()
}

// acceptLoss keeps a person's go-ahead and goes on. It returns what is lost, as far as this process remembers it.
func (w *rollbackDetector) acceptLoss(ctx context.Context, by processlog.AuditInfo) ([]processlog.LostEntry, error) {
	w.guard <- struct{}{}
	defer func() { <-w.guard }()
	if w.stopped() == nil {
		_ = w.ask(nil) // it may not have been noticed here yet
	}
	if err := w.Store.Note(ctx, processlog.ActionAcceptLoss, by); err != nil {
		return nil, err
	}
	// His own note is read at once, so that its age is known from now on, whatever the database's clock does.
	_, err := w.notes(ctx)
	w.Saw(problemRollbackDetector, err)
	loss := w.stopped()
	if loss == nil {
		return nil, nil
	}
	w.goOn(loss)
	return loss.Lost, nil
}
