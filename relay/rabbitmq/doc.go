// Package rabbitmq relays entries to RabbitMQ, and relays the failed messages of a queue into the log.
//
// # From the log to a broker
//
// Record an entry with the work "publish this message" in the transaction that makes the message true. A [Publisher]
// sends the message as persistent and mandatory, with a publisher confirm. The entry succeeds only after the broker has
// confirmed that a queue holds the message. [Handle] and [HandleBatch] register such types. [Publisher.Handler] and
// [Publisher.BatchHandler] are the handlers themselves. A [Route] returns the destination of an entry.
//
// A message is built from its entry like this:
//
//   - The body is the content, unchanged.
//   - The message id is the idempotency key. A requeue does not change it.
//   - The type is the business type, and the timestamp is CreatedAt.
//   - The headers are those of the entry and those of the route. [KeyHeader] is Entry.CallKey.
//
// After a crash between the broker's confirm and the stored outcome the message is sent again with the same message id.
// Consumers use that id to recognise the repetition.
//
// # From a queue into the log
//
// The function [Consume] passes each message of a queue to a function and then acknowledges the message. If the
// function fails, the message becomes an entry, recorded under the business type, the queue's name and the message id,
// and is acknowledged. The log tries it again by the type's schedule, and the queue is never blocked.
//
// A redelivered message goes straight into the log. Its first consumer may have died, or its acknowledgement was lost.
// The quarantine of the log limits the damage of messages that kill processes. [DeliveryOf] decodes the message from an
// entry.
//
// The log refuses a message that is too large. The Consumer moves such a message to ConsumerConfig.RefusedQueue before
// it acknowledges the message. While the log is unavailable, the Consumer holds its messages and does not consume over
// a new connection.
//
// # What is not promised
//
//   - Messages may be lost if the queue's settings let the broker drop them. The README lists these settings.
//   - Messages may arrive in another order.
//   - A message may be delivered more than once. Consumers must check the message id.
//   - The function of a message may run more than once. If the connection breaks, the next run may start before the
//     last one has ended.
package rabbitmq
