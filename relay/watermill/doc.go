// Package relay relays entries to any broker for which watermill has a publisher. It also relays failed messages of a
// watermill subscriber into the log.
//
// # From the log to a broker
//
// In the transaction of a business change, record an entry whose content is the message about this change. A
// [Publisher] passes the message to a message.Publisher. The entry succeeds only after Publish has returned nil.
// Publish must not return before the broker has the message: see [Publisher]. [Handle] and [HandleBatch] register such
// types. [Publisher.Handler] and [Publisher.BatchHandler] return the handlers themselves. A [Route] returns the
// destination of an entry.
//
// A message is built from its entry like this:
//
//   - The payload is the content, unchanged.
//   - The UUID is the idempotency key. A requeue does not change it.
//   - The metadata are the headers of the entry and the metadata of the route. [KeyMetadata] is Entry.CallKey,
//     [TypeMetadata] is the business type, and [CreatedMetadata] is CreatedAt.
//
// If the process crashes between the broker's confirmation and the stored outcome, the message is sent again with the
// same UUID. Consumers use the UUID to recognise the repetition.
//
// # From a topic into the log
//
// The function [Consume] returns a [Consumer] around your function. Pass [Consumer.Handle] to watermill's router as the
// handler. If your function fails, the Consumer records the message as an entry and then acknowledges it. The business
// type, the topic and the UUID form the idempotency key. The log calls the same function again by the type's schedule.
//
// # Caveats
//
//   - Messages may arrive in another order.
//   - A message may be delivered more than once. Consumers must check the UUID.
//   - The function of a message may run more than once, and the next run may start before the last one has ended.
//   - The settings of the publisher or the subscriber may lose messages.
package relay
