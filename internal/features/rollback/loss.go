package rollback

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/processlog"
)

// loss describes what the database has lost, as long as no person has accepted the loss.
type loss struct {
	processlog.LossError
	newest time.Time // time at which the newest of the lost versions was seen
}

// lostOf returns the versions that the database no longer has. A purged entry is not lost, because the purge has
// written an audit record.
func lostOf(asked []version, found map[processlog.ID]processlog.Version, notes []processlog.AuditRecord) (lost []version) {
	for _, v := range asked {
		now, exists := found[v.ID]
		if v.refutes(now, exists) && (exists || !purgedSince(notes, v.at)) {
			lost = append(lost, v)
		}
	}
	return lost
}

// purgedSince reports whether an audit record shows a purge after a moment.
func purgedSince(notes []processlog.AuditRecord, moment time.Time) bool {
	since := time.Since(moment)
	return slices.ContainsFunc(notes, func(r processlog.AuditRecord) bool { return r.Action == processlog.ActionPurge && r.Ago < since })
}

// examine confirms that versions are lost, because a lagging replica may have answered the plain read.
//
// Another process may have reported the same loss, and a person may have accepted it. A database that goes back loses
// its newest writes. So if it still has the audit record of the acceptance, it has lost nothing since then.
func (d *Detector) examine(ctx context.Context, asked []version, found map[processlog.ID]processlog.Version) error {
	notes, err := d.notes(ctx)
	if err != nil {
		return err
	}
	lost := lostOf(asked, found, notes)
	if len(lost) == 0 {
		return nil
	}
	newest, sure, err := d.confirm(ctx, d.young(ctx, lost, found))
	if err != nil || !sure {
		return err
	}
	loss := &loss{processlog.LossError{Lost: d.list(ctx, lost, found, notes), Stopped: d.stops}, newest.at}
	if d.acceptedSince(notes, newest.at) { // Another process has noticed the same loss before.
		d.goOn(loss)
	} else {
		d.report(loss)
	}
	return nil
}

// young leaves out missing entries that were last seen long ago, because other processes may have purged them without
// an audit record. The age counts on the database's clock. This process's clock stands still while the machine is
// suspended, and would show a smaller age. If a log of an earlier version does not return the database's clock, this
// process's clock decides.
func (d *Detector) young(ctx context.Context, lost []version, found map[processlog.ID]processlog.Version) []version {
	now, _, err := d.e.Store.Marks(ctx, []string{noType})
	if err != nil {
		return lost
	}
	all := d.remembered.all()
	return slices.DeleteFunc(slices.Clone(lost), func(v version) bool {
		_, exists := found[v.ID]
		clock, known := v.clockBy(all)
		return !exists && known && now.UnixMilli()-clock >= engine.PurgeNoteAge.Milliseconds()
	})
}

// noType is a name that no business type has.
const noType = " "

// clockBy returns the time on the database's clock when v was seen. If v has no such time, clockBy computes it from the
// version that has one and was seen at the nearest time.
func (v *version) clockBy(all []version) (clock int64, known bool) {
	if v.clock != 0 {
		return v.clock, true
	}
	nearest := time.Duration(math.MaxInt64)
	for _, other := range all {
		if apart := v.at.Sub(other.at); other.clock != 0 && apart.Abs() < nearest {
			clock, known, nearest = other.clock+apart.Milliseconds(), true, apart.Abs()
		}
	}
	return clock, known
}

// confirmMost limits how many versions that look lost are read with a lock. If a lagging replica answers plain reads,
// many versions look lost, and the locking reads find none of them lost.
const confirmMost = 8

// confirm returns the newest version that is lost according to locking reads. Usually the first read finds the loss,
// because a database that goes back loses its newest writes. But other processes may have written the newest entry
// again since then, so often that its version number is as high as the lost one.
func (d *Detector) confirm(ctx context.Context, lost []version) (newest version, sure bool, err error) {
	byAge := slices.SortedStableFunc(slices.Values(lost), func(a, b version) int {
		return cmp.Or(b.at.Compare(a.at), a.ID.Compare(b.ID)) // The order is fixed, so that a simulation can be repeated.
	})
	byAge = slices.CompactFunc(byAge, func(a, b version) bool { return a.ID == b.ID })
	for _, v := range byAge[:min(len(byAge), confirmMost)] {
		row, err := d.e.Store.Resolve(ctx, v.ID)
		exists := !errors.Is(err, processlog.ErrNotFound)
		if err != nil && exists {
			return version{}, false, err
		}
		if v.refutes(versionOf(&row), exists) {
			return v, true, nil
		}
	}
	return version{}, false, nil
}

// list returns all remembered versions that are lost, sorted by id. If the remembered versions cannot be read back,
// list returns only the versions in known.
func (d *Detector) list(ctx context.Context, known []version, found map[processlog.ID]processlog.Version, notes []processlog.AuditRecord) (list []processlog.LostEntry) {
	all := slices.Concat(known, d.remembered.all())
	if now, err := d.read(ctx, all); err == nil {
		known, found = lostOf(all, now, notes), now
	}
	slices.SortStableFunc(known, func(a, b version) int { return b.at.Compare(a.at) }) // Now the newest version of each entry comes first.
	for _, v := range known {
		now := found[v.ID]
		list = append(list, processlog.LostEntry{ID: v.ID, IdempotencyKey: v.IdempotencyKey, BusinessType: v.businessType, Seen: v.at, Was: v.State,
			Gone: now.IdempotencyKey != v.IdempotencyKey, Is: now.State})
	}
	return byID(list)
}

// byID sorts lost entries by id. For each id it keeps the first.
func byID(list []processlog.LostEntry) []processlog.LostEntry {
	slices.SortStableFunc(list, func(a, b processlog.LostEntry) int { return a.ID.Compare(b.ID) })
	return slices.CompactFunc(list, func(a, b processlog.LostEntry) bool { return a.ID == b.ID })
}

// report logs and publishes a loss. If the loss does not stop this process, report forgets the versions of the lost
// history, so that the detector can notice another loss. A second loss that is noticed before a person has accepted the
// first is added to the first.
func (d *Detector) report(found *loss) {
	if before := d.lost.Load(); before != nil {
		all := byID(slices.Concat(found.Lost, before.Lost))
		if len(all) == len(before.Lost) && !found.newest.After(before.newest) {
			return // A late answer has reported the same loss again.
		}
		found.Lost = all
		if before.newest.After(found.newest) {
			found.newest = before.newest
		}
	}
	d.lost.Store(found)
	if !d.stops {
		d.remembered.forget()
	}
	d.loggedAt = time.Time{}
	d.complain(found)
	engine.Tell(d.e.Base, d.e.Observer.HistoryLost, &found.LossError)
}

// complain logs the loss: at most once a minute if the process has stopped, and otherwise at most once an hour.
func (d *Detector) complain(loss *loss) {
	message, pause := "compensator: the database has gone back. Work goes on. Check the lost entries, then call AcceptLoss", time.Hour
	if d.stops {
		message, pause = "compensator: stopped until a person calls AcceptLoss", time.Minute
	}
	if time.Since(d.loggedAt) < pause {
		return
	}
	d.loggedAt = time.Now()
	d.e.Log.Error(message, "err", &loss.LossError, "lost", loss.Lost)
}
