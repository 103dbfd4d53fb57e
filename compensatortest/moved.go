package compensatortest

import (
	"testing"

	"github.com/compensator-go/compensator/compensatortest/memory"
	"github.com/compensator-go/compensator/compensatortest/suite"
	"github.com/compensator-go/compensator/processlog"
)

// What the packages suite and memory hold, under the names that the root's tests ask for.
type (
	Harness          = suite.Harness
	MemoryStoreState = memory.StoreState
	MemoryQueueState = memory.QueueState
)

// ErrLockWait is memory.ErrLockWait.
var ErrLockWait = memory.ErrLockWait

// TestStore is suite.TestStore.
func TestStore(t *testing.T, open func(t *testing.T) Harness) { suite.TestStore(t, open) }

// TestQueue is suite.TestQueue.
func TestQueue(t *testing.T, open func(t *testing.T) processlog.Queue) { suite.TestQueue(t, open) }
