// Package relay carries entries to any broker that watermill has a publisher for, and a subscriber's failed messages
// into the log.
//
// # From the log to a broker
//
// An entry whose work is "publish this message" is recorded in the transaction that makes the message true. A
// [Publisher] gives it to a message.Publisher: the entry has succeeded when Publish has returned nil, and not before.
// So Publish must not return before the broker has the message: see Publisher. [Handle] and [HandleBatch] register
// such types; [Publisher.Handler] and [Publisher.BatchHandler] are the handlers themselves. A [Route] says where an
// entry goes.
//
// A message has the entry's content as its payload, untouched; the entry's idempotency key as its UUID, which a requeue
// does not change; as metadata the headers that travelled with the entry, those of the route, and in [KeyMetadata],
// [TypeMetadata] and [CreatedMetadata] Entry.Key, business type and CreatedAt. A crash between the broker's word and the
// stored outcome sends the message again: with the same UUID, by which a consumer knows it.
//
// # From a topic into the log
//
// [Consume] makes of a handler function one for watermill's router, [Consumer.Handle]. A message whose function fails
// becomes an entry, recorded under business type, topic and UUID, and is then acknowledged: the log calls the same
// function again by the type's schedule, and the topic is never blocked. [DeliveryOf] reads the message back from an
// entry.
//
// # What is not promised
//
// Order. That a message is delivered once: consumers go by the UUID. That the function of a message runs once, or only
// after its last run has ended. What the publisher's or subscriber's own settings give away.
package relay
