package sqlpage

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

const (
	closeOrder = "close_order"
	serial     = "ship"
)

// Run sends the statements of each step to an empty store, and compares them with the page. take returns the statements that
// were sent since its last call.
func Run(t *testing.T, database string, store processlog.Store, take func() []string) {
	s := &scenario{T: t, store: store, ctx: t.Context(), take: take, sent: make(map[string][]string)}
	s.claiming()
	s.settle()
	s.change()
	s.reconcileAndPurge()
	s.optional()
	s.record() // Servers differ in the ids that an insert of several rows uses up.
	compare(t, database, s.sent)
}

type scenario struct {
	*testing.T
	store processlog.Store
	ctx   context.Context
	take  func() []string
	sent  map[string][]string
}

// step keeps what work sends under the name of the step.
func (s *scenario) step(name string, work func() error) {
	s.Helper()
	s.take()
	require.NoError(s, work(), name)
	sent := s.take()
	require.NotEmpty(s, sent, name)
	require.NotContains(s, s.sent, name)
	s.sent[name] = sent
}

func (s *scenario) inTx(work func(tx processlog.Transaction)) {
	s.Helper()
	tx, err := s.store.Begin(s.ctx)
	require.NoError(s, err)
	work(tx)
	require.NoError(s, tx.Commit())
}

func draft(key, businessType string) processlog.Draft {
	return processlog.Draft{IdempotencyKey: processlog.IdempotencyKey(key), BusinessType: businessType, Content: []byte(`{}`), Token: processlog.Token{1}}
}

// entries inserts due entries of a type, and claims them under token 2.
func (s *scenario) entries(businessType string, keys ...string) []processlog.Row {
	s.Helper()
	var ids []processlog.ID
	s.inTx(func(tx processlog.Transaction) {
		for _, key := range keys {
			inserted, err := s.store.Insert(s.ctx, tx, []processlog.Draft{draft(key, businessType)}, true)
			require.NoError(s, err)
			ids = append(ids, inserted[0].ID)
		}
	})
	return s.claim(ids...)
}

func (s *scenario) claim(ids ...processlog.ID) []processlog.Row {
	s.Helper()
	claimed, err := s.store.Claim(s.ctx, wanted(ids), processlog.Token{2}, 30*time.Second, acceptAll)
	require.NoError(s, err)
	require.Len(s, claimed.Mine, len(ids))
	return claimed.Mine
}

func wanted(ids []processlog.ID) []processlog.Wanted {
	list := make([]processlog.Wanted, len(ids))
	for i, id := range ids {
		list[i].ID = id
	}
	return list
}

func acceptAll(*processlog.Row) bool { return true }

func outcome(row processlog.Row, to processlog.State, by processlog.EndedBy, lastError string) processlog.Outcome {
	o := processlog.Outcome{ID: row.ID, IdempotencyKey: row.IdempotencyKey, Epoch: row.Epoch, Version: row.Version, To: to, EndedBy: by, LastError: lastError}
	if lastError != "" {
		o.ProcessCount = row.ProcessCount + 1
	}
	return o
}

func success(row processlog.Row) processlog.Outcome {
	return outcome(row, processlog.Succeeded, processlog.EndedByHandler, "")
}

func (s *scenario) settleAll(outcomes ...processlog.Outcome) error {
	s.Helper()
	settled, err := s.store.Settle(s.ctx, processlog.Token{3}, outcomes)
	for _, result := range settled {
		require.True(s, result.Applied)
	}
	return err
}

func (s *scenario) claiming() {
	rows := s.entries(closeOrder, "close-1", "close-2")
	ids := []processlog.ID{rows[0].ID, rows[1].ID}
	s.step("due", func() error { _, err := s.store.Due(s.ctx, closeOrder, 500); return err })
	s.step("read back", func() error { _, err := s.store.Load(s.ctx, ids); return err })
	s.step("renew", func() error {
		_, err := s.store.Renew(s.ctx, []processlog.Held{{ID: rows[0].ID, Version: rows[0].Version}, {ID: rows[1].ID, Version: rows[1].Version}}, 30*time.Second)
		return err
	})
	s.step("renew a lost lease", func() error {
		_, err := s.store.Renew(s.ctx, []processlog.Held{{ID: rows[0].ID, Version: 99}}, 30*time.Second)
		return err
	})
	s.step("release", func() error { _, err := s.store.Release(s.ctx, ids, processlog.Token{2}); return err })
	s.step("claim", func() error { s.claim(ids...); return nil })
}

func (s *scenario) record() {
	insert := func(name string, drafts ...processlog.Draft) {
		s.inTx(func(tx processlog.Transaction) {
			s.step(name, func() error { _, err := s.store.Insert(s.ctx, tx, drafts, true); return err })
		})
	}
	later, leased := draft("close-21", closeOrder), []processlog.Draft{draft("close-22", closeOrder), draft("close-23", closeOrder)}
	later.Delay, leased[0].Lease, leased[1].Lease = 15*time.Minute, 30*time.Second, 30*time.Second
	insert("record", later)
	insert("record two with a lease", leased...)
	insert("record a key again", later)
	s.step("read the ids", func() error {
		_, err := s.store.IDs(s.ctx, nil, []processlog.IdempotencyKey{"close-22", "close-23"})
		return err
	})
}

func (s *scenario) settle() {
	rows := s.entries(closeOrder, "close-6", "close-7", "close-8", "close-9", "close-10")
	s.step("settle successes", func() error { return s.settleAll(success(rows[0]), success(rows[1])) })
	retries := []processlog.Outcome{outcome(rows[2], processlog.Retrying, "", "a"), outcome(rows[3], processlog.Retrying, "", "b")}
	retries[1].After = time.Second
	s.step("settle failures", func() error { return s.settleAll(retries...) })
	s.step("claim, and a row is missing", func() error {
		_, err := s.store.Claim(s.ctx, wanted([]processlog.ID{rows[2].ID, processlog.RowID(99)}), processlog.Token{2}, 30*time.Second, acceptAll)
		return err
	})
	s.step("settle an entry that has ended", func() error {
		_, err := s.store.Settle(s.ctx, processlog.Token{4}, []processlog.Outcome{success(rows[0])})
		return err
	})
	dead := outcome(rows[4], processlog.Dead, processlog.EndedByExhausted, "no")
	dead.Faults = &processlog.Faults{OutcomeUnknown: true}
	dead.Case = &processlog.CaseDraft{Kind: processlog.CaseUnknown, Due: time.Hour}
	at := time.UnixMilli(1_800_000_000_000)
	dead.Attempt = &processlog.FailedAttempt{Number: 1, Verdict: processlog.AttemptExhausted, Instance: "host:1", DueAt: at, StartedAt: at, Error: "no"}
	s.step("settle with a case", func() error { return s.settleAll(dead) })

	rows = s.entries(closeOrder, "close-11")
	s.inTx(func(tx processlog.Transaction) {
		s.step("settle in the handler's transaction", func() error { return s.store.SettleTx(s.ctx, tx, processlog.Token{3}, success(rows[0])) })
	})
}

func (s *scenario) change() {
	cancel := processlog.Change{Ref: processlog.IdempotencyKey("close-1"), Action: processlog.ActionCancel, Token: processlog.Token{5}}
	var before processlog.Row
	s.inTx(func(tx processlog.Transaction) {
		s.step("cancel in your transaction", func() (err error) { before, err = s.store.Change(s.ctx, tx, true, cancel); return err })
	})
	requeue := processlog.Change{Ref: before.ID, Action: processlog.ActionRequeue, Token: processlog.Token{5}, Actor: "alice", Reason: "paid"}
	s.step("requeue", func() error { _, err := s.store.Change(s.ctx, nil, false, requeue); return err })
}

func (s *scenario) reconcileAndPurge() {
	s.step("heads", func() error { _, err := s.store.Heads(s.ctx); return err })
	window := processlog.Window{BusinessType: closeOrder, State: processlog.Pending, From: -processlog.MaxDelay, To: -3 * time.Second, Free: true, Limit: 500}
	s.step("scan", func() error { _, err := s.store.Scan(s.ctx, window); return err })
	s.step("purge", func() error { _, err := s.store.Purge(s.ctx, closeOrder, processlog.Succeeded, 0, 2); return err })
}

func (s *scenario) optional() {
	s.limits()
	s.ordering()
	rows := s.entries(closeOrder, "close-12")
	result := success(rows[0])
	result.Result = []byte("42")
	s.step("settle with a result", func() error { return s.settleAll(result) })
	s.step("wait for the end", func() error { _, err := s.store.Ends(s.ctx, []processlog.ID{rows[0].ID}); return err })

	operations := s.store.(processlog.Operations)
	minute := time.UnixMilli(1_800_000_000_000)
	s.step("statistics", func() error {
		if _, err := operations.StatsClock(s.ctx); err != nil {
			return err
		}
		return operations.WriteStats(s.ctx, "1", minute, []processlog.Stat{{BusinessType: closeOrder, StatCounts: processlog.StatCounts{Recorded: 7}}})
	})
	s.step("instances", func() error {
		return operations.WriteInstance(s.ctx, processlog.Instance{ID: processlog.InstanceID{6}, Name: "host:1", Running: true}, time.Minute, false)
	})
}

func (s *scenario) limits() {
	limit := processlog.StartLimit{Name: "partner", Interval: time.Second, Burst: 5, Key: func(*processlog.Row) (string, bool, bool) { return "", true, true }}
	rows := s.entries(closeOrder, "close-13", "close-14")
	_, err := s.store.Release(s.ctx, []processlog.ID{rows[0].ID, rows[1].ID}, processlog.Token{2})
	require.NoError(s, err)
	claim := func(i int) (processlog.Claimed, error) {
		claimed, err := s.store.ClaimLimited(s.ctx, wanted([]processlog.ID{rows[i].ID}), processlog.Token{2}, 30*time.Second, limit, acceptAll)
		require.Len(s, claimed.Mine, 1)
		return claimed, err
	}
	_, err = claim(0) // It inserts the row of the limit.
	require.NoError(s, err)
	s.step("claim under a limit", func() error { _, err := claim(1); return err })
	s.step("return a start", func() error {
		return s.store.ReturnStarts(s.ctx, limit, map[string]processlog.Unused{"": {Starts: 1, Granted: 9}})
	})
}

func (s *scenario) ordering() {
	rows := s.entries(serial, "ship-1", "ship-2")
	position := func(i int) processlog.Position {
		return processlog.Position{BusinessType: serial, Key: "a", ID: rows[i].ID}
	}
	both := []processlog.Position{position(0), position(1)}
	s.inTx(func(tx processlog.Transaction) {
		s.step("record under a key", func() error { return s.store.Join(s.ctx, tx, both) })
	})
	s.step("first due entries of keys", func() error { _, _, err := s.store.Fronts(s.ctx, serial, "", 100, false); return err })
	s.step("entries of a key", func() error { _, err := s.store.KeyStates(s.ctx, serial, both, processlog.Token{2}, false); return err })
	s.step("block", func() error {
		return s.store.Block(s.ctx, []processlog.BlockedEntry{{Position: position(1), Version: rows[1].Version, Wait: time.Minute}}, processlog.Token{2})
	})
	require.NoError(s, s.settleAll(success(rows[0])))
	s.step("wake the next", func() error { _, err := s.store.Advance(s.ctx, serial, both[:1], false); return err })
	s.step("forget", func() error { return s.store.Forget(s.ctx, both[:1]) })
}
