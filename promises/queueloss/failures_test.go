// This file lists failures that tests provoke. The comments of these tests name them. The page
// docs/internals/failures.md is generated from this list: go run ./internal/reference.
//
// # Redis
//
// F42: Redis loses everything, or goes back to an older state.
// Result: Each entry runs once, and none early. Processes also ask the database meanwhile.
//
// F43: Redis is full, or evicts keys.
// Result: Entries that Redis lacks come from the database, and `Health` names the type.
// Action: Give Redis memory, and set `noeviction`.
//
// F44: Redis loses scripts, subscribers, its password, or one type's queue.
// Result: The library restores them. A second loss during a rebuild may delay entries by one lease.
//
// F45: Redis freezes, comes and goes, or is away at start.
// Result: Processes poll the database within seconds, and stay ready.
//
// F46: A key holds somebody else's data, or one queue was renamed onto another.
// Result: The library leaves the foreign key, and polls the database for its type. A renamed queue is rebuilt.
// Action: Remove the foreign key.
//
// F47: The client reaches a former primary, or may open only few connections.
// Result: The client leaves a former primary at its first refused write. `New` refuses a client with one connection,
// and a Ring.
//
// F48: Redis is a cluster, or too old, or the prefix cannot work there.
// Result: Entries survive the loss of a node. `New` refuses an old Redis and a bad prefix.
//
// F49: Entries are due after the horizon, or there are more than `QueueLimit`.
// Result: Redis gets these entries before they are due, so none is late.
//
// F50: A lease token in Redis has more digits than Lua prints of a number. Or a process is idle.
// Result: Redis compares all digits of two tokens. An idle process sends only the commands of its rounds.

package queueloss
