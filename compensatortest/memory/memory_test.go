package memory_test

import (
	"context"
	"database/sql"
	"errors"
	"path"
	"slices"
	"testing"

	"github.com/compensator-go/compensator/compensatortest/memory"
	"github.com/compensator-go/compensator/compensatortest/suite"
	"github.com/compensator-go/compensator/processlog"
)

// slowPromises are the tests of package suite that wait for seconds. Another test runs them in a bubble of
// testing/synctest, where waiting takes no real time.
var slowPromises = []string{"ResolveGivesUpOnALongTransaction", "SettleIsNotHeldUpByALockedRow", "ChangeOfALockedRowIsBusy", "ReleaseFreesTheOthersWhereOneIsLocked"}

// This test uses the real clock. In a bubble of testing/synctest the clock does not advance while a call runs.
func TestMemoryStoreKeepsEveryPromise(t *testing.T) {
	suite.TestStore(t, func(t *testing.T) suite.Harness {
		if slices.Contains(slowPromises, path.Base(t.Name())) {
			t.Skip("this promise waits for seconds, so package suite tests it in a bubble")
		}
		t.Parallel()
		store := memory.NewStore()
		return suite.Harness{Store: store, Begin: store.Begin, Autocommit: autocommit{}, Crash: func(*testing.T) { store.Crash() }, Refuse: func(_ *testing.T, ids []processlog.ID) func() {
			store.Refuse(errors.New("no"), ids...)
			return func() { store.Refuse(nil, ids...) }
		}}
	})
}

func TestMemoryQueueKeepsTheQueuesPromises(t *testing.T) {
	suite.TestQueue(t, func(*testing.T) suite.QueueHarness {
		shared := memory.NewQueue()
		return suite.QueueHarness{
			Queue:   shared.Client(),
			Another: func(*testing.T) processlog.Queue { return shared.Client() },
			Lose:    func(*testing.T) { shared.Lose() },
		}
	})
}

type autocommit struct{}

func (autocommit) ExecContext(context.Context, string, ...any) (sql.Result, error) { return nil, nil }

func (autocommit) QueryContext(context.Context, string, ...any) (*sql.Rows, error) { return nil, nil }
