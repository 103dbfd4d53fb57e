package chaos

import (
	"cmp"
	"context"
	cryptorand "crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/proof/chaos/history"
)

// The replayer's connections fail like those of the apps, so it continues each action until the log says that the
// action is over.
type replayer struct {
	*stage
	rand    *rand.Rand
	db      *sql.DB
	admin   *admin.Admin
	started []startedReplay
}

const replayName = "replay"

type startedReplay struct {
	id   admin.BulkID
	dead map[uint64]uint64
}

// In a run with Config.Careful there are no replays.
func (st *stage) startReplays() (r *replayer, stop func()) {
	r = &replayer{stage: st, rand: rand.New(rand.NewPCG(st.cfg.Seed, 7))}
	if st.cfg.Careful {
		return r, func() {}
	}
	p := st.newProxies()
	connector, err := quietConnector(withProcess(p.dsn(false), replayName))
	if err != nil {
		st.tb.Fatal(err)
	}
	r.db = sql.OpenDB(connector)
	client := redis.NewClient(&redis.Options{Addr: p.redis.Addr()})
	c, err := compensator.New(context.Background(), compensator.Config{
		DB: r.db, Redis: client, Prefix: prefix, Lease: lease, Grace: grace, ReconcileInterval: reconcileInterval, PollInterval: pollInterval, Horizon: horizon,
		Logger:     slog.New(slog.DiscardHandler),
		Operations: &compensator.Operations{Attempts: true, Statistics: true},
	})
	if err == nil {
		r.admin, err = admin.New(c, admin.Options{Access: admin.AccessFunc(func(context.Context, admin.Actor, admin.Right, admin.Subject) bool { return true })})
	}
	if err != nil {
		st.tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; ctx.Err() == nil; n++ {
			r.replay(ctx, types[n%len(types)].Name, n%3 == 2)
			wait(ctx, time.Duration(r.rand.Int64N(int64(time.Second))))
		}
	}()
	return r, func() {
		cancel()
		<-done
		if err := c.Close(); err != nil {
			st.tb.Errorf("closing the log of the person who replays: %v", err)
		}
		_ = client.Close()
		_ = r.db.Close()
	}
}

var replayActor = admin.Actor{ID: replayName}

// The first batch of an action has one entry, so every action has several batches.
func (r *replayer) replay(ctx context.Context, businessType string, stops bool) {
	dead := make(map[uint64]uint64)
	err := r.query("SELECT id, version FROM common_process_log WHERE state=-2 AND business_type='"+businessType+"'", func(scan func(...any) error) error {
		var id, version uint64
		err := scan(&id, &version)
		dead[id] = version
		return err
	})
	if err != nil || len(dead) < 2 {
		return
	}
	id, ok := r.start(ctx, businessType)
	if !ok {
		return
	}
	r.started = append(r.started, startedReplay{id, dead})
	if stops {
		for ctx.Err() == nil && !r.isOver(r.admin.StopBulk(context.Background(), replayActor, id)) {
		}
	}
	r.awaitTrial(ctx, id)
	// Continue the action until it is over. If the action was stopped before, ContinueBulk must change no entry.
	for ctx.Err() == nil {
		err := r.admin.ContinueBulk(context.Background(), replayActor, id)
		if view, viewErr := r.admin.Bulk(context.Background(), replayActor, id); r.isOver(err) && viewErr == nil && view.Left == 0 {
			return
		}
	}
}

// All requests of a form have one key, so they must begin one action.
func (r *replayer) start(ctx context.Context, businessType string) (id admin.BulkID, ok bool) {
	change := admin.Change{Action: admin.Requeue, Why: admin.Why{Reason: "chaos"}, Checked: true}
	search := admin.Search{Filter: admin.Filter{BusinessType: businessType, States: []compensator.State{compensator.Dead}}}
	opts := admin.BulkOptions{TryFirst: true, Key: cryptorand.Text()}
	for ctx.Err() == nil {
		var ids [2]admin.BulkID
		var errs [2]error
		var both sync.WaitGroup
		for i := range ids {
			both.Go(func() {
				ids[i], errs[i] = r.admin.StartMatching(context.Background(), replayActor, change, search, opts)
			})
		}
		both.Wait()
		if ids[0].Record > 0 && ids[1].Record > 0 && ids[0] != ids[1] {
			r.tb.Errorf("one form that was sent twice began the actions %s and %s", ids[0], ids[1])
		}
		if id := cmp.Or(ids[0], ids[1]); id.Record > 0 || errors.Join(errs[:]...) == nil {
			return id, id.Record > 0
		}
		wait(ctx, 100*time.Millisecond)
	}
	return admin.BulkID{}, false
}

// Most tried entries die again and match the search again, so the rest of the action must not visit them a second time.
func (r *replayer) awaitTrial(ctx context.Context, id admin.BulkID) {
	ctx, cancel := context.WithTimeout(ctx, trialTimeout)
	defer cancel()
	for ctx.Err() == nil {
		if view, err := r.admin.Bulk(ctx, replayActor, id); err == nil && !view.Open() {
			return
		}
		wait(ctx, 100*time.Millisecond)
	}
}

const trialTimeout = 4 * time.Second

// isOver waits if the call failed, because the database may be down.
func (r *replayer) isOver(err error) bool {
	if err != nil {
		wait(context.Background(), 100*time.Millisecond)
	}
	return err == nil
}

type replayBatch struct {
	record  uint64
	Entries []struct {
		ID      json.Number `json:"id"`
		Version uint64      `json:"version"`
	} `json:"entries"`
	Skipped []struct {
		ID json.Number `json:"id"`
	} `json:"skipped"`
	Plan struct {
		Matching struct {
			Changed int            `json:"changed"`
			LeftOut map[string]int `json:"left_out"`
			Ended   bool           `json:"ended"`
			Stopped bool           `json:"stopped"`
		} `json:"matching"`
	} `json:"plan"`
}

// checkReplays asserts G32 (actions of people) for the actions that change all entries of a search. Such an action
// works in batches, and records each batch. checkReplays compares these records with the changes that triggers wrote.
func (r *replayer) checkReplays() {
	if r.admin == nil {
		return
	}
	actions, order, err := r.storedReplays()
	requeued := make(map[outcomeOf]int)
	others := make(map[uint64]uint64)
	if err == nil {
		err = r.query("SELECT id, process, old_version, new_version, old_state=-2 AND new_state=0 AND new_epoch=old_epoch+1 FROM audit_trail WHERE op='u'", func(scan func(...any) error) error {
			var id, before, after uint64
			var process string
			var isRequeue bool
			err := scan(&id, &process, &before, &after, &isRequeue)
			if process != replayName {
				others[id] = max(others[id], before)
				return err
			}
			if requeued[outcomeOf{id, after}]++; !isRequeue {
				r.tb.Errorf("the action on all that match changed entry %d in version %d, and did not requeue it from its death", id, before)
			}
			return err
		})
	}
	if err != nil {
		r.tb.Errorf("reading the actions on all that match: %v", err)
		return
	}
	if len(order) > len(r.started)+1 { // The run may end before the answer to the last start arrives.
		r.tb.Errorf("%d forms began %d actions on all that match", len(r.started), len(order))
	}
	total, stopped := 0, 0
	recorded := make(map[outcomeOf]bool)
	for _, name := range order {
		visited := make(map[uint64]bool)
		changed, leftOut, isStopped := 0, 0, false
		for i, b := range actions[name] {
			m := b.Plan.Matching
			sum := 0
			for _, n := range m.LeftOut {
				sum += n
			}
			if m.Changed != changed || sum != leftOut {
				r.tb.Errorf("batch %d of the action %s says that %d entries were changed and %d left out before; want %d and %d", b.record, name, m.Changed, sum, changed, leftOut)
			}
			if isStopped = m.Stopped; (m.Stopped || m.Ended) && i < len(actions[name])-1 {
				r.tb.Errorf("the action %s went on after its batch %d, which ended it", name, b.record)
			}
			for _, e := range b.Entries {
				id := numberOf(e.ID)
				of := outcomeOf{id, e.Version}
				if visited[id] || recorded[of] || requeued[of] != 1 {
					r.tb.Errorf("the action %s records entry %d in version %d, and requeued it %d times (visited before: %v)", name, id, e.Version, requeued[of], visited[id])
				}
				visited[id], recorded[of] = true, true
			}
			for _, s := range b.Skipped {
				visited[numberOf(s.ID)] = true
			}
			changed, leftOut = changed+len(b.Entries), leftOut+len(b.Skipped)
		}
		total += changed
		if isStopped {
			stopped++
			continue
		}
		r.checkComplete(name, actions[name], visited, others)
	}
	for of := range requeued {
		if !recorded[of] {
			r.tb.Errorf("entry %d was requeued to version %d, and no record of an action names it", of.id, of.version)
		}
	}
	r.tb.Logf("%d actions on all that match, %d of them stopped, requeued %d entries", len(order), stopped, total)
	if total == 0 || stopped == 0 || stopped == len(order) {
		r.tb.Errorf("no action on all that match requeued entries, or none was stopped, or all were, so their check proves nothing")
	}
}

func numberOf(text json.Number) uint64 {
	n, _ := text.Int64()
	return uint64(n)
}

func (r *replayer) checkComplete(name string, batches []replayBatch, visited map[uint64]bool, others map[uint64]uint64) {
	at := slices.IndexFunc(r.started, func(s startedReplay) bool { return s.id.String() == name })
	if at < 0 || !batches[len(batches)-1].Plan.Matching.Ended {
		return
	}
	for id, version := range r.started[at].dead {
		if !visited[id] && others[id] < version {
			r.tb.Errorf("the action %s has ended, and entry %d, which was dead before it in version %d, is neither requeued nor named", name, id, version)
		}
	}
}

func (r *replayer) storedReplays() (actions map[string][]replayBatch, order []string, err error) {
	actions = make(map[string][]replayBatch)
	err = r.query("SELECT id, before_state, after_state FROM common_process_log_audit WHERE entry_id=0 AND actor='"+replayName+"' ORDER BY id", func(scan func(...any) error) error {
		var mark struct {
			Bulk string `json:"bulk"`
		}
		var b replayBatch
		var before, after []byte
		if err := scan(&b.record, &before, &after); err != nil {
			return err
		}
		if err := json.Unmarshal(before, &mark); err != nil {
			return err
		}
		if err := json.Unmarshal(after, &b); err != nil {
			return err
		}
		if _, err := admin.ParseBulkID(mark.Bulk); err != nil {
			mark.Bulk = fmt.Sprint(b.record, "-", mark.Bulk)
			order = append(order, mark.Bulk)
		}
		actions[mark.Bulk] = append(actions[mark.Bulk], b)
		return nil
	})
	return actions, order, err
}

// The calls of the replayer have no answers, so the checker does not demand their effects. checkReplays checks the
// effects.
func (st *stage) dumpReplays(w *batchWriter) error {
	call := uint64(0)
	return st.query("SELECT id, idempotent_id FROM audit_trail WHERE op='u' AND process='"+replayName+"' ORDER BY seq", func(scan func(...any) error) error {
		call++
		a := &history.Action{At: st.startedAt, Call: call, Action: history.ActionRequeue}
		if err := scan(&a.ID, &a.Key); err != nil {
			return err
		}
		w.add(a)
		return nil
	})
}
