// Package rabbitmq relays entries to RabbitMQ. It also relays failed messages of a queue into the log.
//
// # From the log to a broker
//
// In the transaction of a business change, record an entry whose content is the message about this change. A
// [Publisher] sends the message as persistent and mandatory, with a publisher confirm. The entry succeeds only after
// the broker has confirmed that a queue holds the message. [Handle] and [HandleBatch] register such types.
// [Publisher.Handler] and [Publisher.BatchHandler] return the handlers themselves. A [Route] returns the destination of
// an entry.
//
// A message is built from its entry like this:
//
//   - The body is the content, unchanged.
//   - The message id is the idempotency key. A requeue does not change it.
//   - The type is the business type, and the timestamp is CreatedAt.
//   - The headers are those of the entry and those of the route. [KeyHeader] is Entry.CallKey.
//
// If the process crashes between the broker's confirm and the stored outcome, the message is sent again with the same
// message id. Consumers use that id to recognise the repetition.
//
// # From a queue into the log
//
// The function [Consume] returns a [Consumer], which calls your function for each message of a queue and then
// acknowledges the message. If the function fails, the Consumer records the message as an entry before it acknowledges
// the message. The business type, the queue's name and the message id form the idempotency key. The log calls the
// function again by the type's schedule. So a failing message never blocks the queue.
//
// The Consumer records a redelivered message without calling the function first. [DeliveryOf] decodes the message from
// an entry.
//
// The log refuses a message that is too large. The Consumer moves such a message to ConsumerConfig.RefusedQueue before
// it acknowledges the message. As long as the log is unavailable, the Consumer keeps its messages unacknowledged and
// starts no new session.
//
// # Caveats
//
//   - Messages may be lost if the queue's settings let the broker drop them. The README lists these settings.
//   - Messages may arrive in another order.
//   - A message may be delivered more than once. Consumers must check the message id.
//   - The function of a message may run more than once. If the connection breaks, the next run may start before the
//     last one has ended.
package rabbitmq
