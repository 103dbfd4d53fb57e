package bench

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/redisqueue"
	"github.com/compensator-go/compensator/processlog"
)

const fairEach = 20

// fairLookAhead is how many due entries a process reads before it chooses which to claim.
const fairLookAhead = 5000

// fairTurns is a deficit round robin over the keys of due entries, in which each entry costs the same. The library has
// no fair turns.
type fairTurns struct {
	load func(ctx context.Context, ids []processlog.ID) ([]processlog.Row, error)
	mu   sync.Mutex     // guards the fields below
	now  int            // turn of the entry that was chosen last
	last map[string]int // the last turn of each key
}

func (f *fairTurns) sort(ctx context.Context, ids []processlog.ID) ([]fairEntry, error) {
	keys := make(map[processlog.ID]string, len(ids))
	for chunk := range slices.Chunk(ids, processlog.MaxRows) {
		rows, err := f.load(ctx, chunk)
		if err != nil {
			return nil, err
		}
		for i := range rows {
			keys[rows[i].ID] = rows[i].UserID
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last == nil {
		f.last = make(map[string]int)
	}
	entries := make([]fairEntry, len(ids))
	for i, id := range ids {
		turn := max(f.last[keys[id]], f.now) + 1
		f.last[keys[id]] = turn
		entries[i] = fairEntry{id, turn}
	}
	return entries, nil
}

type fairEntry struct {
	id   processlog.ID
	turn int
}

func (f *fairTurns) take(from *[]fairEntry, n int) (ids []processlog.ID) {
	slices.SortStableFunc(*from, func(a, b fairEntry) int { return cmp.Compare(a.turn, b.turn) })
	n = min(n, len(*from))
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range (*from)[:n] {
		ids = append(ids, e.id)
		f.now = e.turn
	}
	*from = (*from)[n:]
	return ids
}

// Each read begins at the earliest due entry, so entries of earlier reads come again and keep their turns.
type fairStore struct {
	processlog.Store
	turns *fairTurns
	mu    sync.Mutex // guards seen
	seen  map[processlog.ID]int
}

func (s *fairStore) Due(ctx context.Context, businessType string, limit int) ([]processlog.ID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, err := s.Store.Due(ctx, businessType, max(limit, fairLookAhead))
	if err != nil {
		return nil, err
	}
	var fresh []processlog.ID
	for _, id := range found {
		if s.seen[id] == 0 {
			fresh = append(fresh, id)
		}
	}
	entries, err := s.turns.sort(ctx, fresh)
	if err != nil {
		return nil, err
	}
	for _, id := range found {
		if turn := s.seen[id]; turn > 0 {
			entries = append(entries, fairEntry{id, turn})
		}
	}
	s.seen = make(map[processlog.ID]int, len(entries))
	for _, e := range entries {
		s.seen[e.id] = e.turn
	}
	return s.turns.take(&entries, limit), nil
}

type fairQueue struct {
	processlog.Queue
	turns   *fairTurns
	mu      sync.Mutex // guards the fields below
	leased  processlog.Leased
	waiting []fairEntry
}

func (q *fairQueue) Claim(ctx context.Context, businessType string, limit int, lease time.Duration) (processlog.Leased, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		leased, err := q.Queue.Claim(ctx, businessType, max(limit, fairLookAhead), lease)
		if err != nil {
			return leased, err
		}
		if q.waiting, err = q.turns.sort(ctx, leased.IDs); err != nil {
			return leased, err
		}
		q.leased = leased
	}
	leased := q.leased
	leased.IDs = q.turns.take(&q.waiting, limit)
	if len(q.waiting) > 0 {
		leased.Next = 0
	}
	return leased, nil
}

func (a *arena) fair(on bool) func(cfg *compensator.Config) {
	return func(cfg *compensator.Config) {
		store, err := compensator.OpenStore(a.Context(), cfg.DB, "common_process_log")
		a.must(err)
		var queue processlog.Queue
		if cfg.Redis != nil {
			queue, err = redisqueue.Open(cfg.Redis, "compensator")
			a.must(err)
		}
		if on {
			turns := &fairTurns{load: store.Load}
			store = &fairStore{Store: store, turns: turns}
			if queue != nil {
				queue = &fairQueue{Queue: queue, turns: turns}
			}
		}
		cfg.DB, cfg.Store, cfg.Redis, cfg.Queue = nil, store, nil, queue
	}
}

func TestFair(t *testing.T) {
	a := newArena(t)
	fmt.Print("\n| backlog | Redis | entries/s in due order | in fair turns | ratio |\n|---|---|---|---|---|\n")
	for pair := range *pairs {
		for _, redis := range []bool{true, false} {
			plain, fair := orderRun{Keys: 1000, Each: fairEach, Redis: redis, wrap: a.fair(false)}, orderRun{Keys: 1000, Each: fairEach, Redis: redis, wrap: a.fair(true)}
			if pair%2 == 0 {
				plain, fair = plain.run(a), fair.run(a)
			} else {
				fair, plain = fair.run(a), plain.run(a)
			}
			fmt.Printf("| 1,000 keys × %d | %v | %.0f | %.0f | %.2f |\n", fairEach, redis, plain.Rate, fair.Rate, fair.Rate/plain.Rate)
		}
	}
}
