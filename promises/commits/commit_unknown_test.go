package commits

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/internal/testservers"
)

var committers = map[string]struct {
	watched bool
	commit  func(c *compensator.Compensator, db *sql.DB, work func(tx compensator.Tx) error) error
}{
	"connector":              {true, harness.CommitTx},
	"plain":                  {false, harness.CommitTx},
	"closure":                {false, commitClosure},
	"closure on a connector": {true, commitClosure},
}

func commitClosure(c *compensator.Compensator, _ *sql.DB, work func(tx compensator.Tx) error) error {
	return c.InTx(context.Background(), func(_ context.Context, tx *compensator.ScopedTx) error { return work(tx) })
}

func requireUnknown(t *testing.T, err error, way string) {
	t.Helper()
	if way == "plain" {
		require.ErrorIs(t, err, mysql.ErrInvalidConn, "the driver's own handle says no more")
		return
	}
	require.ErrorIs(t, err, compensator.ErrCommitUnknown)
}

// clientTimeout is longer than the pauses of a process on a busy machine.
const clientTimeout = 5 * time.Second

// Failure: F19
func TestUnknownCommitIsResolvedToWhatHappened(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		rule     faultproxy.Rule
		happened bool
	}{
		"request lost":      {faultproxy.Rule{Fault: faultproxy.DropRequest}, false},
		"reply lost":        {faultproxy.Rule{Fault: faultproxy.DropReply}, true},
		"reply never comes": {faultproxy.Rule{Fault: faultproxy.DropReply, Hang: true}, true},
		"reply too late":    {faultproxy.Rule{Fault: faultproxy.DelayReply, Delay: 10 * time.Second}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for way, committer := range committers {
				t.Run(way, func(t *testing.T) {
					t.Parallel()
					w := harness.NewWorld(t).WithRedis()
					proxy, db := w.OpenProxied(committer.watched, harness.ReadTimeout(clientTimeout))
					cfg := w.QuickConfig()
					cfg.DB = w.Open(harness.WatchedPool(w.DSN)) // The worker connects to the server directly.
					worker, producer := w.New(cfg), cfg
					producer.DB = db
					c := w.New(producer)
					orders, ran := harness.HandleCounted(t, worker, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
					stop := w.Run(worker)
					entry := orders.Entry(harness.Order{}, compensator.Options{IdempotencyKey: "key"})
					rule := test.rule
					rule.Nth = 1
					rule.Match = harness.MatchNext(faultproxy.Contains("INTO effects"), faultproxy.Commit())
					trap := proxy.Arm(rule)
					work := func(tx compensator.Tx) error {
						receipt, err := c.Record(t.Context(), tx, entry)
						if err != nil || receipt.Duplicate() {
							return errors.Join(err, compensator.ErrDuplicate)
						}
						w.WriteEffect(tx, "business")
						return nil
					}
					requireUnknown(t, committer.commit(c, db, work), way)
					require.Equal(t, 1, trap.Fired())

					e, err := c.Resolve(t.Context(), compensator.IdempotencyKey("key"))
					again := committer.commit(c, db, work) // Call again, as a wrapper that retries after every error would.
					if test.happened {
						require.NoError(t, err)
						require.ErrorIs(t, again, compensator.ErrDuplicate, "it sees that the first transaction committed")
						w.WaitState(e.ID, compensator.Succeeded)
					} else {
						require.ErrorIs(t, err, compensator.ErrNotFound)
						require.NoError(t, again)
						w.WaitAllEnded()
					}
					require.NoError(t, stop())
					assert.Equal(t, 1, ran.Total())
					assert.Equal(t, 1, w.Count("effects"), "the business happened once")
				})
			}
		})
	}
}

// Another transaction has recorded the entry before the test calls the method Once. So an entry in the table does not
// show that the transaction with the call of Once has committed.
// Failure: F19
func TestOnceThatCompletesWhatIsThereIsRunAgainIfItDidNotHappen(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]faultproxy.Fault{"it did not happen": faultproxy.DropRequest, "it happened": faultproxy.DropReply} {
		for was, prepare := range map[string]string{"dead": "state=-2, ended_by='exhausted', process_count=1", "due in a year": "state=0"} {
			t.Run(name+"/"+was, func(t *testing.T) {
				t.Parallel()
				w := harness.NewWorld(t)
				proxy, db := w.OpenProxied(true, harness.ReadTimeout(5*time.Second))
				cfg := w.QuickConfig()
				cfg.DB = db
				c := w.New(cfg)
				inbox, err := compensator.Declare[string](t.Context(), c, "inbox", nil)
				require.NoError(t, err)
				var id compensator.EntryID
				require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
					receipt, err := inbox.Record(ctx, tx, "", compensator.Options{IdempotencyKey: "m1", Delay: 365 * 24 * time.Hour})
					id = receipt.ID()
					return err
				}))
				w.Exec("UPDATE common_process_log SET " + prepare)
				trap := proxy.Arm(faultproxy.Rule{Fault: fault, Nth: 1, Match: harness.MatchNext(faultproxy.Contains("INTO effects"), faultproxy.Commit())})
				require.NoError(t, c.WithRetry(t.Context(), "m1", func(ctx context.Context) error {
					return c.InTx(ctx, func(_ context.Context, tx *compensator.ScopedTx) error {
						first, err := inbox.Once(t.Context(), tx, "m1", "") // Once must work with any context, not only with ctx.
						if first {
							w.WriteEffect(tx, "the message's work")
						}
						return err
					})
				}))
				require.Equal(t, 1, trap.Fired())
				require.Equal(t, 1, w.Count("effects"))
				require.Equal(t, compensator.Succeeded, w.State(id))
			})
		}
	}
}

// The method Once inserts an entry that has already succeeded. When its COMMIT is lost, another transaction records a
// pending entry under the same key. This pending entry does not prove that the transaction of Once has committed.
// Failure: F19
func TestLostCommitOfOnceIsRunAgainWhenAnotherTransactionRecordsItsID(t *testing.T) {
	t.Parallel()
	for way, committer := range committers {
		if way == "plain" {
			continue // The driver's own handle does not report a lost answer.
		}
		for of, others := range map[string]bool{"its own Once": false, "the Once of another Compensator": true} {
			t.Run(way+"/"+of, func(t *testing.T) {
				t.Parallel()
				w := harness.NewWorld(t)
				proxy, db := w.OpenProxied(committer.watched, harness.ReadTimeout(clientTimeout))
				cfg := w.QuickConfig()
				cfg.DB = db
				c := w.New(cfg)
				asked := c
				if others {
					asked = w.New(cfg)
				}
				inbox, err := compensator.Declare[string](t.Context(), asked, "inbox", nil)
				require.NoError(t, err)
				direct := w.QuickConfig()
				direct.DB = w.Open(harness.WatchedPool(w.DSN))
				other := w.New(direct)
				recorded := make(chan error, 1)
				trap := proxy.Arm(faultproxy.Rule{
					Fault: faultproxy.DropRequest, Nth: 1, Match: harness.MatchNext(faultproxy.Contains("INTO effects"), faultproxy.Commit()),
				})
				runs := 0
				err = c.WithRetry(t.Context(), "m1", func(context.Context) error {
					runs++
					return committer.commit(c, db, func(tx compensator.Tx) error {
						first, err := inbox.Once(t.Context(), tx, "m1", "")
						if err != nil || !first {
							return err
						}
						w.WriteEffect(tx, "the message's work")
						if runs > 1 {
							return nil
						}
						go func() {
							recorded <- other.InTx(context.Background(), func(ctx context.Context, tx *compensator.ScopedTx) error {
								_, err := other.Record(ctx, tx, compensator.NewEntry{
									BusinessType: "inbox", Options: compensator.Options{IdempotencyKey: "m1", Delay: 365 * 24 * time.Hour},
								})
								return err
							})
						}()
						w.WaitLocked(1)
						return nil
					})
				})
				require.NoError(t, err)
				require.Equal(t, 1, trap.Fired())
				require.NoError(t, <-recorded)
				assert.Equal(t, 2, runs)
				assert.Equal(t, 1, w.Count("effects"), "the work of the message is done once")
				assert.Equal(t, 1, w.Count("common_process_log WHERE state=1"), "the entry says that the work is done")
			})
		}
	}
}

// Failure: F19
func TestTransactionWhoseCommitIsLostIsRunAgainOnlyIfItDidNotHappen(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		rule faultproxy.Rule
		runs int
		err  error
	}{
		"request lost":      {faultproxy.Rule{Nth: 1, Fault: faultproxy.DropRequest}, 2, nil},
		"reply lost":        {faultproxy.Rule{Nth: 1, Fault: faultproxy.DropReply}, 1, nil},
		"each request lost": {faultproxy.Rule{Fault: faultproxy.DropRequest}, 5, compensator.ErrTxAborted},
		"request held back": {faultproxy.Rule{Nth: 1, Fault: faultproxy.DropRequest, Hang: true}, 1, compensator.ErrCommitUnknown},
	} {
		for way, committer := range committers {
			// Skip "plain", because a handle of a plain pool does not report that an answer was lost. Run "request held
			// back" only for "closure", because this case takes ten seconds.
			if way == "plain" || name == "request held back" && way != "closure" {
				continue
			}
			t.Run(name+"/"+way, func(t *testing.T) {
				t.Parallel()
				w := harness.NewWorld(t)
				proxy, db := w.OpenProxied(committer.watched, harness.ReadTimeout(clientTimeout))
				cfg := w.QuickConfig()
				cfg.DB = db
				c := w.New(cfg)
				rule := test.rule
				rule.Match = harness.MatchNext(faultproxy.Contains("INTO effects"), faultproxy.Commit())
				proxy.Arm(rule)
				runs := 0
				err := c.WithRetry(t.Context(), "key-001", func(context.Context) error {
					runs++
					return committer.commit(c, db, func(tx compensator.Tx) error {
						receipt, err := c.Record(t.Context(), tx, harness.NewReverseKeyed("key", 1)...)
						if err != nil || receipt.Duplicate() {
							return err
						}
						w.WriteEffect(tx, "business")
						return nil
					})
				})
				require.ErrorIs(t, err, test.err)
				assert.Equal(t, test.runs, runs)
				proxy.Cut()
				if test.err == nil {
					assert.Equal(t, 1, w.Count("effects"), "the business happened once")
				} else {
					w.Eventually(func() bool { return w.Count("effects")+w.Count("common_process_log") == 0 }, "nothing happened")
				}
			})
		}
	}
}

// Failure: F19
func TestEntryOfALostCommitRequestNeverRuns(t *testing.T) {
	t.Parallel()
	for way, committer := range committers {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t).WithRedis()
			proxy, db := w.OpenProxied(committer.watched)
			cfg := w.QuickConfig()
			cfg.DB = db
			c := w.New(cfg)
			orders, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{Concurrency: 2}, nil)
			stop := w.Run(c)
			record := func(tx compensator.Tx) error {
				_, err := orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{})
				w.WriteEffect(tx, "business")
				return err
			}
			trap := proxy.Arm(faultproxy.Rule{Match: harness.MatchNext(faultproxy.Contains("INTO effects"), faultproxy.Commit()), Fault: faultproxy.DropRequest})
			for range 4 { // These are more calls than the type has slots.
				requireUnknown(t, committer.commit(c, db, record), way)
			}
			require.Equal(t, 4, trap.Fired())
			trap.Disarm()
			require.NoError(t, committer.commit(c, db, record))
			w.WaitAllEnded()
			w.Eventually(func() bool { return w.Queued() == 0 }, "the queue asks for the entries in vain and forgets them")
			require.NoError(t, stop())
			assert.Equal(t, 1, ran.Total())
			assert.Equal(t, 1, w.Count("common_process_log"))
		})
	}
}

// Failure: F19
func TestEntryRunsThoughItsCommitNeverReturns(t *testing.T) {
	t.Parallel()
	for way, committer := range committers {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t)
			proxy, db := w.OpenProxied(committer.watched)
			cfg := w.QuickConfig()
			cfg.DB = db
			c := w.New(cfg)
			orders, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
			stop := w.Run(c)
			trap := proxy.Arm(faultproxy.Rule{Match: harness.MatchNext(faultproxy.Contains("INTO effects"), faultproxy.Commit()), Nth: 1, Fault: faultproxy.DropReply, Hang: true})
			returned := make(chan error, 1)
			go func() {
				returned <- committer.commit(c, db, func(tx compensator.Tx) error {
					_, err := orders.Record(context.Background(), tx, harness.Order{}, compensator.Options{})
					if err == nil {
						_, err = tx.ExecContext(context.Background(), "INSERT INTO effects (what) VALUES ('business')")
					}
					return err
				})
			}()
			require.NoError(t, trap.Await(t.Context()))
			w.Eventually(func() bool { return w.Count("common_process_log WHERE state=1") == 1 }, "the entry runs")
			assert.Empty(t, returned, "the commit must hang here")
			proxy.Cut()
			requireUnknown(t, <-returned, way)
			require.NoError(t, stop())
			assert.Equal(t, 1, ran.Total())
		})
	}
}

func resolveCertain(w *harness.World, c *compensator.Compensator, key string) (e *compensator.Entry, err error) {
	w.T.Helper()
	w.Eventually(func() bool {
		e, err = c.Resolve(w.T.Context(), compensator.IdempotencyKey(key))
		return !errors.Is(err, compensator.ErrBusy)
	}, "%s is resolved", key)
	return e, err
}

// Failure: F19
func TestResolveNeverAnswersWhileTheTransactionIsInFlight(t *testing.T) {
	t.Parallel()
	t.Run("and then rolls back", func(t *testing.T) {
		t.Parallel()
		w := harness.NewWorld(t)
		proxy, db := w.OpenProxied(true, harness.ReadTimeout(clientTimeout))
		cfg := w.QuickConfig()
		c := w.New(cfg)
		proxy.Arm(faultproxy.Rule{Match: faultproxy.Commit(), Nth: 1, Fault: faultproxy.DropRequest, Hang: true}) // The server waits for this COMMIT, which never reaches it.
		err := recordUnder(c, db, "key")
		require.ErrorIs(t, err, compensator.ErrCommitUnknown)
		_, err = c.Resolve(t.Context(), compensator.IdempotencyKey("key"))
		require.ErrorIs(t, err, compensator.ErrBusy, "the result is not known yet")
		proxy.Cut()
		_, err = resolveCertain(w, c, "key")
		require.ErrorIs(t, err, compensator.ErrNotFound)
	})
	t.Run("and then commits", func(t *testing.T) {
		t.Parallel()
		server := testservers.NewSQL(t) // The test delays the commits of this server, so it needs its own.
		w := harness.WorldAt(t, server.Database(t))
		_, db := w.OpenProxied(true, harness.ReadTimeout(clientTimeout))
		c := w.New(w.QuickConfig())
		tx := w.Begin(db)
		_, err := c.Record(t.Context(), tx, harness.NewReverseKeyed("key", 1)[0])
		require.NoError(t, err)
		stopper, err := w.DB.Conn(t.Context())
		require.NoError(t, err)
		defer stopper.Close()
		harness.ExecAll(t, stopper, []string{"FLUSH TABLES WITH READ LOCK"})
		require.ErrorIs(t, tx.Commit(), compensator.ErrCommitUnknown)
		_, err = c.Resolve(t.Context(), compensator.IdempotencyKey("key-001"))
		require.ErrorIs(t, err, compensator.ErrBusy, "the client is gone, its COMMIT is not")
		harness.ExecAll(t, stopper, []string{"UNLOCK TABLES"})
		e, err := resolveCertain(w, c, "key-001")
		require.NoError(t, err)
		assert.EqualValues(t, "key-001", e.IdempotencyKey)
	})
}

func recordUnder(c *compensator.Compensator, db *sql.DB, key string) error {
	return harness.CommitTx(c, db, func(tx compensator.Tx) error {
		_, err := c.Record(context.Background(), tx, compensator.NewEntry{BusinessType: "close_order", Content: []byte("{}"), Options: compensator.Options{IdempotencyKey: compensator.IdempotencyKey(key)}})
		return err
	})
}

// Failure: F19
func TestUnknownCommitsOfManyProducersEndAsTheDatabaseSays(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	proxy, db := w.OpenProxied(true)
	cfg := w.QuickConfig()
	cfg.DB = w.Open(harness.WatchedPool(w.DSN))
	worker, producer := w.New(cfg), cfg
	producer.DB = db
	c := w.New(producer)
	_, ran := harness.HandleCounted(t, worker, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
	stop := w.Run(worker)
	for nth := 1; nth <= 80; nth++ {
		fault := []faultproxy.Fault{faultproxy.Count, faultproxy.DropRequest, faultproxy.Count, faultproxy.DropReply}[nth%4]
		proxy.Arm(faultproxy.Rule{Match: faultproxy.Commit(), Nth: nth, Fault: fault})
	}
	errs := make([]error, 80)
	var producers sync.WaitGroup
	for p := range 4 {
		producers.Go(func() {
			for i := p; i < len(errs); i += 4 {
				errs[i] = recordUnder(c, db, fmt.Sprintf("key-%d", i))
			}
		})
	}
	producers.Wait()
	acknowledged, happened, not := 0, 0, 0
	for i, err := range errs {
		e, resolved := resolveCertain(w, c, fmt.Sprintf("key-%d", i))
		switch {
		case err == nil:
			require.NoError(t, resolved, "an acknowledged entry is gone")
			acknowledged++
		case resolved == nil:
			require.ErrorIs(t, err, compensator.ErrCommitUnknown)
			happened++
		default:
			require.ErrorIs(t, err, compensator.ErrCommitUnknown)
			require.ErrorIs(t, resolved, compensator.ErrNotFound)
			not++
			continue
		}
		w.WaitState(e.ID, compensator.Succeeded)
		assert.Equal(t, 1, ran.Of(e.ID))
	}
	require.NoError(t, stop())
	assert.Equal(t, []int{40, 20, 20}, []int{acknowledged, happened, not}, "each branch was to be taken")
	assert.Equal(t, acknowledged+happened, ran.Total())
}
