package intake

import (
	"testing"

	"github.com/compensator-go/compensator/internal/harness"
)

// TestUnfitSessionOfThePoolSetsNoMessageAside leaves one pooled session with a setting in which the library records nothing. The
// message must be recorded in another session.
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
				in := r.open(r.New(cfg), r.spec(), testConfig())
				r.Spoil(cfg.DB, spoil)
				r.add(1, 1) // A batch would be halved, and its halves would meet another session.
				r.start(in)
				r.Eventually(func() bool { return r.Count("common_process_log") == 1 }, "it is recorded")
				r.requireBooks(1, 0)
			})
		}
	}
}
