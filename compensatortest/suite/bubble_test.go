package suite

import (
	"context"
	"database/sql"
	"testing"
	"testing/synctest"
	"time"

	"github.com/compensator-go/compensator/compensatortest/memory"
	"github.com/compensator-go/compensator/processlog"
)

func TestMemoryStoreKeepsEveryPromiseInABubble(t *testing.T) {
	for _, promise := range everyStorePromise() {
		t.Run(promise.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				store := memory.NewStore()
				h := Harness{Store: store, Begin: store.Begin, Autocommit: autocommit{}, Crash: func(*testing.T) { store.Crash() }}
				promise.test(&storeTest{T: t, Harness: h, ctx: t.Context()})
			})
		})
	}
}

type autocommit struct{}

func (autocommit) ExecContext(context.Context, string, ...any) (sql.Result, error) { return nil, nil }

func (autocommit) QueryContext(context.Context, string, ...any) (*sql.Rows, error) { return nil, nil }

func TestMemoryQueueKeepsEveryPromiseInABubble(t *testing.T) {
	for _, promise := range queuePromises {
		t.Run(promise.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) { promise.test(newQueueTest(t, memoryQueue())) })
		})
	}
}

func memoryQueue() QueueHarness {
	shared := memory.NewQueue()
	return QueueHarness{
		Queue:   shared.Client(),
		Another: func(*testing.T) processlog.Queue { return shared.Client() },
		Lose:    func(*testing.T) { shared.Lose() },
	}
}

// The clock of a bubble starts at a whole millisecond, where a rounding fault would not show. So the test starts
// between two milliseconds.
func inBubble(t *testing.T, test func(*testing.T)) {
	synctest.Test(t, func(t *testing.T) {
		<-time.After(700 * time.Microsecond)
		test(t)
	})
}
