package intake

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
)

// Two sessions are unfit. The Intake meets the first unfit session when it tries an entry before its first read, and
// then closes this session. So the test makes a second session unfit in Config.Entry, which the Intake calls just
// before it records the message.
// Failure: F33
func TestUnfitSessionOfThePoolSetsNoMessageAside(t *testing.T) {
	t.Parallel()
	for pool, open := range harness.Pools {
		for name, spoil := range harness.UnfitSessions(t) {
			t.Run(name+", "+pool, func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				cfg := r.QuickConfig()
				cfg.DB = r.Open(open(r.DSN))
				reads := testConfig()
				var once sync.Once
				reads.Entry = func(m *Message) (compensator.NewEntry, error) {
					once.Do(func() {
						_, err := cfg.DB.Exec(spoil) // The pool hands this session out again first, because it was used last.
						assert.NoError(t, err)
					})
					return decode(m)
				}
				in := r.open(r.New(cfg), r.spec(), reads)
				// Before its first read, the Intake tries an entry in this session.
				r.Spoil(cfg.DB, spoil)
				// Add only one message. The Intake would halve a larger batch and record the halves in other sessions.
				r.add(1, 1)
				r.start(in)
				r.Eventually(func() bool { return r.Count("common_process_log") == 1 }, "it is recorded")
				r.requireBooks(1, 0)
			})
		}
	}
}
