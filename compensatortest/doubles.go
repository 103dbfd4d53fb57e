package compensatortest

import "github.com/compensator-go/compensator/compensatortest/memory"

// MemoryStore stands in for the database, as Config.Store; MemoryTx for a transaction on it, where a Tx is asked for;
// MemoryQueue for the Redis that several Compensators share, each with a Client of it as its Config.Queue.
type (
	MemoryStore = memory.Store
	MemoryTx    = memory.Tx
	MemoryQueue = memory.Queue
)

// NewMemoryStore returns an empty store.
func NewMemoryStore() *MemoryStore { return memory.NewStore() }

// NewMemoryQueue returns an empty queue.
func NewMemoryQueue() *MemoryQueue { return memory.NewQueue() }
