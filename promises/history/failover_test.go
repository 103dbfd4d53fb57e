package history

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// failover is a database behind a proxy, with a lagging replica that can be promoted.
type failover struct {
	*harness.World
	primary, replica *testservers.SQLServer
	proxy            *faultproxy.TCP
	stops            bool // whether services run with StopOnLoss
}

func newFailover(t *testing.T) *failover {
	t.Helper()
	f := new(failover)
	f.primary, f.replica = testservers.NewSQLPair(t)
	proxy, err := faultproxy.NewTCP(f.primary.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, proxy.Close()) })
	config, err := mysql.ParseDSN(f.primary.Database(t))
	require.NoError(t, err)
	config.Addr, config.Logger = proxy.Addr(), &mysql.NopLogger{}
	f.proxy, f.World = proxy, harness.WorldAt(t, config.FormatDSN())
	return f
}

func (f *failover) failOver() {
	f.T.Helper()
	f.dies()
	f.succeeds()
}

func (f *failover) dies() {
	f.proxy.Refuse()
	f.primary.Kill()
}

func (f *failover) succeeds() {
	f.T.Helper()
	f.replica.Promote(f.T)
	f.proxy.Retarget(f.replica.Addr())
	f.proxy.Heal()
}

type service struct {
	*compensator.Compensator
	world   *harness.World
	db      *sql.DB
	rounds  atomic.Int64
	starts  atomic.Int64
	noticed chan struct{}
	loss    atomic.Pointer[processlog.LossError]
	mu      sync.Mutex     // guards ran
	ran     map[string]int // number of handler calls by idempotency key
	holding *harness.Gate  // handlers of the slow type wait here
}

func (f *failover) service(watched, runs bool) *service {
	f.T.Helper()
	if watched {
		return f.serviceOn(f.Open(harness.WatchedPool(f.DSN)), runs)
	}
	return f.serviceOn(f.Open(harness.PlainPool(f.DSN)), runs)
}

func (f *failover) serviceOn(db *sql.DB, runs bool) *service {
	f.T.Helper()
	s := &service{world: f.World, db: db, noticed: make(chan struct{}), ran: make(map[string]int)}
	cfg := f.QuickConfig()
	cfg.DB, cfg.StopOnLoss = s.db, f.stops
	cfg.Observer = observe.Observer{
		HistoryLost: func(loss *processlog.LossError) {
			if s.loss.Swap(loss) == nil {
				close(s.noticed)
			}
		},
		Reconciled:     func(observe.ReconciledEvent) { s.rounds.Add(1) },
		AttemptStarted: func(observe.AttemptEvent) { s.starts.Add(1) },
	}
	s.Compensator = f.New(cfg)
	if !runs {
		return s
	}
	_, err := compensator.Handle(context.Background(), s.Compensator, "close_order", func(_ context.Context, e *compensator.Entry, o harness.Order) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ran[string(e.IdempotencyKey)]++
		if o.Note == "fails" {
			return assert.AnError
		}
		return nil
	}, &compensator.HandlerConfig[harness.Order]{Retry: compensator.Fixed(time.Second)})
	require.NoError(f.T, err)
	s.holding = harness.NewGate()
	s.holding.OpenAtEnd(f.T)
	_, err = compensator.Handle(context.Background(), s.Compensator, "slow", func(_ context.Context, e *compensator.Entry, _ harness.Order) error {
		return s.holding.PassIgnoringContext(e)
	}, nil)
	require.NoError(f.T, err)
	f.Run(s.Compensator)
	return s
}

func (s *service) record(businessType, key string, content string, opts compensator.Options) (compensator.EntryID, error) {
	tx, err := s.db.Begin()
	if err != nil {
		return compensator.EntryID{}, err
	}
	opts.IdempotencyKey = compensator.IdempotencyKey(key)
	receipt, err := s.Record(s.world.T.Context(), tx, compensator.NewEntry{BusinessType: businessType, Content: []byte(content), Options: opts})
	if err != nil {
		_ = tx.Rollback()
		return compensator.EntryID{}, err
	}
	if err := tx.Commit(); err != nil {
		return compensator.EntryID{}, err
	}
	receipt.Committed()
	return receipt.ID(), nil
}

func (s *service) mustRecord(businessType, key string, content string, opts compensator.Options) compensator.EntryID {
	s.world.T.Helper()
	id, err := s.record(businessType, key, content, opts)
	require.NoError(s.world.T, err)
	return id
}

func (s *service) runsOf(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ran[key]
}

func (s *service) someRounds() {
	s.world.T.Helper()
	until := s.rounds.Load() + 4
	s.world.Eventually(func() bool { return s.rounds.Load() >= until }, "rounds go on")
}

func keysOf(loss *processlog.LossError) (keys []string) {
	for _, l := range loss.Lost {
		keys = append(keys, string(l.IdempotencyKey))
	}
	return keys
}

// Failure: F21
func TestNothingStartsInADatabaseThatHasGoneBackUntilAPersonSaysGoOn(t *testing.T) {
	t.Parallel()
	f := newFailover(t)
	f.WithRedis()
	f.stops = true
	a, b := f.service(true, true), f.service(false, true)

	kept := a.mustRecord("close_order", "kept", "{}", compensator.Options{})
	f.WaitState(kept, compensator.Succeeded)
	undone := a.mustRecord("close_order", "undone", "{}", compensator.Options{Delay: time.Hour})
	failing := b.mustRecord("close_order", "failing", `{"note":"fails"}`, compensator.Options{Delay: time.Hour, MaxAttempts: 2})
	far := b.mustRecord("close_order", "far", "{}", compensator.Options{Delay: time.Hour})
	running := a.mustRecord("slow", "running", "{}", compensator.Options{})
	awaitAny(t, a, b)
	f.replica.Lag(t, f.primary)

	require.NoError(t, a.Reschedule(t.Context(), undone, 0))
	f.WaitState(undone, compensator.Succeeded)
	require.NoError(t, b.Reschedule(t.Context(), failing, 0))
	f.WaitState(failing, compensator.Dead)
	lost := []string{"failing", "undone"}
	for i := range 6 {
		s := []*service{a, b}[i%2]
		lost = append(lost, fmt.Sprint("lost ", i))
		f.WaitState(s.mustRecord("close_order", fmt.Sprint("lost ", i), "{}", compensator.Options{}), compensator.Succeeded)
	}
	lost = append(lost, "lost and running")
	orphan := a.mustRecord("slow", "lost and running", "{}", compensator.Options{})
	awaitAny(t, a, b)

	f.failOver()
	for _, s := range []*service{a, b} {
		f.Wait(s.noticed, "the loss is noticed")
	}
	started := a.starts.Load() + b.starts.Load()
	f.Exec("UPDATE common_process_log SET next_at=1 WHERE idempotent_id='undone'") // Make the entry due again.
	for i, s := range []*service{a, b} {
		s.someRounds()
		s.mustRecord("close_order", fmt.Sprint("recorded while stopped ", i), "{}", compensator.Options{})
		health := s.Health(t.Context())
		require.ErrorIs(t, health.History, compensator.ErrHistoryLost)
		require.ErrorIs(t, health.Ready(), compensator.ErrHistoryLost)
	}
	f.Eventually(func() bool {
		return f.Count("common_process_log WHERE state=0 AND lease_until>0 AND id<>?", running.Row()) == 0
	}, "nothing is claimed")
	for _, s := range []*service{a, b} {
		s.someRounds()
	}
	assert.Equal(t, started, a.starts.Load()+b.starts.Load(), "nothing starts")
	assert.Equal(t, 7, f.Count("common_process_log"), "recording goes on")
	known := append(keysOf(a.loss.Load()), keysOf(b.loss.Load())...)
	slices.Sort(known)
	slices.Sort(lost)
	assert.Equal(t, lost, slices.Compact(known), "what is lost is listed")
	for _, l := range slices.Concat(a.loss.Load().Lost, b.loss.Load().Lost) {
		if l.ID == undone {
			assert.Equal(t, admin.LostEntry{ID: undone, IdempotencyKey: "undone", BusinessType: "close_order", Seen: l.Seen, Was: compensator.Succeeded, Is: compensator.Pending}, l)
		}
		if l.ID == orphan {
			assert.True(t, l.Gone)
		}
	}

	mine, err := admin.Of(a.Compensator).AcceptLoss(t.Context(), admin.AuditInfo{Actor: "ann", Reason: "the old primary is gone"})
	require.NoError(t, err)
	assert.Equal(t, a.loss.Load().Lost, mine)
	heir, err := a.record("close_order", "heir", "{}", compensator.Options{Delay: time.Hour})
	require.NoError(t, err)
	f.Eventually(func() bool { return b.Health(t.Context()).History == nil }, "the other process goes on as well")
	for id := heir; id != orphan; { // Record entries until the database gives out the same id again.
		id, err = b.record("close_order", fmt.Sprint("heir after ", id), "{}", compensator.Options{Delay: time.Hour})
		require.NoError(t, err)
		require.LessOrEqual(t, id.Row(), orphan.Row())
	}
	orphansHeir := fmt.Sprint("heir after ", orphan.Row()-1)
	a.holding.Open()
	b.holding.Open()
	f.WaitState(running, compensator.Succeeded)
	f.WaitState(undone, compensator.Succeeded)
	assert.Equal(t, compensator.Succeeded, f.State(kept))
	assert.Equal(t, 1, a.runsOf("kept")+b.runsOf("kept"))
	for _, id := range []compensator.EntryID{failing, far, heir, orphan} {
		assert.Equal(t, compensator.Pending, f.State(id), "entry %s", id)
		require.NoError(t, a.Reschedule(t.Context(), id, 0))
	}
	f.WaitState(failing, compensator.Dead)
	f.Exec("UPDATE common_process_log SET next_at=1 WHERE state=0")
	f.WaitAllEnded()
	assert.Equal(t, 1, a.runsOf(orphansHeir)+b.runsOf(orphansHeir), "the success of the lost entry was not its heir's")
	history, err := admin.Of(b.Compensator).History(t.Context(), compensator.EntryID{})
	require.NoError(t, err)
	require.Len(t, history, 1)
	assert.Equal(t, []any{processlog.ActionAcceptLoss, "ann", "the old primary is gone"}, []any{history[0].Action, history[0].Actor, history[0].Reason})
}

func awaitAny(t *testing.T, a, b *service) {
	t.Helper()
	select {
	case <-a.holding.Entered:
	case <-b.holding.Entered:
	case <-time.After(harness.Timeout):
		t.Fatal("no process runs it")
	}
}

// The process reads each recorded entry once, and again only if its rollback detector remembers the entry.
func remembers(proxy *faultproxy.MySQL) (remembers func(id compensator.EntryID) bool) {
	var mu sync.Mutex
	reads := make(map[string]int) // by entry id
	proxy.Arm(faultproxy.Rule{Match: func(r faultproxy.Request) bool {
		_, list, found := strings.Cut(r.Text, "`common_process_log` WHERE id IN (")
		if !found || !r.Runs() || !strings.Contains(r.Text, "version, epoch, token FROM") {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		for id := range strings.SplitSeq(strings.TrimSuffix(list, ")"), ",") {
			reads[id]++
		}
		return true
	}})
	return func(id compensator.EntryID) bool {
		mu.Lock()
		defer mu.Unlock()
		return reads[fmt.Sprint(id.Row())] > 1
	}
}

// Failure: F21
func TestWorkGoesOnInADatabaseThatHasGoneBackWhichIsReported(t *testing.T) {
	t.Parallel()
	f := newFailover(t)
	f.WithRedis()
	a, b := f.service(true, true), f.service(false, true)
	kept := a.mustRecord("close_order", "kept", "{}", compensator.Options{})
	f.WaitState(kept, compensator.Succeeded)
	running := a.mustRecord("slow", "running", "{}", compensator.Options{})
	awaitAny(t, a, b)
	f.replica.Lag(t, f.primary)
	var lost []string
	for i := range 6 {
		s := []*service{a, b}[i%2]
		lost = append(lost, fmt.Sprint("lost ", i))
		f.WaitState(s.mustRecord("close_order", lost[i], "{}", compensator.Options{}), compensator.Succeeded)
	}
	lost = append(lost, "lost and running")
	orphan := a.mustRecord("slow", "lost and running", "{}", compensator.Options{})
	awaitAny(t, a, b)

	f.failOver()
	var heirs []string
	for _, s := range []*service{a, b} {
		f.Wait(s.noticed, "the loss is noticed")
		health := s.Health(t.Context())
		require.ErrorIs(t, health.History, compensator.ErrHistoryLost)
		require.NoError(t, health.Ready(), "the process works")
		require.False(t, s.loss.Load().Stopped)
	}
	// The new primary gives the ids of lost entries to new entries. Record entries until each lost id has a new entry.
	for id := running; id.Row() < orphan.Row(); {
		heirs = append(heirs, fmt.Sprint("heir ", len(heirs)))
		id = []*service{a, b}[len(heirs)%2].mustRecord("close_order", heirs[len(heirs)-1], "{}", compensator.Options{})
	}
	a.holding.Open()
	b.holding.Open()
	f.WaitAllEnded()
	for _, key := range append(heirs, "kept") {
		assert.Equal(t, 1, a.runsOf(key)+b.runsOf(key), key)
	}
	assert.Equal(t, 2+len(heirs), f.Count("common_process_log WHERE state=?", compensator.Succeeded), "no outcome of a lost entry is its heir's")
	known := append(keysOf(a.loss.Load()), keysOf(b.loss.Load())...)
	slices.Sort(known)
	slices.Sort(lost)
	assert.Equal(t, lost, slices.Compact(known), "what is lost is listed")

	_, err := admin.Of(a.Compensator).AcceptLoss(t.Context(), admin.AuditInfo{Actor: "ann", Reason: "the old primary is gone"})
	require.NoError(t, err)
	require.NoError(t, a.Health(t.Context()).History)
	f.Eventually(func() bool { return b.Health(t.Context()).History == nil }, "the report ends in the other process as well")
	for _, s := range []*service{a, b} {
		s.someRounds()
		require.NoError(t, s.Health(t.Context()).History)
	}
}

// Failure: F21
func TestProcessThatOnlyRecordsReportsADatabaseThatHasGoneBack(t *testing.T) {
	t.Parallel()
	f := newFailover(t)
	proxy, db := f.OpenProxied(true)
	recorder, person := f.serviceOn(db, false), f.service(false, false)
	remembers := remembers(proxy)
	recorder.mustRecord("close_order", "kept", "{}", compensator.Options{})
	f.replica.Lag(t, f.primary)
	var lost []string
	var ids []compensator.EntryID
	f.Eventually(func() bool {
		lost = append(lost, fmt.Sprint("lost ", len(lost)))
		ids = append(ids, recorder.mustRecord("close_order", lost[len(lost)-1], "{}", compensator.Options{}))
		return slices.ContainsFunc(ids, remembers)
	}, "one that is lost is known to have been there")
	f.failOver()
	more := 0
	recordsUntil := func(done func() bool, what string) {
		t.Helper()
		f.Eventually(func() bool {
			more++
			recorder.mustRecord("close_order", fmt.Sprint("more ", more), "{}", compensator.Options{})
			return done()
		}, what)
	}
	recordsUntil(func() bool { return recorder.Health(t.Context()).History != nil }, "the loss is noticed")
	var loss *processlog.LossError
	require.ErrorAs(t, recorder.Health(t.Context()).History, &loss)
	assert.NotEmpty(t, loss.Lost)
	assert.Subset(t, lost, keysOf(loss))

	list, err := admin.Of(person.Compensator).AcceptLoss(t.Context(), admin.AuditInfo{Actor: "ann", Reason: "known"})
	require.NoError(t, err)
	assert.Empty(t, list, "this process remembers nothing")
	recordsUntil(func() bool { return recorder.Health(t.Context()).History == nil }, "the report ends")
	assert.Equal(t, 1+more, f.Count("common_process_log"), "recording goes on")
}

// The row's version is higher than the remembered version, but the row has another token.
func TestSuccessThatOthersHaveWrittenOverIsALoss(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	cfg := w.QuickConfig()
	lost := make(chan *processlog.LossError, 100)
	cfg.Observer.HistoryLost = func(loss *processlog.LossError) { lost <- loss }
	c := w.New(cfg)
	orders, _ := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
	w.Run(c)
	id := w.Record(orders, 1, compensator.Options{})
	w.WaitState(id, compensator.Succeeded)
	w.Exec("UPDATE common_process_log SET version=version+1, token=UNHEX('0123456789abcdef0123456789abcdef')")
	loss := harness.Receive(t, lost)
	require.Len(t, loss.Lost, 1)
	require.Equal(t, id, loss.Lost[0].ID)
}

// Failure: F21
func TestNothingIsTakenForALossThatIsNone(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	cfg := w.QuickConfig()
	var losses atomic.Int64
	cfg.Observer.HistoryLost = func(*processlog.LossError) { losses.Add(1) }
	var rounds atomic.Int64
	cfg.Observer.Reconciled = func(observe.ReconciledEvent) { rounds.Add(1) }
	c, other := w.New(cfg), w.New(w.QuickConfig())
	orders, _ := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
	w.Run(c)
	someRounds := func() {
		until := rounds.Load() + 5
		w.Eventually(func() bool { return rounds.Load() >= until }, "rounds go on")
	}

	w.InTx(w.DB, func(tx *sql.Tx) { // A rollback to a savepoint removes this entry.
		_, err := tx.Exec("SAVEPOINT s")
		require.NoError(t, err)
		_, err = orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{Delay: time.Hour})
		require.NoError(t, err)
		_, err = tx.Exec("ROLLBACK TO s")
		require.NoError(t, err)
	})
	someRounds()

	id := w.Record(orders, 1, compensator.Options{}) // Somebody purges this entry early.
	w.WaitState(id, compensator.Succeeded)
	someRounds()
	w.Exec("UPDATE common_process_log SET next_at=next_at-120000 WHERE id=?", id.Row())
	n, err := admin.Of(other).Purge(t.Context(), time.Minute)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	someRounds()
	require.Zero(t, losses.Load())

	id = w.Record(orders, 3, compensator.Options{}) // A person requeues this entry after its success.
	w.WaitState(id, compensator.Succeeded)
	someRounds()
	by := admin.AuditInfo{Actor: "ann", Reason: "the mail bounced"}
	require.NoError(t, admin.Of(other).Requeue(t.Context(), id, admin.RequeueOptions{AuditInfo: by}))
	w.WaitState(id, compensator.Succeeded)
	someRounds()
	require.Zero(t, losses.Load())

	_, err = admin.Of(other).Erase(t.Context(), id, by) // An erasure changes the row, but it is still the same entry.
	require.NoError(t, err)
	someRounds()
	require.Zero(t, losses.Load())

	id = w.Record(orders, 2, compensator.Options{}) // This entry is really lost, so the process must report it.
	w.WaitState(id, compensator.Succeeded)
	someRounds()
	w.Exec("DELETE FROM common_process_log WHERE id=?", id.Row())
	w.Eventually(func() bool { return losses.Load() == 1 }, "it is noticed")
}

// staleStore answers plain reads of versions with old values, like a lagging replica.
type staleStore struct{ processlog.Store }

func (s staleStore) Versions(ctx context.Context, ids []compensator.EntryID) ([]processlog.Version, error) {
	versions, err := s.Store.Versions(ctx, ids)
	for i := range versions {
		versions[i].Number, versions[i].State = 0, compensator.Pending
	}
	return versions, err
}

// Failure: F21
func TestReadsThatLagBehindAreNotTakenForALoss(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	store, err := compensator.OpenStore(t.Context(), w.DB, compensator.DefaultTable)
	require.NoError(t, err)
	cfg := w.QuickConfig()
	cfg.DB, cfg.Store = nil, staleStore{store}
	var rounds atomic.Int64
	cfg.Observer.Reconciled = func(observe.ReconciledEvent) { rounds.Add(1) }
	c := w.New(cfg)
	orders, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
	w.Run(c)
	for i := range 3 {
		w.WaitState(w.Record(orders, i, compensator.Options{}), compensator.Succeeded)
		until := rounds.Load() + 4
		w.Eventually(func() bool { return rounds.Load() >= until }, "rounds go on")
	}
	require.NoError(t, c.Health(t.Context()).History)
	require.Equal(t, 3, ran.Total())
}

// A pool at READ UNCOMMITTED may read rows that never commit.
// Failure: F21
func TestWhatWasReadUncommittedIsNotTakenForALoss(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	var rounds atomic.Int64
	cfg := w.QuickConfig()
	cfg.DB = w.Open(harness.PlainPool(w.DSN))
	cfg.DB.SetMaxOpenConns(1)
	_, err := cfg.DB.Exec("SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")
	require.NoError(t, err)
	cfg.Observer.HistoryLost = func(l *processlog.LossError) { assert.Fail(t, "stopped", l) }
	cfg.Observer.Reconciled = func(observe.ReconciledEvent) { rounds.Add(1) }
	c := w.New(cfg)
	orders, _ := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
	w.Run(c)
	fiveRounds := func() {
		until := rounds.Load() + 5
		w.Eventually(func() bool { return rounds.Load() >= until }, "rounds go by")
	}
	changes := map[string]func(tx *sql.Tx, id compensator.EntryID) error{
		"cancel": func(tx *sql.Tx, id compensator.EntryID) error {
			_, err := c.CancelTx(t.Context(), tx, id)
			return err
		},
		"reschedule": func(tx *sql.Tx, id compensator.EntryID) error {
			return c.RescheduleTx(t.Context(), tx, id, 2*time.Hour)
		},
	}
	for name, change := range changes {
		var receipt *compensator.Receipt
		w.InTx(cfg.DB, func(tx *sql.Tx) {
			var err error
			receipt, err = orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{Delay: time.Hour})
			require.NoError(t, err, name)
		})
		tx := w.Begin(w.DB)
		require.NoError(t, change(tx, receipt.ID()), name)
		receipt.Committed()
		fiveRounds()
		require.NoError(t, tx.Rollback(), name)
		fiveRounds()
	}
}
