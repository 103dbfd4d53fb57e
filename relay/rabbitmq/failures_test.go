// This file lists failures that tests provoke. The comments of these tests name them. The page
// docs/internals/failures.md is generated from this list: go run ./internal/reference.
//
// # Messages to and from a broker
//
// F87: The broker is killed, unreachable or silent, its queue is full, or confirms are lost.
// Result: Every message arrives, perhaps twice under one id. Entries wait at no cost, unless `CountUnavailable` is
// set.
// Action: Make consumers idempotent by message id.
//
// F88: The broker will never take a message.
// Result: The entry is dead, with exchange and key in its reason. Its batch goes on.
// Action: Correct the route and requeue.
//
// F89: A message comes again, or its id is long or ambiguous.
// Result: It has one entry if it has an id. Long ids are hashed.
// Action: Give messages ids.
//
// F90: A consumer's function fails, or cannot read a message.
// Result: The message becomes an entry byte for byte. Unreadable ones wait for a person and hold up nobody.
// Action: Requeue after the correction.
//
// F91: The consumer loses its connection, queue or subscription.
// Result: It comes back, and the function's context ends, because its message is lost.
//
// F92: The log is away, or refuses a message.
// Result: Messages are held, and no delivery limit is used up. A refused message goes to the queue of refused
// messages, or is held.
// Action: Name `RefusedQueue` or `Refused`.
//
// F93: The consumer stops, or its handler returns messages.
// Result: Begun messages are finished. Returned messages are published before theirs is done.
//
// F94: A message that a service handles itself comes several times at once.
// Result: `Once` answers true in one transaction that commits. An entry that ended otherwise gives `*StateError`.
// Action: Roll back on an error of `Once`.
//
// F95: The queue is a stream, or an exchange routes later.
// Result: A stream is refused. With `NotMandatory` the confirm is enough. The plugin x-delayed-message was tried once,
// on RabbitMQ 3.10, and is in no test.
// Action: Use package intake for Redis Streams.

package rabbitmq
