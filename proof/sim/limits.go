package sim

import (
	"context"
	"math/rand/v2"
	"reflect"
	"slices"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/processlog"
)

const limitStream = 4113

const limitChangeStream = 4114

const limitPurgeStream = 4116

const burstStream = 4118

// A seed in which the database's clock jumps gets no limits, because after a jump back a limit grants no starts until
// the clock has caught up.
func (w *world) drawLimits() {
	rng := rand.New(rand.NewPCG(w.seed, limitStream))
	if rng.IntN(4) > 0 || w.plan.active[storeJump] {
		return
	}
	limit := compensator.Limit{}
	if rng.IntN(4) > 0 {
		limit.Rate, limit.Burst = compensator.Rate{Starts: 1, Per: time.Duration(5+rng.IntN(100)) * time.Millisecond}, 1+rng.IntN(4)
	}
	if limit.Rate.Starts == 0 || rng.IntN(2) == 0 {
		limit.Concurrent = 1 + rng.IntN(3)
	}
	if rng.IntN(2) == 0 {
		limit.Key = func(e *compensator.Entry) string {
			key := string(e.IdempotencyKey)
			return string("abc"[int(key[len(key)-1])%3])
		}
	}
	if limit.Burst > 0 && rand.New(rand.NewPCG(w.seed, burstStream)).IntN(2) == 0 {
		limit.Burst, limit.Concurrent = 8*limit.Burst, 0
		limit.Key = func(*compensator.Entry) string { return "a" }
	}
	w.apart.limits = make(map[string]compensator.Limit)
	for _, kind := range []string{plainType, txType, undoType, undoTxType} {
		if rng.IntN(2) == 0 {
			of := limit
			if rng.IntN(2) == 0 {
				of.Of = "shared"
			}
			w.apart.limits[kind] = of
		}
	}
}

type grant struct {
	at      time.Time
	starts  int
	granted int64 // processlog.Room.Granted after the claim
}

type limitKey struct{ limit, key string }

// checkGrants asserts G41 (limits) right after a claim: in no period are there more starts than rate and burst allow,
// and no more than Concurrent entries hold a lease.
func (o *oracle) checkGrants(limit *processlog.StartLimit, found processlog.Claimed, err error) {
	if err != nil {
		return
	}
	if found.InForce != nil {
		changed := *limit
		changed.Set(*found.InForce)
		limit = &changed
	}
	starts := make(map[string]int)
	for i := range found.Mine {
		row := found.Mine[i]
		row.DeliveryCount--
		if key, limited, _ := limit.Of(&row); limited {
			starts[key]++
			if limit.Concurrent == 0 {
				continue
			}
			o.readCounts(func(o *oracle) {
				if o.permits == nil {
					o.permits = make(map[limitKey]map[processlog.Held]bool)
				}
				at := limitKey{limit.Name, key}
				if o.permits[at] == nil {
					o.permits[at] = make(map[processlog.Held]bool)
				}
				o.permits[at][processlog.Held{ID: row.ID, Version: row.Version}] = true
			})
		}
	}
	o.readCounts(func(o *oracle) { o.sights[sawLimited] += len(found.Limited) })
	for key := range starts {
		starts[key] += found.Rooms[key].Advance
		o.readCounts(func(o *oracle) { o.sights[sawAdvances] += found.Rooms[key].Advance })
	}
	o.countStarts(limit, starts, found.Rooms)
	o.countPermits(limit, starts)
}

// noteReturnedStarts subtracts returned starts from the grant of the claim that took them. If a later claim was granted
// starts of the same key, the database must ignore the returned starts, and noteReturnedStarts ignores them too.
func (o *oracle) noteReturnedStarts(limit *processlog.StartLimit, unused map[string]processlog.Unused, err error) {
	if err != nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for key, u := range unused {
		grants := o.grants[limitKey{limit.Name, key}]
		if last := len(grants) - 1; last >= 0 && grants[last].granted == u.Granted {
			if grants[last].starts -= u.Starts; grants[last].starts < 0 {
				o.failLocked("G41: limit %q, key %q: more starts were returned than its last claim was granted", limit.Name, key)
			}
		}
	}
}

// noteLimitChange notes that a person has changed a limit. From now on, the oracle checks only periods that begin after
// the change.
func (o *oracle) noteLimitChange(limit processlog.StoredLimit) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sights[sawLimitChanged]++
	for at := range o.grants {
		if at.limit == limit.Name {
			delete(o.grants, at)
		}
	}
}

func (w *world) changeLimit() {
	rng := rand.New(rand.NewPCG(w.seed, limitChangeStream+1))
	time.Sleep(time.Duration(rng.Int64N(int64(w.plan.chaos))))
	values := processlog.LimitValues{Interval: time.Duration(5+rng.IntN(200)) * time.Millisecond, Burst: 1 + rng.IntN(6), Concurrent: 1 + rng.IntN(4)}
	var name string
	for _, values := range []processlog.LimitValues{values, {}} {
		w.throughAdmin(func(ctx context.Context, d *admin.Admin, who admin.Actor) bool {
			limits, err := d.Limits(ctx, who)
			if err != nil || len(limits) == 0 {
				return err == nil
			}
			// The list is sorted, and a limit may have been added before the changed one.
			i := max(0, slices.IndexFunc(limits, func(l admin.Limit) bool { return l.Name == name }))
			name = limits[i].Name
			return d.ChangeLimit(ctx, who, limits[i], values, admin.Why{Reason: "look"}) == nil
		})
		w.await(2*w.plan.chaos, w.healed.Load)
	}
}

// The library waits until a key was idle for a day, but G41 (limits) must hold without this wait.
func (w *world) purgeLimitKeys() {
	rng := rand.New(rand.NewPCG(w.seed, limitPurgeStream))
	for time.Sleep(time.Duration(rng.Int64N(int64(time.Second)))); !w.healed.Load() && !w.oracle.failed.Load(); time.Sleep(time.Duration(rng.Int64N(int64(time.Second)))) {
		if n := w.alive(0); n != nil {
			ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
			_, _ = n.store.PurgeLimitKeys(ctx, time.Duration(1+rng.IntN(20))*time.Millisecond)
			cancel()
		}
	}
}

// If the database has gone back to an earlier state, it no longer knows the later grants. countStarts then begins to
// count again.
func (o *oracle) countStarts(limit *processlog.StartLimit, starts map[string]int, rooms map[string]processlog.Room) {
	if limit.Interval == 0 {
		return
	}
	now := o.w.store.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.grants == nil || o.forgot != len(o.losses) {
		o.grants, o.forgot = make(map[limitKey][]grant), len(o.losses)
	}
	for key, n := range starts {
		at := limitKey{limit.Name, key}
		o.grants[at] = append(o.grants[at], grant{now, n, rooms[key].Granted})
		sum := 0
		for i := len(o.grants[at]) - 1; i >= 0; i-- {
			g := o.grants[at][i]
			sum += g.starts
			if most := int(now.Sub(g.at)/limit.Interval) + limit.Burst; sum > most {
				o.failLocked("G41: the limit %q granted %d starts of key %q within %v, instead of %d", limit.Name, sum, key, now.Sub(g.at), most)
			}
		}
	}
}

// After a person has lowered Concurrent, more entries than allowed may still run.
func (o *oracle) countPermits(limit *processlog.StartLimit, starts map[string]int) {
	if limit.Concurrent == 0 {
		return
	}
	rows := o.w.store.Rows()
	o.mu.Lock()
	defer o.mu.Unlock()
	for at, holders := range o.permits {
		held := 0
		for i := range rows {
			if holders[processlog.Held{ID: rows[i].ID, Version: rows[i].Version}] && rows[i].LeaseLeft > 0 {
				held++
			}
		}
		if at.limit == limit.Name && starts[at.key] > 0 && held > limit.Concurrent {
			o.failLocked("G41: %d entries hold permits of the limit %q, key %q, instead of %d", held, limit.Name, at.key, limit.Concurrent)
		}
	}
}

// isFencedLocked reports whether a write took the permit away from an entry whose lease had ended. Such a write changes
// only the version of the entry and UpdatedAt.
func (o *oracle) isFencedLocked(l *rowHistory, before, after processlog.Row) bool {
	if o.w.apart.limits[l.kind].Concurrent == 0 && !o.w.apart.changesLimit || before.LeaseLeft > 0 || before.DeliveryCount == 0 {
		return false
	}
	same := before
	same.Version, same.UpdatedAt = after.Version, after.UpdatedAt
	if !reflect.DeepEqual(same, after) {
		return false
	}
	o.sights[sawFenced]++
	return true
}

func (w *world) drawLimitChange() {
	rng := rand.New(rand.NewPCG(w.seed, limitChangeStream))
	w.apart.changesLimit = w.apart.admin && len(w.apart.limits) > 0 && rng.IntN(2) == 0
}

func (w *world) limitTimeout() (longest time.Duration) {
	for _, limit := range w.apart.limits {
		each := time.Duration(0)
		if limit.Rate.Starts > 0 {
			each = 2 * limit.Rate.Per
		}
		if limit.Concurrent > 0 {
			each += w.plan.config.Lease + w.plan.types.Timeout
		}
		longest = max(longest, time.Duration(4*len(w.store.Rows()))*each)
	}
	return longest
}
