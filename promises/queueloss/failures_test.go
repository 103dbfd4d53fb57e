// This file lists failures that tests provoke. The comments of these tests name them. The page
// docs/internals/failures.md is generated from this list: go run ./internal/reference.
//
// # Redis
//
// F42: Redis loses everything, or goes back to an older state.
// Result: Each entry runs once and none early. The database is asked until the queue is whole again.
//
// F43: Redis is full, or evicts keys.
// Result: Entries that it holds are used. The rest comes from the database, and `Health` names the type.
// Action: Give it memory and `noeviction`.
//
// F44: Redis loses scripts, subscribers, its password, or one type's queue.
// Result: All of it comes back. The database is asked meanwhile. A loss during the rebuild may cost one lease.
//
// F45: Redis freezes, comes and goes, or is away at start.
// Result: Processes poll the database within seconds and stay ready. No handler waits for Redis.
//
// F46: A key holds somebody else's data, or one queue was renamed onto another.
// Result: The foreign key is left alone, and its type is polled. Renamed queues are rebuilt.
// Action: Remove the foreign key.
//
// F47: The client reaches a former primary, or may open few connections.
// Result: The first refused write gives the former primary up. Two connections are enough. `New` refuses one, and a
// Ring.
//
// F48: Redis is a cluster, or too old, or the prefix cannot work there.
// Result: Scripts touch only the keys they name, and entries survive a lost node. `New` refuses the rest.
//
// F49: Entries lie beyond the horizon, or exceed `QueueLimit`.
// Result: They stay out of Redis and are enqueued when they are near. None is late.
//
// F50: Scores are long numbers, or processes are idle.
// Result: Tokens are compared to the last digit. Idle processes ask no more than their rounds need.

package queueloss
