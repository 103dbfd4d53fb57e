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

type loss struct {
	processlog.LossError
	newest time.Time // when the newest of the lost versions was seen
}

// lostOf returns the remembered versions that the database contradicts. A missing entry is not lost if an audit record
// shows a purge after this process saw the entry.
func lostOf(remembered []version, found map[processlog.ID]processlog.Version, notes []processlog.AuditRecord) (lost []version) {
	for _, v := range remembered {
		now, exists := found[v.ID]
		if v.contradicts(now, exists) && (exists || !purgedSince(notes, v.seenAt)) {
			lost = append(lost, v)
		}
	}
	return lost
}

func purgedSince(notes []processlog.AuditRecord, moment time.Time) bool {
	since := time.Since(moment)
	return slices.ContainsFunc(notes, func(r processlog.AuditRecord) bool { return r.Action == processlog.ActionPurge && r.Ago < since })
}

// confirmLoss reports a loss if a locking read confirms that a remembered version is lost. A plain read is not enough,
// because a lagging replica may have answered the read.
//
// Another process may have reported the same loss before, and a person may have accepted the loss. Then the database
// has an audit record of the acceptance that is newer than the lost versions. This record shows that the versions were
// lost before the acceptance. The reason is that a database that goes back to an older state loses its newest writes
// first. A loss of these versions after the acceptance would also have removed the newer record.
func (d *Detector) confirmLoss(ctx context.Context, remembered []version, found map[processlog.ID]processlog.Version) error {
	notes, err := d.readNotes(ctx)
	if err != nil {
		return err
	}
	lost := lostOf(remembered, found, notes)
	if len(lost) == 0 {
		return nil
	}
	newest, confirmed, err := d.newestLost(ctx, d.withoutPurgeable(ctx, lost, found))
	if err != nil || !confirmed {
		return err
	}
	loss := &loss{processlog.LossError{Lost: d.listLost(ctx, lost, found, notes), Stopped: d.stopOnLoss}, newest.seenAt}
	if d.acceptedSince(notes, newest.seenAt) { // Another process has noticed the same loss before.
		d.endReport(loss)
	} else {
		d.reportLoss(loss)
	}
	return nil
}

// withoutPurgeable leaves out a missing entry if engine.PurgeNoteAge has passed since this process last saw the entry.
// Another process may have purged such an entry without an audit record. The time is measured on the database's clock,
// because the clock of this process stands still while the machine is suspended.
func (d *Detector) withoutPurgeable(ctx context.Context, lost []version, found map[processlog.ID]processlog.Version) []version {
	now, _, err := d.e.Store.Marks(ctx, []string{noType})
	if err != nil {
		return lost
	}
	all := d.versions.all()
	return slices.DeleteFunc(slices.Clone(lost), func(v version) bool {
		_, exists := found[v.ID]
		databaseTime, known := v.clockBy(all)
		return !exists && known && now.UnixMilli()-databaseTime >= engine.PurgeNoteAge.Milliseconds()
	})
}

// noType is a name that no business type has. The call of Marks with this name returns only the database's time.
const noType = " "

// clockBy returns the database's time at which this process saw the version v. If the field databaseTime of v is 0,
// clockBy computes the time from another version that has this field. It takes the version whose seenAt is nearest to
// the seenAt of v.
func (v *version) clockBy(all []version) (databaseTime int64, known bool) {
	if v.databaseTime != 0 {
		return v.databaseTime, true
	}
	nearest := time.Duration(math.MaxInt64)
	for _, other := range all {
		if distance := v.seenAt.Sub(other.seenAt); other.databaseTime != 0 && distance.Abs() < nearest {
			databaseTime, known, nearest = other.databaseTime+distance.Milliseconds(), true, distance.Abs()
		}
	}
	return databaseTime, known
}

// confirmMost is the maximum number of locking reads by newestLost. Many versions look lost if a lagging replica has
// answered the plain reads.
const confirmMost = 8

// newestLost returns the newest version that a locking read confirms as lost. It tries the versions from the newest to
// the oldest, at most confirmMost of them. A version that is really lost may stay unconfirmed, because other processes
// may have written its entry again since the loss. The row then has a higher number than the lost version, and does not
// show the loss.
func (d *Detector) newestLost(ctx context.Context, lost []version) (newest version, confirmed bool, err error) {
	byAge := slices.SortedStableFunc(slices.Values(lost), func(a, b version) int {
		return cmp.Or(b.seenAt.Compare(a.seenAt), a.ID.Compare(b.ID)) // A fixed order makes a simulation repeatable.
	})
	byAge = slices.CompactFunc(byAge, func(a, b version) bool { return a.ID == b.ID })
	for _, v := range byAge[:min(len(byAge), confirmMost)] {
		row, err := d.e.Store.Resolve(ctx, v.ID)
		exists := !errors.Is(err, processlog.ErrNotFound)
		if err != nil && exists {
			return version{}, false, err
		}
		if v.contradicts(versionOf(&row), exists) {
			return v, true, nil
		}
	}
	return version{}, false, nil
}

// listLost returns the lost entries, in ascending order of their ids. The parameter known holds the versions that the
// caller has already found lost. listLost also reads all remembered versions from the database. If this read fails, the
// list holds only the versions of the parameter known.
func (d *Detector) listLost(ctx context.Context, known []version, found map[processlog.ID]processlog.Version, notes []processlog.AuditRecord) (list []processlog.LostEntry) {
	all := slices.Concat(known, d.versions.all())
	if now, err := d.readVersions(ctx, all); err == nil {
		known, found = lostOf(all, now, notes), now
	}
	slices.SortStableFunc(known, func(a, b version) int { return b.seenAt.Compare(a.seenAt) })
	for _, v := range known {
		now := found[v.ID]
		list = append(list, processlog.LostEntry{ID: v.ID, IdempotencyKey: v.IdempotencyKey, BusinessType: v.businessType, Seen: v.seenAt, Was: v.State,
			Gone: now.IdempotencyKey != v.IdempotencyKey, Is: now.State})
	}
	return byID(list)
}

func byID(list []processlog.LostEntry) []processlog.LostEntry {
	slices.SortStableFunc(list, func(a, b processlog.LostEntry) int { return a.ID.Compare(b.ID) })
	return slices.CompactFunc(list, func(a, b processlog.LostEntry) bool { return a.ID == b.ID })
}

// reportLoss stores and logs a loss. If an earlier loss is open, reportLoss adds its entries to the new loss. If a loss
// does not stop this process, the detector forgets all remembered versions, so that it can notice another loss.
func (d *Detector) reportLoss(found *loss) {
	if previous := d.openLoss.Load(); previous != nil {
		all := byID(slices.Concat(found.Lost, previous.Lost))
		if len(all) == len(previous.Lost) && !found.newest.After(previous.newest) {
			return // A late answer has reported the same loss again.
		}
		found.Lost = all
		if previous.newest.After(found.newest) {
			found.newest = previous.newest
		}
	}
	d.openLoss.Store(found)
	if !d.stopOnLoss {
		d.versions.forget()
	}
	d.loggedAt = time.Time{}
	d.logLoss(found)
	d.toReport.loss = found
}

func (d *Detector) logLoss(loss *loss) {
	message, pause := "compensator: the database has gone back. Work goes on. Check the lost entries, then call AcceptLoss", time.Hour
	if d.stopOnLoss {
		message, pause = "compensator: stopped until a person calls AcceptLoss", time.Minute
	}
	if time.Since(d.loggedAt) < pause {
		return
	}
	d.loggedAt = time.Now()
	d.e.Log.Error(message, "err", &loss.LossError, "lost", loss.Lost)
}
