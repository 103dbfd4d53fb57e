package compensator_test

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
	"github.com/compensator-go/compensator/internal/testservers"
)

// committers are the ways to commit an entry that end with an error the caller can ask about.
var committers = map[string]struct {
	watched bool
	commit  func(c *compensator.Compensator, db *sql.DB, work func(tx compensator.Tx) error) error
}{
	"connector":              {true, commitTx},
	"plain":                  {false, commitTx},
	"closure":                {false, commitClosure},
	"closure on a connector": {true, commitClosure},
}

func commitTx(_ *compensator.Compensator, db *sql.DB, work func(tx compensator.Tx) error) error {
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	if err := work(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func commitClosure(c *compensator.Compensator, _ *sql.DB, work func(tx compensator.Tx) error) error {
	return c.InTx(context.Background(), func(_ context.Context, tx *compensator.ScopedTx) error { return work(tx) })
}

// requireUnknown requires the error of a commit that may have happened or not.
func requireUnknown(t *testing.T, err error, way string) {
	t.Helper()
	if way == "plain" {
		require.ErrorIs(t, err, mysql.ErrInvalidConn, "the driver's own handle says no more")
		return
	}
	require.ErrorIs(t, err, compensator.ErrCommitUnknown)
}

func TestUnknownCommitIsResolvedToWhatHappened(t *testing.T) {
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
			for way, committer := range committers {
				t.Run(way, func(t *testing.T) {
					t.Parallel()
					w := newWorld(t).withRedis()
					proxy, db := w.proxied(committer.watched, readTimeout(time.Second))
					cfg := w.quick()
					cfg.DB = w.open(compensatorOn(w.DSN)) // the worker's own way to the server is sound
					worker, producer := w.new(cfg), cfg
					producer.DB = db
					c := w.new(producer)
					orders, ran := numbered(t, worker, "close_order", compensator.TypeConfig{}, nil)
					stop := w.run(worker)
					entry, err := orders.Entry(order{}, compensator.Options{IdempotentID: "key"})
					require.NoError(t, err)
					rule := test.rule
					rule.Nth = 1
					rule.Match = following(faultproxy.Contains("INTO effects"), faultproxy.Commit())
					trap := proxy.Arm(rule)
					work := func(tx compensator.Tx) error {
						receipt, err := c.Record(t.Context(), tx, entry)
						if err != nil || receipt.Entries[0].Duplicate {
							return errors.Join(err, compensator.ErrDuplicate)
						}
						w.effect(tx, "business")
						return nil
					}
					requireUnknown(t, committer.commit(c, db, work), way)
					require.Equal(t, 1, trap.Fired())

					e, err := c.Resolve(t.Context(), compensator.IdempotentID("key"))
					again := committer.commit(c, db, work) // what a wrapper that retries everything does
					if test.happened {
						require.NoError(t, err)
						require.ErrorIs(t, again, compensator.ErrDuplicate, "it can tell that the first one committed")
						w.waitState(e.ID, compensator.Succeeded)
					} else {
						require.ErrorIs(t, err, compensator.ErrNotFound)
						require.NoError(t, again)
						w.waitAllEnded()
					}
					require.NoError(t, stop())
					assert.Equal(t, 1, ran.total())
					assert.Equal(t, 1, w.count("effects"), "the business happened once")
				})
			}
		})
	}
}

func TestEntryOfALostCommitRequestNeverRuns(t *testing.T) {
	for way, committer := range committers {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t).withRedis()
			proxy, db := w.proxied(committer.watched)
			cfg := w.quick()
			cfg.DB = db
			c := w.new(cfg)
			orders, ran := numbered(t, c, "close_order", compensator.TypeConfig{Concurrency: 2}, nil)
			stop := w.run(c)
			record := func(tx compensator.Tx) error {
				_, err := orders.Record(t.Context(), tx, order{}, compensator.Options{})
				w.effect(tx, "business")
				return err
			}
			trap := proxy.Arm(faultproxy.Rule{Match: following(faultproxy.Contains("INTO effects"), faultproxy.Commit()), Fault: faultproxy.DropRequest})
			for range 4 { // more than the type has slots
				requireUnknown(t, committer.commit(c, db, record), way)
			}
			require.Equal(t, 4, trap.Fired())
			trap.Disarm()
			require.NoError(t, committer.commit(c, db, record))
			w.waitAllEnded()
			w.eventually(func() bool { return w.queued() == 0 }, "the queue asks for the entries in vain and forgets them")
			require.NoError(t, stop())
			assert.Equal(t, 1, ran.total())
			assert.Equal(t, 1, w.count("common_process_log"))
		})
	}
}

func TestEntryRunsThoughItsCommitNeverReturns(t *testing.T) {
	for way, committer := range committers {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			proxy, db := w.proxied(committer.watched)
			cfg := w.quick()
			cfg.DB = db
			c := w.new(cfg)
			orders, ran := numbered(t, c, "close_order", compensator.TypeConfig{}, nil)
			stop := w.run(c)
			trap := proxy.Arm(faultproxy.Rule{Match: following(faultproxy.Contains("INTO effects"), faultproxy.Commit()), Nth: 1, Fault: faultproxy.DropReply, Hang: true})
			returned := make(chan error, 1)
			go func() {
				returned <- committer.commit(c, db, func(tx compensator.Tx) error {
					_, err := orders.Record(context.Background(), tx, order{}, compensator.Options{})
					if err == nil {
						_, err = tx.ExecContext(context.Background(), "INSERT INTO effects (what) VALUES ('business')")
					}
					return err
				})
			}()
			require.NoError(t, trap.Await(t.Context()))
			w.eventually(func() bool { return w.count("common_process_log WHERE state=1") == 1 }, "the entry runs")
			assert.Empty(t, returned, "the commit was to hang")
			proxy.Cut()
			requireUnknown(t, <-returned, way)
			require.NoError(t, stop())
			assert.Equal(t, 1, ran.total())
		})
	}
}

// unresolved asks until the server can answer.
func (w *world) unresolved(c *compensator.Compensator, key string) (e *compensator.Entry, err error) {
	w.t.Helper()
	w.eventually(func() bool {
		e, err = c.Resolve(w.t.Context(), compensator.IdempotentID(key))
		return !errors.Is(err, compensator.ErrBusy)
	}, "%s is resolved", key)
	return e, err
}

func TestResolveNeverAnswersWhileTheTransactionIsInFlight(t *testing.T) {
	t.Run("and then rolls back", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		proxy, db := w.proxied(true, readTimeout(500*time.Millisecond))
		cfg := w.quick()
		c := w.new(cfg)
		proxy.Arm(faultproxy.Rule{Match: faultproxy.Commit(), Nth: 1, Fault: faultproxy.DropRequest, Hang: true}) // the server waits for it
		err := recordUnder(c, db, "key")
		require.ErrorIs(t, err, compensator.ErrCommitUnknown)
		_, err = c.Resolve(t.Context(), compensator.IdempotentID("key"))
		require.ErrorIs(t, err, compensator.ErrBusy, "nobody can know yet")
		proxy.Cut()
		_, err = w.unresolved(c, "key")
		require.ErrorIs(t, err, compensator.ErrNotFound)
	})
	t.Run("and then commits", func(t *testing.T) {
		t.Parallel()
		server := testservers.NewSQL(t) // its commits are about to be held up
		w := worldAt(t, server.Database(t))
		_, db := w.proxied(true, readTimeout(500*time.Millisecond))
		c := w.new(w.quick())
		tx := w.begin(db)
		_, err := c.Record(t.Context(), tx, keyed("key", 1)[0])
		require.NoError(t, err)
		stopper, err := w.DB.Conn(t.Context())
		require.NoError(t, err)
		defer stopper.Close()
		execAll(t, stopper, []string{"FLUSH TABLES WITH READ LOCK"})
		require.ErrorIs(t, tx.Commit(), compensator.ErrCommitUnknown)
		_, err = c.Resolve(t.Context(), compensator.IdempotentID("key-001"))
		require.ErrorIs(t, err, compensator.ErrBusy, "the client is gone, its COMMIT is not")
		execAll(t, stopper, []string{"UNLOCK TABLES"})
		e, err := w.unresolved(c, "key-001")
		require.NoError(t, err)
		assert.Equal(t, "key-001", e.IdempotentID)
	})
}

func recordUnder(c *compensator.Compensator, db *sql.DB, key string) error {
	return commitTx(c, db, func(tx compensator.Tx) error {
		_, err := c.Record(context.Background(), tx, compensator.NewEntry{BusinessType: "close_order", Content: []byte("{}"), Options: compensator.Options{IdempotentID: key}})
		return err
	})
}

// broken are the ways a statement of ours can go wrong on the wire.
var broken = map[string]faultproxy.Rule{
	"request lost": {Fault: faultproxy.DropRequest, Nth: 1},
	"reply lost":   {Fault: faultproxy.DropReply, Nth: 1},
}

func TestOutcomeWhoseReplyWasLostIsCountedOnce(t *testing.T) {
	for fault, rule := range broken {
		for _, watched := range []bool{true, false} {
			for name, settle := range map[string]faultproxy.Match{
				"failure": faultproxy.Contains("SET state=-1"), "success": faultproxy.Contains("SET state=1"),
				"failure's commit": following(faultproxy.Contains("SET state=-1"), faultproxy.Commit()),
			} {
				if watched && name == "failure's commit" {
					continue // there it is a single statement
				}
				t.Run(fmt.Sprintf("%s of %s, connector %t", fault, name, watched), func(t *testing.T) {
					t.Parallel()
					w := newWorld(t)
					proxy, db := w.proxied(watched)
					cfg := w.quick()
					cfg.DB = db
					var mu sync.Mutex // guards settled
					var settled []compensator.State
					cfg.Observer.Settled = func(e compensator.SettledEvent) {
						mu.Lock()
						defer mu.Unlock()
						settled = append(settled, e.State)
					}
					cfg.Observer.OutcomeDropped = func(compensator.SettledEvent) { t.Error("an outcome of ours was taken for another's") }
					c := w.new(cfg)
					orders, ran := numbered(t, c, "close_order", compensator.TypeConfig{Retry: compensator.Fixed(0)}, func(_ *compensator.Entry, call int) error {
						if call == 1 {
							return errors.New("again")
						}
						return nil
					})
					stop := w.run(c)
					rule := rule
					rule.Match = settle
					trap := proxy.Arm(rule)
					require.NoError(t, commitTx(c, w.DB, func(tx compensator.Tx) error {
						_, err := orders.Record(t.Context(), tx, order{}, compensator.Options{})
						return err
					}))
					w.waitAllEnded()
					require.NoError(t, stop())
					require.Equal(t, 1, trap.Fired())
					assert.Equal(t, 2, ran.total(), "an attempt was repeated whose outcome was known")
					assert.Equal(t, 1, w.count("common_process_log WHERE state=1 AND process_count=1"))
					assert.Equal(t, []compensator.State{compensator.Retrying, compensator.Succeeded}, settled)
				})
			}
		}
	}
}

func TestTransactionalEffectHappensOnceThoughItsCommitIsUnknown(t *testing.T) {
	for _, test := range []struct {
		fault    string
		question bool // asking what became of the commit fails, too
		runs     int
	}{
		{"request lost", false, 2}, {"reply lost", false, 1}, {"request lost", true, 2}, {"reply lost", true, 1},
	} {
		for _, watched := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, question lost %t, connector %t", test.fault, test.question, watched), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				proxy, db := w.proxied(watched)
				cfg := w.quick()
				cfg.DB = db
				if !test.question {
					cfg.Observer.OutcomeDropped = func(compensator.SettledEvent) { t.Error("the handler's own success was taken for another's") }
				}
				c := w.new(cfg)
				var ran calls
				orders, err := compensator.HandleTx(c, "close_order", func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, _ order) error {
					ran.add(e.ID)
					_, err := tx.ExecContext(ctx, "INSERT INTO effects (what) VALUES (?)", e.ID.String())
					return err
				}, compensator.TypeConfig{Retry: compensator.Fixed(0)})
				require.NoError(t, err)
				stop := w.run(c)
				rule := broken[test.fault]
				rule.Match = following(faultproxy.Contains("INTO effects"), faultproxy.Commit())
				traps := []*faultproxy.Trap{proxy.Arm(rule)}
				if test.question {
					traps = append(traps, proxy.Arm(faultproxy.Rule{Match: faultproxy.Contains(" SHARE "), Nth: 1, Fault: faultproxy.DropRequest}))
				}
				require.NoError(t, commitTx(c, w.DB, func(tx compensator.Tx) error {
					_, err := orders.Record(t.Context(), tx, order{}, compensator.Options{})
					return err
				}))
				w.waitAllEnded()
				require.NoError(t, stop())
				for _, trap := range traps {
					require.Equal(t, 1, trap.Fired())
				}
				assert.Equal(t, 1, w.count("effects"))
				assert.Equal(t, 1, w.count("common_process_log WHERE state=1 AND process_count=0"), "a lost reply is no failure of the handler's")
				assert.Equal(t, test.runs, ran.total())
			})
		}
	}
}

func TestUnknownCommitsOfManyProducersEndAsTheDatabaseSays(t *testing.T) {
	w := newWorld(t).withRedis()
	proxy, db := w.proxied(true)
	cfg := w.quick()
	cfg.DB = w.open(compensatorOn(w.DSN))
	worker, producer := w.new(cfg), cfg
	producer.DB = db
	c := w.new(producer)
	_, ran := numbered(t, worker, "close_order", compensator.TypeConfig{}, nil)
	stop := w.run(worker)
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
		e, resolved := w.unresolved(c, fmt.Sprintf("key-%d", i))
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
		w.waitState(e.ID, compensator.Succeeded)
		assert.Equal(t, 1, ran.of(e.ID))
	}
	require.NoError(t, stop())
	assert.Equal(t, []int{40, 20, 20}, []int{acknowledged, happened, not}, "each branch was to be taken")
	assert.Equal(t, acknowledged+happened, ran.total())
}
