// This file lists failures that tests provoke. The comments of these tests name them. The page
// docs/internals/failures.md is generated from this list: go run ./internal/reference.
//
// # Messages to and from a broker
//
// F87: The broker is killed, unreachable or silent, its queue is full, or confirms are lost.
// Result: Every message arrives, perhaps twice with one id. No attempt counts, unless `CountUnavailable` is set.
// Action: Make consumers idempotent by message id.
//
// F88: The broker will never take a message.
// Result: The entry is dead, and its reason names exchange and key. Other messages are sent.
// Action: Correct the route, and requeue the entry.
//
// F89: A message comes again, or its id is long or ambiguous.
// Result: A message with an id has one entry. Long ids are hashed.
// Action: Give messages ids.
//
// F90: A consumer's function fails, or a consumer cannot read a message.
// Result: The message becomes an entry, byte for byte. An unreadable message waits for a person.
// Action: Correct the cause, and requeue the entry.
//
// F91: The consumer loses its connection, queue or subscription.
// Result: The consumer connects again. The function's context ends, because the message comes again.
//
// F92: The log does not answer, or refuses a message.
// Result: Messages are held, and no delivery counts towards the limit. A refused message goes to the queue of refused
// messages, or is held.
// Action: Set `RefusedQueue` or `Refused`.
//
// F93: The consumer stops, or a handler of watermill returns messages to publish.
// Result: The consumer finishes the messages that it has begun. The messages that a handler returns are published
// before the incoming message is done.
//
// F94: Several copies of a message come at once, and the service handles the message itself, with `Once`.
// Result: `Once` returns true in only one transaction that commits. If the message's entry has ended without success,
// `Once` returns a `*StateError`.
// Action: Roll back on an error of `Once`.
//
// F95: The queue is a stream, or an exchange routes a message only after the exchange has confirmed the message.
// Result: The consumer refuses a stream. With `NotMandatory`, an entry succeeds when the exchange has confirmed the
// message. No test runs with the plugin x-delayed-message.
// Action: Use package intake for Redis Streams.

package rabbitmq
