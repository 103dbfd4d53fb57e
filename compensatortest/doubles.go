package compensatortest

import "github.com/compensator-go/compensator/compensatortest/memory"

// MemoryStore replaces the database in a test. Set it as Config.Store. Nothing survives the process. Its methods may be
// called concurrently.
type MemoryStore = memory.Store

// MemoryTx is a transaction of a MemoryStore. MemoryStore.BeginTx returns it, and Record takes it.
type MemoryTx = memory.Tx

// MemoryQueue replaces a Redis that several Compensators share. Set a different Client of it as the Config.Queue of
// each Compensator. Nothing survives the process. Its methods may be called concurrently.
type MemoryQueue = memory.Queue

// NewMemoryStore returns an empty store.
func NewMemoryStore() *MemoryStore { return memory.NewStore() }

// NewMemoryQueue returns an empty queue.
func NewMemoryQueue() *MemoryQueue { return memory.NewQueue() }
