//go:build failpoints

package crashmatrix

import (
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/backlog"
	"github.com/compensator-go/compensator/processlog"
)

func (w *world) check(in surroundings) {
	w.t.Helper()
	if in == streamed {
		w.checkMessages()
		return
	}
	if in == adopting {
		w.checkRows()
		return
	}
	w.checkLedger()
	w.checkEffects()
	w.checkResults()
	w.checkSlots()
	if in == adjusted {
		w.checkLimitChanges()
	}
	if in == counting {
		w.checkCounts()
	}
	if in == listed {
		w.checkInstances()
	}
	if in.staffed() {
		w.checkCases()
		w.checkAttempts()
	}
	logs := w.readLogs()
	for _, l := range logs {
		if l.check(w); w.t.Failed() {
			break
		}
	}
	if in == inLine {
		w.checkOrdering(logs)
	}
	w.checkRest(logs)
}

// requireNone requires that a query finds no row. from is the part of the query after SELECT COUNT(*) FROM.
func (w *world) requireNone(what, from string, args ...any) {
	w.t.Helper()
	assert.Zero(w.t, w.count(from, args...), what)
}

// checkLedger compares the entries with the committed rows. The entries whose keys begin with "old-" must be purged. No
// other entry may be purged.
func (w *world) checkLedger() {
	w.t.Helper()
	w.requireNone("committed rows without an entry", "ledger LEFT JOIN common_process_log ON idempotent_id=`key` WHERE id IS NULL AND `key` NOT LIKE 'old-%'")
	w.requireNone("entries without a committed row", "common_process_log LEFT JOIN ledger ON idempotent_id=`key` WHERE `key` IS NULL AND business_type<>'tick'")
	w.requireNone("old entries that were not purged", "common_process_log WHERE idempotent_id LIKE 'old-%'")
	w.requireNone("young entries that were purged", "ledger LEFT JOIN common_process_log ON idempotent_id=`key` WHERE id IS NULL AND `key` LIKE 'young-%'")
	w.requireNone("runs without an entry", "runs LEFT JOIN common_process_log l ON l.id=runs.entry WHERE l.id IS NULL")
}

// No entry may be recorded before the time of its slot.
func (w *world) checkSlots() {
	w.t.Helper()
	var slots []time.Time
	w.each("SELECT idempotent_id, content, created_at FROM common_process_log WHERE business_type='tick'", func(scan func(...any)) {
		var id string
		var content, created []byte
		scan(&id, &content, &created)
		var slot time.Time
		require.NoError(w.t, slot.UnmarshalJSON(content))
		assert.Equal(w.t, string(compensator.SlotKey(tick, slot)), id)
		recorded, err := time.Parse("2006-01-02 15:04:05.000", string(created))
		require.NoError(w.t, err)
		assert.False(w.t, recorded.Before(slot), "slot %v was recorded early, at %v", slot, recorded)
		slots = append(slots, slot)
	})
	slices.SortFunc(slots, time.Time.Compare)
	for i := 1; i < len(slots); i++ {
		assert.Equal(w.t, slots[i-1].Add(tickEvery), slots[i], "a slot is missing")
	}
}

func (w *world) checkLimitChanges() {
	w.t.Helper()
	w.requireNone("limits whose changes are not those on record", `common_process_log_limit l WHERE limit_key='' AND version<>(
		SELECT COUNT(DISTINCT o.reason) FROM common_process_log_operation o WHERE o.action='change limit' AND o.refused=0 AND o.subject LIKE CONCAT(l.limit_name, ':%'))`)
	require.NotZero(w.t, w.count("common_process_log_limit WHERE version>0"), "a person must have changed the limit")
}

// checkCases requires that cases and records agree with the entries:
//   - Each dead entry has an open case.
//   - If an admin repaired a dead entry, its case is closed.
//   - A case has an owner if and only if an operation records that somebody took the case.
//   - The records of an action on many entries name each changed entry once, and no other entry.
//
// There is one exception: an entry that a service cancelled may still have an open case.
func (w *world) checkCases() {
	w.t.Helper()
	w.requireNone("dead entries without an open case", "common_process_log l LEFT JOIN common_process_log_case c ON c.entry_id=l.id AND c.closed_at=0 WHERE l.state=-2 AND c.entry_id IS NULL")
	w.requireNone("entries repaired in the admin whose case is still open", `common_process_log_case c JOIN common_process_log_audit a ON a.entry_id=c.entry_id AND a.actor='admin'
		WHERE c.closed_at=0 AND JSON_EXTRACT(a.before_state,'$.state')=-2 AND JSON_EXTRACT(a.before_state,'$.epoch')=c.epoch`)
	w.requireNone("cases with an owner and without a record of taking", `common_process_log_case c WHERE owner<>'' AND NOT EXISTS (SELECT 1 FROM common_process_log_operation o WHERE o.entry_id=c.entry_id AND o.action='take case')`)
	w.requireNone("records of taking a case that has no owner", `common_process_log_operation o JOIN common_process_log_case c ON c.entry_id=o.entry_id WHERE c.owner=''`)
	batch := `common_process_log_audit b JOIN JSON_TABLE(CONVERT(b.after_state USING utf8mb4), '$.entries[*]' COLUMNS (id BIGINT PATH '$.id', version BIGINT PATH '$.version')) e
		WHERE b.entry_id=0 AND b.before_state LIKE '{"bulk":%'`
	version := `JSON_EXTRACT(CONVERT(a.after_state USING utf8mb4), '$.version')`
	w.requireNone("entries that the record of an action names, and that it has not changed", batch+` AND NOT EXISTS (SELECT 1 FROM common_process_log_audit a WHERE a.entry_id=e.id AND a.actor='admin' AND `+version+`=e.version)`)
	w.requireNone("entries that an action has changed, and that no record of an action names", `common_process_log_audit a WHERE a.entry_id<>0 AND a.reason='all of them'
		AND NOT EXISTS (SELECT 1 FROM `+batch+` AND a.entry_id=e.id AND `+version+`=e.version)`)
	w.requireNone("entries that two records of one action name", `(SELECT COUNT(*) AS n FROM `+batch+` GROUP BY e.id, e.version) twice WHERE n>1`)
	require.True(w.t, w.personHasActed(), "a person must have acted in the admin")
}

func (w *world) personHasActed() bool {
	w.t.Helper()
	return w.count("common_process_log_audit WHERE actor='admin'")+w.count("common_process_log_operation") > 0
}

// countedRows is the number of old rows of statistics that each victim finds. The library folds at most 500 rows per
// step, so the fold of these rows takes three steps.
const countedRows = 1200

func (w *world) checkCounts() {
	w.t.Helper()
	store, err := compensator.OpenStore(w.t.Context(), w.db, compensator.DefaultTable)
	require.NoError(w.t, err)
	defer func() { require.NoError(w.t, store.Close()) }()
	require.Equal(w.t, *kills*countedRows, w.counted())
	for _, fold := range []processlog.StatFold{processlog.FoldInstances, processlog.FoldHours} {
		for n := 1; n > 0; {
			n, err = store.(processlog.Operations).FoldStats(w.t.Context(), fold, time.Hour, 500)
			require.NoError(w.t, err)
		}
	}
	require.Equal(w.t, *kills*countedRows, w.counted())
	w.checkBacklog(store)
}

func (w *world) checkBacklog(store processlog.Store) {
	w.t.Helper()
	require.NoError(w.t, backlog.Round(w.t.Context(), store.(backlog.Store), time.Now().Truncate(time.Minute).Add(time.Minute), backlog.Slice))
	reading, err := store.(processlog.Operations).ReadBacklog(w.t.Context())
	require.NoError(w.t, err)
	require.True(w.t, reading.Known)
	for _, state := range processlog.BacklogStates {
		sum := 0
		for _, b := range reading.Types {
			sum += b.Of(state)
		}
		require.Equal(w.t, w.count(fmt.Sprintf("common_process_log WHERE state=%d", state)), sum, "%v", state)
	}
}

func (w *world) checkInstances() {
	w.t.Helper()
	w.exec("UPDATE common_process_log_instance SET seen_at=seen_at-200000")
	store, err := compensator.OpenStore(w.t.Context(), w.db, compensator.DefaultTable)
	require.NoError(w.t, err)
	defer func() { require.NoError(w.t, store.Close()) }()
	found, err := store.(processlog.Operations).Instances(w.t.Context())
	require.NoError(w.t, err)
	require.Len(w.t, found, *kills)
	for _, i := range found {
		require.Equal(w.t, processlog.InstanceGone, i.State())
		require.NotEmpty(w.t, i.Types)
	}
}

func (w *world) counted() (sum int) {
	w.t.Helper()
	require.NoError(w.t, w.db.QueryRow("SELECT SUM(recorded) FROM common_process_log_stat WHERE business_type='counted'").Scan(&sum))
	return sum
}

// Two kinds of entries are left out, because these entries keep the counts of an earlier epoch: entries that a person
// settled, and entries whose content was erased.
func (w *world) checkAttempts() {
	w.t.Helper()
	const counted = `common_process_log l WHERE ended_by<>'person' AND COALESCE(headers,'')<>'"erased"' AND %s<>
		(SELECT COUNT(*) FROM common_process_log_attempt a WHERE a.entry_id=l.id AND a.epoch=l.epoch AND a.compensating=%d AND a.verdict IN ('failed','exhausted','permanent'%s))`
	w.requireNone("failures of handlers without their attempts, or attempts without their failures", fmt.Sprintf(counted, "process_count", 0, ""))
	w.requireNone("failures of compensations without their attempts, or attempts without their failures", fmt.Sprintf(counted, "compensate_count", 1, ",'crashed'"))
	w.requireNone("attempts that were dead-lettered of an entry that was not", `common_process_log_attempt a JOIN common_process_log l ON l.id=a.entry_id AND l.epoch=a.epoch
		WHERE a.verdict='crashed' AND l.state=-2 AND l.ended_by<>'crash'`)
	w.requireNone("errors of attempts of erased entries", `common_process_log_attempt a JOIN common_process_log l ON l.id=a.entry_id WHERE a.error<>'' AND COALESCE(headers,'')='"erased"'`)
	w.requireNone("attempts without an entry", "common_process_log_attempt a LEFT JOIN common_process_log l ON l.id=a.entry_id WHERE l.id IS NULL")
	require.NotZero(w.t, w.count("common_process_log_attempt"), "an attempt must have failed")
}

func (w *world) checkEffects() {
	w.t.Helper()
	for _, e := range []struct {
		kind  string
		undo  bool
		state compensator.State
	}{{pay, false, compensator.Succeeded}, {wire, false, compensator.Succeeded}, {sum, false, compensator.Succeeded}, {refund, true, compensator.Compensated}} {
		w.requireNone(e.kind+": settled entries without exactly one effect", `common_process_log l WHERE business_type=? AND state=?
			AND (SELECT COUNT(*) FROM effects f WHERE f.entry=l.id AND f.epoch=l.epoch AND f.undoing=?) <> 1`, e.kind, e.state, e.undo)
		w.requireNone(e.kind+": effects without a success", `effects f JOIN common_process_log l ON l.id=f.entry
			WHERE business_type=? AND (state<>? OR f.epoch<>l.epoch OR f.undoing<>?)`, e.kind, e.state, e.undo)
	}
	w.requireNone("entries of a batch that were open when the entry after the batch ran", "early")
	w.requireNone("effects without an entry", "effects LEFT JOIN common_process_log l ON l.id=effects.entry WHERE l.id IS NULL")
}

func (w *world) checkResults() {
	w.t.Helper()
	w.requireNone("successes without their results", `common_process_log l LEFT JOIN common_process_log_result r ON r.entry_id=l.id AND r.result_epoch=l.epoch
		WHERE business_type IN ('ship','wire') AND state=1 AND ended_by='handler' AND COALESCE(headers,'')<>'"erased"' AND COALESCE(r.result,'')<>CONCAT('"',l.id,'-',l.epoch,'"')`)
	w.requireNone("results without a success", `common_process_log_result r JOIN common_process_log l ON l.id=r.entry_id AND l.epoch=r.result_epoch
		WHERE business_type NOT IN ('ship','wire') OR state<>1 OR ended_by<>'handler'`)
	w.requireNone("results of erased entries", `common_process_log_result r JOIN common_process_log l ON l.id=r.entry_id WHERE COALESCE(headers,'')='"erased"'`)
	w.requireNone("results without an entry", "common_process_log_result r LEFT JOIN common_process_log l ON l.id=r.entry_id WHERE l.id IS NULL")
}

func (w *world) checkRest(logs []*entryLog) {
	w.t.Helper()
	w.requireNone("settled entries with a lease or a delivery count", "common_process_log WHERE lease_until>0 OR delivery_count>0")
	w.requireNone("entries whose epoch differs from their number of audit rows", `common_process_log l WHERE epoch <> (SELECT COUNT(*) FROM common_process_log_audit WHERE entry_id=l.id)`)
	w.requireNone("erased entries that keep some content", `common_process_log l WHERE headers='"erased"' AND (content<>'' OR last_error<>'' OR
		EXISTS (SELECT 1 FROM common_process_log_audit a WHERE a.entry_id=l.id AND a.action<>'erase' AND a.reason<>''))`)
	w.requireNone("entries that were erased without an audit row, or have only the audit row", `common_process_log l WHERE (COALESCE(headers,'')='"erased"') <>
		EXISTS (SELECT 1 FROM common_process_log_audit a WHERE a.entry_id=l.id AND a.action='erase')`)
	w.requireNone("audit rows with an erased reason whose entry is not erased", `common_process_log_audit a JOIN common_process_log l ON l.id=a.entry_id
		WHERE a.action<>'erase' AND a.reason='' AND COALESCE(headers,'')<>'"erased"'`)
	w.requireNone("entries whose error tells of a timeout that the table of faults does not know", `common_process_log l LEFT JOIN common_process_log_fault f ON f.entry_id=l.id
		WHERE l.last_error LIKE 'compensator: handler timed out%' AND COALESCE(f.outcome_unknown,0)=0`)
	byEnd := make(map[string]int)
	for _, l := range logs {
		byEnd[fmt.Sprintf("%s %s", l.kind, l.last().endedBy)]++
	}
	w.t.Logf("%d entries: %v", len(logs), byEnd)
	require.NotZero(w.t, byEnd[pay+" handler"], "at least one entry must have succeeded")
}

type entryLog struct {
	id    uint64
	key   string
	kind  string
	line  string
	state compensator.State
	steps []step
	runs  map[uint64][]run
}

type step struct {
	was, wasDue, wasLeased int64 // values before the write; was is −1 for an insert
	began, at              int64
	version                uint64
	state                  compensator.State
	failed, undoFailed     int
	delivered              int
	epoch                  int
	due, leased            int64
	endedBy                compensator.EndedBy
}

type run struct {
	epoch   int
	undo    bool
	verdict string
	at      int64
}

func (l *entryLog) last() step { return l.steps[len(l.steps)-1] }

func (w *world) readLogs() (logs []*entryLog) {
	w.t.Helper()
	byID := make(map[uint64]*entryLog)
	w.each("SELECT id, idempotent_id, business_type, IF(business_type='book', business_id, ''), state FROM common_process_log ORDER BY id", func(scan func(...any)) {
		l := &entryLog{runs: make(map[uint64][]run)}
		scan(&l.id, &l.key, &l.kind, &l.line, &l.state)
		byID[l.id] = l
		logs = append(logs, l)
	})
	w.each(`SELECT entry, was, was_due, was_leased, began, at, version, state, process_count, compensate_count, delivery_count, epoch, due, leased, ended_by
		FROM history ORDER BY entry, version, seq`, func(scan func(...any)) {
		var id uint64
		var s step
		scan(&id, &s.was, &s.wasDue, &s.wasLeased, &s.began, &s.at, &s.version, &s.state, &s.failed, &s.undoFailed, &s.delivered, &s.epoch,
			&s.due, &s.leased, &s.endedBy)
		if l := byID[id]; l != nil {
			l.steps = append(l.steps, s)
		}
	})
	w.each("SELECT entry, version, epoch, undoing, verdict, at FROM runs ORDER BY id", func(scan func(...any)) {
		var id, version uint64
		var r run
		scan(&id, &version, &r.epoch, &r.undo, &r.verdict, &r.at)
		if l := byID[id]; l != nil {
			l.runs[version] = append(l.runs[version], r)
		}
	})
	return logs
}

func (w *world) each(query string, row func(scan func(...any))) {
	w.t.Helper()
	rows, err := w.db.Query(query)
	require.NoError(w.t, err)
	defer rows.Close()
	for rows.Next() {
		row(func(places ...any) { require.NoError(w.t, rows.Scan(places...)) })
	}
	require.NoError(w.t, rows.Err())
}

func (l *entryLog) check(w *world) {
	w.t.Helper()
	wrong := func(s step, what string, args ...any) {
		w.t.Helper()
		w.t.Errorf("entry %d (%s, %s), version %d: %s\nits history: %s", l.id, l.kind, l.key, s.version, fmt.Sprintf(what, args...), l)
	}
	if len(l.steps) == 0 {
		w.t.Errorf("entry %d has no history", l.id)
		return
	}
	first := l.steps[0]
	if first.was != -1 || first.version != 0 {
		wrong(first, "the history does not begin with the insert")
		return
	}
	f := follower{log: l, now: first, lost: first.delivered, claimed: first.leased > 0, claims: make(map[uint64]int)}
	if f.claimed {
		f.claims[0] = f.lost
	}
	for _, s := range l.steps[1:] {
		if what := f.follow(s); what != "" {
			wrong(s, "%s", what)
			return
		}
	}
	if f.now.state != l.state {
		wrong(f.now, "the history ends in another state than the table: %s", l.state)
	}
	if what := l.badEnd(f); what != "" {
		wrong(f.now, "%s", what)
	}
	for version, runs := range l.runs {
		claims, claimed := f.claims[version]
		if !claimed || claims > crashBudget {
			wrong(step{version: version}, "%d runs without a claim, or after too many claims: %d", len(runs), claims)
		}
		if most := map[bool]int{true: 2, false: 1}[l.kind == mail]; len(runs) > most { // An entry of mail can run twice: once in a batch without a verdict, and once alone.
			wrong(step{version: version}, "%d runs under one claim", len(runs))
		}
	}
}

func (l *entryLog) badEnd(f follower) string {
	end := f.now
	if end.endedBy == compensator.EndedByCrash {
		return ""
	}
	good := end.state == compensator.Succeeded && end.endedBy == compensator.EndedByHandler
	switch l.kind {
	case fail:
		good = good && end.failed == failures
	case refund:
		good = end.state == compensator.Compensated && end.failed == refundFailures && end.undoFailed == undoFailures
	case recall:
		good = end.state == compensator.Compensated && end.failed == max(0, 1-end.epoch) && end.undoFailed == undoFailures
	case hand:
		good = good && end.epoch > 0 || end.state == compensator.SettledManually && end.epoch > 0 ||
			end.state == compensator.Dead && end.endedBy == compensator.EndedByPermanent && end.failed == 1 ||
			end.state == compensator.Cancelled && end.endedBy == compensator.EndedByCancel && end.failed == 1
	case later, book:
		good = good || end.endedBy == compensator.EndedByComplete || end.state == compensator.Cancelled && end.endedBy == compensator.EndedByCancel
	}
	if good {
		return ""
	}
	return fmt.Sprintf("wrong final state: %s by %q after %d failures and %d failures of the compensation", end.state, end.endedBy, end.failed, end.undoFailed)
}

func (l *entryLog) String() (text string) {
	for _, s := range l.steps {
		text += fmt.Sprintf("\n  %s: version %d→%d, %s, epoch %d, failed %d+%d, delivered %d, due %+d ms, leased %+d ms, %q",
			time.UnixMilli(s.at).UTC().Format("05.000"), s.was, s.version, s.state, s.epoch, s.failed, s.undoFailed, s.delivered,
			s.due-s.at, max(s.leased-s.at, -1), s.endedBy)
	}
	return fmt.Sprintf("%s\n  runs by version: %v", text, l.runs)
}
