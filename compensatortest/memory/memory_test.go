package memory_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/compensator-go/compensator/compensatortest/memory"
	"github.com/compensator-go/compensator/compensatortest/suite"
	"github.com/compensator-go/compensator/processlog"
)

func TestMemoryStoreKeepsEveryPromise(t *testing.T) {
	suite.TestStore(t, func(t *testing.T) suite.Harness {
		t.Parallel()
		store := memory.NewStore()
		return suite.Harness{Store: store, Begin: store.Begin, Autocommit: autocommit{}, Crash: func(*testing.T) { store.Crash() }}
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

// autocommit is a handle that is no transaction.
type autocommit struct{}

func (autocommit) ExecContext(context.Context, string, ...any) (sql.Result, error) { return nil, nil }

func (autocommit) QueryContext(context.Context, string, ...any) (*sql.Rows, error) { return nil, nil }
