package verdict

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// storyLease and purgeAge are in ms.
const (
	storyLease = 2000
	purgeAge   = 5000
)

// The clock of the story moves only when the method wait is called.
type story struct {
	t       testing.TB
	run     history.Run
	now     int64 // in µs
	skew    int64 // of the database's clock, in µs
	records map[string][]history.Record
	order   []string
	seq     uint64
	count   uint64
	people  []*subject
	members []history.Member
}

func newStory(t testing.TB) *story {
	s := &story{t: t, now: 1_700_000_000_000_000, records: make(map[string][]history.Record)}
	s.run = history.Run{
		Seed: 7, HorizonMS: 60_000, PurgeAgeMS: purgeAge,
		Types: []history.Type{
			{Name: "ship", Handler: history.HandlerPlain, MaxAttempts: 3, LeaseMS: storyLease},
			{Name: "pay", Handler: history.HandlerTx, Compensation: history.CompensationTx, MaxAttempts: 2, MaxCompensateAttempts: 2, LeaseMS: storyLease},
			{Name: "close", Handler: history.HandlerPlain, Compensation: history.CompensationPlain, MaxAttempts: 2, MaxCompensateAttempts: 2, LeaseMS: storyLease},
			{Name: "mail", Handler: history.HandlerBatch, MaxAttempts: 3, LeaseMS: storyLease},
			{Name: "bomb", Handler: history.HandlerPlain, Compensation: history.CompensationPlain, CompensateCrashed: true, MaxAttempts: 3, MaxCompensateAttempts: 2, LeaseMS: storyLease},
			{Name: "truck", Handler: history.HandlerPlain, MaxAttempts: 3, LeaseMS: storyLease},
			{Name: "quote", Handler: history.HandlerPlain, MaxAttempts: 3, LeaseMS: storyLease, Returns: true},
			{Name: "book", Handler: history.HandlerTx, MaxAttempts: 3, LeaseMS: storyLease, Returns: true},
			{Name: "nobody", Handler: history.HandlerNone},
		},
	}
	for _, name := range []string{"driver", "producer", "app1", "app2"} {
		s.start(name, name)
	}
	return s
}

func (s *story) start(file, app string) {
	s.order = append(s.order, file)
	s.write(file, &history.Process{App: app, PID: len(s.order), At: s.now})
}

func (s *story) write(file string, r history.Record) { s.records[file] = append(s.records[file], r) }

func (s *story) wait(ms int64) { s.now += ms * 1000 }

func (s *story) dbNow() int64 { return s.now + s.skew }

func (s *story) dbMS() int64 { return s.dbNow() / 1000 }

func (s *story) next() uint64 { s.count++; return s.count }

type tx struct {
	s *story
	n uint64
}

func (s *story) begin() tx { return tx{s, s.next()} }

func (x tx) askCommit() { x.s.write("producer", &history.Commit{At: x.s.now, Tx: x.n}) }

func (x tx) answer(outcome string) {
	x.s.write("producer", &history.Committed{At: x.s.now, Tx: x.n, Outcome: outcome})
}

func (x tx) commit(outcome string) { x.askCommit(); x.answer(outcome) }

func (x tx) resolve(e *subject, id uint64, class string) {
	x.s.write("producer", &history.Resolved{At: x.s.now, Tx: x.n, Key: e.key, ID: id, Err: class})
}

func (x tx) rollback() { x.s.write("producer", &history.Rollback{At: x.s.now, Tx: x.n}) }

func (x tx) savepoint(name string) {
	x.s.write("producer", &history.Savepoint{At: x.s.now, Tx: x.n, Name: name})
}

func (x tx) rollbackTo(name string) {
	x.s.write("producer", &history.SavepointRollback{At: x.s.now, Tx: x.n, Name: name})
}

func (s *story) token() string { return fmt.Sprintf("%032x", s.next()) }

func (s *story) fault(kind, target string, ms int64, touches ...string) {
	n := s.next()
	s.write("driver", &history.Fault{At: s.now, N: n, Fault: kind, Target: target, Touches: touches})
	s.wait(ms)
	s.write("driver", &history.FaultEnd{At: s.now, N: n})
}

func (s *story) stall(app string, ms int64) {
	at := s.now
	s.wait(ms)
	s.write(app, &history.Stall{At: at, Until: s.now})
}

func (s *story) clock() {
	s.write("driver", &history.Clock{At: s.now, DBNow: s.dbNow(), AuditSeq: s.seq})
}

func (s *story) rest() {
	s.wait(1000)
	s.write("driver", &history.Mark{At: s.now, What: history.MarkQuiescent})
	for _, e := range s.people {
		if e.gone {
			continue
		}
		s.write("driver", &history.Row{ID: e.id, Key: e.key, Type: e.typ, DBNow: s.dbNow(), Image: e.row})
		if !terminal(e.row.State) {
			s.members = append(s.members, history.Member{Type: e.typ, ID: e.id, Score: float64(s.now/1000 + max(e.row.NextAt, e.row.LeaseUntil) - s.dbMS()), Now: s.now})
		}
	}
	for i := range s.members {
		s.write("driver", &s.members[i])
	}
}

func (s *story) buildLedger() (*Ledger, error) {
	b := newBuilder(s.order)
	for i, file := range s.order {
		records := s.records[file]
		if i == 0 {
			records = slices.Insert(slices.Clone(records), 1, history.Record(&s.run))
		}
		for n, r := range records {
			if err := b.add(Place{file: int32(i), line: int32(n + 1)}, r); err != nil {
				return nil, err
			}
		}
	}
	return &b.l, b.l.finish()
}

func (s *story) judge() *Verdict {
	s.t.Helper()
	l, err := s.buildLedger()
	require.NoError(s.t, err)
	return Judge(l)
}

func (s *story) violates(want ...string) *Verdict {
	s.t.Helper()
	v := s.judge()
	got := make(map[string]bool)
	var findings []string
	for _, c := range v.Checks {
		if c.Violations > 0 {
			got[c.Name] = true
			require.NotEmpty(s.t, c.Findings)
			for _, f := range c.Findings {
				findings = append(findings, c.Name+": "+f.What)
			}
		}
	}
	slices.Sort(want)
	require.Equal(s.t, want, slices.Sorted(maps.Keys(got)), "violated checks; findings: %q", findings)
	return v
}

func (s *story) holds() *Verdict {
	s.t.Helper()
	return s.violates()
}
