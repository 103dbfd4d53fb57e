package compensatortest

import "github.com/compensator-go/compensator/compensatortest/memory"

// MemoryStore stands in for the database, as Config.Store.
type MemoryStore = memory.Store

// MemoryTx is a transaction of a MemoryStore: what its BeginTx returns, and Record takes.
type MemoryTx = memory.Tx

// MemoryQueue stands in for the Redis that several Compensators share: each has a Client of it as its Config.Queue.
type MemoryQueue = memory.Queue

// NewMemoryStore returns an empty store.
func NewMemoryStore() *MemoryStore { return memory.NewStore() }

// NewMemoryQueue returns an empty queue.
func NewMemoryQueue() *MemoryQueue { return memory.NewQueue() }
