package settling

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/processlog"
)

// refuse creates a trigger that rejects changes of the entries in the slice ids. The parameter when is an SQL
// condition. If the condition is false, the trigger accepts a change. The result allow is a function that drops the
// trigger.
func refuse(w *harness.World, ids []compensator.EntryID, when string) (allow func()) {
	rows := make([]string, len(ids))
	for i, id := range ids {
		rows[i] = id.String()
	}
	w.Exec("CREATE TRIGGER refuse BEFORE UPDATE ON common_process_log FOR EACH ROW IF NEW.id IN (" + strings.Join(rows, ",") + ") AND " + when +
		" THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT='the auditors say no'; END IF")
	return func() { w.Exec("DROP TRIGGER refuse") }
}

// threeOf returns two adjacent entries and the last one.
func threeOf(ids []compensator.EntryID) []compensator.EntryID {
	return []compensator.EntryID{ids[3], ids[4], ids[len(ids)-1]}
}

func idsOf(receipt *compensator.Receipt) (ids []compensator.EntryID) {
	for _, e := range receipt.Entries {
		ids = append(ids, e.ID)
	}
	slices.SortFunc(ids, compensator.EntryID.Compare)
	return ids
}

func refusedIDs(list []processlog.Refusal) (ids []compensator.EntryID) {
	for _, r := range list {
		ids = append(ids, r.ID)
	}
	slices.SortFunc(ids, compensator.EntryID.Compare)
	return ids
}

const entriesBesideRefused = 40

// Failure: F75
func TestRowThatTheDatabaseRefusesHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		store, receipt := storeBeside(t, w, db, entriesBesideRefused)
		ids, all := idsOf(receipt), func(*processlog.Row) bool { return true }
		refused := threeOf(ids)
		var want []processlog.Wanted
		var held []processlog.Held
		var outcomes []processlog.Outcome
		for i, id := range ids {
			at := slices.IndexFunc(receipt.Entries, func(e compensator.Recorded) bool { return e.ID == id })
			want = append(want, processlog.Wanted{ID: id})
			held = append(held, processlog.Held{ID: id, Version: 1})
			outcomes = append(outcomes, processlog.Outcome{ID: id, IdempotencyKey: receipt.Entries[at].IdempotencyKey, Version: 3, To: compensator.Retrying, ProcessCount: 1, LastError: fmt.Sprint(i)})
		}
		free := len(ids) - len(refused)

		allow := refuse(w, refused, "NEW.delivery_count>OLD.delivery_count")
		found, err := store.Claim(t.Context(), want, processlog.Token{1}, time.Minute, all)
		require.NoError(t, err)
		require.Len(t, found.Mine, free)
		require.Equal(t, refused, refusedIDs(found.Refused))
		require.ErrorContains(t, found.Refused[0].Err, "the auditors say no")
		allow()
		found, err = store.Claim(t.Context(), want, processlog.Token{1}, time.Minute, all)
		require.NoError(t, err)
		require.Len(t, found.Mine, len(refused))

		allow = refuse(w, refused, "NEW.lease_until>OLD.lease_until")
		left, err := store.Renew(t.Context(), held, time.Hour)
		require.NoError(t, err)
		require.Equal(t, refused, refusedIDs(left.Refused))
		require.Empty(t, left.Busy)
		require.Empty(t, left.Lost)
		require.Equal(t, free, w.Count("common_process_log WHERE lease_until > (SELECT MIN(lease_until)+1800000 FROM common_process_log)"))
		allow()

		allow = refuse(w, refused, "NEW.delivery_count<OLD.delivery_count")
		unreleased, err := store.Release(t.Context(), ids, processlog.Token{1})
		require.NoError(t, err)
		require.Empty(t, unreleased.Busy)
		require.Equal(t, refused, refusedIDs(unreleased.Refused))
		require.Equal(t, free, w.Count("common_process_log WHERE lease_until=0"))
		allow()
		unreleased, err = store.Release(t.Context(), ids, processlog.Token{1})
		require.NoError(t, err)
		require.Empty(t, unreleased)

		found, err = store.Claim(t.Context(), want, processlog.Token{2}, time.Minute, all)
		require.NoError(t, err)
		require.Len(t, found.Mine, len(ids))
		allow = refuse(w, refused, "NEW.state<>OLD.state")
		results, err := store.Settle(t.Context(), processlog.Token{3}, outcomes)
		require.NoError(t, err)
		for i, r := range results {
			if slices.Contains(refused, ids[i]) {
				require.ErrorContains(t, r.Refused, "the auditors say no")
				require.False(t, r.Applied)
				continue
			}
			require.Equal(t, processlog.Settled{Applied: true}, r)
		}
		require.Equal(t, free, w.Count("common_process_log WHERE state=-1"))
		allow()
	})
}

// The missing table's name may contain the name of the log.
func TestTriggerOnAMissingTableHoldsUpNoOtherOutcome(t *testing.T) {
	t.Parallel()
	for _, history := range []string{"common_process_log_history", "old_common_process_log", "history"} {
		t.Run(history, func(t *testing.T) {
			t.Parallel()
			harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
				store, receipt := storeBeside(t, w, db, entriesBesideRefused)
				refused := threeOf(idsOf(receipt))
				var names []string
				for _, id := range refused {
					names = append(names, id.String())
				}
				w.Exec("CREATE TRIGGER keep AFTER UPDATE ON common_process_log FOR EACH ROW IF NEW.id IN (" + strings.Join(names, ",") +
					") THEN INSERT INTO " + history + " VALUES (NEW.id); END IF")
				var outcomes []processlog.Outcome
				for _, e := range receipt.Entries {
					outcomes = append(outcomes, processlog.Outcome{ID: e.ID, IdempotencyKey: e.IdempotencyKey, To: compensator.Succeeded, EndedBy: compensator.EndedByHandler})
				}
				results, err := store.Settle(t.Context(), processlog.Token{1}, outcomes)
				require.NoError(t, err)
				for i, r := range results {
					id := outcomes[i].ID
					require.Equal(t, slices.Contains(refused, id), r.Refused != nil, "%v", id)
					require.Equal(t, r.Refused == nil, r.Applied, "%v", id)
				}
				w.Exec("DROP TRIGGER keep")
			})
		})
	}
}

// The library splits a refused statement into halves, several times. A statement waits up to 2 s for a locked row. If
// the library waited after each split, Settle would exceed its deadline.
// Failure: F75
func TestLockedRowBesideRefusedOnesIsWaitedForOnce(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	store, receipt := storeBeside(t, w, w.DB, entriesBesideRefused)
	ids := idsOf(receipt)
	refused := threeOf(ids)
	var outcomes []processlog.Outcome
	for _, e := range receipt.Entries {
		outcomes = append(outcomes, processlog.Outcome{ID: e.ID, IdempotencyKey: e.IdempotencyKey, To: compensator.Succeeded, EndedBy: compensator.EndedByHandler})
	}
	allow := refuse(w, refused, "NEW.state<>OLD.state")
	release := w.LockRow(ids[7])
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	results, err := store.Settle(ctx, processlog.Token{1}, outcomes)
	require.NoError(t, err)
	for i, r := range results {
		id := outcomes[i].ID
		require.Equal(t, slices.Contains(refused, id), r.Refused != nil, "%v", id)
		require.Equal(t, id == ids[7], r.Busy, "%v", id)
		require.Equal(t, r.Refused == nil && !r.Busy, r.Applied, "%v", id)
	}
	release()
	allow()
}

// Failure: F75
func TestRefusedOutcomesAreToldByTheirIdsAndStoredOnceTheyAreTaken(t *testing.T) {
	t.Parallel()
	harness.InOppositeModes(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		lines := harness.CaptureLog(&cfg)
		c := w.New(cfg)
		hold := make(chan struct{})
		orders, calls := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{Concurrency: entriesBesideRefused, Timeout: harness.Timeout}, func(*compensator.Entry, int) error {
			<-hold
			return nil
		})
		w.Run(c)
		var ids []compensator.EntryID
		for i := range entriesBesideRefused {
			ids = append(ids, w.Record(orders, i, compensator.Options{}))
		}
		w.Eventually(func() bool { return calls.Total() == len(ids) }, "all handlers run")
		refused := threeOf(ids)
		allow := refuse(w, refused, "NEW.state=1")
		close(hold)
		for _, id := range ids {
			if !slices.Contains(refused, id) {
				w.WaitState(id, compensator.Succeeded)
			}
		}
		w.Eventually(func() bool { return names(c, "the database refuses to store outcomes", refused) }, "Health names the refused entries")
		for unsaid := slices.Clone(refused); len(unsaid) > 0; {
			line := lines.Contains(w, "the database refuses to store outcomes of entries", "the auditors say no")
			unsaid = slices.DeleteFunc(unsaid, func(id compensator.EntryID) bool { return strings.Contains(line, id.String()) })
		}
		more := w.Record(orders, len(ids), compensator.Options{})
		w.WaitState(more, compensator.Succeeded)
		allow()
		for _, id := range refused {
			w.WaitState(id, compensator.Succeeded)
		}
		w.Eventually(func() bool { return len(c.Health(t.Context()).Problems) == 0 }, "nothing is refused")
		require.Equal(t, len(ids)+1, calls.Total(), "no handler ran again")
	})
}

func names(c *compensator.Compensator, what string, ids []compensator.EntryID) bool {
	for _, problem := range c.Health(context.Background()).Problems {
		if strings.HasPrefix(problem.What, what) {
			return !slices.ContainsFunc(ids, func(id compensator.EntryID) bool { return !strings.Contains(problem.Error, id.String()) })
		}
	}
	return false
}

// Failure: F75
func TestEntriesThatTheDatabaseRefusesToLeaseHoldUpNoOther(t *testing.T) {
	t.Parallel()
	harness.InOppositeModes(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(cfg)
		orders, calls := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{Concurrency: 2}, func(*compensator.Entry, int) error { return nil })
		var ids []compensator.EntryID
		for i := range entriesBesideRefused {
			ids = append(ids, w.Record(orders, i, compensator.Options{}))
		}
		refused := ids[:3]
		allow := refuse(w, refused, "NEW.delivery_count>OLD.delivery_count")
		w.Exec("UPDATE common_process_log SET lease_until=0, token=X'', delivery_count=0, version=version+1") // Take the leases away, so that no entry is started from its insert.
		w.Run(c)
		for _, id := range ids[3:] {
			w.WaitState(id, compensator.Succeeded)
		}
		w.Eventually(func() bool { return names(c, "the database refuses to lease", refused) }, "Health names the refused entries")
		for _, id := range refused {
			require.Zero(t, calls.Of(id))
		}
		allow()
		for _, id := range refused {
			w.WaitState(id, compensator.Succeeded)
		}
	})
}

// Failure: F75
func TestRunNamesTheEntriesWhoseOutcomesAreRefused(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	orders, calls := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, func(*compensator.Entry, int) error { return nil })
	stop := w.Run(c)
	id := w.Record(orders, 1, compensator.Options{Delay: 500 * time.Millisecond})
	allow := refuse(w, []compensator.EntryID{id}, "NEW.state=1")
	w.Eventually(func() bool { return names(c, "the database refuses to store outcomes", []compensator.EntryID{id}) }, "its outcome is refused")
	err := stop()
	var named *processlog.RefusedError
	require.True(t, errors.As(err, &named), "%v", err)
	require.Equal(t, []compensator.EntryID{id}, refusedIDs(named.Refusals))
	require.Positive(t, calls.Of(id))
	allow()
}

// Normally the process waits up to a minute before it offers a refused outcome again.
func TestRunStoresOutcomesThatTheDatabaseTakesAgain(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	hold := make(chan struct{})
	orders, calls := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{Concurrency: entriesBesideRefused, Timeout: harness.Timeout}, func(*compensator.Entry, int) error {
		<-hold
		return nil
	})
	stop := w.Run(c)
	var ids []compensator.EntryID
	for i := range entriesBesideRefused { // more entries than one statement settles
		ids = append(ids, w.Record(orders, i, compensator.Options{}))
	}
	w.Eventually(func() bool { return calls.Total() == len(ids) }, "all handlers run")
	allow := refuse(w, ids, "NEW.state=1")
	close(hold)
	w.Eventually(func() bool {
		for _, problem := range c.Health(t.Context()).Problems {
			if strings.HasPrefix(problem.What, "the database refuses to store outcomes") {
				return problem.Times >= 6 // By now the process waits for seconds before it offers these outcomes again.
			}
		}
		return false
	}, "the outcomes are refused again and again")
	allow()
	require.NoError(t, stop())
	for _, id := range ids {
		w.WaitState(id, compensator.Succeeded)
		require.Equal(t, 1, calls.Of(id))
	}
}

// Block gives blocked entries back, and Advance makes blocked entries due again. In both calls, triggers refuse some of
// the entries. The library must still write the other entries.
// Failure: F75
func TestRefusedPositionsHoldUpNoOther(t *testing.T) {
	t.Parallel()
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		store, receipt := storeBeside(t, w, db, entriesBesideRefused)
		ids := idsOf(receipt)
		refused, unnoted := threeOf(ids), ids[20]
		var want []processlog.Wanted
		var blocked []processlog.BlockedEntry
		var keys []processlog.Position
		for _, id := range ids {
			want = append(want, processlog.Wanted{ID: id})
			key := "account-" + id.String()
			keys = append(keys, processlog.Position{Key: key})
			blocked = append(blocked, processlog.BlockedEntry{Position: processlog.Position{BusinessType: "close_order", Key: key, ID: id}, Version: 1, Wait: time.Hour})
		}
		_, err := store.Claim(t.Context(), want, processlog.Token{1}, time.Minute, func(*processlog.Row) bool { return true })
		require.NoError(t, err)

		allow := refuse(w, refused, "NEW.delivery_count<OLD.delivery_count")
		w.Exec("CREATE TRIGGER unnoted BEFORE INSERT ON common_process_log_turns FOR EACH ROW IF NEW.entry_id=" + unnoted.String() +
			" THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT='the auditors say no'; END IF")
		err = store.Block(t.Context(), blocked, processlog.Token{1})
		var named *processlog.RefusedError
		require.ErrorAs(t, err, &named)
		require.NotErrorIs(t, err, processlog.ErrBusy)
		require.ElementsMatch(t, append([]compensator.EntryID{unnoted}, refused...), refusedIDs(named.Refusals))
		free := len(ids) - len(refused) - 1
		require.Equal(t, free, w.Count("common_process_log WHERE lease_until=0"))
		allow()
		w.Exec("DROP TRIGGER unnoted")
		require.NoError(t, store.Block(t.Context(), blocked, processlog.Token{1}))

		allow = refuse(w, refused, "NEW.next_at<OLD.next_at")
		woken, err := store.Advance(t.Context(), "close_order", keys, true)
		require.ErrorAs(t, err, &named)
		require.Equal(t, refused, refusedIDs(named.Refusals))
		require.Len(t, woken, len(ids)-len(refused))
		allow()
		woken, err = store.Advance(t.Context(), "close_order", keys, true)
		require.NoError(t, err)
		require.ElementsMatch(t, ids, woken, "due entries are reported again until a process claims them")
	})
}
